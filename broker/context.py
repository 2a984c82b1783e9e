"""What every processor of the hot process shares: the parts of one broker, made once by the assembly.

A processor takes the context and uses the parts it needs; parts know nothing of processors. `config` is read anew by
each request, as a running broker's settings may change; everything else stays the same for the life of the process.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from thermocline.broker.broker_config import BrokerConfig
from thermocline.broker.broker_settings import BrokerSettings
from thermocline.broker.broker_stats import BrokerStats
from thermocline.broker.client_registry import ClientRegistry
from thermocline.broker.cold_read_quota import ColdReadQuota
from thermocline.broker.cold_reads import ColdReads
from thermocline.broker.config_persister import ConfigPersister
from thermocline.broker.consumer_filter_table import ConsumerFilterTable
from thermocline.broker.consumer_offsets import ConsumerOffsets
from thermocline.broker.delay_service import DelayService
from thermocline.broker.group_table import GroupTable
from thermocline.broker.hand_off.group_holds import GroupHolds
from thermocline.broker.kept_clock import KeptClock
from thermocline.broker.loop_turns import LoopTurns
from thermocline.broker.message_appender import MessageAppender
from thermocline.broker.message_filters import MessageFilters
from thermocline.broker.message_request_modes import RequestModeTable
from thermocline.broker.queue_locks import QueueLocks
from thermocline.broker.queue_lookup import QueueLookup
from thermocline.broker.registration import Registration
from thermocline.broker.remaining_messages import RemainingMessages
from thermocline.broker.static_topics.peer_brokers import PeerBrokers
from thermocline.broker.static_topics.physical_queues import LocalQueues, PhysicalQueues, RemoteQueues
from thermocline.broker.static_topics.static_topic_table import LedQueue, StaticTopicTable
from thermocline.broker.topic_table import TopicTable
from thermocline.broker.transaction_counts import TransactionCounts
from thermocline.broker.visible_queues import VisibleQueues
from thermocline.pop.pop_store import PopStore
from thermocline.remoting.bodies import LogicQueueMappingItem
from thermocline.store.disk import Disk
from thermocline.store.message_store import MessageStore
from thermocline.timers.timer_message_store import TimerMessageStore
from thermocline.transactions.transaction_coordinator import TransactionCoordinator


@dataclass(slots=True, kw_only=True)
class BrokerContext:
    """The parts of one broker. Owner: the hot process's event loop."""

    settings: BrokerSettings
    disk: Disk
    store: MessageStore
    topics: TopicTable
    static_topics: StaticTopicTable
    peers: PeerBrokers
    """The other brokers. Whoever made the context closes it."""
    groups: GroupTable
    offsets: ConsumerOffsets
    holds: GroupHolds
    clients: ClientRegistry
    turns: LoopTurns
    filters: MessageFilters
    consumer_filters: ConsumerFilterTable
    locks: QueueLocks
    delays: DelayService
    timers: TimerMessageStore | None
    """None while they are switched off. Whoever made the context closes them, before the store."""
    transactions: TransactionCoordinator
    transaction_counts: TransactionCounts
    pops: PopStore
    request_modes: RequestModeTable
    stats: BrokerStats
    persister: ConfigPersister
    kept_clock: KeptClock
    cold: ColdReads
    cold_quota: ColdReadQuota
    visible: VisibleQueues
    lookup: QueueLookup
    remaining: RemainingMessages
    appender: MessageAppender
    registration: Registration
    clock: Callable[[], int]
    """Wall clock in ms."""
    random: random.Random
    boot_time_ms: int
    store_host: tuple[str, int]
    """The advertised address: it stands in offset message ids, so clients dial it to view a message."""

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings as they are now."""
        return self.settings.broker

    @property
    def advertised_address(self) -> str:
        """host:port that clients and NameServers are told."""
        return f"{self.store_host[0]}:{self.store_host[1]}"

    def queues_of(self, led: LedQueue, item: LogicQueueMappingItem) -> PhysicalQueues:
        """Where an item's physical queue is to be asked."""
        if led.is_here(item):
            return LocalQueues(self.lookup, self.offsets)
        return RemoteQueues(self.peers, item.broker_name or "")
