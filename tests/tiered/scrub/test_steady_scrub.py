"""The scrub that a broker runs by itself: every byte within 30 days and a budget, over restarts; damage is reported.

Objects are real files; the clock is the test's.

Covers `broker/cold/steady_report.py`, `tiered/scrub/index_check.py`, `tiered/scrub/object_check.py`,
`tiered/scrub/pack_check.py`, `tiered/wrappers/spooled_object.py`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.tiered.scrub.rig import ScrubRig
from tests.waiting import until
from thermocline.broker.helpers.helper_protocol import ScrubRequest
from thermocline.broker.tier_process.tier_scrub import TierScrub
from thermocline.remoting.errors import ObjectStoreUnavailableError
from thermocline.store.files.disk import RealDisk
from thermocline.tiered.cost.request_budget import RequestBudget
from thermocline.tiered.objects.object_store import ObjectSuffix
from thermocline.tiered.scrub.scrubber import named_sizes
from thermocline.tiered.scrub.steady_scrub import DAY_MS, HOUR_MS, PASS_DAYS, READ_WITHIN_DAYS
from thermocline.tiered.stores.file import FileObjectStore
from thermocline.tiered.wrappers.wrapping import StoreCall, WrappingObjectStore

BUDGET_BYTES = 1 << 30
Result = TypeVar("Result")


class CountedFiles(WrappingObjectStore):
    """A directory whose reads are counted, and which may be away."""

    def __init__(self, folder: Path) -> None:
        super().__init__(FileObjectStore(str(folder), disk=RealDisk()))
        self.reads: list[tuple[str, int]] = []
        self.is_away = False
        self.failure: OSError | None = None

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        if self.is_away:
            raise ObjectStoreUnavailableError("away")
        if self.failure is not None:
            raise self.failure
        result = await attempt()
        data = result.data if isinstance(result, ObjectSuffix) else result
        if isinstance(data, bytes):
            self.reads.append((call.key, len(data)))
        return result


class Automatic:
    """A broker's scrub on the rig's cold tier; `restart` is what a new tier process finds."""

    def __init__(self, rig: ScrubRig, files: CountedFiles, folder: Path) -> None:
        self.rig, self.files, self.folder = rig, files, folder
        self.bytes_per_day = BUDGET_BYTES
        self.requests: RequestBudget | None = None
        self.restart()

    def restart(self) -> None:
        rig = self.rig
        self.scrub = TierScrub(
            store=rig.writer.store,
            writer=rig.writer,
            healer=rig.healer,
            states=rig.states,
            clock=rig.clock,
            disk=RealDisk(),
            state_path=str(self.folder / "scrub.json"),
            bytes_per_day=lambda: self.bytes_per_day,
            requests=self.requests,
        )

    async def pass_time(self, duration_ms: int, *, step_ms: int = HOUR_MS) -> None:
        """Let the clock go on, with everything done that is due at each step of it."""
        end_ms = self.rig.clock.now_ms + duration_ms
        while self.rig.clock.now_ms < end_ms:
            self.rig.clock.now_ms += step_ms
            while await self.scrub.step_steadily() == 0:
                pass

    @property
    def sizes(self) -> dict[str, int]:
        """Key -> size of each object that a pass reads."""
        catalog = self.rig.catalog
        segments = [segment for topic in catalog.topics.values() for segment in topic.segments]
        parts = [part for each in segments for part in (each.log, each.cq, each.idx)]
        return {part.key: part.end for part in sorted(parts, key=lambda part: part.end)} | {
            each.key: each.object_bytes for each in (*catalog.packs.values(), *catalog.indexes.values())
        }


@pytest.fixture(params=[False, True], ids=["segments", "packs"])
async def automatic(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Automatic]:
    files = CountedFiles(tmp_path / "bucket")
    rig = ScrubRig(tmp_path, wrap=lambda _: files, packs=request.param)
    try:
        async with rig.opened():
            for _ in range(6):
                rig.put("orders", 40)
                rig.put("audits", 16)
                await rig.seal()
            await rig.index()
            yield Automatic(rig, files, tmp_path)
    finally:
        rig.close()


def flip_five_bytes(automatic: Automatic, key: str) -> None:
    """In the middle of a real file: its name and size stay."""
    path = automatic.folder / "bucket" / key
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 5] = bytes(byte ^ 0xFF for byte in data[middle : middle + 5])
    path.write_bytes(data)


async def test_flipped_bytes_of_any_object_are_found_within_a_month(
    automatic: Automatic, caplog: pytest.LogCaptureFixture
) -> None:
    await automatic.pass_time(HOUR_MS)
    assert automatic.scrub.broken_count == 0
    for key in automatic.sizes:
        flip_five_bytes(automatic, key)
    shallow = await automatic.rig.scrub(deep=False)
    assert not shallow.findings, "names and sizes are as they should be"
    assert shallow.unread_count == len(list(named_sizes(automatic.rig.catalog)))
    assert shallow.unread_bytes == sum(automatic.sizes.values())
    assert "by name and size alone" in shallow.summary()
    assert "healed" not in shallow.summary()
    with caplog.at_level(logging.ERROR):
        await automatic.pass_time(READ_WITHIN_DAYS * DAY_MS)
    broken = {finding.key for finding in automatic.scrub.broken}
    assert broken == set(automatic.sizes)
    for key in broken:
        assert len([record for record in caplog.records if f"key={key} " in record.getMessage()]) == 1
    report = automatic.scrub.steady_report()
    assert (report.broken_count, len(report.broken)) == (len(broken), min(20, len(broken)))


async def test_every_byte_is_read_once_in_each_pass_and_evenly(automatic: Automatic) -> None:
    total = sum(automatic.sizes.values())
    await automatic.pass_time(HOUR_MS)
    automatic.files.reads.clear()
    read_by_half = 0
    for day in range(1, PASS_DAYS + 2):
        await automatic.pass_time(DAY_MS)
        if day == PASS_DAYS // 2:
            read_by_half = sum(size for key, size in automatic.files.reads if key in automatic.sizes)
    read = {key: sum(size for other, size in automatic.files.reads if other == key) for key in automatic.sizes}
    assert all(read[key] >= size_bytes for key, size_bytes in automatic.sizes.items())
    assert total // 4 < read_by_half < total * 3 // 4
    report = automatic.scrub.steady_report()
    assert report.whole_ended_ms > 0
    assert not report.is_too_slow
    first_ms = report.whole_ended_ms
    await automatic.pass_time((READ_WITHIN_DAYS + 2) * DAY_MS)
    assert automatic.scrub.steady_report().whole_ended_ms - first_ms <= READ_WITHIN_DAYS * DAY_MS


async def test_a_restart_goes_on_where_the_process_was(automatic: Automatic) -> None:
    await automatic.pass_time(12 * DAY_MS)
    before = automatic.scrub.steady_report()
    assert 0 < before.read_count < len(list(named_sizes(automatic.rig.catalog)))
    automatic.files.reads.clear()
    for _ in range(PASS_DAYS - 11):
        automatic.restart()
        assert automatic.scrub.steady_report().pass_started_ms == before.pass_started_ms
        await automatic.pass_time(DAY_MS)
    report = automatic.scrub.steady_report()
    assert report.whole_started_ms == before.pass_started_ms
    read_again = sum(size for key, size in automatic.files.reads if key in automatic.sizes)
    assert read_again < sum(automatic.sizes.values()), "what was read before the restarts was not read again"


@pytest.mark.parametrize("days", [1, PASS_DAYS + 2], ids=["within a pass", "between two"])
async def test_reading_goes_on_after_the_clock_was_set_back(automatic: Automatic, days: int) -> None:
    await automatic.pass_time(days * DAY_MS)
    automatic.rig.clock.now_ms -= 3_000 * DAY_MS
    before = automatic.rig.clock.now_ms
    automatic.restart()
    await automatic.pass_time(READ_WITHIN_DAYS * DAY_MS)
    assert before < automatic.scrub.steady_report().whole_ended_ms <= automatic.rig.clock.now_ms


async def test_no_day_exceeds_the_budget_and_too_small_a_one_is_reported(
    automatic: Automatic, caplog: pytest.LogCaptureFixture
) -> None:
    total, largest = sum(automatic.sizes.values()), max(size for _, size in named_sizes(automatic.rig.catalog))
    await automatic.pass_time(HOUR_MS)
    automatic.bytes_per_day = total // 40
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            automatic.files.reads.clear()
            await automatic.pass_time(DAY_MS)
            day_bytes = sum(size for _, size in automatic.files.reads)
            assert day_bytes <= automatic.bytes_per_day * 25 // 24 + 2 * largest
    warnings = [record.getMessage() for record in caplog.records if "coldScrubBytesPerDay" in record.getMessage()]
    assert len(warnings) == 1
    report = automatic.scrub.steady_report()
    assert report.is_too_slow
    assert report.days_needed == pytest.approx(40, rel=0.1)
    assert report.read_bytes <= total // 40 * 22 + 2 * largest
    automatic.bytes_per_day = 0
    automatic.files.reads.clear()
    await automatic.pass_time(5 * DAY_MS)
    assert automatic.files.reads == []
    automatic.bytes_per_day = BUDGET_BYTES
    await automatic.pass_time(READ_WITHIN_DAYS * DAY_MS)
    assert automatic.scrub.steady_report().whole_ended_ms > 0, "the setting counts at once"


async def test_while_the_store_is_away_nothing_is_broken(automatic: Automatic) -> None:
    await automatic.pass_time(DAY_MS)
    before = automatic.scrub.steady_report()
    automatic.files.is_away = True
    await automatic.pass_time(10 * DAY_MS)
    report = automatic.scrub.steady_report()
    assert (report.is_store_away, report.broken_count, report.read_count) == (True, 0, before.read_count)
    automatic.files.is_away = False
    await automatic.pass_time((PASS_DAYS - 10) * DAY_MS)
    report = automatic.scrub.steady_report()
    assert (report.is_store_away, report.broken_count) == (False, 0)
    assert report.whole_started_ms == before.pass_started_ms, "it made up for the time"


async def test_an_unexpected_error_is_shown_and_tried_again(automatic: Automatic) -> None:
    """Else nothing would be read before the tier process is started again, for lack of a file descriptor once."""
    automatic.files.failure = OSError(errno.EMFILE, "Too many open files")
    reading = asyncio.create_task(automatic.scrub.run_steadily(first_wait_s=0, failed_wait_s=0.01))
    await until(lambda: automatic.scrub.steady_report().error, what="the error is shown")
    automatic.files.failure = None
    await until(lambda: automatic.scrub.steady_report().pass_started_ms, what="a pass has begun")
    await until(lambda: not automatic.scrub.steady_report().error, what="the error is over")
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


async def test_the_look_at_the_beginning_keeps_to_the_request_budget(automatic: Automatic) -> None:
    spent = 1_000
    automatic.requests = RequestBudget(requests_per_hour=100, spent=lambda: spent, clock=automatic.rig.clock)
    automatic.restart()
    await automatic.pass_time(HOUR_MS)
    assert automatic.scrub.steady_report().pass_started_ms == 0
    await automatic.pass_time(2 * DAY_MS)
    assert automatic.scrub.steady_report().pass_started_ms > 0


async def test_findings_that_are_healed_or_read_as_sound_are_dropped(automatic: Automatic) -> None:
    key = next(iter(automatic.sizes))
    path = automatic.folder / "bucket" / key
    good = path.read_bytes()
    flip_five_bytes(automatic, key)
    await automatic.pass_time(READ_WITHIN_DAYS * DAY_MS)
    assert [finding.key for finding in automatic.scrub.broken] == [key]
    automatic.restart()
    assert automatic.scrub.broken_count == 1, "it is kept"
    shallow = ScrubRequest(deep=False, heal=False, afresh=False, budget_bytes=None, bytes_per_second=None)
    automatic.scrub.start(shallow)
    while automatic.scrub.state().is_running:  # noqa: ASYNC110 - a task of this loop
        await asyncio.sleep(0)
    assert automatic.scrub.broken_count == 1, "names and sizes settle nothing"
    path.write_bytes(good)
    await automatic.pass_time(READ_WITHIN_DAYS * DAY_MS)
    assert automatic.scrub.broken_count == 0
    automatic.restart()
    assert automatic.scrub.broken_count == 0
