"""Pops: popped messages without acknowledgement, and the requests that pop.

made     the store of messages in flight, its files registered
load     the order infos; consumer offsets are loaded with the tables
open     reads the check points in the log from where the offsets file says
start    popped messages that are due come back, from now on
close    no more messages come back; those in flight are in the log
"""

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial

from thermocline.broker.assembly.base import Base
from thermocline.broker.assembly.cluster import Cluster
from thermocline.broker.assembly.reads import Reads
from thermocline.broker.assembly.tables import Tables
from thermocline.broker.cluster import read_peer_message
from thermocline.broker.pops import (
    EscapedPops,
    PopAdmission,
    PopFinder,
    PopPolling,
    PopReviver,
    make_pop_store,
)
from thermocline.broker.processors.pops import AckProcessor, PopLookProcessor, PopProcessor
from thermocline.broker.pulls import ColdPullLimits, LongPolling, PullFinder
from thermocline.broker.queues import MessageReader
from thermocline.broker.sends import FlushedAnswers
from thermocline.broker.state_files import load_file, log_is_durable
from thermocline.broker.tables import consumer_offsets
from thermocline.pop import order_table
from thermocline.pop.order_table import OrderTable
from thermocline.remoting.connections import Connection, Processor
from thermocline.remoting.handles import normal_topic


class Pops:
    """The messages in flight. On the loop."""

    def __init__(self, base: Base, tables: Tables) -> None:
        """Registers the file of consumer offsets too, which says how far check points were read."""
        store, offsets = base.store, tables.offsets
        self._base = base
        self._tables = tables
        self._orders = OrderTable()
        self.store = make_pop_store(base.settings.broker, store, offsets, self._orders, clock=base.clock)
        self.escaped: EscapedPops | None = None
        """Of a slave."""
        if base.is_slave:
            self.escaped = EscapedPops(self.store, offsets, clock=base.clock)
        tables.persister.register(
            consumer_offsets.FILE_NAME,
            f"{store.config.config_path}/{consumer_offsets.FILE_NAME}",
            lambda: offsets.encode(
                pop_log_offset=store.commit_log.append_offset
                if offsets.followed_log_offset is None
                else offsets.followed_log_offset
            ),
            changes=offsets.changes,
            durable_first=lambda: log_is_durable(store.commit_log),
        )
        tables.persister.register(
            order_table.FILE_NAME,
            f"{store.config.config_path}/{order_table.FILE_NAME}",
            self.store.encode_orders,
            changes=self.store.order_saves,
            durable_first=lambda: log_is_durable(store.commit_log),
        )

    def load(self) -> None:
        """Load the order infos.

        Raises:
            CorruptDataError: The file cannot be read.
        """
        path = f"{self._base.store.config.config_path}/{order_table.FILE_NAME}"
        self._orders.load(load_file(self._base.disk, path))

    async def open(self) -> None:
        """Read what is in flight from the log, unless the broker is a slave, on which nothing is popped. The tables are
        loaded and booted.

        Raises:
            UnavailableError: The file of consumer offsets could not be written.
        """
        if self._base.is_slave:
            return
        if self.store.open(offsets_log_offset=self._tables.offsets.pop_log_offset):
            await self._tables.persister.save(consumer_offsets.FILE_NAME)
        self._tables.topics.add_listener(
            lambda topic, config: None if config is not None else self.store.forget_topic(topic)
        )

    async def forget_group(self, group: str) -> None:
        """A group was deleted with its offsets; on return nothing comes back for it, also after a restart.

        Raises:
            MQError: It could not be written.
        """
        for _ in self.store.forget_group(group):
            await asyncio.sleep(0)
        await self._tables.persister.save_changed(order_table.FILE_NAME)

    def clean_orders(self) -> Iterator[None]:
        """Drop order infos that are of no more use, to be iterated: a slice at a time."""
        return self._orders.clean(self._has_queue, now_ms=self._base.clock())

    def _has_queue(self, topic: str, group: str, queue_id: int) -> bool:
        config = self._tables.topics.get(topic)
        return config is not None and queue_id < config.read_queue_nums and group in self._tables.groups


class PopPath:
    """POPs, acknowledgements, peeks and notifications. On the loop."""

    def __init__(
        self,
        base: Base,
        tables: Tables,
        reads: Reads,
        cluster: Cluster,
        pops: Pops,
        *,
        long_polling: LongPolling,
        near_bytes: int | None = None,
    ) -> None:
        """`near_bytes`: how much of the log's end counts as being in memory; None: as settings say."""
        settings, call_soon = base.settings, asyncio.get_running_loop().call_soon
        self.polling, self.notifications = (
            PopPolling(
                long_polling,
                clock=base.clock,
                steady_clock=base.steady_clock,
                call_soon=call_soon,
                place_max=lambda: settings.broker.pop_polling_place_max,
                total_max=lambda: settings.broker.pop_polling_max,
                connection_max=lambda: settings.broker.connection_polls_max,
                limits=base.limits,
                newest_first=newest_first,
            )
            for newest_first in (False, True)
        )
        self.reviver = PopReviver(
            settings=settings,
            topics=tables.topics,
            groups=tables.groups,
            offsets=tables.offsets,
            pops=pops.store,
            stats=base.stats,
            clock=base.clock,
            store_host=base.store_host,
            reader=MessageReader(base.store, reads.visible, base.cold),
            read_elsewhere=partial(read_peer_message, cluster.peers),
        )
        self._is_slave = base.is_slave
        self._limits = ColdPullLimits(on_reader_left=base.cold.reader_left)
        self._tasks: list[asyncio.Task[None]] = []
        self.processors = self._make_processors(base, tables, reads, pops, near_bytes=near_bytes)
        """For the dispatcher; `connection_closed` is to be called for every connection that ends."""

    def _make_processors(
        self, base: Base, tables: Tables, reads: Reads, pops: Pops, *, near_bytes: int | None
    ) -> tuple[Processor, ...]:
        settings = base.settings
        answers = FlushedAnswers(
            base.store,
            clock=base.steady_clock,
            bytes_max=lambda: settings.broker.pop_answers_unflushed_bytes_max,
            limits=base.limits,
        )
        admission = _make_admission(base, tables)
        pulls = _make_pulls(base, tables, reads, limits=self._limits, near_bytes=near_bytes)
        finder = PopFinder(
            settings=settings,
            store=base.store,
            topics=tables.topics,
            offsets=tables.offsets,
            turns=tables.turns,
            pops=pops.store,
            escaped=pops.escaped,
            visible=reads.visible,
            lookup=reads.lookup,
            first_messages=reads.first_messages,
            clock=base.clock,
            random=base.random,
            finder=pulls,
            on_free=self._queue_is_free,
        )
        self._pop_processor = PopProcessor(
            settings=settings,
            offsets=tables.offsets,
            filters=tables.filters,
            pops=pops.store,
            escaped=pops.escaped,
            stats=base.stats,
            clock=base.clock,
            store_host=base.store_host,
            admission=admission,
            finder=finder,
            polling=self.polling,
            answers=answers,
            limits=self._limits,
            quotas=tables.quotas,
        )
        return (
            self._pop_processor,
            AckProcessor(
                store=base.store,
                topics=tables.topics,
                offsets=tables.offsets,
                pops=pops.store,
                escaped=pops.escaped,
                stats=base.stats,
                visible=reads.visible,
                clock=base.clock,
                answers=answers,
                polling=self.polling,
                notifications=self.notifications,
            ),
            PopLookProcessor(
                settings=settings,
                store=base.store,
                topics=tables.topics,
                offsets=tables.offsets,
                pops=pops.store,
                stats=base.stats,
                visible=reads.visible,
                lookup=reads.lookup,
                clock=base.clock,
                random=base.random,
                admission=admission,
                finder=pulls,
                polling=self.polling,
                notifications=self.notifications,
                quotas=tables.quotas,
            ),
        )

    def start(self, resources: AsyncExitStack) -> None:
        """Let popped messages that are due come back, until `resources` close; returns at once."""
        assert not self._tasks
        if self._is_slave:
            resources.push_async_callback(self._pop_processor.close)
            return
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self.reviver.run(), name="POP reviver"),
            loop.create_task(self.reviver.run_elsewhere(), name="POP reviver of other brokers' messages"),
            loop.create_task(self.reviver.run_cold(), name="POP reviver of messages in the cold tier"),
        ]
        resources.push_async_callback(self.close)

    async def close(self) -> None:
        """Stop. Idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def connection_closed(self, connection: Connection) -> None:
        """A client has left: nothing waits, and nothing is fetched for it."""
        self.polling.forget(connection)
        self.notifications.forget(connection)
        self._limits.forget(connection)

    def consumer_left(self, connection: Connection, group: str) -> None:
        """A client has left a group: what comes from now on is for the other members."""
        self.polling.forget(connection, group=group)
        self.notifications.forget(connection, group=group)

    def _queue_is_free(self, topic: str, group: str) -> None:
        """A queue that a POP waited for can be popped by others again."""
        self.polling.wake_group(normal_topic(topic, group), group)


def _make_admission(base: Base, tables: Tables) -> PopAdmission:
    return PopAdmission(
        settings=base.settings,
        topics=tables.topics,
        groups=tables.groups,
        holds=tables.holds,
        offsets=tables.offsets,
        filters=tables.filters,
        store_host=base.store_host,
    )


def _make_pulls(
    base: Base, tables: Tables, reads: Reads, *, limits: ColdPullLimits, near_bytes: int | None
) -> PullFinder:
    return PullFinder(
        settings=base.settings,
        store=base.store,
        offsets=tables.offsets,
        cold=base.cold,
        cold_quota=reads.cold_quota,
        limits=limits,
        visible=reads.visible,
        on_cold_read=base.stats.rates.add_get_time,
        near_bytes=near_bytes,
    )
