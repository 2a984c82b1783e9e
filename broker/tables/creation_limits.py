"""Creation limits: how many topics, or groups, clients may make by their first use.

    allows(address, name, present) -> whether one more may be made now, for this client

Three limits, each a setting: of one client address in a minute, of all addresses in a minute, and the number that are
present altogether. Minutes are those of the clock, so a burst at the turn of a minute may take two shares. What the
broker makes for itself has no address and is not limited; what operators make does not come here.
Owner: the hot process's event loop.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from thermocline.broker.settings import BrokerConfig
from thermocline.remoting.connections import LimitCounts, client_address
from thermocline.remoting.socket_address import UNIX_PEER, parse_address

MINUTE_MS = 60_000


class CreationBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The names of three settings, and their values now."""

    noun: str
    address_limit: str
    minute_limit: str
    total_limit: str
    values: Callable[[BrokerConfig], tuple[int, int, int]]
    """Of an address in a minute, of all in a minute, and in all."""


TOPICS = CreationBounds(
    noun="topic",
    address_limit="autoCreateTopicsPerAddressMinuteMax",
    minute_limit="autoCreateTopicsPerMinuteMax",
    total_limit="autoCreateTopicsMax",
    values=lambda config: (config.address_auto_topics_max, config.minute_auto_topics_max, config.auto_topics_max),
)
POP_RETRY_TOPICS = CreationBounds(
    noun="retry topic",
    address_limit="autoCreateTopicsPerAddressMinuteMax",
    minute_limit="autoCreateTopicsPerMinuteMax",
    total_limit="popRetryTopicsMax",
    values=lambda config: (config.address_auto_topics_max, config.minute_auto_topics_max, config.pop_topics_max),
)
"""A group's first POP of a topic counts as one: the messages that come back go to a topic of their own."""
GROUPS = CreationBounds(
    noun="group",
    address_limit="autoCreateGroupsPerAddressMinuteMax",
    minute_limit="autoCreateGroupsPerMinuteMax",
    total_limit="autoCreateGroupsMax",
    values=lambda config: (config.address_auto_groups_max, config.minute_auto_groups_max, config.auto_groups_max),
)


class CreationLimits:
    """The limits of one kind of name."""

    def __init__(
        self,
        bounds: CreationBounds,
        *,
        config: Callable[[], BrokerConfig],
        clock: Callable[[], int],
        limits: LimitCounts,
    ) -> None:
        """`clock`: ms, one that does not stand still: a minute would last for as long.

        `limits`: where refusals are counted.
        """
        self._bounds = bounds
        self._config = config
        self._clock = clock
        self._limits = limits
        self._minute = 0
        self._made = 0
        self._made_by: dict[str, int] = {}

    def allows(self, address: str, name: str, *, present: int) -> bool:
        """Count one more, made for a client with this address (host:port; empty: for the broker itself), if it may be.

        `present`: how many there are.
        """
        if not address or address == UNIX_PEER:
            return True
        minute = self._clock() // MINUTE_MS
        if minute != self._minute:
            self._minute, self._made = minute, 0
            self._made_by.clear()
        host = client_address(parse_address(address)[0])
        made_by_host = self._made_by.get(host, 0)
        bounds = self._bounds
        address_max, minute_max, total_max = bounds.values(self._config())
        if present >= total_max:
            return self._refuse(bounds.total_limit, address, name)
        if made_by_host >= address_max:
            return self._refuse(bounds.address_limit, address, name)
        if self._made >= minute_max:
            return self._refuse(bounds.minute_limit, address, name)
        self._made += 1
        self._made_by[host] = made_by_host + 1
        return True

    def _refuse(self, limit: str, address: str, name: str) -> bool:
        self._limits.refused(limit, address=address, detail=f"{self._bounds.noun} not created, name={name[:255]}")
        return False
