"""Frames by the catalog entry alone: as the footer has them, and the group in which a record is."""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np
import pytest

from tests.tiered.cold_data import Log, write_segment
from tests.tiered.ledger_data import KEYS
from thermocline.tiered.packs.segment_upload import upload_segment
from thermocline.tiered.segments.known_frames import body_end, group_of, known_frames
from thermocline.tiered.segments.segment_entry import CoarseFrame, CoarseRows, PartLocator, RunRows, SegmentEntry
from thermocline.tiered.segments.segment_format import LogFooter
from thermocline.tiered.segments.segment_reader import read_log_footer
from thermocline.tiered.segments.segment_writer import SegmentOptions
from thermocline.tiered.stores.memory import MemoryObjectStore


@pytest.fixture
async def segment() -> tuple[SegmentEntry, LogFooter]:
    log, store = Log("flights", Random(1), queue_count=3), MemoryObjectStore()
    log.append_flights(300)
    with write_segment(log, options=SegmentOptions(frame_bytes=4_000)) as finished:
        entry = await upload_segment(store, KEYS, finished, created_ms=0)
    return entry, await read_log_footer(store, entry.log.key)


def with_frames(entry: SegmentEntry, footer: LogFooter, *, step: int) -> SegmentEntry:
    """The entry with every `step`th frame of each run in it."""
    coarse = [
        CoarseFrame(
            index,
            *(int(footer.frames[index][name]) for name in ("start_offset", "position", "raw_position", "min_store_ms")),
        )
        for run in footer.runs
        for index in range(run.frame_start, run.frame_end, step)
    ]
    return msgspec.structs.replace(entry, coarse=CoarseRows.of(coarse))


async def test_the_frames_of_a_piece_are_those_of_its_footer(segment: tuple[SegmentEntry, LogFooter]) -> None:
    entry, footer = segment
    assert all(run.frame_end - run.frame_start > 2 for run in footer.runs)
    found = known_frames(with_frames(entry, footer, step=1))
    assert found is not None
    assert (found.runs, found.record_count, found.raw_bytes) == (footer.runs, footer.record_count, footer.raw_bytes)
    assert (found.segment_id, found.topic, found.incarnation) == (entry.id, entry.topic, entry.incarnation)
    exact = ("position", "raw_position", "start_offset", "end_offset", "stored_bytes", "raw_bytes", "min_store_ms")
    for name in exact:
        np.testing.assert_array_equal(found.frames[name], footer.frames[name], name)
    assert (found.frames["max_store_ms"] >= footer.frames["max_store_ms"]).all()
    for run in footer.runs:
        assert found.frames["max_store_ms"][run.frame_end - 1] == run.max_store_ms
        for index in range(run.frame_start, run.frame_end - 1):
            assert found.frames["max_store_ms"][index] == footer.frames["min_store_ms"][index + 1]


async def test_frames_are_unknown_when_one_is_missing(segment: tuple[SegmentEntry, LogFooter]) -> None:
    entry, footer = segment
    assert known_frames(with_frames(entry, footer, step=2)) is None
    assert known_frames(msgspec.structs.replace(entry, runs=RunRows.of([]), coarse=CoarseRows.of([]))) is None


@pytest.mark.parametrize("step", [1, 2, 3, 1_000])
async def test_the_group_of_a_record(segment: tuple[SegmentEntry, LogFooter], step: int) -> None:
    """From the coarse frame before it to the next one, or to the end of its run."""
    entry, footer = segment
    coarse = with_frames(entry, footer, step=step)
    for run in footer.runs:
        for index in range(run.frame_start, run.frame_end):
            first = index - (index - run.frame_start) % step
            end = min(first + step, run.frame_end)
            frames = footer.frames[first:end]
            for offset in (int(footer.frames["start_offset"][index]), int(footer.frames["end_offset"][index]) - 1):
                group = group_of(coarse, run, offset)
                assert group is not None
                assert (group.start, group.start_offset) == (frames["position"][0], frames["start_offset"][0])
                assert group.end == frames["position"][-1] + frames["stored_bytes"][-1]
                assert group.frame_count == end - first
    assert group_of(msgspec.structs.replace(entry, coarse=CoarseRows.of([])), footer.runs[0], 0) is None
    last = footer.frames[-1]
    assert body_end(entry) == last["position"] + last["stored_bytes"]
    log = entry.log
    moved = PartLocator(log.key, log.start + 50, log.end + 50, log.footer_start + 50, log.crc32)
    assert body_end(msgspec.structs.replace(entry, log=moved)) == body_end(entry), "positions are within the part"
