"""Acting services: what a slave delivers while it stands in for its master, and how it ends when the master is back.

    begin    the slave is ACTING, nothing comes from the master any more, and `enableRemoteEscape` is on: the timers are
             opened from the master's last checkpoint; delayed and timed messages go out (due_escapes.py); messages are
             popped, and those that the master had in flight come back (broker/pops/escaped_pops.py); open transactions
             go to masters that can end them (half_escapes.py)
    end      the master returns, or its log comes again: what was being sent is waited for, timed messages that are due
             still go out, the timers' files are closed, progress is durable

`settled` returns when the end is over: from then on the positions that the master takes back stand still.
Owner: the hot process's event loop.
Source: broker/BrokerController.java (changeSpecialServiceStatus), Apache RocketMQ 5.5.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from thermocline.broker.acting.due_escapes import DelayEscapes, TimerEscapes
from thermocline.broker.acting.escape_bridge import EscapeBridge
from thermocline.broker.acting.half_escapes import HalfEscapes
from thermocline.broker.cluster import MemberWatch, StandIn
from thermocline.broker.due import DelayService, delay_service
from thermocline.broker.pops import EscapedPops
from thermocline.broker.replicas import MetadataFollower, run_in_slices
from thermocline.broker.state_files import ConfigPersister
from thermocline.broker.tables import ConsumerOffsets, consumer_offsets
from thermocline.remoting.errors import CorruptDataError, DiskFullError, UnavailableError
from thermocline.remoting.offsets import QueueOffset
from thermocline.timers.followed_timers import FollowedTimers
from thermocline.timers.timer_message_store import TimerMessageStore

logger = logging.getLogger(__name__)

STEP_S = 0.5
BEGIN_AGAIN_S = 10.0
"""After a beginning that failed."""
REST_MS = 1_000
"""After a message that could not be sent."""
DRAIN_S_MAX = 2.0
DRAIN_STEP_MS = 20


class ActingServices:
    """See the module's header. `start` once, `close` as often as wanted."""

    def __init__(
        self,
        members: MemberWatch,
        bridge: EscapeBridge,
        *,
        delays: DelayService,
        persister: ConfigPersister,
        pops: EscapedPops,
        halves: HalfEscapes,
        offsets: ConsumerOffsets,
        has: Callable[[str, int, QueueOffset], bool],
        followed_timers: FollowedTimers | None,
        open_timers: Callable[[], TimerMessageStore | None],
        is_following: Callable[[], bool],
        escapes: bool,
    ) -> None:
        """`has(topic, queue id, offset)`: whether this broker serves that message. `followed_timers`: None while timers
        are switched off. `is_following`: whether the master's log comes. `escapes`: enableRemoteEscape; without it
        nothing is delivered."""
        self._members = members
        self._bridge = bridge
        self._delays = delays
        self._persister = persister
        self._pops = pops
        self._halves = halves
        self._offsets = offsets
        self._has = has
        self._followed_timers = followed_timers
        self._open_timers = open_timers
        self._is_following = is_following
        self._escapes = escapes
        self.metadata: MetadataFollower | None = None
        """What follows the master's tables; it asks `master_address`."""
        self.timers: TimerMessageStore | None = None
        """Open while timed messages are delivered here."""
        self.is_at_rest = False
        """Whether all timed messages that were due had gone out when the services ended last."""
        self._is_running = False
        self._ending = asyncio.Lock()
        self._is_stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._task: asyncio.Task[None] | None = None
        members.add_listener(self._state_changed)

    @property
    def master_address(self) -> str | None:
        """The master whose tables are followed; None while there is none, and until this broker has handed over."""
        is_master_there = self._members.state is StandIn.FOLLOWING and not self._is_running
        return self._members.master_address if is_master_there else None

    def start(self) -> None:
        """Begin to watch; returns at once."""
        assert self._task is None
        self._task = asyncio.get_running_loop().create_task(self._run(), name="services of an acting master")

    async def close(self) -> None:
        """Stop; progress is durable on return. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._end()

    async def settled(self) -> None:
        """Return when nothing is delivered here, and progress is durable."""
        await self._settled.wait()

    @property
    def _is_wanted(self) -> bool:
        return self._escapes and self._members.state is StandIn.ACTING and not self._is_following()

    def _state_changed(self, state: StandIn) -> None:
        self._changed.set()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            pause_s = STEP_S
            try:
                if self._is_wanted and not self._is_running:
                    await self._begin_whole()
                elif self._is_running and not self._is_wanted:
                    await asyncio.shield(self._end())
            except Exception:
                # A bug must not end what recurs.
                logger.exception("services of an acting master not begun or ended")
                pause_s = BEGIN_AGAIN_S if self._is_wanted else STEP_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()

    async def _begin_whole(self) -> None:
        """Begin; what fails in the middle ends, and can begin again."""
        try:
            await self._begin()
        except Exception:
            await asyncio.shield(self._end())
            raise

    async def _begin(self) -> None:
        logger.info("what waits at the master goes to other masters from now on")
        self._is_running = True
        self._is_stopping.clear()
        self._settled.clear()
        if self.metadata is not None:
            self.metadata.master_changed()
            await self.metadata.step()  # what it was doing ends, and there is no master for it now
        await self._persister.after_writes(lambda: None)
        steps: list[Callable[[], Awaitable[int | None]]] = [DelayEscapes(self._delays, self._bridge).deliver_slice]
        try:
            self.timers = timers = self._open_timers()
        except (CorruptDataError, OSError, DiskFullError) as error:
            logger.error("timed messages are not delivered here: %s", error)
            timers = None
        if timers is not None:
            escapes = TimerEscapes(timers, self._bridge, precision_ms=timers.config.precision_ms)
            steps.append(escapes.deliver_slice)
        log_offset = self._offsets.followed_log_offset
        await run_in_slices(
            self._pops.begin(
                self._bridge,
                offsets_log_offset=self._offsets.pop_log_offset if log_offset is None else log_offset,
                has=self._has,
            )
        )
        self._halves.begin()
        steps += [self._pops.forward_due, self._halves.deliver_slice, self._save]
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._repeat(step), name="delivery by an acting master") for step in steps]

    async def _end(self) -> None:
        async with self._ending:
            if self._is_running:
                await self._end_running()

    async def _end_running(self) -> None:
        self._is_stopping.set()
        tasks, self._tasks = self._tasks, []
        await asyncio.gather(*tasks)
        timers = self.timers
        self.is_at_rest = timers is not None and await self._drain(timers)
        if timers is not None:
            try:
                timers.close()
            finally:
                self.timers = None
            if self._followed_timers is not None:
                self._followed_timers.begin_again(timers.checkpoint, timers.metrics.encode())
        await self._pops.end()
        self._halves.end()
        with contextlib.suppress(UnavailableError):  # at a full disk: what was delivered since may be delivered again
            await self._save_files()
        self._is_running = False
        self._settled.set()
        logger.info("what waits is the master's again is_at_rest=%s", self.is_at_rest)

    async def _drain(self, timers: TimerMessageStore) -> bool:
        """Send what is due, to the end of a tick if that comes soon; whether all that was due has gone out."""
        escapes = TimerEscapes(timers, self._bridge, precision_ms=timers.config.precision_ms)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DRAIN_S_MAX
        while True:
            try:
                rest_ms = await escapes.deliver_slice()
            except Exception:
                logger.exception("timed messages not sent to another master")
                return False
            if rest_ms is None or (rest_ms and (timers.is_between_ticks or loop.time() >= deadline)):
                return rest_ms is not None
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(min(rest_ms, DRAIN_STEP_MS) / 1_000)

    async def _repeat(self, step: Callable[[], Awaitable[int | None]]) -> None:
        """Take a step until the services end; it says how long to rest, in ms, None for a step that failed."""
        while not self._is_stopping.is_set():
            try:
                rest_ms = await step()
            except Exception:
                logger.exception("delivery by an acting master failed")
                rest_ms = None
            if rest_ms == 0:
                await asyncio.sleep(0)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout((REST_MS if rest_ms is None else rest_ms) / 1_000):
                    await self._is_stopping.wait()

    async def _save(self) -> int | None:
        """Make progress durable."""
        timers = self.timers
        if timers is not None:
            timer_round = timers.begin_round()
            if timer_round is not None:
                is_committed = False
                try:
                    while not timer_round.advance():  # noqa: ASYNC110 - lets requests in between two slices
                        await asyncio.sleep(0)
                    await asyncio.to_thread(timer_round.commit)
                    is_committed = True
                finally:
                    timers.end_round(timer_round, committed=is_committed)
        self._pops.note_progress()
        await self._save_files()
        return REST_MS

    async def _save_files(self) -> None:
        await self._persister.save_changed(delay_service.FILE_NAME)
        await self._persister.save_changed(consumer_offsets.FILE_NAME)
