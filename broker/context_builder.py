"""Context builder: makes a broker's parts in the order in which they need each other, and takes their files over.

    store, settings -> persister -> topics, groups, offsets, delays (from config/*.json) -> what was popped -> context

It opens no socket and starts no task: that is the assembly's (what runs beside requests is in housekeeping.py). On
return the system topics exist and everything that a start changes is durable.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable

from thermocline.broker import (
    broker_settings,
    consumer_offsets,
    delay_service,
    group_table,
    message_request_modes,
    topic_table,
)
from thermocline.broker.broker_settings import BrokerSettings
from thermocline.broker.broker_stats import BrokerStats
from thermocline.broker.client_registry import ClientRegistry
from thermocline.broker.cold_reads import ColdReads
from thermocline.broker.config_persister import ConfigPersister, load_file
from thermocline.broker.consumer_offsets import ConsumerOffsets
from thermocline.broker.context import BrokerContext
from thermocline.broker.delay_service import DelayService
from thermocline.broker.group_table import GroupTable
from thermocline.broker.message_appender import MessageAppender
from thermocline.broker.message_request_modes import RequestModeTable
from thermocline.broker.queue_locks import QueueLocks
from thermocline.broker.queue_lookup import QueueLookup
from thermocline.broker.registration import Registration
from thermocline.broker.system_topics import boot_topics, system_topic_names
from thermocline.broker.topic_table import TopicTable, decode_ttl_default
from thermocline.broker.visible_queues import VisibleQueues
from thermocline.pop import order_table
from thermocline.pop.order_table import OrderTable
from thermocline.pop.pop_store import PopStore
from thermocline.pop.revive_log import ReviveLog
from thermocline.remoting.bodies import TopicConfig
from thermocline.remoting.errors import ServiceUnavailableError
from thermocline.remoting.pop_topics import revive_topic
from thermocline.store.consume_queue import ConsumeQueue
from thermocline.store.disk import Disk, make_durable_directory
from thermocline.store.message_draft import PutStatus
from thermocline.store.message_store import MessageStore
from thermocline.store.store_config import StoreConfig


def wall_clock_ms() -> int:
    """Milliseconds of the wall clock."""
    return time.time_ns() // 1_000_000


def settings_path(store: StoreConfig) -> str:
    """The file of settings that were changed while running."""
    return f"{store.own_path}/settings.json"


async def build_context(
    settings: BrokerSettings,
    store: MessageStore,
    *,
    disk: Disk,
    cold: ColdReads,
    store_host: tuple[str, int],
    arrived: Callable[[Iterable[ConsumeQueue]], None],
    clock: Callable[[], int] = wall_clock_ms,
    seed: int | None = None,
) -> BrokerContext:
    """Make the parts of one broker over an open store.

    `store_host`: the advertised address. `arrived`: told of queues that grew by the broker's own messages.

    Raises:
        CorruptDataError: A state file cannot be read.
        UnavailableError: A state file could not be written.
    """
    config = settings.broker
    store.store_host = store_host
    files = store.config
    make_durable_directory(disk, files.config_path)
    make_durable_directory(disk, files.own_path)

    persister = ConfigPersister(disk)
    stats = BrokerStats(cluster_name=config.cluster_name, now_ms=clock())
    appender = MessageAppender(store, stats, arrived=arrived)
    delay_level_count = len(files.delay_levels_ms)
    topics = TopicTable(
        store=store,
        persister=persister,
        config=lambda: settings.broker,
        system_topics=system_topic_names(config, delay_level_count=delay_level_count),
    )
    groups = GroupTable(clock=clock, persister=persister, config=lambda: settings.broker)
    offsets = ConsumerOffsets(clock=clock, version_step=config.offset_version_step)
    delays = DelayService(
        store,
        appender,
        persister,
        clock=clock,
        flush_interval_ms=lambda: settings.broker.delay_flush_interval_ms,
        version_step=config.delay_version_step,
    )
    request_modes = RequestModeTable(persister)
    orders = OrderTable()
    pops = PopStore(
        store,
        ReviveLog(
            store,
            topic=revive_topic(config.cluster_name),
            queue_count=config.revive_queues,
            broker_name=config.broker_name,
            clock=clock,
        ),
        offsets,
        orders,
        clock=clock,
        pending_max=config.pop_pending_max,
    )
    topics_path = f"{files.config_path}/topics.json"
    groups_path = f"{files.config_path}/subscriptionGroup.json"
    offsets_path = f"{files.config_path}/{consumer_offsets.FILE_NAME}"
    delays_path = f"{files.config_path}/delayOffset.json"
    request_modes_path = f"{files.config_path}/messageRequestMode.json"
    orders_path = f"{files.config_path}/consumerOrderInfo.json"
    ttl_default_path = f"{files.own_path}/ttlDefault.json"
    persister.register(topic_table.FILE_NAME, topics_path, topics.encode)
    persister.register(topic_table.INCARNATION_FILE_NAME, files.incarnation_path, store.incarnations.encode)
    persister.register(topic_table.TTL_DEFAULT_FILE_NAME, ttl_default_path, topics.encode_ttl_default)
    persister.register(group_table.FILE_NAME, groups_path, groups.encode)
    persister.register(
        consumer_offsets.FILE_NAME,
        offsets_path,
        lambda: offsets.encode(pop_log_offset=store.commit_log.append_offset),
        durable_first=lambda: _durable(store, pops.last_offset),
    )
    persister.register(
        order_table.FILE_NAME, orders_path, pops.encode_orders, durable_first=lambda: _durable(store, pops.last_offset)
    )
    persister.register(message_request_modes.FILE_NAME, request_modes_path, request_modes.encode)
    persister.register(delay_service.FILE_NAME, delays_path, delays.encode)
    persister.register(broker_settings.FILE_NAME, settings_path(files), settings.encode)

    topics.load(load_file(disk, topics_path))
    groups.load(load_file(disk, groups_path))
    offsets.load(load_file(disk, offsets_path))
    delays.load(load_file(disk, delays_path))
    orders.load(load_file(disk, orders_path))
    request_modes.load(load_file(disk, request_modes_path))
    await topics.boot(
        boot_topics(config, delay_level_count=delay_level_count),
        previous_ttl_default_ms=decode_ttl_default(load_file(disk, ttl_default_path)),
    )

    pops.open(offsets_log_offset=offsets.pop_log_offset)
    topics.add_listener(lambda topic, config: _forget_popped(pops, topic, config))

    visible = VisibleQueues(
        store,
        cold,
        expired_before_ms=topics.expired_before,
    )
    host, port = store_host
    return BrokerContext(
        settings=settings,
        disk=disk,
        store=store,
        topics=topics,
        groups=groups,
        offsets=offsets,
        clients=ClientRegistry(
            clock=clock,
            call_soon=asyncio.get_running_loop().call_soon,
            is_notifying=lambda: settings.broker.notify_group_changes,
        ),
        locks=QueueLocks(live_ms=config.queue_lock_live_ms, clock=clock),
        delays=delays,
        pops=pops,
        request_modes=request_modes,
        stats=stats,
        persister=persister,
        cold=cold,
        visible=visible,
        lookup=QueueLookup(store, visible, cold),
        appender=appender,
        registration=Registration(
            topics=topics,
            config=lambda: settings.broker,
            advertised_address=f"{host}:{port}",
            ha_address=f"{host}:{config.ha_port or port + 1}",
        ),
        clock=clock,
        random=random.Random(seed),
        boot_time_ms=clock(),
        store_host=store_host,
    )


async def _durable(store: MessageStore, offset: int) -> None:
    """Return when the log is durable up to an offset.

    Raises:
        ServiceUnavailableError: The flush failed.
    """
    if offset <= store.commit_log.flush_offset:
        return
    flushed: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
    store.flush.wait(offset, lambda status: None if flushed.done() else flushed.set_result(status))
    status = await flushed
    if status is not PutStatus.PUT_OK:
        raise ServiceUnavailableError(status.value)


def _forget_popped(pops: PopStore, topic: str, config: TopicConfig | None) -> None:
    if config is None:
        pops.forget_topic(topic)
