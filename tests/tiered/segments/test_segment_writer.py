"""A written segment holds every record byte for byte, and its footer, columns and keys speak of the same records.

Covers `tiered/segments/segment_format.py`.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiered.cold_data import Log, write_segment
from thermocline.remoting.errors import CorruptDataError, OffsetOutOfRangeError
from thermocline.remoting.records.message_record import decode_record
from thermocline.tiered.objects.errors import FrameChecksumError, SegmentFormatError
from thermocline.tiered.segments.frame import decode_frame
from thermocline.tiered.segments.segment_format import TRAILER, FrameInfo, LogFooter, SegmentId, decode_log_footer
from thermocline.tiered.segments.segment_writer import FinishedSegment, SegmentOptions, SegmentWriter

SMALL = SegmentOptions(frame_bytes=2_000, coarse_frames=3)


def read_all(segment: FinishedSegment) -> dict[int, list[bytes]]:
    """Every record, from the bytes of `.log` alone."""
    footer = decode_log_footer(bytes(segment.log))
    records: dict[int, list[bytes]] = {}
    for run in footer.runs:
        for info in footer.frames_of(run, start_offset=run.start_offset, end_offset=run.end_offset):
            frame = decode_frame(segment.log[info.position : info.end_position], info)
            found = frame.records(frame.start_offset, frame.end_offset)
            records.setdefault(run.queue_id, []).extend(map(bytes, found))
    return records


def frames(footer: LogFooter) -> list[FrameInfo]:
    return [footer.frame(index) for index in range(len(footer.frames))]


@given(
    seed=st.integers(0, 2**32),
    appends=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 3_000),
            st.sampled_from([None, "TagA", "b"]),
            st.sampled_from([None, "k1", "k1 k2  k3"]),
            st.sampled_from([("10.0.0.1", 1), ("::1", 2)]),
        ),
        min_size=1,
        max_size=40,
    ),
)
@settings(deadline=None, max_examples=60)
def test_records_come_back(seed: int, appends: list[tuple[int, int, str | None, str | None, tuple[str, int]]]) -> None:
    random = Random(seed)
    log = Log("orders", random, other_bytes_max=random.choice([0, 500]))
    for queue_id, body_bytes, tag, keys, born_host in appends:
        log.append(queue_id, body=random.randbytes(body_bytes), tag=tag, keys=keys, born_host=born_host)
        log.now_ms += random.randint(0, 5)
    with write_segment(log, options=SMALL) as segment:
        assert read_all(segment) == {queue_id: queue.records for queue_id, queue in log.queues.items()}
        footer = segment.footer
        assert footer.record_count == len(appends)
        for run in footer.runs:
            messages = [decode_record(record) for record in log.queues[run.queue_id].records]
            times = [message.store_timestamp_ms for message in messages]
            assert (run.min_store_ms, run.max_store_ms) == (min(times), max(times))
            assert run.min_physical_offset == messages[0].physical_offset
            assert run.end_physical_offset == messages[-1].end_offset
            for info in footer.frames_of(run, start_offset=run.start_offset, end_offset=run.end_offset):
                inside = times[info.start_offset : info.end_offset]
                assert (info.min_store_ms, info.max_store_ms) == (min(inside), max(inside))
                assert info.raw_bytes <= SMALL.frame_bytes or info.end_offset == info.start_offset + 1
        keys = [message for queue in log.queues.values() for message in map(decode_record, queue.records)]
        assert segment.key_count == sum(len((message.keys or "").split()) for message in keys)


def test_a_spool_file_changes_nothing(tmp_path: Path) -> None:
    log = Log("flights", Random(1))
    log.append_flights(2_000)
    with write_segment(log) as in_memory:
        writer = SegmentWriter(segment_id=SegmentId(1, 1), topic="flights", incarnation=1, folder=tmp_path)
        for queue_id, queue in sorted(log.queues.items()):
            half = len(queue.records) // 2
            writer.append(queue_id, 0, queue.records[:half], queue.tags_codes[:half])
            writer.append(queue_id, half, map(memoryview, queue.records[half:]), queue.tags_codes[half:])
        assert writer.raw_bytes == in_memory.footer.raw_bytes
        with writer.finish() as spooled:
            assert bytes(spooled.log) == bytes(in_memory.log)
            assert (spooled.cq, spooled.idx, spooled.log_crc32) == (in_memory.cq, in_memory.idx, in_memory.log_crc32)
    assert list(tmp_path.iterdir()) == []


def test_the_entry_says_where_everything_is() -> None:
    log = Log("flights", Random(1))
    log.append_flights(3_000)
    with write_segment(log, options=SegmentOptions(frame_bytes=50_000, coarse_frames=2)) as segment:
        entry = segment.entry(log_key="a.log", cq_key="a.cq", idx_key="a.idx", created_ms=5)
        assert entry.log.size_bytes == len(segment.log)
        assert decode_log_footer(segment.log[entry.log.footer_start : entry.log.end]).runs == entry.runs
        assert entry.stored_bytes == segment.stored_bytes
        assert [run.queue_id for run in entry.runs] == [0, 1, 2, 3]
        assert entry.record_count == 3_000
        starts = {run.frame_start for run in entry.runs}
        assert starts <= {coarse.frame_index for coarse in entry.coarse}
        for coarse in entry.coarse:
            frame = segment.footer.frame(coarse.frame_index)
            assert (frame.start_offset, frame.position, frame.raw_position) == (
                coarse.start_offset,
                coarse.position,
                coarse.raw_position,
            )
        run, offset = entry.place_of_ordinal(entry.runs[0].record_count)
        assert (run.queue_id, offset) == (1, 0)


def test_frames_of_a_range() -> None:
    log = Log("orders", Random(1), queue_count=1)
    log.append_flights(100)
    with write_segment(log, options=SMALL) as segment:
        footer = segment.footer
        run = footer.run(0)
        for start, end in ((0, 1), (50, 51), (99, 100), (0, 100), (3, 90)):
            chosen = list(footer.frames_of(run, start_offset=start, end_offset=end))
            assert chosen[0].start_offset <= start < chosen[0].end_offset
            assert chosen[-1].start_offset <= end - 1 < chosen[-1].end_offset
        assert list(footer.frames_of(run, start_offset=100, end_offset=200)) == []
        with pytest.raises(OffsetOutOfRangeError):
            footer.run(3)


def test_wrong_records_are_refused() -> None:
    log = Log("orders", Random(1))
    records = [log.append(0, body=b"x" * 50) for _ in range(3)]
    other_queue = log.append(1, body=b"x")

    def attempt(found: list[bytes], offset: int = 0) -> None:
        writer = SegmentWriter(segment_id=SegmentId(1, 1), topic="orders", incarnation=1)
        writer.append(0, offset, found, [0] * len(found))
        writer.finish()

    attempt(records)
    for found, offset in (
        ([records[0], records[2]], 0),
        (records, 1),
        ([other_queue], 0),
        ([records[0][:-1]], 0),
        ([records[0][:40]], 0),
        ([b"\0" * 200], 0),
        ([records[0][:4] + b"\0\0\0\0" + records[0][8:]], 0),
        ([records[0][:84] + b"\x7f\0\0\0" + records[0][88:]], 0),
    ):
        with pytest.raises(CorruptDataError):
            attempt(found, offset)


def test_damage_is_noticed() -> None:
    log = Log("orders", Random(1))
    log.append_flights(60)
    with write_segment(log, options=SMALL) as segment:
        whole = bytes(segment.log)
        footer = decode_log_footer(whole)
        body_end = max(info.end_position for info in frames(footer))
        for position in range(body_end, len(whole)):
            broken = bytearray(whole)
            broken[position] ^= 0x04
            with pytest.raises((SegmentFormatError, FrameChecksumError)):
                decode_log_footer(bytes(broken))
        for cut in (0, 5, TRAILER.size, len(whole) - body_end - 1):
            with pytest.raises(SegmentFormatError):
                decode_log_footer(whole[len(whole) - cut :])
        info = footer.frame(1)
        stored = whole[info.position : info.end_position]
        for position in range(len(stored)):
            broken = bytearray(stored)
            broken[position] ^= 0x04
            # A bit that zstd does not use may change; the records may not.
            with contextlib.suppress(SegmentFormatError, FrameChecksumError):
                assert decode_frame(bytes(broken), info) == decode_frame(stored, info)
        with pytest.raises(FrameChecksumError):
            decode_frame(stored[:-1], info)


def test_segment_ids() -> None:
    assert str(SegmentId(3, 42)) == "0000000003-0000000042"
    assert SegmentId.parse("0000000003-0000000042") == SegmentId(3, 42)
    assert SegmentId(2, 9) < SegmentId(3, 1)
    for text in ("", "3-42", "0000000003_0000000042", "000000000x-0000000042", "0000000003-00000000421"):
        with pytest.raises(SegmentFormatError):
            SegmentId.parse(text)
