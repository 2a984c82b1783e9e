"""Damaged ranges without a local copy: their readers get an error that names them; other readers are not affected.

Covers `tiered/healing/frame_salvage.py`, `tiered/healing/segment_recovery.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from tests.tiered.ledger_data import KEYS
from tests.tiered.scrub.damage import flip_bit, swap
from tests.tiered.scrub.rig import GRACE_MS, ScrubRig
from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.string_hash import tags_code
from thermocline.tiered.catalog.catalog import TopicEntry
from thermocline.tiered.findings.findings import Outcome, Problem
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.objects.errors import QuarantinedError
from thermocline.tiered.reading.cold_pull import ColdPull
from thermocline.tiered.reading.cold_reader import Boundary, ColdReader
from thermocline.tiered.reading.frame_cache import FrameCache
from thermocline.tiered.segments.segment_entry import SegmentEntry
from thermocline.tiered.segments.segment_reader import read_log_footer

TOPIC = "orders"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[ScrubRig]:
    """Four segments of two queues, nothing of them hot."""
    rig = ScrubRig(tmp_path)
    try:
        async with rig.opened():
            for _ in range(4):
                rig.put(TOPIC, 160)
                await rig.seal()
            rig.delete_local()
            yield rig
    finally:
        rig.close()


def topic_of(rig: ScrubRig) -> TopicEntry:
    return rig.catalog.topics[TOPIC]


def queue_starts(rig: ScrubRig) -> dict[int, int]:
    """The first offset of each queue in the catalog, readable or lost."""
    starts: dict[int, int] = {}
    for run in topic_of(rig).ranges():
        starts[run.queue_id] = min(run.start_offset, starts.get(run.queue_id, run.start_offset))
    return starts


class Reader:
    """A cold reader on the newest catalog."""

    def __init__(self, rig: ScrubRig) -> None:
        self.cold = ColdReader(rig.store, catalog=lambda: rig.catalog, cache=FrameCache(), fresh=rig.fresh)

    async def one(self, queue_id: int, offset: int) -> bytes:
        """The record at an offset."""
        pull = ColdPull(topic=TOPIC, queue_id=queue_id, offset=offset, count_max=1, bytes_max=1 << 20, cut_ms=0)
        result = await self.cold.pull(pull)
        assert result.next_offset == offset + 1
        return bytes(result.buffers[0])


async def read_each(rig: ScrubRig) -> tuple[dict[int, list[int]], list[QuarantinedError]]:
    """Queue id -> offsets that are refused; every other record is the one that was sent."""
    reader = Reader(rig)
    refused: dict[int, list[int]] = {}
    errors: list[QuarantinedError] = []
    for queue_id, records in rig.hot(TOPIC).items():
        for offset, record in enumerate(records):
            try:
                assert await reader.one(queue_id, offset) == record
            except QuarantinedError as error:
                refused.setdefault(queue_id, []).append(offset)
                errors.append(error)
    await reader.cold.close()
    return refused, errors


async def flip_in_frame(rig: ScrubRig, segment: SegmentEntry, index: int) -> tuple[int, range]:
    """Damage one frame; its queue and offsets."""
    footer = await read_log_footer(rig.store, segment.log.key)
    info = footer.frame(index)
    data = bytearray(rig.objects.objects[segment.log.key])
    data[info.position + info.stored_bytes // 2] ^= 4
    await rig.objects.put(segment.log.key, bytes(data))
    run = next(run for run in footer.runs if run.frame_start <= index < run.frame_end)
    return run.queue_id, range(info.start_offset, info.end_offset)


async def test_one_damaged_frame_takes_only_its_own_records(rig: ScrubRig) -> None:
    segment = topic_of(rig).segments[1]
    queue_id, lost = await flip_in_frame(rig, segment, 2)
    report = await rig.scrub(heal=True)
    (finding,) = report.findings
    assert finding.outcome is Outcome.QUARANTINED
    assert finding.lost == (f"{queue_id}:[{lost.start}, {lost.stop})",)
    assert not report.is_sound
    refused, errors = await read_each(rig)
    assert refused == {queue_id: list(lost)}
    context = errors[0].context
    assert (context["topic"], context["queue_id"], context["queue_offset"]) == (TOPIC, queue_id, lost.start)
    assert (context["frame"], context["lost_offsets"]) == (2, f"[{lost.start}, {lost.stop})")
    assert segment.log.key in str(context["objects"])
    # A consumer that comes along stops in front of them, and is never led past.
    with pytest.raises(QuarantinedError):
        await rig.cold(TOPIC)
    assert (await open_catalog(rig.store, KEYS)).topics == rig.catalog.topics
    again = await rig.scrub()
    assert [(each.problem, each.outcome) for each in again.findings] == [(Problem.LOST, Outcome.QUARANTINED)]


async def test_a_restored_object_is_readable_again(rig: ScrubRig) -> None:
    segment = topic_of(rig).segments[1]
    before = rig.objects.objects[segment.log.key]
    await rig.objects.delete(segment.log.key)
    assert not (await rig.scrub(heal=True)).is_sound
    refused, _ = await read_each(rig)
    assert refused == {run.queue_id: list(range(run.start_offset, run.end_offset)) for run in segment.runs}
    rig.clock.now_ms += 10 * GRACE_MS
    await rig.service.run_once()
    assert segment.cq.key in rig.objects.objects, "the rest of it waits for what may be restored"
    await rig.objects.put(segment.log.key, before)
    report = await rig.scrub(heal=True)
    assert [finding.outcome for finding in report.findings] == [Outcome.HEALED]
    assert topic_of(rig).quarantine == ()
    assert await rig.cold(TOPIC) == rig.hot(TOPIC)
    assert (await rig.scrub()).findings == ()


@pytest.mark.parametrize("part", ["cq", "idx"])
async def test_columns_and_keys_are_made_anew_from_the_records(rig: ScrubRig, part: str) -> None:
    for segment in topic_of(rig).segments[:2]:
        await rig.objects.delete(getattr(segment, part).key)
    report = await rig.scrub(heal=True)
    assert report.is_sound
    assert len(report.findings) == 2
    assert await rig.cold(TOPIC) == rig.hot(TOPIC)
    assert (await rig.scrub()).findings == ()
    reader = Reader(rig)
    offset, found_bytes = 0, b""
    while offset < 80:
        pull = ColdPull(
            topic=TOPIC,
            queue_id=0,
            offset=offset,
            count_max=99,
            bytes_max=1 << 20,
            cut_ms=0,
            tags_codes=frozenset([tags_code("A")]),
        )
        result = await reader.cold.pull(pull)
        found_bytes, offset = found_bytes + b"".join(map(bytes, result.buffers)), result.next_offset
    tagged = [record for record in rig.hot(TOPIC)[0][:offset] if b"TAGS\x01A\x02" in record]
    assert found_bytes == b"".join(tagged)
    assert 0 < len(tagged) < offset
    found = await reader.cold.query_key(TOPIC, "key3", begin_ms=0, end_ms=1 << 60, count_max=9, cut_ms=0)
    assert len(found) == 4
    await reader.cold.close()


async def test_a_footer_that_is_gone_costs_no_frame_in_front_of_it(rig: ScrubRig) -> None:
    segment = topic_of(rig).segments[2]
    data = rig.objects.objects[segment.log.key]
    footer = await read_log_footer(rig.store, segment.log.key)
    kept = 5
    await rig.objects.put(segment.log.key, data[: footer.frame(kept).position + 10])
    report = await rig.scrub(heal=True)
    assert [finding.outcome for finding in report.findings] == [Outcome.QUARANTINED]
    lost: dict[int, list[int]] = {}
    for run in segment.runs:
        for index in range(max(kept, run.frame_start), run.frame_end):
            info = footer.frame(index)
            lost.setdefault(run.queue_id, []).extend(range(info.start_offset, info.end_offset))
    refused, _ = await read_each(rig)
    assert refused == lost
    assert 0 < sum(map(len, refused.values())) < segment.record_count


async def test_a_flipped_footer_costs_nothing(rig: ScrubRig) -> None:
    segment = topic_of(rig).segments[2]
    data = bytearray(rig.objects.objects[segment.log.key])
    data[segment.log.footer_start + 3] ^= 1
    await rig.objects.put(segment.log.key, bytes(data))
    assert (await rig.scrub(heal=True)).is_sound
    assert await rig.cold(TOPIC) == rig.hot(TOPIC)


async def test_logs_that_were_exchanged_find_their_segments_again(rig: ScrubRig) -> None:
    one, two = topic_of(rig).segments[0], topic_of(rig).segments[3]
    await swap(rig.objects, one.log.key, two.log.key)
    report = await rig.scrub(heal=True)
    assert len(report.findings) == 2
    assert report.is_sound
    assert await rig.cold(TOPIC) == rig.hot(TOPIC)


async def test_the_local_part_of_a_lost_segment_is_saved(rig: ScrubRig) -> None:
    segment = topic_of(rig).segments[3]
    await rig.objects.delete(segment.log.key)
    rig.local_from = (segment.min_physical_offset + segment.end_physical_offset) // 2
    assert not (await rig.scrub(heal=True)).is_sound
    refused, _ = await read_each(rig)
    for run in segment.runs:
        offsets = refused[run.queue_id]
        assert offsets == list(range(run.start_offset, offsets[-1] + 1))
        assert run.start_offset < offsets[-1] < run.end_offset - 20
    ends = topic_of(rig).queue_ends()
    assert ends == {queue_id: len(records) for queue_id, records in rig.hot(TOPIC).items()}


async def test_ends_and_minimums_include_lost_records(rig: ScrubRig) -> None:
    """Else offsets would be given out twice, or a consumer would be sent past what may come back."""
    first, last = topic_of(rig).segments[0], topic_of(rig).segments[-1]
    starts, ends = queue_starts(rig), topic_of(rig).queue_ends()
    for segment in (first, last):
        await rig.objects.delete(segment.log.key)
    await rig.scrub(heal=True)
    assert len(topic_of(rig).quarantine) == 2
    assert (queue_starts(rig), topic_of(rig).queue_ends()) == (starts, ends)
    reader = Reader(rig)
    assert await reader.cold.min_offset(TOPIC, 0, cut_ms=0) == 0
    found = await reader.cold.offset_by_time(TOPIC, 0, 0, boundary=Boundary.LOWER, cut_ms=0)
    assert found == 0
    run = last.run(0)
    assert run is not None
    latest = await reader.cold.offset_by_time(TOPIC, 0, 1 << 60, boundary=Boundary.UPPER, cut_ms=0)
    assert latest == run.end_offset - 1
    # A time of what is whole is found where it is.
    whole = topic_of(rig).segments[0].run(0)
    assert whole is not None
    exact = await reader.cold.offset_by_time(TOPIC, 0, whole.min_store_ms, boundary=Boundary.LOWER, cut_ms=0)
    assert exact == whole.start_offset
    with pytest.raises(QuarantinedError):
        await reader.cold.view(first.min_physical_offset, cut_ms=lambda topic: 0)
    with pytest.raises(QuarantinedError):
        await reader.cold.query_key(TOPIC, "no such key", begin_ms=0, end_ms=1 << 60, count_max=1, cut_ms=0)
    await reader.cold.close()


async def test_a_cut_through_lost_records_leaves_the_rest_readable(rig: ScrubRig) -> None:
    lost = topic_of(rig).segments[0]
    await rig.objects.delete(lost.log.key)
    await rig.scrub(heal=True)
    reader = Reader(rig)
    cut_ms = (lost.min_store_ms + lost.max_store_ms) // 2
    offset = len(rig.hot(TOPIC)[0]) - 1
    pull = ColdPull(topic=TOPIC, queue_id=0, offset=offset, count_max=1, bytes_max=1 << 20, cut_ms=cut_ms)
    assert bytes((await reader.cold.pull(pull)).buffers[0]) == rig.hot(TOPIC)[0][-1]
    await reader.cold.close()


async def test_quarantine_ends_when_all_of_it_has_expired(rig: ScrubRig) -> None:
    segment = topic_of(rig).segments[0]
    await rig.objects.delete(segment.log.key)
    await rig.scrub(heal=True)
    rig.cut_ms = segment.max_store_ms + 1
    rig.clock.now_ms += 2_000
    await rig.seal()
    assert topic_of(rig).quarantine == ()
    rig.clock.now_ms += 2 * GRACE_MS
    for _ in range(3):
        await rig.service.run_once()
    assert segment.cq.key not in rig.objects.objects
    assert (await rig.scrub()).findings == ()


async def test_damage_that_no_scrub_has_seen_is_an_error_that_names_it(rig: ScrubRig) -> None:
    segment = topic_of(rig).segments[1]
    queue_id, lost = await flip_in_frame(rig, segment, 1)
    reader = Reader(rig)
    with pytest.raises(CorruptDataError) as raised:
        await reader.one(queue_id, lost.start)
    assert raised.value.context["key"] == segment.log.key
    assert raised.value.context["frame"] == 1
    await reader.cold.close()


async def test_another_topics_records_are_never_taken_for_its_own(tmp_path: Path) -> None:
    """Two topics with equal queues and offsets: an exchanged object heals nothing when its own place is lost, too."""
    rig = ScrubRig(tmp_path)
    try:
        async with rig.opened():
            rig.put(TOPIC, 80)
            rig.put("audits", 80)
            await rig.seal()
            rig.delete_local()
            ours, theirs = topic_of(rig).segments[0], rig.catalog.topics["audits"].segments[0]
            await rig.objects.put(ours.log.key, rig.objects.objects[theirs.log.key])
            report = await rig.scrub(heal=True)
            assert [finding.outcome for finding in report.findings] == [Outcome.QUARANTINED]
            assert topic_of(rig).segments == ()
            assert await rig.cold("audits") == rig.hot("audits")
    finally:
        rig.close()


async def test_a_damaged_local_copy_heals_nothing(rig: ScrubRig) -> None:
    """Local records are taken only when their own checksums are right."""
    segment = topic_of(rig).segments[0]
    rig.local_from = 0
    random = Random(1)
    await flip_bit(rig.objects, segment.log.key, random)
    await rig.objects.delete(segment.log.key)
    log_file = next(iter(sorted((rig.folder / "store" / "commitlog").iterdir())))
    with log_file.open("r+b") as file:
        run = segment.run(0)
        assert run is not None
        file.seek(run.min_physical_offset + 200)
        file.write(b"\x00\xff\x00\xff")
    await rig.scrub(heal=True)
    reader = Reader(rig)
    with pytest.raises(QuarantinedError):
        await reader.one(0, run.start_offset)
    assert await reader.one(0, run.end_offset - 1) == rig.hot(TOPIC)[0][run.end_offset - 1]
    await reader.cold.close()
