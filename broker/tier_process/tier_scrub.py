"""Tier scrub: runs scrubs in the tier process, one at a time, beside sealing and reads, and remembers the last one.

    requested    by `thermocline tier scrub`
    steady       everything within 30 days, `coldScrubBytesPerDay` at most (tiered/scrub/steady_scrub.py): it heals
                 nothing, and pauses while a requested one runs, and while the store is away

    {store}/thermocline/scrub.json    the last report; when it was cut short by its budget, where the next one goes on;
                                      the progress of the steady one; what is broken

A scrub with healing heals after all objects were checked. Its reads are throttled if the request says so, and never
more than one segment at a time. It ends with the process; then the last finished scrub counts.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from thermocline.broker.cold import SteadyReport
from thermocline.broker.helpers import ScrubRequest, ScrubState
from thermocline.remoting.errors import BrokerBusyError, FencedError, MQError
from thermocline.store.files import Disk, replace_file
from thermocline.tiered.cost import RequestBudget
from thermocline.tiered.findings import Finding, Outcome, ScrubReport
from thermocline.tiered.healing import Healer
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.objects import ObjectStore
from thermocline.tiered.scrub import (
    READ_WITHIN_DAYS,
    WAIT_MS_MAX,
    Scrubber,
    ScrubOptions,
    ScrubProgress,
    SteadyScrub,
    SteadyState,
    Step,
    WriterView,
    broken_now,
    damage_after,
    damage_after_reading,
)
from thermocline.tiered.state import StateLog
from thermocline.tiered.wrappers import with_read_limit

logger = logging.getLogger(__name__)

FIRST_WAIT_S = 300.0
"""A broker that has just started has more urgent things to read."""
FAILED_WAIT_S = 600.0
STEP_PAUSE_S = 0.1
STEADY_BYTES_PER_SECOND = 8 << 20
"""So fast one object is read: cold reads and merges go first."""
BROKEN_NAMED_MAX = 20


class ScrubMemory(msgspec.Struct, frozen=True, kw_only=True):
    """`scrub.json`. `cursor`: where the next deep scrub goes on; empty when the last one came to the end. `broken`:
    what this scrub and earlier ones have found and nothing has settled since; `keeps_broken` False: written by a
    version that kept only the report. `steady`: the steady scrub's progress."""

    report: ScrubReport | None = None
    cursor: str = ""
    broken: tuple[Finding, ...] = ()
    keeps_broken: bool = False
    steady: SteadyState = SteadyState()


class TierScrub:
    """Belongs to the tier process's loop."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        writer: LedgerWriter,
        healer: Healer,
        states: StateLog,
        clock: Callable[[], int],
        disk: Disk,
        state_path: str,
        bytes_per_day: Callable[[], int],
        requests: RequestBudget | None = None,
        spool_folder: Path | None = None,
    ) -> None:
        """`bytes_per_day`: how much is read by itself, 0 for nothing. `requests`: what that keeps to."""
        self._store = store
        self._writer = writer
        self._healer = healer
        self._states = states
        self._clock = clock
        self._disk = disk
        self._state_path = state_path
        self._spool_folder = spool_folder
        self._progress = ScrubProgress()
        self._number = 0
        self._error = ""
        self._task: asyncio.Task[None] | None = None
        self._alone = asyncio.Lock()
        self._memory = self._load()
        self._bytes_per_day = bytes_per_day
        self._steady = SteadyScrub(
            scrubber=lambda: self._scrubber(with_read_limit(store, STEADY_BYTES_PER_SECOND), ScrubProgress()),
            catalog=lambda: writer.catalog,
            bytes_per_day=bytes_per_day,
            clock=clock,
            requests=requests,
            state=self._memory.steady,
        )
        self._steady_error = ""
        self._was_too_slow = False
        self._is_store_away = False

    @property
    def last_report(self) -> ScrubReport | None:
        """The last scrub that has ended, in this process's life or an earlier one."""
        return self._memory.report

    @property
    def broken(self) -> list[Finding]:
        """The damage found by scrubs that is not healed, not read again without error, and not deleted."""
        return broken_now(self._memory.broken, self._writer.catalog)

    @property
    def broken_count(self) -> int:
        """How much that is."""
        return len(self.broken)

    def steady_report(self) -> SteadyReport:
        """How far reading everything has come."""
        steady, state = self._steady, self._steady.state
        broken = self.broken
        return SteadyReport(
            bytes_per_day=self._bytes_per_day(),
            pass_started_ms=state.pass_started_ms,
            is_pass_over=steady.is_pass_over,
            whole_ended_ms=state.whole_ended_ms,
            whole_started_ms=state.whole_started_ms,
            read_count=state.read_count,
            read_bytes=state.read_bytes,
            read_bytes_total=steady.read_bytes_total,
            remaining_bytes=steady.remaining_bytes,
            days_needed=steady.days_needed,
            is_too_slow=steady.is_too_slow,
            is_store_away=self._is_store_away,
            error=self._steady_error,
            broken_count=len(broken),
            broken=[f"{finding.key}: {finding.problem}" for finding in broken[:BROKEN_NAMED_MAX]],
        )

    def start(self, request: ScrubRequest) -> ScrubState:
        """Begin a scrub. BrokerBusyError while another one runs."""
        if self._task is not None and not self._task.done():
            raise BrokerBusyError("a scrub is running", number=self._number)
        self._number += 1
        self._error, self._progress = "", ScrubProgress()
        self._task = asyncio.create_task(self._run(request), name="tier-scrub")
        return self.state()

    def state(self) -> ScrubState:
        """How far the one that runs has come, or what the last one found."""
        progress, is_running = self._progress, self._task is not None and not self._task.done()
        return ScrubState(
            number=self._number,
            is_running=is_running,
            error=self._error,
            segment_count=progress.segment_count,
            deep_segment_count=progress.deep_segment_count,
            read_bytes=progress.read_bytes,
            report=None if is_running else self._memory.report,
        )

    async def run_steadily(self, *, first_wait_s: float = FIRST_WAIT_S, failed_wait_s: float = FAILED_WAIT_S) -> None:
        """Read everything within 30 days, again and again, until cancelled or fenced. An error that is not expected, as
        of a system without free file descriptors, is shown, and the next step comes `failed_wait_s` later."""
        await asyncio.sleep(first_wait_s)
        while True:
            try:
                wait_s = max(STEP_PAUSE_S, await self.step_steadily() / 1_000)
                self._steady_error = ""
            except FencedError as error:
                self._steady_error = str(error)  # the service meets it, too, and ends the process
                return
            except Exception:
                if not self._steady_error:
                    logger.exception("the scrub that runs by itself has failed retry_s=%.0f", failed_wait_s)
                self._steady_error, wait_s = "internal error, see the broker's log", failed_wait_s
            await asyncio.sleep(wait_s)

    async def step_steadily(self) -> int:
        """Begin a pass, or read one object, if it is time; return for how many milliseconds there is nothing to do.

        Raises:
            FencedError: Another writer has taken over.
        """
        async with self._alone:
            try:
                step = await self._steady.step()
            except FencedError:
                raise
            except MQError as error:
                if not self._is_store_away:
                    logger.info("the scrub that runs by itself waits: %s", error)
                self._is_store_away = True
                self._keep_steady(self._memory)
                return WAIT_MS_MAX
            self._is_store_away = False
            self._take_step(step)
        if self._steady.is_too_slow and not self._was_too_slow:
            logger.warning(
                "coldScrubBytesPerDay is too small to read every byte in %d days bytes_per_day=%d days_needed=%.0f",
                READ_WITHIN_DAYS,
                self._bytes_per_day(),
                self._steady.days_needed,
            )
        self._was_too_slow = self._steady.is_too_slow
        return step.wait_ms

    def _take_step(self, step: Step) -> None:
        memory, found = self._memory, step.findings
        if step.report is not None:
            found = tuple(each for each in step.report.findings if each.outcome is Outcome.FOUND)
            memory = msgspec.structs.replace(memory, broken=damage_after(memory.broken, step.report, cursor=""))
        elif step.name is not None:
            memory = msgspec.structs.replace(memory, broken=damage_after_reading(memory.broken, step.name, found))
        earlier = {(finding.key, finding.problem) for finding in self._memory.broken}
        for finding in found:
            if (finding.key, finding.problem) not in earlier:
                logger.error(
                    "scrub found a broken object key=%s problem=%s topic=%s detail=%s;"
                    " `thermocline tier scrub --deep --heal` repairs what the log still has",
                    finding.key,
                    finding.problem,
                    finding.topic,
                    finding.detail,
                )
        self._keep_steady(memory)

    def _keep_steady(self, memory: ScrubMemory) -> None:
        if memory is self._memory and self._steady.state == memory.steady:
            return
        has_moved = memory is not self._memory or self._steady.state.read_bytes != memory.steady.read_bytes
        has_moved |= self._steady.state.whole_ended_ms != memory.steady.whole_ended_ms
        self._memory = msgspec.structs.replace(memory, steady=self._steady.state)
        if has_moved:
            self._save()

    async def close(self) -> None:
        """Stop; idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _scrubber(self, store: ObjectStore, progress: ScrubProgress) -> Scrubber:
        view = WriterView(self._writer, self._states)
        return Scrubber(store, self._writer.keys, view, self._clock, progress, spool_folder=self._spool_folder)

    async def _run(self, request: ScrubRequest) -> None:
        async with self._alone:
            await self._run_alone(request)

    async def _run_alone(self, request: ScrubRequest) -> None:
        store = with_read_limit(self._store, request.bytes_per_second)
        memory = self._memory
        options = ScrubOptions(
            deep=request.deep,
            budget_bytes=request.budget_bytes,
            cursor="" if request.afresh else memory.cursor,
        )

        def scrubber() -> Scrubber:
            return self._scrubber(store, self._progress)

        try:
            report = await scrubber().run(options)
            if request.heal:
                report = await self._healer.heal(report, look_again=scrubber)
        except FencedError as error:
            self._error = str(error)  # the service meets it, too, and ends the process
            return
        except MQError as error:
            self._error = str(error)
            logger.warning("scrub ended early: %s", error)
            return
        except Exception:
            self._error = "internal error, see the broker's log"
            logger.exception("scrub failed")
            return
        self._memory = ScrubMemory(
            steady=memory.steady,
            report=report,
            cursor=report.cursor if request.deep else memory.cursor,
            broken=damage_after(memory.broken, report, cursor=options.cursor),
        )
        self._save()
        log = logger.info if report.is_sound else logger.error
        log("scrub ended %s", report.summary())

    def _load(self) -> ScrubMemory:
        try:
            memory = msgspec.json.decode(self._disk.read(self._state_path), type=ScrubMemory)
        except (OSError, msgspec.DecodeError):
            return ScrubMemory()
        if memory.report is not None and not memory.broken and not memory.keeps_broken:
            return msgspec.structs.replace(memory, broken=damage_after((), memory.report, cursor=""))
        return memory

    def _save(self) -> None:
        try:
            memory = msgspec.structs.replace(self._memory, keeps_broken=True)
            replace_file(self._disk, self._state_path, msgspec.json.encode(memory), keep_backup=False)
        except (OSError, MQError) as error:
            logger.warning("the scrub's state is not kept path=%s: %s", self._state_path, error)
