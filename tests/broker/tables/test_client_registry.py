"""Connected clients, subscriptions of groups, and the clients to notify when either changes."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from thermocline.broker.settings import BrokerConfig
from thermocline.broker.tables.client_registry import ClientRegistry
from thermocline.remoting.bodies import ConsumerData, SubscriptionData
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import LimitCounts
from thermocline.remoting.errors import BrokerBusyError
from thermocline.remoting.language_code import LanguageCode


class Peer:
    """Stands in for a connection: the registry only sends, closes and names it."""

    def __init__(self, name: str, host: str = "127.0.0.1") -> None:
        self.remote_address = name
        self.remote_host = host, 1
        self.sent: list[RemotingCommand] = []
        self.is_closed = False

    def send(self, command: RemotingCommand) -> None:
        self.sent.append(command)

    def close(self) -> None:
        self.is_closed = True


class Setup:
    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.soon: list[Callable[[], None]] = []
        self.is_notifying = True
        self.config = BrokerConfig()
        self.limits = LimitCounts()
        self.wanted: list[tuple[str, dict[str, int]]] = []
        self.registry = ClientRegistry(
            clock=lambda: self.now_ms,
            call_soon=self.soon.append,
            is_notifying=lambda: self.is_notifying,
            config=lambda: self.config,
            limits=self.limits,
        )
        self.registry.group_wants = self.note

    def note(self, group: str, subscriptions: Mapping[str, SubscriptionData]) -> None:
        self.wanted.append((group, {topic: one.sub_version for topic, one in subscriptions.items()}))

    def join(self, group: str, peer: Peer, *topics: str, version: int = 1, **more: Any) -> bool:
        data = ConsumerData(
            group_name=group,
            message_model=more.pop("model", "CLUSTERING"),
            subscription_data_set=[SubscriptionData(topic=topic, sub_version=version) for topic in topics],
        )
        connection: Any = peer
        return self.registry.register_consumer(
            data, connection, client_id=peer.remote_address, language=LanguageCode.JAVA, version=513, **more
        )

    def produce(self, group: str, peer: Peer, client_id: str | None = None, user: str = "") -> None:
        connection: Any = peer
        self.registry.register_producer(
            group,
            connection,
            client_id=client_id or peer.remote_address,
            language=LanguageCode.GO,
            version=513,
            user=user,
        )

    def leave(self, peer: Peer) -> None:
        connection: Any = peer
        self.registry.connection_closed(connection)

    def next_tick(self) -> None:
        calls, self.soon[:] = list(self.soon), []
        for call in calls:
            call()


@pytest.fixture
def setup() -> Setup:
    return Setup()


def notices(peer: Peer) -> list[str]:
    assert all(command.code == 40 and command.is_oneway for command in peer.sent)
    return [(command.ext_fields or {})["consumerGroup"] for command in peer.sent]


def test_members_are_notified_when_one_joins_or_leaves(setup: Setup) -> None:
    one, two = Peer("one"), Peer("two")
    assert setup.join("G", one, "T")
    assert not setup.join("G", one, "T")
    setup.next_tick()
    assert notices(one) == ["G"]
    setup.join("G", two, "T")
    setup.next_tick()
    assert notices(one) == ["G", "G"]
    assert notices(two) == ["G"]
    setup.leave(two)
    setup.next_tick()
    assert notices(one) == ["G"] * 3
    assert notices(two) == ["G"]
    group = setup.registry.consumer_group("G")
    assert group is not None
    assert group.client_ids() == ["one"]


def test_another_user_does_not_get_the_replies_for_a_client_id(setup: Setup) -> None:
    def replies_go_to() -> object:
        return setup.registry.producer_connection("id")

    first, again, stranger = Peer("first"), Peer("again"), Peer("stranger")
    setup.produce("P", first, "id", user="alice")
    setup.produce("P", stranger, "id", user="mallory")
    setup.produce("Q", stranger, "id", user="mallory")
    assert replies_go_to() is first
    setup.produce("P", again, "id", user="alice")  # the same client on a new connection
    assert replies_go_to() is again
    setup.leave(stranger)
    assert replies_go_to() is again
    setup.leave(again)
    assert replies_go_to() is None
    setup.produce("P", stranger, "id", user="mallory")
    assert replies_go_to() is stranger


def test_changes_of_one_tick_make_one_notice(setup: Setup) -> None:
    peers = [Peer(f"peer{number}") for number in range(50)]
    for peer in peers:
        setup.join("G", peer, "T")
    setup.next_tick()
    assert all(notices(peer) == ["G"] for peer in peers)


def test_members_are_notified_before_a_join_is_answered(setup: Setup) -> None:
    one = Peer("one")
    setup.join("G", one, "T")
    assert notices(one) == ["G"]
    setup.leave(one)
    setup.next_tick()
    assert notices(one) == ["G"]


def test_no_notification_in_a_broadcasting_group_or_when_switched_off(setup: Setup) -> None:
    one = Peer("one")
    setup.join("Broadcast", one, "T", model="BROADCASTING")
    setup.join("Quiet", one, "T", is_notified=False)
    setup.is_notifying = False
    setup.join("G", one, "T")
    setup.next_tick()
    assert one.sent == []


def test_subscriptions_follow_the_last_full_heartbeat(setup: Setup) -> None:
    one = Peer("one")
    setup.join("G", one, "T", "U")
    assert setup.registry.groups_of_topic("U") == {"G"}
    assert setup.join("G", one, "T", "V", version=2)
    assert setup.registry.subscription("G", "U") is None
    assert setup.registry.groups_of_topic("U") == set()
    found = setup.registry.subscription("G", "T")
    assert found is not None
    assert found.sub_version == 2
    assert not setup.join("G", one, "T", "V", version=1)
    found = setup.registry.subscription("G", "T")
    assert found is not None
    assert found.sub_version == 2  # an older version changes nothing


def test_a_heartbeat_without_subscriptions_keeps_the_earlier_ones(setup: Setup) -> None:
    one, two = Peer("one"), Peer("two")
    setup.join("G", one, "T")
    assert setup.join("G", two, with_subscriptions=False)
    assert setup.registry.subscription("G", "T") is not None


def test_a_group_without_members_is_offline(setup: Setup) -> None:
    one = Peer("one")
    setup.join("G", one, "T")
    connection: Any = one
    setup.registry.unregister_consumer("G", connection)
    setup.registry.unregister_consumer("G", connection)
    assert setup.registry.consumer_group("G") is None
    assert setup.registry.subscription("G", "T") is None
    assert setup.registry.groups_of_topic("T") == set()


def test_subscriptions_of_groups_are_updated(setup: Setup) -> None:
    one, two = Peer("one"), Peer("two")
    setup.join("G", one, "T")
    setup.join("G", two, "T", "U", version=2)
    setup.join("G", two, with_subscriptions=False)
    setup.leave(one)
    setup.leave(two)
    assert setup.wanted == [
        ("G", {"T": 1}),
        ("G", {"T": 2, "U": 2}),
        ("G", {"T": 2, "U": 2}),
        ("G", {}),
    ]


def test_a_client_is_found_by_its_id(setup: Setup) -> None:
    one = Peer("one")
    setup.join("G", one, "T")
    found = setup.registry.find_consumer("G", "one")
    assert found is not None
    assert found.connection is one  # type: ignore[comparison-overlap]
    assert setup.registry.find_consumer("G", "two") is None
    assert setup.registry.find_consumer("H", "one") is None
    again = Peer("one")
    setup.join("G", again, "T")
    found = setup.registry.find_consumer("G", "one")
    assert found is not None
    assert found.connection is again, "the former connection may be half open"  # type: ignore[comparison-overlap]


def test_producers_come_and_go(setup: Setup) -> None:
    one, two = Peer("one"), Peer("two")
    setup.produce("P", one)
    setup.produce("P", two)
    setup.produce("Q", one)
    assert [client.client_id for client in setup.registry.producers("P")] == ["one", "two"]
    setup.leave(one)
    assert {group: len(clients) for group, clients in setup.registry.producer_groups().items()} == {"P": 1}


def test_silent_clients_leave_and_their_connections_are_closed(setup: Setup) -> None:
    silent, lively = Peer("silent"), Peer("lively")
    setup.join("G", silent, "T")
    setup.join("G", lively, "T")
    setup.produce("P", silent)
    setup.now_ms += 60_000
    setup.join("G", lively, "T")
    setup.next_tick()
    setup.now_ms += 60_001
    setup.registry.expire(120_000)
    setup.next_tick()
    assert silent.is_closed
    assert not lively.is_closed
    assert setup.registry.producers("P") == []
    group = setup.registry.consumer_group("G")
    assert group is not None
    assert group.client_ids() == ["lively"]
    assert len(notices(lively)) == 2


def test_fingerprints_are_compared(setup: Setup) -> None:
    assert not setup.registry.is_fingerprint_changed("G", 5)
    assert not setup.registry.is_fingerprint_changed("G", 5)
    assert setup.registry.is_fingerprint_changed("G", 6)


# -- bounds


def totals(setup: Setup) -> tuple[int, int]:
    usage = setup.registry._usage
    return usage.groups.total, usage.subscriptions.total


def test_groups_of_a_connection_an_address_and_all(setup: Setup) -> None:
    setup.config = BrokerConfig(connection_groups_max=2, address_groups_max=3, groups_joined_max=4)
    first, second, other = Peer("a"), Peer("b"), Peer("c", "10.0.0.9")
    setup.join("A", first)
    setup.produce("B", first, "id")
    with pytest.raises(BrokerBusyError, match="clientGroupsPerConnectionMax"):
        setup.join("C", first)
    setup.join("A", first)  # heartbeats of what it has joined go on
    setup.join("C", second)
    with pytest.raises(BrokerBusyError, match="clientGroupsPerAddressMax"):
        setup.produce("D", second, "id")
    setup.join("D", other)
    with pytest.raises(BrokerBusyError, match="clientGroupsMax"):
        setup.join("E", other)
    assert setup.limits.totals == {
        "clientGroupsPerConnectionMax": 1,
        "clientGroupsPerAddressMax": 1,
        "clientGroupsMax": 1,
    }
    assert setup.registry.consumer_group("E") is None
    setup.leave(first)
    setup.join("E", other)
    for peer in (second, other):
        setup.leave(peer)
    assert totals(setup) == (0, 0)


def test_subscriptions_are_counted_by_their_length_at_the_member_that_brought_them(setup: Setup) -> None:
    setup.config = BrokerConfig(connection_subscriptions_max=10, address_subscriptions_max=15, subscriptions_max=20)
    first, second, other = Peer("a"), Peer("b"), Peer("c", "10.0.0.9")
    setup.join("A", first, *(f"T{number}" for number in range(10)))
    with pytest.raises(BrokerBusyError, match="clientSubscriptionsPerConnectionMax"):
        setup.join("B", first, "T")
    assert setup.registry.consumer_group("B") is None
    setup.join("A", second, *(f"T{number}" for number in range(5)))
    assert totals(setup) == (2, 5)
    setup.join("B", first, "T" * 255 * 9)
    assert totals(setup) == (3, 5 + 9)
    with pytest.raises(BrokerBusyError, match="clientSubscriptionsPerAddressMax"):
        setup.join("C", second, "T", "U")
    setup.join("C", other, *(f"T{number}" for number in range(6)))
    with pytest.raises(BrokerBusyError, match="clientSubscriptionsMax"):
        setup.join("D", other, "T")
    setup.leave(second)  # A has another member, at which its subscriptions count from now on
    setup.join("E", first)
    with pytest.raises(BrokerBusyError, match="clientSubscriptionsPerConnectionMax"):
        setup.join("E", first, "T")
    for peer in (first, other):
        setup.leave(peer)
    assert totals(setup) == (0, 0)
    assert not setup.registry._usage.subscriptions.by_connection
    assert not setup.registry._usage.groups.by_address


def test_a_connection_has_one_client_id_in_a_group(setup: Setup) -> None:
    """A client that calls itself something else with each heartbeat leaves one id behind, and none when it goes."""
    peer = Peer("a")
    for number in range(100):
        setup.produce("P", peer, f"id{number}")
    setup.produce("Q", peer, "id99")
    assert setup.registry.producer_connection("id98") is None
    assert setup.registry.producer_connection("id99") is peer  # type: ignore[comparison-overlap]
    connection: Any = peer
    setup.registry.unregister_producer("P", connection)
    assert setup.registry.producer_connection("id99") is peer  # type: ignore[comparison-overlap]
    setup.leave(peer)
    assert setup.registry._producer_connections == setup.registry._producer_id_groups == {}
