"""SteadyScrub: reads every byte of the cold tier at least once in 30 days, a little at a time. It heals nothing.

    pass      names, sizes, ledger and state once at its beginning; then each segment, pack and index object, by name
    pace      the pass's unread bytes, spread evenly over the rest of PASS_DAYS, but at most `bytes_per_day`
    allowance grows with the pace; an object is read when it has grown to the object's size, and its bytes are taken off
    next pass PASS_DAYS after the beginning of the one before

So within 24 hours it reads at most `bytes_per_day`, an hour's part of it and one object. PASS_DAYS leaves five days for
times when the process is down. If `bytes_per_day` does not suffice for 30 days, `days_needed` shows it.

The check at the beginning lists the bucket, within the request budget; reads do not count there. It holds all names in
memory: with more than LOOK_OBJECTS_MAX objects it is left to `thermocline tier scrub`.
An object with findings is read once more by a newer catalog, as the broker may have merged or dropped it meanwhile.
Bounded: names of LISTED_MAX objects are kept; a worker thread collects them from the catalog.
Belongs to the tier process's loop.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from thermocline.tiered.catalog import Catalog
from thermocline.tiered.cost import RequestBudget
from thermocline.tiered.findings import Finding, ScrubReport
from thermocline.tiered.scrub.scrubber import Scrubber, ScrubOptions, SegmentName, named_sizes, parse_cursor

logger = logging.getLogger(__name__)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
PASS_DAYS = 25
READ_WITHIN_DAYS = 30
"""Every byte is to be read once in so many days."""
LISTED_MAX = 10_000
SURVEY_AGE_MS_MAX = 6 * HOUR_MS
WAIT_MS_MAX = 60_000
"""How long a change of the setting, or of the amount to read, may go unnoticed."""
KEYS_A_LISTING = 1_000
LOOK_OBJECTS_MAX = 500_000
_LOOK_REQUESTS_MIN = 10


class SteadyState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state kept over restarts. `cursor`: the last object read; `pass_started_ms` 0: no pass has begun yet;
    `whole_*`: the last complete pass. `read_*`: the present pass."""

    cursor: str = ""
    pass_started_ms: int = 0
    whole_started_ms: int = 0
    whole_ended_ms: int = 0
    read_count: int = 0
    read_bytes: int = 0
    allowance_bytes: float = 0.0
    refilled_ms: int = 0


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one step. `report`: of the check at the beginning of a pass; `name`: the object that was read, with
    its findings. Neither: there is nothing to do for `wait_ms`."""

    wait_ms: int = 0
    report: ScrubReport | None = None
    name: SegmentName | None = None
    findings: tuple[Finding, ...] = ()


class _Survey(msgspec.Struct, frozen=True):
    """The next objects in reading order, as many as are kept; the bytes behind the cursor, and of all objects."""

    upcoming: deque[tuple[SegmentName, int]]
    remaining_bytes: int
    total_bytes: int
    made_ms: int


@dataclass(slots=True, eq=False)
class SteadyScrub:
    """See the module's header. One task calls `step`; `state` may be saved after each."""

    scrubber: Callable[[], Scrubber]
    catalog: Callable[[], Catalog]
    bytes_per_day: Callable[[], int]
    clock: Callable[[], int]
    requests: RequestBudget | None = None
    state: SteadyState = field(default_factory=SteadyState)
    read_bytes_total: int = 0
    """Since the process began."""
    _survey: _Survey | None = None
    _remaining_bytes: int = 0

    @property
    def is_pass_over(self) -> bool:
        """Whether the pass is complete, and the next one has not begun."""
        return self.state.pass_started_ms == self.state.whole_started_ms

    @property
    def remaining_bytes(self) -> int | None:
        """The unread bytes of this pass; None until computed."""
        return None if self._survey is None else self._remaining_bytes

    @property
    def days_needed(self) -> float | None:
        """How many days reading everything takes at `bytes_per_day`; None when it is off, or not computed yet."""
        budget_bytes = self.bytes_per_day()
        return None if self._survey is None or not budget_bytes else self._survey.total_bytes / budget_bytes

    @property
    def is_too_slow(self) -> bool:
        """Whether the budget is too small to read everything in time."""
        days = self.days_needed
        return days is not None and days > READ_WITHIN_DAYS

    async def step(self) -> Step:
        """Begin a pass, or read one object, if it is time.

        Raises:
            ObjectStoreUnavailableError: No answer; the next step retries.
            FencedError: Another writer has taken over.
        """
        budget_bytes, now_ms = self.bytes_per_day(), self.clock()
        if not budget_bytes:
            self._set(refilled_ms=now_ms)
            return Step(wait_ms=WAIT_MS_MAX)
        if self.is_pass_over:
            began_ms = self.state.pass_started_ms
            if began_ms and began_ms <= now_ms < began_ms + PASS_DAYS * DAY_MS:
                if self._survey is None:
                    await self._make_survey(now_ms)
                return Step(wait_ms=WAIT_MS_MAX)
            return await self._begin(now_ms)
        if self.state.pass_started_ms > now_ms:  # the clock was set back: the pass has as much time as if it began now
            self._set(pass_started_ms=max(now_ms, 1))
        survey = self._survey
        if survey is None or not survey.upcoming or now_ms - survey.made_ms > SURVEY_AGE_MS_MAX:
            survey = await self._make_survey(now_ms)
        if not survey.upcoming:
            self._set(whole_started_ms=self.state.pass_started_ms, whole_ended_ms=now_ms)
            return Step(wait_ms=0)
        name, size_bytes = survey.upcoming[0]
        pace = self._refill(budget_bytes, size_bytes, now_ms)
        missing_bytes = size_bytes - self.state.allowance_bytes
        if missing_bytes > 0:
            return Step(wait_ms=max(1, min(WAIT_MS_MAX, int(missing_bytes / pace) + 1)))
        return await self._read(name, size_bytes)

    async def _begin(self, now_ms: int) -> Step:
        """Check names, sizes, ledger and state; postponed while the request budget does not allow it."""
        catalog = self.catalog()
        object_count = 3 * catalog.segment_count + len(catalog.packs) + len(catalog.indexes)
        count = _LOOK_REQUESTS_MIN + object_count // KEYS_A_LISTING
        report: ScrubReport | None = None
        if object_count > LOOK_OBJECTS_MAX:
            logger.info("names and sizes are not checked by itself objects=%d most=%d", object_count, LOOK_OBJECTS_MAX)
        elif self.requests is None:
            report = await self.scrubber().run(ScrubOptions())
        elif self.requests.allows(count := min(count, self.requests.most), who="scrub"):
            with self.requests.holding(count):
                report = await self.scrubber().run(ScrubOptions())
        else:
            return Step(wait_ms=WAIT_MS_MAX)
        read_bytes = report.read_bytes if report is not None else 0
        self.read_bytes_total += read_bytes
        self._survey = None
        self._set(
            cursor="",
            pass_started_ms=max(now_ms, 1),
            read_count=0,
            read_bytes=read_bytes,
            allowance_bytes=self.state.allowance_bytes - read_bytes,
            refilled_ms=now_ms,
        )
        return Step(report=report)

    async def _make_survey(self, now_ms: int) -> _Survey:
        survey = await asyncio.to_thread(_surveyed, self.catalog(), parse_cursor(self.state.cursor), now_ms)
        self._survey, self._remaining_bytes = survey, survey.remaining_bytes
        return survey

    def _refill(self, budget_bytes: int, size_bytes: int, now_ms: int) -> float:
        """Let the allowance grow; return its growth in bytes per millisecond."""
        left_ms = max(HOUR_MS, self.state.pass_started_ms + PASS_DAYS * DAY_MS - now_ms)
        missing_bytes = self._remaining_bytes + max(0.0, -self.state.allowance_bytes)  # what was read twice counts
        pace = max(1, min(budget_bytes, missing_bytes * DAY_MS / left_ms)) / DAY_MS
        grown = self.state.allowance_bytes + pace * max(0, now_ms - self.state.refilled_ms)
        most = max(float(size_bytes), budget_bytes / 24)
        self._set(allowance_bytes=min(grown, most), refilled_ms=now_ms)
        return pace

    async def _read(self, name: SegmentName, size_bytes: int) -> Step:
        assert self._survey is not None
        scrubber = self.scrubber()
        try:
            findings = await scrubber.read_one(name)
        finally:
            read_bytes = scrubber.progress.read_bytes
            self.read_bytes_total += read_bytes
            self._set(
                read_bytes=self.state.read_bytes + read_bytes,
                allowance_bytes=self.state.allowance_bytes - read_bytes,
            )
        self._survey.upcoming.popleft()
        self._remaining_bytes -= size_bytes
        self._set(cursor="\t".join(name), read_count=self.state.read_count + 1)
        return Step(name=name, findings=tuple(findings))

    def _set(self, **changes: float | str) -> None:
        self.state = msgspec.structs.replace(self.state, **changes)


def _surveyed(catalog: Catalog, start: SegmentName, now_ms: int) -> _Survey:
    remaining_bytes = total_bytes = 0

    def behind() -> Iterator[tuple[SegmentName, int]]:
        nonlocal remaining_bytes, total_bytes
        for name, size_bytes in named_sizes(catalog):
            total_bytes += size_bytes
            if name > start:
                remaining_bytes += size_bytes
                yield name, size_bytes

    upcoming = deque(heapq.nsmallest(LISTED_MAX, behind()))
    return _Survey(upcoming, remaining_bytes=remaining_bytes, total_bytes=total_bytes, made_ms=now_ms)
