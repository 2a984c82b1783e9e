"""Base: what every family of a broker's parts is made from."""

from collections.abc import Callable, Iterable
from random import Random

from thermocline.broker.cold import ColdReads
from thermocline.broker.settings import BrokerSettings
from thermocline.broker.stats import BrokerStats
from thermocline.broker.tables import system_topic_names
from thermocline.remoting.connections import LimitCounts
from thermocline.remoting.topic_validation import is_system_topic
from thermocline.store.files import Disk, make_durable_directory
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import ConsumeQueue


class Base:
    """Owner: the hot process's event loop."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        *,
        disk: Disk,
        cold: ColdReads,
        store_host: tuple[str, int],
        arrived: Callable[[Iterable[ConsumeQueue]], None],
        clock: Callable[[], int],
        steady_clock: Callable[[], int],
        random: Random,
        limits: LimitCounts | None = None,
    ) -> None:
        """`store_host`: the advertised address; it stands in offset message ids, so clients dial it to view a message.
        `arrived`: called with the queues that grew by the broker's own messages. `clock`: wall clock in ms.
        `steady_clock`: the same, never set: for intervals and deadlines of this broker's own.
        `limits`: where refusals by limits are counted."""
        self.settings = settings
        self.store = store
        self.disk = disk
        self.cold = cold
        self.store_host = store_host
        self.arrived = arrived
        self.clock = clock
        self.steady_clock = steady_clock
        self.random = random
        self.limits = limits or LimitCounts()
        store.store_host = store_host
        make_durable_directory(disk, store.config.config_path)
        make_durable_directory(disk, store.config.own_path)
        self.system_topics = system_topic_names(settings.broker, delay_level_count=len(store.config.delay_levels_ms))
        self.stats = BrokerStats(
            cluster_name=settings.broker.cluster_name,
            now_ms=clock(),
            keys_max=settings.broker.stats_keys_max,
            is_system_topic=lambda topic: topic in self.system_topics or is_system_topic(topic),
        )

    @property
    def is_slave(self) -> bool:
        """Whether another broker of this name is the master."""
        return self.settings.broker.is_slave

    @property
    def advertised_address(self) -> str:
        """host:port that clients and NameServers are given."""
        return f"{self.store_host[0]}:{self.store_host[1]}"
