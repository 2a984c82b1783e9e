"""Client usage: what connected clients make the client registry remember, by connection, by address and in all.

    groups          memberships: a producer or consumer group that a connection has joined
    subscriptions   those of consumer groups, counted at the member whose heartbeat brought them last

Each membership remembers one client id, so client ids are bounded with the groups. A long subscription counts as
several (`subscription_weight`), so that the bound is one on memory.
Owner: the hot process's event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from thermocline.broker.settings import BrokerConfig
from thermocline.remoting.bodies import SubscriptionData
from thermocline.remoting.connections import Connection, LimitCounts, client_address
from thermocline.remoting.errors import BrokerBusyError, InvalidParameterError

Key = TypeVar("Key")

GROUP_CHARACTERS_MAX = 255
"""As official clients check it."""
CLIENT_ID_CHARACTERS_MAX = 1_024
CHARACTERS_PER_UNIT = 256
TAGS_PER_UNIT = 8


def subscription_weight(subscriptions: Iterable[SubscriptionData]) -> int:
    """How many units they count as: one each, and one more for each 256 characters or 8 tags."""
    return sum(
        1
        + (len(each.topic) + len(each.sub_string) + sum(map(len, each.tags_set))) // CHARACTERS_PER_UNIT
        + (len(each.tags_set) + len(each.code_set)) // TAGS_PER_UNIT
        for each in subscriptions
    )


def check_names(group: str, client_id: str) -> None:
    """Pass names that are short enough to be remembered.

    Raises:
        InvalidParameterError: One is too long.
    """
    if len(group) > GROUP_CHARACTERS_MAX:
        raise InvalidParameterError("the group's name is too long", characters=len(group), most=GROUP_CHARACTERS_MAX)
    if len(client_id) > CLIENT_ID_CHARACTERS_MAX:
        raise InvalidParameterError(
            "the client id is too long", characters=len(client_id), most=CLIENT_ID_CHARACTERS_MAX
        )


class _Tally:
    """A sum, and its parts by connection and by address; parts of 0 are not kept."""

    __slots__ = ("by_address", "by_connection", "total")

    def __init__(self) -> None:
        self.total = 0
        self.by_connection: dict[Connection, int] = {}
        self.by_address: dict[str, int] = {}

    def add(self, connection: Connection, count: int) -> None:
        if count == 0:
            return
        self.total += count
        _add(self.by_connection, connection, count)
        _add(self.by_address, client_address(connection.remote_host[0]), count)

    def refusal(self, connection: Connection, count: int, limits: tuple[tuple[str, int], ...]) -> str | None:
        """The name of the limit that `count` more would exceed; `limits`: of a connection, an address, and all."""
        present = (
            self.by_connection.get(connection, 0),
            self.by_address.get(client_address(connection.remote_host[0]), 0),
            self.total,
        )
        return next((name for held, (name, most) in zip(present, limits, strict=True) if held + count > most), None)


class ClientUsage:
    """See the module's header."""

    def __init__(self, *, config: Callable[[], BrokerConfig], limits: LimitCounts) -> None:
        """`limits`: where refusals are counted."""
        self._config = config
        self._limits = limits
        self.groups = _Tally()
        self.subscriptions = _Tally()

    def check(self, connection: Connection, *, group: str, groups: int, subscriptions: int) -> None:
        """Pass when a connection may join so many groups more, with so many units of subscriptions more.

        Raises:
            BrokerBusyError: A limit would be exceeded.
        """
        if groups <= 0 and subscriptions <= 0:
            return
        config = self._config()
        limit = None
        if groups > 0:
            limit = self.groups.refusal(
                connection,
                groups,
                (
                    ("clientGroupsPerConnectionMax", config.connection_groups_max),
                    ("clientGroupsPerAddressMax", config.address_groups_max),
                    ("clientGroupsMax", config.groups_joined_max),
                ),
            )
        if limit is None and subscriptions > 0:
            limit = self.subscriptions.refusal(
                connection,
                subscriptions,
                (
                    ("clientSubscriptionsPerConnectionMax", config.connection_subscriptions_max),
                    ("clientSubscriptionsPerAddressMax", config.address_subscriptions_max),
                    ("clientSubscriptionsMax", config.subscriptions_max),
                ),
            )
        if limit is not None:
            self._limits.refused(
                limit, address=connection.remote_address, detail=f"group not joined, group={group[:255]}"
            )
            raise BrokerBusyError(f"the client may not join the group now, {limit} is reached", group=group)


def _add(table: dict[Key, int], key: Key, count: int) -> None:
    value = table.get(key, 0) + count
    assert value >= 0
    if value:
        table[key] = value
    else:
        table.pop(key, None)
