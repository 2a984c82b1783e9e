"""Tables: topics, groups, offsets, clients and filters, with the state files that keep them.

made      empty; nothing is read
load      from their files, which are registered with the persister
boot      the system topics exist, and everything that a start changes is durable
prepare   the filter compiler is ready, if filters on properties are allowed
close     the kept clock is written if a topic needs it, then topics, then the persister, which writes the
          requested files: no table changes after its last write
"""

import asyncio
import contextlib
from contextlib import AsyncExitStack

from thermocline.auth.quota_buckets import QuotaTable
from thermocline.broker.assembly.base import Base
from thermocline.broker.assembly.connected_clients import ConnectedClients
from thermocline.broker.process import LoopTurns
from thermocline.broker.settings import broker_settings
from thermocline.broker.state_files import ConfigPersister, load_file
from thermocline.broker.tables import (
    TTL_DEFAULT_FILE_NAME,
    ConsumerFilterTable,
    ConsumerOffsets,
    GroupHolds,
    GroupTable,
    KeptClock,
    MessageFilters,
    QueueLocks,
    RequestModeTable,
    StaticTopicTable,
    TopicJournal,
    TopicTable,
    boot_topics,
    consumer_filter_table,
    consumer_offsets,
    decode_ttl_default,
    group_table,
    kept_clock,
    make_copied_topics,
    message_request_modes,
    static_topic_table,
    topic_journal,
    topic_table,
)
from thermocline.remoting.errors import UnavailableError


class Tables:
    """See the module's header. On the loop."""

    def __init__(self, base: Base, connected: ConnectedClients | None = None) -> None:
        """`connected`: the clients that are connected already; None: none is."""
        settings, store, clock = base.settings, base.store, base.clock
        config, files = settings.broker, store.config
        self._base = base
        self._files = files
        self.persister = ConfigPersister(base.disk)
        self.kept_clock = KeptClock(store.clock, self.persister)
        self.static_topics = StaticTopicTable(broker_name=config.broker_name, clock=clock, persister=self.persister)
        self._journal = TopicJournal(base.disk, files.topic_births_path)
        self._delay_level_count = len(files.delay_levels_ms)
        self.topics = TopicTable(
            store=store,
            persister=self.persister,
            journal=self._journal,
            config=lambda: settings.broker,
            system_topics=base.system_topics,
            steady_clock=base.steady_clock,
            limits=base.limits,
        )
        self.groups = GroupTable(
            clock=clock, persister=self.persister, config=lambda: settings.broker, limits=base.limits
        )
        self.offsets = ConsumerOffsets(
            clock=clock,
            version_step=config.offset_version_step,
            pairs_max=lambda: settings.broker.offset_pairs_max,
            limits=base.limits,
        )
        self.topics.forget_offsets = self._forget_offsets
        self.turns = LoopTurns(call_soon=asyncio.get_running_loop().call_soon)
        self.filters = MessageFilters(self.turns, is_enabled=lambda: settings.broker.property_filter)
        self.consumer_filters = ConsumerFilterTable(self.filters, clock=clock)
        self.request_modes = RequestModeTable(self.persister)
        self.holds = GroupHolds(clock=base.steady_clock)
        self.locks = QueueLocks(
            live_ms=config.queue_lock_live_ms,
            clock=base.steady_clock,
            address_max=lambda: settings.broker.address_queue_locks_max,
            total_max=lambda: settings.broker.queue_locks_max,
            limits=base.limits,
        )
        connected = connected or ConnectedClients(settings, clock=base.steady_clock, limits=base.limits)
        self.clients, self.proxied = connected.clients, connected.proxied
        self.clients.group_wants = self.consumer_filters.group_wants
        self.quotas = QuotaTable(text=lambda: settings.broker.quotas, clock=asyncio.get_running_loop().time)
        self._register_files()

    def _register_files(self) -> None:
        """Those that need more than to be encoded and loaded; `load` registers the others. The file of consumer offsets
        waits for what was popped: pops.py."""
        files, persister, store, topics = self._files, self.persister, self._base.store, self.topics
        persister.register(
            topic_journal.FILE_NAME, files.topic_births_path, self._journal.encode, write=self._journal.write
        )
        persister.register(kept_clock.FILE_NAME, self._clock_path, self.kept_clock.encode)
        persister.register(topic_table.INCARNATION_FILE_NAME, files.incarnation_path, store.incarnations.encode)
        persister.register(TTL_DEFAULT_FILE_NAME, self._ttl_default_path, topics.encode_ttl_default)
        persister.register(broker_settings.FILE_NAME, broker_settings.settings_path(files), self._base.settings.encode)
        path = f"{files.config_path}/{static_topic_table.FILE_NAME}"
        persister.register(static_topic_table.FILE_NAME, path, self.static_topics.encode)

    def load(self) -> None:
        """Load the files.

        Raises:
            CorruptDataError: A file cannot be read.
        """
        disk, persister, folder = self._base.disk, self.persister, self._files.config_path
        self.kept_clock.load(load_file(disk, self._clock_path), wall_ms=self._base.clock())
        persister.open(folder, topic_table.FILE_NAME, self.topics)
        self.static_topics.load(load_file(disk, f"{folder}/{static_topic_table.FILE_NAME}"), self.topics.configs())
        persister.open(folder, group_table.FILE_NAME, self.groups)
        self.offsets.load(load_file(disk, f"{folder}/{consumer_offsets.FILE_NAME}"))
        filters = self.consumer_filters
        persister.open(folder, consumer_filter_table.FILE_NAME, filters, changes=filters.changes)
        persister.open(folder, message_request_modes.FILE_NAME, self.request_modes)

    async def boot(self) -> None:
        """Make the system topics, and as a replica set's master those that were copied before they were made here;
        durable on return.

        Raises:
            UnavailableError: A file could not be written.
        """
        await self.topics.boot(
            boot_topics(self._base.settings.broker, delay_level_count=self._delay_level_count),
            previous_ttl_default_ms=decode_ttl_default(load_file(self._base.disk, self._ttl_default_path)),
        )
        if self._base.settings.broker.takes_slaves:
            await make_copied_topics(self.topics, self._base.store)

    async def prepare(self) -> None:
        """Get the filter compiler ready, so that the first expression does not wait for it."""
        if self._base.settings.broker.property_filter:
            await self.filters.prepare()

    def close_with(self, resources: AsyncExitStack) -> None:
        """Close in the order of the module's header when `resources` close, before what they hold already."""
        resources.push_async_callback(self.persister.close)
        resources.push_async_callback(self.topics.close)

    def keep_clock_with(self, resources: AsyncExitStack) -> None:
        """Write the kept clock when `resources` close, before what they hold already."""
        resources.push_async_callback(self._keep_clock)

    async def _keep_clock(self) -> None:
        if self.topics.topics_with_ttl():
            with contextlib.suppress(UnavailableError):  # logged where it was written
                await self.kept_clock.keep()

    async def _forget_offsets(self, topic: str) -> None:
        self.offsets.remove_topic(topic)
        await self.persister.save_changed(consumer_offsets.FILE_NAME)

    @property
    def _clock_path(self) -> str:
        return f"{self._files.own_path}/clock.json"

    @property
    def _ttl_default_path(self) -> str:
        return f"{self._files.own_path}/ttlDefault.json"
