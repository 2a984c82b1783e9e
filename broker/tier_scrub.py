"""Tier scrub: runs scrubs in the tier process, one at a time, beside sealing and reads, and remembers the last one.

    {store}/thermocline/scrub.json    the last report; when it was cut short by its budget, where the next one goes on

A scrub that is asked to heal does so when all has been looked at. What it reads is throttled when the asker says so,
and never more than one segment at a time. It ends with the process; then the last one finished is what counts.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from thermocline.broker.helper_protocol import ScrubRequest, ScrubState
from thermocline.remoting.errors import BrokerBusyError, FencedError, MQError
from thermocline.store.disk import Disk, replace_file
from thermocline.tiered.ledger_writer import LedgerWriter
from thermocline.tiered.object_store import ObjectStore
from thermocline.tiered.scrub.findings import Finding, ScrubReport
from thermocline.tiered.scrub.healer import Healer
from thermocline.tiered.scrub.known_damage import count_broken, damage_after
from thermocline.tiered.scrub.scrubber import Scrubber, ScrubOptions, ScrubProgress
from thermocline.tiered.scrub.view import WriterView
from thermocline.tiered.state.state_log import StateLog
from thermocline.tiered.wrappers import with_read_limit

logger = logging.getLogger(__name__)


class ScrubMemory(msgspec.Struct, frozen=True, kw_only=True):
    """`scrub.json`. `cursor`: where the next deep scrub goes on; empty when the last one came to the end. `broken`:
    what this scrub and earlier ones have found and nothing has settled since."""

    report: ScrubReport | None = None
    cursor: str = ""
    broken: tuple[Finding, ...] = ()


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
        spool_folder: Path | None = None,
    ) -> None:
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
        self._memory = self._load()

    @property
    def last_report(self) -> ScrubReport | None:
        """The last scrub that has ended, in this process's life or an earlier one."""
        return self._memory.report

    @property
    def broken_count(self) -> int:
        """How much is broken, as far as scrubs have told: until it is healed, read again and right, or gone."""
        return count_broken(self._memory.broken, self._writer.catalog)

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

    async def close(self) -> None:
        """Stop; idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, request: ScrubRequest) -> None:
        store = with_read_limit(self._store, request.bytes_per_second)
        memory = self._memory
        options = ScrubOptions(
            deep=request.deep,
            budget_bytes=request.budget_bytes,
            cursor="" if request.afresh else memory.cursor,
        )

        def scrubber() -> Scrubber:
            view = WriterView(self._writer, self._states)
            return Scrubber(
                store, self._writer.keys, view, self._clock, self._progress, spool_folder=self._spool_folder
            )

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
        if memory.report is not None and not memory.broken:  # of a version that kept only the report
            return msgspec.structs.replace(memory, broken=damage_after((), memory.report, cursor=""))
        return memory

    def _save(self) -> None:
        try:
            replace_file(self._disk, self._state_path, msgspec.json.encode(self._memory), keep_backup=False)
        except (OSError, MQError) as error:
            logger.warning("the scrub's state is not kept path=%s: %s", self._state_path, error)
