"""DecodedFrame: records by their offsets, and frames that are not those that the footer speaks of."""

from __future__ import annotations

import pytest
import zstandard

from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import draft, open_store
from thermocline.remoting.records.message_record import decode_record
from thermocline.tiered.objects.errors import FrameChecksumError, SegmentFormatError
from thermocline.tiered.segments.frame import DecodedFrame, decode_frame, decode_next_frame
from thermocline.tiered.segments.segment_format import FrameInfo

FIRST, COUNT = 3, 4


@pytest.fixture(scope="module")
def records() -> list[bytes]:
    """Of offsets FIRST to FIRST + COUNT, of different lengths and times."""
    now_ms = [1_000]
    store = open_store(SimulatedDisk(), clock=lambda: now_ms[0])
    for number in range(FIRST + COUNT):
        store.put(draft(body=bytes(10 * number), properties=b"KEYS\x01k%d\x02" % number))
        now_ms[0] += 10
    queue = store.queues.find("orders", 0)
    assert queue is not None
    units = [queue.unit(FIRST + number) for number in range(COUNT)]
    return [bytes(store.commit_log.record_view(each.physical_offset, each.size_bytes)) for each in units]


def stored(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True, write_content_size=True).compress(data)


def info(records: list[bytes], *, start: int = FIRST, end: int = FIRST + COUNT) -> FrameInfo:
    data = b"".join(records)
    return FrameInfo(
        index=0,
        position=8,
        stored_bytes=len(stored(data)),
        raw_position=0,
        raw_bytes=len(data),
        start_offset=start,
        end_offset=end,
        min_store_ms=1_000 + 10 * FIRST,
        max_store_ms=1_000 + 10 * (FIRST + COUNT - 1),
    )


def decoded(records: list[bytes]) -> DecodedFrame:
    return decode_frame(stored(b"".join(records)), info(records))


def test_records_by_their_offsets(records: list[bytes]) -> None:
    frame = decoded(records)
    assert (frame.start_offset, frame.end_offset) == (FIRST, FIRST + COUNT)
    assert frame.memory_bytes > len(frame.data) + 4 * COUNT
    for start in range(COUNT + 1):
        for end in range(start, COUNT + 1):
            bounds = FIRST + start, FIRST + end
            assert bytes(frame.slice(*bounds)) == b"".join(records[start:end])
            assert [bytes(each) for each in frame.records(*bounds)] == records[start:end]
    for number, record in enumerate(records):
        assert frame.store_timestamp_ms(FIRST + number) == decode_record(record).store_timestamp_ms
        assert b"KEYS\x01k%d\x02" % (FIRST + number) in frame.properties_text(FIRST + number)
    for outside in (FIRST - 1, FIRST + COUNT + 1):
        with pytest.raises(AssertionError):
            frame.position(outside)


def test_a_frame_of_other_records_is_refused(records: list[bytes]) -> None:
    data = stored(b"".join(records))
    with pytest.raises(SegmentFormatError, match="not those of the footer"):
        decode_frame(data, info(records, end=FIRST + COUNT + 1))
    with pytest.raises(SegmentFormatError, match="another offset"):
        decode_frame(data, info(records, start=FIRST - 1))
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 1
    with pytest.raises(FrameChecksumError):
        decode_frame(bytes(damaged), info(records))


def test_a_frame_ends_where_the_next_begins(records: list[bytes]) -> None:
    one, other = stored(b"".join(records[:2])), stored(b"".join(records[2:]))
    frame, size_bytes = decode_next_frame(memoryview(one + other + b"footer"), start_offset=FIRST)
    assert (size_bytes, bytes(frame.data)) == (len(one), b"".join(records[:2]))
    assert frame.min_store_ms == frame.store_timestamp_ms(FIRST)
    frame, size_bytes = decode_next_frame(memoryview(other + b"footer"), start_offset=FIRST + 2)
    assert (size_bytes, frame.end_offset) == (len(other), FIRST + COUNT)
    with pytest.raises(SegmentFormatError, match="another offset"):
        decode_next_frame(memoryview(other), start_offset=FIRST)
    with pytest.raises(FrameChecksumError, match="cut short"):
        decode_next_frame(memoryview(one[:-5]), start_offset=FIRST)
    with pytest.raises(FrameChecksumError):
        decode_next_frame(memoryview(b"no frame at all"), start_offset=FIRST)
    with pytest.raises(SegmentFormatError, match="impossible frame size"):
        decode_next_frame(memoryview(stored(b"")), start_offset=FIRST)
