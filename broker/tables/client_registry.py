"""Client registry: the producers and consumers that are connected, by group.

    producers   group -> {connection: client}
    consumers   group -> members {connection: client}, subscriptions {topic: what is wanted of it}, how it consumes

Rules
  - A client is identified by its connection. Its heartbeats (every 30 s) register it and keep it. It is removed when it
    unregisters, when its connection closes, or after `client_expiry_ms` of silence; then its connection is closed.
  - A group's subscriptions are those of the last full heartbeat of any member: a newer version replaces an older one,
    topics that the heartbeat no longer names are dropped. Members of one group are expected to want the same.
  - When members or subscribed topics of a clustering group change, every member is notified (code 40, one-way) and
    shares the queues anew. Changes of one tick of the loop make one notice: a thousand members that join together would
    otherwise cause a million.
  - What clients make it remember is bounded (client_usage.py). A connection has one client id in each group.
  - `group_wants` is called with each heartbeat, and when a group's last member has left.
  - A heartbeat V2 may leave the subscriptions out when they have not changed. `register_consumer` says when they are
    not known here, so that the client sends them in full (after a restart of the broker, say).
Owner: the hot process's event loop.
Source: broker/client/ConsumerManager.java, ConsumerGroupInfo.java, ProducerManager.java, Apache RocketMQ 5.3.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from thermocline.broker.settings import BrokerConfig
from thermocline.broker.tables.client_usage import ClientUsage, subscription_weight
from thermocline.remoting.bodies import BROADCASTING, ConsumerData, SubscriptionData
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, LimitCounts
from thermocline.remoting.headers.group import NotifyConsumerIdsChangedRequestHeader
from thermocline.remoting.language_code import LanguageCode
from thermocline.remoting.request_code import RequestCode

logger = logging.getLogger(__name__)

Key = TypeVar("Key")


@dataclass(slots=True, kw_only=True, eq=False)
class Client:
    """One client of one group, on one connection."""

    connection: Connection
    client_id: str
    language: LanguageCode
    version: int
    seen_ms: int
    user: str = ""
    """Who a producer's last heartbeat is proven to come from; empty without access control."""


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """A group that has members now."""

    name: str
    consume_type: str
    message_model: str
    consume_from_where: str
    members: dict[Connection, Client] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    weight: int = 0
    """What the subscriptions count as, at `weight_at`'s connection."""
    weight_at: Connection | None = None

    @property
    def is_broadcasting(self) -> bool:
        """Whether every member consumes everything, each by its own offsets."""
        return self.message_model == BROADCASTING

    def client_ids(self) -> list[str]:
        """The members' ids."""
        return [client.client_id for client in self.members.values()]


class ClientRegistry:
    """All connected clients of one broker."""

    def __init__(
        self,
        *,
        clock: Callable[[], int],
        call_soon: Callable[[Callable[[], None]], object],
        is_notifying: Callable[[], bool] = lambda: True,
        config: Callable[[], BrokerConfig],
        limits: LimitCounts,
    ) -> None:
        """`call_soon` runs a function later in the loop; `is_notifying`: whether changes are sent to members.

        `limits`: where refusals by limits are counted.
        """
        self._clock = clock
        self._call_soon = call_soon
        self._is_notifying = is_notifying
        self.group_wants: Callable[[str, Mapping[str, SubscriptionData]], None] = _wants_nothing
        """Receives a group's subscriptions by topic, none when it goes offline."""
        self._usage = ClientUsage(config=config, limits=limits)
        self._producers: dict[str, dict[Connection, Client]] = {}
        self._consumers: dict[str, ConsumerGroup] = {}
        self._groups_by_topic: dict[str, set[str]] = {}
        self._fingerprints: dict[str, int] = {}
        # The groups that each connection has joined, so that closing one does not search all groups.
        self._producer_groups: dict[Connection, set[str]] = {}
        self._producer_connections: dict[str, tuple[Connection, str]] = {}  # with the user
        self._producer_id_groups: dict[tuple[Connection, str], int] = {}  # groups of a connection with that client id
        self._consumer_groups: dict[Connection, set[str]] = {}
        self._to_notify: dict[str, set[Connection]] = {}
        self._producer_turn = 0

    # -- producers -----------------------------------------------------------------------------------------------------

    def register_producer(
        self,
        group: str,
        connection: Connection,
        *,
        client_id: str,
        language: LanguageCode,
        version: int,
        user: str = "",
    ) -> None:
        """Note a producer, or that it is still there. Replies to its client id go to this connection from now on,
        unless a connected client of another user has the id.

        Raises:
            BrokerBusyError: The connection, its address, or all of them, have joined too many groups.
        """
        client = self._producers.get(group, {}).get(connection)
        if client is None:
            self._usage.check(connection, group=group, groups=1, subscriptions=0)
            self._usage.groups.add(connection, 1)
            self._producers.setdefault(group, {})[connection] = Client(
                connection=connection,
                client_id=client_id,
                language=language,
                version=version,
                seen_ms=self._clock(),
                user=user,
            )
            self._producer_groups.setdefault(connection, set()).add(group)
            self._add_producer_id(connection, client_id)
            logger.info("producer joined group=%s client_id=%s address=%s", group, client_id, connection.remote_address)
        else:
            client.seen_ms = self._clock()
            client.user = user
            if client.client_id != client_id:
                self._remove_producer_id(connection, client.client_id)
                client.client_id = client_id
                self._add_producer_id(connection, client_id)
        held_by, its_user = self._producer_connections.get(client_id, (connection, user))
        if held_by is connection or its_user == user or held_by.is_closed:
            self._producer_connections[client_id] = connection, user

    def _add_producer_id(self, connection: Connection, client_id: str) -> None:
        key = connection, client_id
        self._producer_id_groups[key] = self._producer_id_groups.get(key, 0) + 1

    def _remove_producer_id(self, connection: Connection, client_id: str) -> None:
        key = connection, client_id
        self._producer_id_groups[key] -= 1
        if not self._producer_id_groups[key]:
            del self._producer_id_groups[key]
            if self.producer_connection(client_id) is connection:
                del self._producer_connections[client_id]

    def unregister_producer(self, group: str, connection: Connection) -> None:
        """Remove a producer."""
        members = self._producers.get(group)
        client = None if members is None else members.pop(connection, None)
        if members is None or client is None:
            return
        if not members:
            del self._producers[group]
        _discard(self._producer_groups, connection, group)
        self._remove_producer_id(connection, client.client_id)
        self._usage.groups.add(connection, -1)
        logger.info("producer left group=%s address=%s", group, connection.remote_address)

    def producers(self, group: str) -> list[Client]:
        """The producers of a group; empty when none is connected."""
        return list(self._producers.get(group, {}).values())

    def next_producer(self, group: str, *, is_eligible: Callable[[Client], bool] | None = None) -> Client | None:
        """One producer of a group, in turn; one that takes what it is sent, if there is one. None when none is there,
        or none of them is eligible.

        Source: ProducerManager.getAvailableChannel.
        """
        members = [client for client in self.producers(group) if is_eligible is None or is_eligible(client)]
        if not members:
            return None
        self._producer_turn += 1
        start = self._producer_turn % len(members)
        living = [client for client in members[start:] + members[:start] if not client.connection.is_closed]
        ready = (client for client in living if not client.connection.is_full)
        return next(ready, living[0] if living else None)

    def producer_connection(self, client_id: str) -> Connection | None:
        """The connection over which a producer of that id was heard last; None when it is gone."""
        found = self._producer_connections.get(client_id)
        return None if found is None else found[0]

    def producer_groups(self) -> Mapping[str, list[Client]]:
        """All producers by group."""
        return {group: list(members.values()) for group, members in self._producers.items()}

    # -- consumers -----------------------------------------------------------------------------------------------------

    def register_consumer(
        self,
        data: ConsumerData,
        connection: Connection,
        *,
        client_id: str,
        language: LanguageCode,
        version: int,
        is_notified: bool = True,
        with_subscriptions: bool = True,
    ) -> bool:
        """Note a consumer, or that it is still there; returns whether members or subscribed topics changed.

        `is_notified`: whether the group's configuration lets its members be notified. `with_subscriptions` False: the
        heartbeat left subscriptions out, the present ones are kept.

        Raises:
            BrokerBusyError: The connection, its address, or all of them, have joined too many groups, or have too many
                subscriptions.
        """
        group = self._consumers.get(data.group_name)
        weight = subscription_weight(data.subscription_data_set) if with_subscriptions else 0
        self._usage.check(
            connection,
            group=data.group_name,
            groups=0 if group is not None and connection in group.members else 1,
            subscriptions=weight - (group.weight if group is not None and group.weight_at is connection else 0),
        )
        if group is None:
            group = self._consumers[data.group_name] = ConsumerGroup(
                data.group_name, data.consume_type, data.message_model, data.consume_from_where
            )
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        has_joined = self._add_member(group, connection, client_id=client_id, language=language, version=version)
        has_new_topics = with_subscriptions and self._update_subscriptions(group, data.subscription_data_set)
        if with_subscriptions:
            self._weigh(group, connection, weight)
        self.group_wants(group.name, group.subscriptions)
        if (has_joined or has_new_topics) and is_notified:
            self._notify(group, connection)
        return has_joined or has_new_topics

    def unregister_consumer(self, group_name: str, connection: Connection, *, is_notified: bool = True) -> None:
        """Remove a consumer."""
        group = self._consumers.get(group_name)
        if group is None or group.members.pop(connection, None) is None:
            return
        _discard(self._consumer_groups, connection, group_name)
        self._usage.groups.add(connection, -1)
        if group.weight_at is connection:
            self._weigh(group, next(iter(group.members), None), group.weight)
        logger.info("consumer left group=%s address=%s", group_name, connection.remote_address)
        if not group.members:
            self._drop_group(group)
        elif is_notified:
            self._notify(group)

    def consumer_group(self, group: str) -> ConsumerGroup | None:
        """A group that has members; None when none is connected."""
        return self._consumers.get(group)

    def find_consumer(self, group: str, client_id: str) -> Client | None:
        """A member of a group by its id; of one that has come back while its former connection is half open, the last
        connection."""
        found = self._consumers.get(group)
        if found is None:
            return None
        return next((client for client in reversed(found.members.values()) if client.client_id == client_id), None)

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """An online group's subscription to a topic; None when it is offline or not subscribed."""
        found = self._consumers.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def groups_of_topic(self, topic: str) -> set[str]:
        """The online groups that are subscribed to a topic."""
        return set(self._groups_by_topic.get(topic, ()))

    def is_fingerprint_changed(self, group: str, fingerprint: int) -> bool:
        """Remember the fingerprint of a group's subscriptions (heartbeat V2); True when it was another before."""
        previous = self._fingerprints.get(group)
        self._fingerprints[group] = fingerprint
        return previous is not None and previous != fingerprint

    # -- connections that end ------------------------------------------------------------------------------------------

    def connection_closed(self, connection: Connection) -> None:
        """The connection is closed: remove its producers and consumers."""
        for group in list(self._producer_groups.get(connection, ())):
            self.unregister_producer(group, connection)
        for group in list(self._consumer_groups.get(connection, ())):
            self.unregister_consumer(group, connection)

    def expire(self, expiry_ms: int) -> None:
        """Remove clients that were silent for longer than `expiry_ms`, and close their connections."""
        oldest_ms = self._clock() - expiry_ms
        silent = {client.connection: client for client in self._clients() if client.seen_ms < oldest_ms}
        for connection, client in silent.items():
            logger.warning("client expired client_id=%s address=%s", client.client_id, connection.remote_address)
            self.connection_closed(connection)
            connection.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _clients(self) -> Iterator[Client]:
        for members in self._producers.values():
            yield from members.values()
        for group in self._consumers.values():
            yield from group.members.values()

    def _add_member(
        self, group: ConsumerGroup, connection: Connection, *, client_id: str, language: LanguageCode, version: int
    ) -> bool:
        client = group.members.get(connection)
        if client is not None:
            client.seen_ms = self._clock()
            if client.client_id != client_id:
                logger.warning(
                    "client id changed on a connection group=%s from=%s to=%s", group.name, client.client_id, client_id
                )
                client.client_id = client_id
            return False
        group.members[connection] = Client(
            connection=connection, client_id=client_id, language=language, version=version, seen_ms=self._clock()
        )
        self._consumer_groups.setdefault(connection, set()).add(group.name)
        self._usage.groups.add(connection, 1)
        logger.info(
            "consumer joined group=%s client_id=%s address=%s model=%s",
            group.name,
            client_id,
            connection.remote_address,
            group.message_model,
        )
        return True

    def _weigh(self, group: ConsumerGroup, connection: Connection | None, weight: int) -> None:
        """Count a group's subscriptions at a connection; None: at none, as the group has no members."""
        if group.weight_at is not None:
            self._usage.subscriptions.add(group.weight_at, -group.weight)
        group.weight_at, group.weight = connection, 0 if connection is None else weight
        if connection is not None:
            self._usage.subscriptions.add(connection, weight)

    def _update_subscriptions(self, group: ConsumerGroup, wanted: Iterable[SubscriptionData]) -> bool:
        topics: set[str] = set()
        is_changed = False
        for subscription in wanted:
            topics.add(subscription.topic)
            present = group.subscriptions.get(subscription.topic)
            if present is None:
                group.subscriptions[subscription.topic] = subscription
                self._groups_by_topic.setdefault(subscription.topic, set()).add(group.name)
                is_changed = True
                logger.info(
                    "subscribed group=%s topic=%s to=%s", group.name, subscription.topic, subscription.sub_string
                )
            elif subscription.sub_version > present.sub_version:
                group.subscriptions[subscription.topic] = subscription
        for topic in group.subscriptions.keys() - topics:
            del group.subscriptions[topic]
            _discard(self._groups_by_topic, topic, group.name)
            is_changed = True
            logger.info("unsubscribed group=%s topic=%s", group.name, topic)
        return is_changed

    def _drop_group(self, group: ConsumerGroup) -> None:
        del self._consumers[group.name]
        self._fingerprints.pop(group.name, None)
        for topic in group.subscriptions:
            _discard(self._groups_by_topic, topic, group.name)
        self.group_wants(group.name, {})
        logger.info("group offline group=%s", group.name)

    def _notify(self, group: ConsumerGroup, changed_by: Connection | None = None) -> None:
        """Notify the member that made the change at once, before its request is answered; all other members soon.

        They get one notice for all changes of a round.
        """
        if group.is_broadcasting or not self._is_notifying():
            return
        if not self._to_notify:
            self._call_soon(self._send_notices)
        notified = self._to_notify.setdefault(group.name, set())
        if changed_by is not None and changed_by not in notified:
            notified.add(changed_by)
            changed_by.send(_notice(group.name))

    def _send_notices(self) -> None:
        notified_by_group, self._to_notify = self._to_notify, {}
        for name, notified in notified_by_group.items():
            group = self._consumers.get(name)
            if group is None:
                continue
            for connection in group.members:
                if connection not in notified:
                    connection.send(_notice(name))


def _notice(group: str) -> RemotingCommand:
    header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
    return RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True)


def _discard(table: dict[Key, set[str]], key: Key, name: str) -> None:
    names = table.get(key)
    if names is not None:
        names.discard(name)
        if not names:
            del table[key]


def _wants_nothing(group: str, subscriptions: Mapping[str, SubscriptionData]) -> None:
    """What a registry without filters does with subscriptions."""
