"""Store rounds: the recurring work of the store, from the hot process's loop.

    every TICK_MS                queue units to their files; watermarks to the shared page; the tier feed called; half
                                 as often while the log does not grow
    flush_interval_ms            the log made durable (ASYNC_FLUSH; with SYNC_FLUSH senders drive the flush themselves)
    derived_sync_interval_ms     queue files, queue ends and checkpoint made durable, in slices and a helper thread;
                                 less often when a round is long, so that rounds take a twentieth of the loop's time
    the timers' own interval     what timers have done made durable, likewise
    every RETENTION_MS           whether the store directory is still there, writes refused if not; and
                                 local files that may go: minimums raised here, unlinked in a helper thread; holders
                                 that can put their records elsewhere receive the offset below which files are wanted,
                                 and delayed and popped messages the same offset, whatever waits there

Files of queues that are new are made in a helper thread before they are written to (store/queues/queue_file_maker.py).

Helper threads only sit in system calls that release the interpreter lock. A round that fails on a disk error is
logged and tried again; what it was to make durable stays as not durable.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor

from thermocline.broker.helpers import SharedPage
from thermocline.remoting.errors import MQError
from thermocline.remoting.offsets import NO_PHYSICAL_OFFSET, PhysicalOffset
from thermocline.store.message_store import MessageStore
from thermocline.store.retention import Retention, RetentionGate
from thermocline.timers.timer_message_store import TimerMessageStore

logger = logging.getLogger(__name__)

TICK_MS = 50
IDLE_TICK_MS = 100
RETENTION_MS = 1_000
REQUESTED_ROUNDS_MAX = 20
"""Of retention, for one request to delete expired files; each deletes `deleteFileBatchMax` of them at most."""
QUEUE_FILES_AHEAD_MAX = 64
"""So many queues are looked at before a tick or a slice of a derived sync, which writes fewer."""
DERIVED_SYNC_REST = 20
"""From one derived sync to the next, in multiples of the loop's time that the first one took; or its interval."""


class StoreRounds:
    """`start` once, `close` before the store is closed."""

    def __init__(
        self,
        store: MessageStore,
        *,
        retention: Retention,
        page: SharedPage,
        clock: Callable[[], int],
        gate: Callable[[], RetentionGate],
        index_timestamp_ms: Callable[[], int],
        on_tick: Callable[[bool], None],
        timers: TimerMessageStore | None = None,
        on_wanted: Callable[[PhysicalOffset], None] | None = None,
        on_awaited: Callable[[PhysicalOffset], None] | None = None,
        relax: Callable[[RetentionGate], Awaitable[RetentionGate]] | None = None,
    ) -> None:
        """`on_tick(pressure)`: called after each tick; `pressure` says that the disk is fuller than it should be.
        `timers`: open ones, of this store. `on_wanted(offset)`: receives, as they do, the offset below which files are
        wanted back. `on_awaited(offset)`: the same, whatever messages wait there. `relax(gate)`: the gate when some of
        what it holds may be lost (drop_oldest.py)."""
        self._store = store
        self._retention = retention
        self._page = page
        self._clock = clock
        self._gate = gate
        self._index_timestamp_ms = index_timestamp_ms
        self._on_tick = on_tick
        self._timers = timers
        self._on_wanted = on_wanted
        self._on_awaited = on_awaited
        self._relax = relax
        self._pressure = False
        self._derived_rest_until_s = 0.0
        self._ticked_offset = NO_PHYSICAL_OFFSET
        self._tasks: list[asyncio.Task[None]] = []
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-rounds")
        self._maker_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="queue-files")

    def start(self) -> None:
        """Begin; returns at once."""
        assert not self._tasks
        loop = asyncio.get_running_loop()
        self.publish()
        config = self._store.config
        self._tasks = [
            loop.create_task(self._repeat(name, rest_ms, step))
            for name, rest_ms, step in (
                ("tick", self.tick_rest_ms, self._tick),
                ("flush", lambda: config.flush_interval_ms, self._flush),
                ("derived sync", lambda: config.derived_sync_interval_ms, self._sync_derived_if_due),
                ("retention", lambda: RETENTION_MS, self.run_retention),
            )
        ]
        if self._timers is not None:
            interval_ms = self._timers.config.round_interval_ms
            self._tasks.append(loop.create_task(self._repeat("timers", lambda: interval_ms, self.sync_timers)))

    async def close(self) -> None:
        """Stop all rounds and wait for what runs in threads. Idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await asyncio.to_thread(self._thread.shutdown)
        await asyncio.to_thread(self._maker_thread.shutdown)

    def publish(self) -> None:
        """Publish the log's end to the helpers."""
        log = self._store.commit_log
        # A flush may end in between: the first of the two is never ahead of the second.
        seal_offset = self._store.seal_offset
        flush_offset = log.flush_offset
        self._page.publish(
            append_offset=log.append_offset,
            flush_offset=flush_offset,
            min_offset=log.min_offset,
            seal_offset=seal_offset,
        )

    def tick_rest_ms(self) -> int:
        """Until the next tick; longer when nothing came since the last question."""
        append_offset = self._store.commit_log.append_offset
        is_idle = append_offset == self._ticked_offset
        self._ticked_offset = append_offset
        return IDLE_TICK_MS if is_idle else TICK_MS

    async def delete_expired(self) -> None:
        """Delete the log files that are past their age, whatever hour of the day it is, as RocketMQ does on request.

        Raises:
            OSError: The disk failed; what is left goes after a restart.
        """
        log = self._store.commit_log
        for _ in range(REQUESTED_ROUNDS_MAX):
            min_offset = log.min_offset
            await self.run_retention(at_any_hour=True)
            if log.min_offset == min_offset:
                return

    async def run_retention(self, *, at_any_hour: bool = False) -> None:
        """Delete local files that may go, now. `at_any_hour`: also outside `deleteWhen`.

        Raises:
            OSError: The disk failed; what is left goes after a restart.
        """
        self._store.check_place()
        gate = self._gate()
        if self._relax is not None:
            gate = await self._relax(gate)
        now_ms, hour = self._clock(), None if at_any_hour else time.localtime().tm_hour
        plan = self._retention.plan(gate, now_ms=now_ms, hour=hour)
        wanted_offset = self._retention.wanted_offset(gate, now_ms=now_ms, hour=hour)
        if self._timers is not None:
            self._timers.release_below(wanted_offset)
        if self._on_wanted is not None:
            self._on_wanted(wanted_offset)
        if self._on_awaited is not None:
            self._on_awaited(self._retention.awaited_offset(gate, now_ms=now_ms, hour=hour))
        self._pressure = self._retention.is_under_pressure()
        if not plan.is_empty:
            self.publish()
            await self._in_thread(lambda: self._retention.execute(plan))

    async def _tick(self) -> None:
        await self._make_queue_files()
        self._store.tick()
        self.publish()
        self._on_tick(self._pressure)

    async def _flush(self) -> None:
        log = self._store.commit_log
        if log.flush_offset < log.append_offset:
            self._store.flush.flush()

    async def _sync_derived_if_due(self) -> None:
        """With tens of thousands of queues in use a round writes a file of each: the next one waits for as long as it
        takes to keep all of them together to a small part of the loop's time."""
        if asyncio.get_running_loop().time() >= self._derived_rest_until_s:
            await self.sync_derived()

    async def sync_derived(self) -> None:
        """Make queue files, queue ends and checkpoint durable, if the log has grown since the last time.

        Raises:
            OSError, DiskFullError, StoreClosedError: The disk failed; the promise before stands.
        """
        store = self._store
        if store.recovery_offset == store.commit_log.append_offset:
            return
        store.index_timestamp_ms = self._index_timestamp_ms()
        sync = store.begin_derived_sync()
        committed = False
        clock = asyncio.get_running_loop().time
        started_s, busy_s = clock(), 0.0
        try:
            is_done = False
            while not is_done:
                await self._make_queue_files()
                slice_start_s = clock()
                is_done = sync.advance()
                busy_s += clock() - slice_start_s
                if not is_done:
                    await asyncio.sleep(0)  # lets requests in between two slices
            self._derived_rest_until_s = started_s + busy_s * DERIVED_SYNC_REST
            await self._in_thread(sync.commit)
            committed = True
        finally:
            store.end_derived_sync(sync, committed=committed)

    async def sync_timers(self) -> None:
        """Make durable what the timers have done since the last time, if that is anything.

        Raises:
            CorruptDataError: The timers' files are damaged.
            OSError, DiskFullError, StoreClosedError: The disk failed; the checkpoint before stands.
        """
        timers = self._timers
        assert timers is not None
        timer_round = timers.begin_round()
        if timer_round is None:
            return
        committed = False

        def commit() -> None:
            nonlocal committed
            timer_round.commit()
            committed = True

        try:
            while not timer_round.advance():  # noqa: ASYNC110 - lets requests in between two slices
                await asyncio.sleep(0)
            await self._in_thread(commit)
        finally:
            # Also when cancelled: then the thread has finished, and what it made durable is.
            timers.end_round(timer_round, committed=committed)

    async def _make_queue_files(self) -> None:
        """Make the files of queues that are about to get their first units."""
        maker = self._store.queue_file_maker
        orders = maker.order(QUEUE_FILES_AHEAD_MAX)
        if orders:
            try:
                await self._in_thread(lambda: maker.make(orders), thread=self._maker_thread)
            finally:
                maker.take_orders(orders)

    async def _in_thread(self, job: Callable[[], None], *, thread: ThreadPoolExecutor | None = None) -> None:
        """Run a job and wait for it even when cancelled: its outcome decides what is durable."""
        future = asyncio.get_running_loop().run_in_executor(thread or self._thread, job)
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise

    async def _repeat(
        self, name: str, rest_ms: Callable[[], int], step: Callable[[], Coroutine[object, object, None]]
    ) -> None:
        while True:
            await asyncio.sleep(rest_ms() / 1_000)
            try:
                await step()
            except (MQError, OSError) as error:
                logger.error("store round failed round=%s: %s", name, error)
            except Exception:
                # A bug in one round must not end flushes and ticks for good.
                logger.exception("store round failed, a bug of ours round=%s", name)
