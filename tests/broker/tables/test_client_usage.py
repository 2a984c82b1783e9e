"""Client usage: what subscriptions count as, and the first limit that a client would exceed."""

from __future__ import annotations

from typing import Any, cast

import pytest

from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.broker.tables.client_usage import (
    CHARACTERS_PER_UNIT,
    CLIENT_ID_CHARACTERS_MAX,
    GROUP_CHARACTERS_MAX,
    TAGS_PER_UNIT,
    ClientUsage,
    check_names,
    subscription_weight,
)
from thermocline.remoting.bodies import SubscriptionData
from thermocline.remoting.connections import Connection, LimitCounts
from thermocline.remoting.errors import BrokerBusyError, InvalidParameterError


class Peer:
    """What a tally looks at."""

    def __init__(self, host: str, port: int) -> None:
        self.remote_host = (host, port)
        self.remote_address = f"{host}:{port}"


def peer(host: str, port: int = 1) -> Connection:
    return cast("Connection", Peer(host, port))


def subscription(topic: str = "T", text: str = "*", *, tags: int = 0, codes: int = 0) -> SubscriptionData:
    tags_set = [f"{number:x}" for number in range(tags)]
    return SubscriptionData(topic=topic, sub_string=text, tags_set=tags_set, code_set=list(range(codes)))


@pytest.mark.parametrize(
    ("subscriptions", "weight"),
    [
        ([], 0),
        ([subscription(), subscription()], 2),
        ([subscription("T", "x" * (CHARACTERS_PER_UNIT - 2))], 1),
        ([subscription("T", "x" * (CHARACTERS_PER_UNIT - 1))], 2),
        ([subscription("T" * CHARACTERS_PER_UNIT, "x" * CHARACTERS_PER_UNIT)], 3),
        ([subscription("T", "x" * (CHARACTERS_PER_UNIT - 2), tags=1)], 2),
        ([subscription(tags=TAGS_PER_UNIT - 1)], 1),
        ([subscription(tags=TAGS_PER_UNIT)], 2),
        ([subscription(tags=TAGS_PER_UNIT // 2, codes=TAGS_PER_UNIT // 2)], 2),
    ],
)
def test_units(subscriptions: list[SubscriptionData], weight: int) -> None:
    assert subscription_weight(subscriptions) == weight


def test_names_have_lengths() -> None:
    check_names("g" * GROUP_CHARACTERS_MAX, "c" * CLIENT_ID_CHARACTERS_MAX)
    for group, client in (("g" * (GROUP_CHARACTERS_MAX + 1), "c"), ("g", "c" * (CLIENT_ID_CHARACTERS_MAX + 1))):
        with pytest.raises(InvalidParameterError):
            check_names(group, client)


LIMITS: dict[str, Any] = {
    "connection_groups_max": 2,
    "address_groups_max": 3,
    "groups_joined_max": 5,
    "connection_subscriptions_max": 20,
    "address_subscriptions_max": 30,
    "subscriptions_max": 50,
}
CONNECTION, ADDRESS, TOTAL = "clientGroupsPerConnectionMax", "clientGroupsPerAddressMax", "clientGroupsMax"


class Usage:
    def __init__(self) -> None:
        self.counts = LimitCounts()
        config = BrokerConfig(**LIMITS)
        self.usage = ClientUsage(config=lambda: config, limits=self.counts)

    def refusal(self, connection: Connection, *, groups: int = 0, subscriptions: int = 0) -> str | None:
        """The limit by which a client is refused."""
        before, text = dict(self.counts.totals), ""
        try:
            self.usage.check(connection, group="G", groups=groups, subscriptions=subscriptions)
        except BrokerBusyError as error:
            text = str(error)
        names = [name for name, count in self.counts.totals.items() if count != before.get(name, 0)]
        assert [f"{name} is reached" in text for name in names] == [True] * bool(text)
        return names[0] if names else None


@pytest.mark.parametrize("kind", ["groups", "subscriptions"])
def test_of_a_connection_an_address_and_in_all(kind: str) -> None:
    usage, unit = Usage(), 1 if kind == "groups" else 10
    names = [name.replace("Groups", kind.title()) for name in (CONNECTION, ADDRESS, TOTAL)]
    tally = getattr(usage.usage, kind)
    one, other = peer("10.0.0.1", 1), peer("10.0.0.1", 2)
    assert usage.refusal(one, **{kind: 2 * unit}) is None
    assert usage.refusal(one, **{kind: 2 * unit + 1}) == names[0]
    tally.add(one, 2 * unit)
    assert usage.refusal(one, **{kind: 1}) == names[0]
    assert usage.refusal(other, **{kind: unit}) is None
    assert usage.refusal(other, **{kind: unit + 1}) == names[1]
    far = peer("10.0.0.2")
    tally.add(far, 2 * unit)
    assert usage.refusal(peer("10.0.0.3"), **{kind: unit}) is None
    assert usage.refusal(peer("10.0.0.3"), **{kind: unit + 1}) == names[2]
    assert usage.refusal(one, **{kind: 0}) is None
    assert usage.refusal(one, **{kind: -1}) is None, "a client may always give up some"
    tally.add(one, -2 * unit)
    assert usage.refusal(one, **{kind: 2 * unit}) is None
    tally.add(far, -2 * unit)
    assert (tally.total, tally.by_connection, tally.by_address) == (0, {}, {})
    tally.add(far, 0)
    assert tally.by_connection == {}


def test_groups_are_refused_before_subscriptions_which_count_too() -> None:
    usage, one = Usage(), peer("10.0.0.1")
    assert usage.refusal(one, groups=3, subscriptions=99) == CONNECTION
    assert usage.refusal(one, groups=2, subscriptions=21) == CONNECTION.replace("Groups", "Subscriptions")
    assert usage.refusal(one, groups=0, subscriptions=21) == CONNECTION.replace("Groups", "Subscriptions")
    assert usage.refusal(one, groups=2, subscriptions=-5) is None
