"""Route registry: which brokers are alive, which topics they have, how clients reach them.

All state of a NameServer, in memory, as plain tables changed by plain calls: no socket, no task, no clock of its own.

    clusters   cluster name -> broker names
    brokers    broker name  -> cluster, zone, {broker id: address}; id 0 is the master
    topics     topic        -> {broker name: queue data}
    live       (cluster, broker name, address) -> last sign of life, data version, connection

Rules
  - A broker that registers replaces what it registered before; topics are taken over when its data version differs from
    the stored one, when the broker is new, or when the topic is missing. So a periodic registration costs little, and
    write permission that an operator wiped stays wiped until the broker's topics change.
  - A static topic's mapping comes with the topic, is replaced with it, and goes with it: a topic that comes again
    without one is an ordinary one.
  - A broker is known from its first *full* registration on: one that carries a single topic is an update, and refused
    from a broker whose other topics are not known.
  - A broker is removed when it unregisters, when its connection closes, or after its time of silence. With its last
    address its name, its queue data and its place in the cluster are deleted. Other brokers' data is not touched.
  - Every address of a broker has an entry in `live`, so that all of it ends with its connection, or its silence: also
    where a broker comes again with another name or cluster before the loss of its connection was noticed.
  - Topics come from the master, or from the slave with the lowest id while there is no master, and then without write
    permission if acting masters are allowed.
Owner: the NameServer's event loop.
Source: namesrv/routeinfo/RouteInfoManager.java, Apache RocketMQ 5.3.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from thermocline.namesrv.least_id_notices import LeastIdChange
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.route_limits import RouteLimits
from thermocline.remoting.bodies import (
    PERM_READ,
    PERM_WRITE,
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicQueueMappingInfo,
    TopicRouteData,
)
from thermocline.remoting.connections import LimitCounts
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.topic_validation import SYNC_BROKER_MEMBER_TOPIC_PREFIX

logger = logging.getLogger(__name__)

MASTER_ID = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """A broker's registration. `enable_acting_master` None: a broker older than the notion."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str | None = None
    zone_name: str | None = None
    enable_acting_master: bool | None = None
    expiry_ms: int | None = None
    data_version: DataVersion
    topics: Mapping[str, TopicConfig]
    mappings: Mapping[str, TopicQueueMappingInfo] = field(default_factory=dict)
    filter_servers: tuple[str, ...] = ()


class RegistrationResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a slave receives about its master; both None for a master."""

    master_address: str | None = None
    ha_address: str | None = None


@dataclass(slots=True)
class _Broker:
    cluster: str
    name: str
    zone_name: str | None = None
    enable_acting_master: bool = False
    clusters: set[str] = field(default_factory=set)
    """Those that its addresses have named; `cluster` is one of them."""
    addresses: dict[int, str] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)

    def has_master(self) -> bool:
        return MASTER_ID in self.addresses


class _LiveKey(NamedTuple):
    cluster: str
    broker_name: str
    address: str


class _Live(msgspec.Struct):
    seen_ms: int
    expiry_ms: int
    data_version: DataVersion
    connection: object
    ha_address: str | None


def _ignore_least_id(change: LeastIdChange) -> None:
    """What a registry without a NameServer does."""


class RouteRegistry:
    """All routes of one NameServer. `connection` is any object that stands for a broker's connection."""

    def __init__(
        self,
        *,
        clock: Callable[[], int],
        config: Callable[[], NameServerConfig],
        limits: LimitCounts | None = None,
        on_least_id: Callable[[LeastIdChange], None] = _ignore_least_id,
    ) -> None:
        """`clock`: milliseconds. `config`: the settings at the time of a call. `limits`: where refusals are counted.
        `on_least_id`: called with `notifyMinBrokerIdChanged`."""
        self._on_least_id = on_least_id
        self._limits = RouteLimits(config=config, limits=limits or LimitCounts())
        self._live_by_connection: dict[object, set[_LiveKey]] = {}
        self._route_count = 0
        self._clock = clock
        self._config = config
        self._clusters: dict[str, set[str]] = {}
        self._brokers: dict[str, _Broker] = {}
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}
        self._live: dict[_LiveKey, _Live] = {}
        self._filter_servers: dict[tuple[str, str], tuple[str, ...]] = {}

    # -- brokers come and go -------------------------------------------------------------------------------------------

    def register(self, registration: BrokerRegistration, connection: object) -> RegistrationResult:
        """Take over what a broker says of itself.

        Raises:
            InvalidRequestError: A single topic from a broker that is not known yet.
            InvalidParameterError: A name or an address is too long.
            BrokerBusyError: There are too many brokers, or topics.
        """
        name, broker_id, address = registration.broker_name, registration.broker_id, registration.address
        live_key = _LiveKey(registration.cluster, name, address)
        broker = self._brokers.get(name)
        known_addresses = {} if broker is None else broker.addresses
        # The same address under another id: a slave became master or the reverse. One address has one entry.
        moved_ids = [id_ for id_, present in known_addresses.items() if present == address and id_ != broker_id]
        if broker is not None and self._is_outdated(broker, registration):
            for other in moved_ids:
                del broker.addresses[other]
            self._forget_live(live_key)
            self._leave_cluster(broker, registration.cluster)
            return RegistrationResult()
        is_first = broker_id not in known_addresses
        is_least_now = broker_id < min(known_addresses, default=MASTER_ID)
        if is_first and len(registration.topics) == 1:
            logger.warning(
                "single topic refused, broker not registered broker=%s id=%d address=%s", name, broker_id, address
            )
            raise InvalidRequestError("register broker failed")
        self._check_limits(registration, broker, connection)

        if broker is None:
            broker = self._brokers[name] = _Broker(registration.cluster, name)
            logger.info("broker name registered cluster=%s broker=%s", registration.cluster, name)
        self._clusters.setdefault(registration.cluster, set()).add(name)
        broker.clusters.add(registration.cluster)
        broker.zone_name = registration.zone_name
        broker.enable_acting_master = bool(registration.enable_acting_master)
        for other in moved_ids:
            del broker.addresses[other]
        broker.addresses[broker_id] = address

        is_prime_slave = (
            registration.enable_acting_master is not None
            and broker_id != MASTER_ID
            and broker_id == min(broker.addresses)
        )
        if broker_id == MASTER_ID or is_prime_slave:
            previous = self._live.get(live_key)
            is_changed = is_first or previous is None or previous.data_version != registration.data_version
            self._take_topics(
                broker,
                registration,
                is_changed=is_changed,
                is_prime_slave=is_prime_slave and broker.enable_acting_master,
            )

        if live_key not in self._live:
            logger.info(
                "broker registered cluster=%s broker=%s id=%d address=%s", live_key.cluster, name, broker_id, address
            )
        self._forget_live(live_key)
        self._live_by_connection.setdefault(connection, set()).add(live_key)
        self._live[live_key] = _Live(
            seen_ms=self._clock(),
            expiry_ms=self._config().broker_expiry_ms if registration.expiry_ms is None else registration.expiry_ms,
            data_version=registration.data_version,
            connection=connection,
            ha_address=registration.ha_address,
        )
        if registration.filter_servers:
            self._filter_servers[registration.cluster, address] = registration.filter_servers
        if is_least_now:
            self._least_id_changed(broker, ha_address=registration.ha_address)
        return self._master_of(broker, registration)

    def cluster_of(self, broker_name: str) -> str | None:
        """The cluster of a broker name; None when it is not registered."""
        broker = self._brokers.get(broker_name)
        return None if broker is None else broker.cluster

    def unregister(self, *, cluster: str, broker_name: str, address: str) -> None:
        """Forget one address of a broker; with its last one, the broker and what only it had."""
        broker = self._brokers.get(broker_name)
        if broker is None:
            return
        clusters = list(broker.clusters)
        for name in clusters:
            self._forget_live(_LiveKey(name, broker_name, address))
        self._drop_address(broker, address)
        for name in clusters:
            self._leave_cluster(broker, name)

    def _gone(self, key: _LiveKey) -> None:
        """Forget an address whose connection closed, or that was silent: unless another registration has it."""
        cluster, name, address = key
        self._forget_live(key)
        broker = self._brokers.get(name)
        if broker is not None:
            if not any(_LiveKey(other, name, address) in self._live for other in broker.clusters):
                self._drop_address(broker, address)
            self._leave_cluster(broker, cluster)

    def _leave_cluster(self, broker: _Broker, cluster: str) -> None:
        """A broker leaves one of its clusters with the last address that has named it."""
        if len(broker.clusters) < 2 or any(key[:2] == (cluster, broker.name) for key in self._live):
            return
        broker.clusters.discard(cluster)
        self._discard_name(cluster, broker.name)
        if broker.cluster == cluster:
            broker.cluster = min(broker.clusters)

    def _discard_name(self, cluster: str, broker_name: str) -> None:
        names = self._clusters.get(cluster, set())
        names.discard(broker_name)
        if not names:
            self._clusters.pop(cluster, None)

    def _drop_address(self, broker: _Broker, address: str) -> None:
        broker_name = broker.name
        was_least = broker.addresses.get(min(broker.addresses, default=MASTER_ID)) == address
        for broker_id in [id_ for id_, present in broker.addresses.items() if present == address]:
            del broker.addresses[broker_id]
            logger.info("broker unregistered broker=%s id=%d address=%s", broker_name, broker_id, address)
        if broker.addresses:
            if broker.enable_acting_master and not broker.has_master():
                self._change_perm(broker, lambda perm: perm & ~PERM_WRITE)
            if was_least and broker.enable_acting_master:
                self._least_id_changed(broker, offline_address=address)
            return
        del self._brokers[broker_name]
        for topic in broker.topics:
            self._drop_queue_data(topic, broker_name)
        for cluster in broker.clusters:
            self._discard_name(cluster, broker_name)
        broker.clusters.clear()
        logger.info("broker name gone cluster=%s broker=%s", broker.cluster, broker_name)

    def connection_closed(self, connection: object) -> None:
        """Forget every broker that registered last over this connection."""
        for key in list(self._live_by_connection.get(connection, ())):
            logger.warning("connection of broker closed broker=%s address=%s", key.broker_name, key.address)
            self._gone(key)

    def expire(self) -> list[object]:
        """Forget brokers that were silent for longer than their time; their connections are to be closed."""
        now = self._clock()
        gone = [(key, live) for key, live in self._live.items() if now - live.seen_ms > live.expiry_ms]
        for key, live in gone:
            logger.warning(
                "broker expired broker=%s address=%s silent_ms=%d", key.broker_name, key.address, now - live.seen_ms
            )
            self._gone(key)
        return [live.connection for _, live in gone]

    def heartbeat(self, *, cluster: str, broker_name: str, address: str) -> None:
        """Note that a broker is alive; one that is not known stays unknown."""
        live = self._live.get(_LiveKey(cluster, broker_name, address))
        if live is not None:
            live.seen_ms = self._clock()

    def data_version(self, *, cluster: str, broker_name: str, address: str) -> DataVersion | None:
        """The version that a broker registered last; None when it is not known."""
        live = self._live.get(_LiveKey(cluster, broker_name, address))
        return None if live is None else live.data_version

    # -- topics --------------------------------------------------------------------------------------------------------

    def add_queue_data(self, topic: str, queue_datas: Iterable[QueueData]) -> None:
        """Add queues of a topic at known brokers; nothing at all when one of the brokers is not known.

        Raises:
            InvalidParameterError: The topic's name is too long.
            BrokerBusyError: There are too many topics.
        """
        queue_datas = list(queue_datas)
        self._limits.check_texts([topic])
        if any(data.broker_name not in self._brokers for data in queue_datas):
            logger.warning("topic refused, it names a broker that is not known topic=%s", topic)
            return
        for data in queue_datas:
            topics = self._brokers[data.broker_name].topics
            if topic not in topics:
                self._limits.check_topics(
                    address=data.broker_name, of_broker=len(topics) + 1, more_routes=1, routes=self._route_count
                )
            self._put_queue_data(self._brokers[data.broker_name], topic, data)

    def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or at the brokers of one cluster."""
        names = list(self._topics.get(topic, ())) if not cluster else self._clusters.get(cluster, ())
        for broker_name in list(names):
            self._drop_queue_data(topic, broker_name)
            broker = self._brokers.get(broker_name)
            if broker is not None:
                broker.topics.discard(topic)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Take write permission from every topic of a broker; returns how many topics it has."""
        return self._change_broker_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Give read and write permission to every topic of a broker; returns how many topics it has."""
        return self._change_broker_perm(broker_name, lambda perm: PERM_READ | PERM_WRITE)

    # -- what clients ask ----------------------------------------------------------------------------------------------

    def route(self, topic: str) -> TopicRouteData | None:
        """Where a topic's queues are; None when no live broker has it."""
        queue_datas = self._topics.get(topic)
        if not queue_datas:
            return None
        brokers = [self._brokers[name] for name in queue_datas]
        filter_server_table: dict[str, list[str]] = {}
        if self._filter_servers:
            for broker in brokers:
                for address in broker.addresses.values():
                    servers = self._filter_servers.get((broker.cluster, address))
                    if servers is not None:
                        filter_server_table[address] = list(servers)
        acts = self._config().acting_master and not topic.startswith(SYNC_BROKER_MEMBER_TOPIC_PREFIX)
        return TopicRouteData(
            queue_datas=list(queue_datas.values()),
            broker_datas=[
                _broker_data(broker, acts=acts and not queue_datas[broker.name].perm & PERM_WRITE) for broker in brokers
            ],
            filter_server_table=filter_server_table,
            topic_queue_mapping_by_broker=dict(self._mappings[topic]) if topic in self._mappings else None,
        )

    def cluster_info(self) -> ClusterInfo:
        """All brokers and all clusters."""
        return ClusterInfo(
            broker_addr_table={broker.name: _broker_data(broker, acts=False) for broker in self._brokers.values()},
            cluster_addr_table={cluster: sorted(names) for cluster, names in self._clusters.items()},
        )

    def broker_addresses(self, broker_name: str) -> dict[int, str]:
        """Broker id -> address of one broker name; empty when it is not known."""
        broker = self._brokers.get(broker_name)
        return {} if broker is None else dict(broker.addresses)

    def topics(self) -> list[str]:
        """The names of all topics."""
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """The names of the topics that a cluster's brokers have."""
        topics: dict[str, None] = {}
        for broker_name in self._clusters.get(cluster, ()):
            topics.update(dict.fromkeys(self._brokers[broker_name].topics))
        return list(topics)

    def system_topics(self) -> tuple[list[str], str | None]:
        """Cluster and broker names, which are topics themselves, and the address of some broker."""
        names: dict[str, None] = {}
        for cluster, broker_names in self._clusters.items():
            names[cluster] = None
            names.update(dict.fromkeys(sorted(broker_names)))
        address = next((next(iter(broker.addresses.values())) for broker in self._brokers.values()), None)
        return list(names), address

    def topics_by_flag(self, *, with_flag: int, without_flag: int = 0) -> list[str]:
        """The topics whose system flag has one bit and lacks another."""
        found: list[str] = []
        for topic, queue_datas in self._topics.items():
            flag = next(iter(queue_datas.values())).topic_sys_flag
            if flag & with_flag and not flag & without_flag:
                found.append(topic)
        return found

    # -- inside --------------------------------------------------------------------------------------------------------

    def _least_id_changed(
        self, broker: _Broker, *, offline_address: str | None = None, ha_address: str | None = None
    ) -> None:
        if self._config().least_id_notices:
            self._on_least_id(
                LeastIdChange(
                    broker_name=broker.name,
                    addresses=dict(broker.addresses),
                    offline_address=offline_address,
                    ha_address=ha_address,
                )
            )

    def _check_limits(self, registration: BrokerRegistration, broker: _Broker | None, connection: object) -> None:
        """Pass a registration: see route_limits.py."""
        limits, address = self._limits, getattr(connection, "remote_address", registration.address)
        limits.check_texts(
            (
                registration.cluster,
                registration.broker_name,
                registration.address,
                registration.ha_address,
                registration.zone_name,
                *registration.topics,
                *registration.mappings,
                *(text for mapping in registration.mappings.values() for text in (mapping.topic, mapping.scope)),
            )
        )
        limits.check_filter_servers(registration.filter_servers)
        of_connection = self._live_by_connection.get(connection, ())
        if _LiveKey(registration.cluster, registration.broker_name, registration.address) not in of_connection:
            limits.check_brokers(address=address, of_connection=len(of_connection), in_all=len(self._live))
        present = broker.topics if broker is not None else set[str]()
        mapping_items = sum(len(mapping.curr_id_map or ()) for mapping in registration.mappings.values())
        limits.check_topics(
            address=address,
            of_broker=len(registration.topics) + mapping_items,
            more_routes=len(registration.topics.keys() - present),
            routes=self._route_count,
        )

    def _forget_live(self, key: _LiveKey) -> None:
        """Forget an entry and what goes with it."""
        live = self._live.pop(key, None)
        if live is not None:
            self._filter_servers.pop((key.cluster, key.address), None)
            keys = self._live_by_connection[live.connection]
            keys.discard(key)
            if not keys:
                del self._live_by_connection[live.connection]

    def _is_outdated(self, broker: _Broker, registration: BrokerRegistration) -> bool:
        """Whether another address holds this id with a newer state: a former master that has not noticed."""
        held_by = broker.addresses.get(registration.broker_id)
        if held_by is None or held_by == registration.address:
            return False
        holder = self._live.get(_LiveKey(registration.cluster, broker.name, held_by))
        if holder is None or holder.data_version.state_version <= registration.data_version.state_version:
            return False
        logger.warning(
            "registration passed over, another address has a newer state broker=%s id=%d address=%s newer=%s",
            broker.name,
            registration.broker_id,
            registration.address,
            held_by,
        )
        return True

    def _take_topics(
        self, broker: _Broker, registration: BrokerRegistration, *, is_changed: bool, is_prime_slave: bool
    ) -> None:
        topics = registration.topics
        if self._config().delete_topics_with_registration and not registration.mappings:
            for topic in broker.topics - topics.keys():
                self._drop_queue_data(topic, broker.name)
            broker.topics &= topics.keys()
        for topic, config in topics.items():
            if is_changed or topic not in broker.topics:
                self._put_queue_data(
                    broker,
                    topic,
                    QueueData(
                        broker_name=broker.name,
                        read_queue_nums=config.read_queue_nums,
                        write_queue_nums=config.write_queue_nums,
                        perm=config.perm & ~PERM_WRITE if is_prime_slave else config.perm,
                        topic_sys_flag=config.topic_sys_flag,
                    ),
                )
            if is_changed and topic not in registration.mappings:
                self._drop_mapping(topic, broker.name)  # it was a static topic in a former life
        for topic, mapping in registration.mappings.items():
            if topic not in broker.topics or mapping.broker_name not in (None, "", broker.name):
                continue  # no route would show it, and nothing would remove it
            by_broker = self._mappings.setdefault(topic, {})
            if is_changed or broker.name not in by_broker:
                by_broker[broker.name] = mapping

    def _put_queue_data(self, broker: _Broker, topic: str, data: QueueData) -> None:
        queue_datas = self._topics.setdefault(topic, {})
        self._route_count += broker.name not in queue_datas
        queue_datas[broker.name] = data
        broker.topics.add(topic)

    def _drop_queue_data(self, topic: str, broker_name: str) -> None:
        queue_datas = self._topics.get(topic, {})
        self._route_count -= queue_datas.pop(broker_name, None) is not None
        if not queue_datas:
            self._topics.pop(topic, None)
        self._drop_mapping(topic, broker_name)

    def _drop_mapping(self, topic: str, broker_name: str) -> None:
        mappings = self._mappings.get(topic)
        if mappings is not None:
            mappings.pop(broker_name, None)
            if not mappings:
                del self._mappings[topic]

    def _change_broker_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        broker = self._brokers.get(broker_name)
        if broker is None:
            return 0
        self._change_perm(broker, change)
        logger.info("permission changed broker=%s topics=%d", broker_name, len(broker.topics))
        return len(broker.topics)

    def _change_perm(self, broker: _Broker, change: Callable[[int], int]) -> None:
        for topic in broker.topics:
            data = self._topics[topic][broker.name]
            self._topics[topic][broker.name] = QueueData(
                broker_name=data.broker_name,
                read_queue_nums=data.read_queue_nums,
                write_queue_nums=data.write_queue_nums,
                perm=change(data.perm),
                topic_sys_flag=data.topic_sys_flag,
            )

    def _master_of(self, broker: _Broker, registration: BrokerRegistration) -> RegistrationResult:
        if registration.broker_id == MASTER_ID or not broker.has_master():
            return RegistrationResult()
        master_address = broker.addresses[MASTER_ID]
        master = self._live.get(_LiveKey(registration.cluster, broker.name, master_address))
        if master is None:
            return RegistrationResult()
        return RegistrationResult(master_address=master_address, ha_address=master.ha_address)


def _broker_data(broker: _Broker, *, acts: bool) -> BrokerData:
    """The broker as clients see it; `acts`: without a master, its first slave is shown as one."""
    addresses = dict(broker.addresses)
    if acts and broker.enable_acting_master and addresses and MASTER_ID not in addresses:
        addresses[MASTER_ID] = addresses.pop(min(addresses))
    return BrokerData(
        cluster=broker.cluster,
        broker_name=broker.name,
        broker_addrs=addresses,
        enable_acting_master=broker.enable_acting_master,
        zone_name=broker.zone_name,
    )
