"""Context builder: makes a broker's parts in the order in which they need each other, and takes their files over.

    store, settings -> persister -> topics, groups, offsets, filters, delays (from config/*.json)
                    -> what was popped, transactions, timers -> context

It opens no socket and starts no task: that is the assembly's (what runs beside requests is in housekeeping.py). On
return the system topics exist and everything that a start changes is durable. The timers are open then: whoever made
the context closes them before the store.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable

from thermocline.broker import (
    broker_settings,
    consumer_filter_table,
    consumer_offsets,
    delay_service,
    group_table,
    kept_clock,
    message_request_modes,
    topic_journal,
    topic_table,
    transaction_counts,
)
from thermocline.broker.broker_settings import BrokerSettings
from thermocline.broker.broker_stats import BrokerStats
from thermocline.broker.client_registry import ClientRegistry
from thermocline.broker.cold_read_quota import ColdReadQuota
from thermocline.broker.cold_reads import ColdReads
from thermocline.broker.config_persister import ConfigPersister, load_file
from thermocline.broker.consumer_filter_table import ConsumerFilterTable
from thermocline.broker.consumer_offsets import ConsumerOffsets
from thermocline.broker.context import BrokerContext
from thermocline.broker.delay_service import DelayService
from thermocline.broker.group_table import GroupTable
from thermocline.broker.hand_off.group_holds import GroupHolds
from thermocline.broker.kept_clock import KeptClock
from thermocline.broker.loop_turns import LoopTurns
from thermocline.broker.make_pop_store import make_pop_store, popped_is_durable
from thermocline.broker.message_appender import MessageAppender
from thermocline.broker.message_filters import MessageFilters
from thermocline.broker.message_request_modes import RequestModeTable
from thermocline.broker.name_server_watch import SETTINGS as LIVE_NAME_SERVERS
from thermocline.broker.open_timers import open_timers
from thermocline.broker.open_transactions import open_transactions
from thermocline.broker.queue_locks import QueueLocks
from thermocline.broker.queue_lookup import QueueLookup
from thermocline.broker.registration import Registration
from thermocline.broker.remaining_messages import RemainingMessages
from thermocline.broker.static_topics import static_topic_table
from thermocline.broker.static_topics.peer_brokers import PeerBrokers
from thermocline.broker.static_topics.static_topic_table import StaticTopicTable
from thermocline.broker.system_topics import boot_topics, system_topic_names
from thermocline.broker.topic_journal import TopicJournal
from thermocline.broker.topic_table import TopicTable, decode_ttl_default
from thermocline.broker.transaction_counts import TransactionCounts
from thermocline.broker.visible_queues import VisibleQueues
from thermocline.pop import order_table
from thermocline.pop.order_table import OrderTable
from thermocline.store.consume_queue import ConsumeQueue
from thermocline.store.disk import Disk, make_durable_directory
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
        CorruptDataError: A state file cannot be read, or the timers cannot be recovered.
        UnavailableError: A state file could not be written.
        OSError: The disk failed under the timers.
    """
    config = settings.broker
    store.store_host = store_host
    files = store.config
    make_durable_directory(disk, files.config_path)
    make_durable_directory(disk, files.own_path)

    persister = ConfigPersister(disk)
    time_kept = KeptClock(store.clock, persister)
    stats = BrokerStats(cluster_name=config.cluster_name, now_ms=clock())
    static_topics = StaticTopicTable(broker_name=config.broker_name, clock=clock, persister=persister)
    appender = MessageAppender(store, stats, arrived=arrived, queue_for=static_topics.queue_for)
    delay_level_count = len(files.delay_levels_ms)
    journal = TopicJournal(disk, files.topic_births_path)
    persister.register(topic_journal.FILE_NAME, files.topic_births_path, journal.encode, write=journal.write)
    topics = TopicTable(
        store=store,
        persister=persister,
        journal=journal,
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
    turns = LoopTurns(call_soon=asyncio.get_running_loop().call_soon)
    filters = MessageFilters(turns, is_enabled=lambda: settings.broker.property_filter)
    consumer_filters = ConsumerFilterTable(filters, clock=clock)
    counts = TransactionCounts(clock=clock)
    request_modes = RequestModeTable(persister)
    orders = OrderTable()
    pops = make_pop_store(config, store, offsets, orders, clock=clock)
    ttl_default_path = f"{files.own_path}/ttlDefault.json"
    clock_path = f"{files.own_path}/clock.json"
    persister.register(kept_clock.FILE_NAME, clock_path, time_kept.encode)
    time_kept.load(load_file(disk, clock_path), wall_ms=clock())
    persister.register(topic_table.INCARNATION_FILE_NAME, files.incarnation_path, store.incarnations.encode)
    persister.register(topic_table.TTL_DEFAULT_FILE_NAME, ttl_default_path, topics.encode_ttl_default)
    persister.register(broker_settings.FILE_NAME, settings_path(files), settings.encode)
    persister.register(
        consumer_offsets.FILE_NAME,
        f"{files.config_path}/{consumer_offsets.FILE_NAME}",
        lambda: offsets.encode(pop_log_offset=store.commit_log.append_offset),
        changes=offsets.changes,
        durable_first=lambda: popped_is_durable(store, pops),
    )
    persister.register(
        order_table.FILE_NAME,
        f"{files.config_path}/{order_table.FILE_NAME}",
        pops.encode_orders,
        changes=pops.order_saves,
        durable_first=lambda: popped_is_durable(store, pops),
    )
    folder = files.config_path
    persister.open(folder, topic_table.FILE_NAME, topics)
    persister.register(static_topic_table.FILE_NAME, f"{folder}/{static_topic_table.FILE_NAME}", static_topics.encode)
    static_topics.load(load_file(disk, f"{folder}/{static_topic_table.FILE_NAME}"), topics.configs())
    persister.open(folder, group_table.FILE_NAME, groups)
    offsets.load(load_file(disk, f"{folder}/{consumer_offsets.FILE_NAME}"))
    persister.open(folder, consumer_filter_table.FILE_NAME, consumer_filters, changes=consumer_filters.changes)
    persister.open(folder, delay_service.FILE_NAME, delays, changes=delays.changes)
    persister.open(folder, transaction_counts.FILE_NAME, counts, changes=counts.changes)
    orders.load(load_file(disk, f"{folder}/{order_table.FILE_NAME}"))
    persister.open(folder, message_request_modes.FILE_NAME, request_modes)
    await topics.boot(
        boot_topics(config, delay_level_count=delay_level_count),
        previous_ttl_default_ms=decode_ttl_default(load_file(disk, ttl_default_path)),
    )

    pops.open(offsets_log_offset=offsets.pop_log_offset)
    topics.add_listener(lambda topic, config: None if config is not None else pops.forget_topic(topic))
    chance = random.Random(seed)
    transactions = await open_transactions(settings, store, offsets, persister, appender, counts, clock=clock)

    visible = VisibleQueues(
        store,
        cold,
        expired_before_ms=topics.expired_before,
    )
    if config.property_filter:
        await filters.prepare()
    timers = open_timers(settings, store, disk=disk, clock=clock, chance=chance)
    host, port = store_host
    registration = Registration(
        topics=topics,
        static_topics=static_topics,
        config=lambda: settings.broker,
        advertised_address=f"{host}:{port}",
        ha_address=f"{host}:{config.ha_port or port + 1}",
    )
    settings.add_listener(lambda change: registration.look_soon() if LIVE_NAME_SERVERS & set(change.live) else None)
    return BrokerContext(
        settings=settings,
        disk=disk,
        store=store,
        topics=topics,
        static_topics=static_topics,
        peers=PeerBrokers(registration, timeout_ms=lambda: settings.broker.forward_timeout_ms, clock=clock),
        groups=groups,
        offsets=offsets,
        holds=GroupHolds(clock=clock),
        clients=ClientRegistry(
            clock=clock,
            call_soon=asyncio.get_running_loop().call_soon,
            is_notifying=lambda: settings.broker.notify_group_changes,
            group_wants=consumer_filters.group_wants,
        ),
        turns=turns,
        filters=filters,
        consumer_filters=consumer_filters,
        locks=QueueLocks(live_ms=config.queue_lock_live_ms, clock=clock),
        delays=delays,
        timers=timers,
        transactions=transactions,
        transaction_counts=counts,
        pops=pops,
        request_modes=request_modes,
        stats=stats,
        persister=persister,
        kept_clock=time_kept,
        cold=cold,
        cold_quota=ColdReadQuota(config=lambda: settings.broker, clock=clock),
        visible=visible,
        lookup=QueueLookup(store, visible, cold),
        remaining=RemainingMessages(visible, cold),
        appender=appender,
        registration=registration,
        clock=clock,
        random=chance,
        boot_time_ms=clock(),
        store_host=store_host,
    )
