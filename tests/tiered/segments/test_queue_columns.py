"""Columns come back as they were, block by block, and take few bytes.

Covers `tiered/objects/spool.py`, `tiered/segments/part_kind.py`.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiered.cold_data import Log, write_segment
from thermocline.tiered.objects.errors import FrameChecksumError, SegmentFormatError
from thermocline.tiered.segments.queue_columns import (
    BLOCK_RECORDS,
    ColumnsWriter,
    QueueColumns,
    decode_columns,
    decode_columns_footer,
    encode_columns,
)
from thermocline.tiered.segments.segment_format import CQ_MAGIC, SegmentId, decode_trailer

LONG = st.integers(-(2**63), 2**63 - 1)


def make_columns(rows: list[tuple[int, int, int]], *, start_offset: int = 0, queue_id: int = 0) -> QueueColumns:
    return QueueColumns(
        queue_id=queue_id,
        start_offset=start_offset,
        sizes=np.array([row[0] for row in rows], np.uint32),
        physical_offsets=np.array([row[1] for row in rows], np.int64),
        tags_codes=np.array([row[2] for row in rows], np.int64),
    )


def assert_equal(found: QueueColumns, expected: QueueColumns) -> None:
    assert (found.queue_id, found.start_offset) == (expected.queue_id, expected.start_offset)
    assert np.array_equal(found.sizes, expected.sizes)
    assert np.array_equal(found.physical_offsets, expected.physical_offsets)
    assert np.array_equal(found.tags_codes, expected.tags_codes)


@given(rows=st.lists(st.tuples(st.integers(1, 2**32 - 1), LONG, LONG), min_size=1, max_size=40))
@settings(deadline=None)
def test_any_block_comes_back(rows: list[tuple[int, int, int]]) -> None:
    """Even places that fall and codes that are no hashes, such as the delivery times of delayed messages."""
    with np.errstate(over="ignore"):
        columns = make_columns(rows, start_offset=7)
        assert_equal(decode_columns(encode_columns(columns), queue_id=0, start_offset=7), columns)


def test_blocks_are_found_by_offset_and_place() -> None:
    random = Random(1)
    writer = ColumnsWriter(SegmentId(3, 4))
    runs: dict[int, QueueColumns] = {}
    for queue_id, count in ((0, 3), (1, 2 * BLOCK_RECORDS + 17), (5, BLOCK_RECORDS)):
        sizes = [random.randint(91, 2000) for _ in range(count)]
        places = (np.cumsum(sizes) + queue_id * 10**9).tolist()
        rows = list(zip(sizes, places, [random.choice([0, 5, -7])] * count, strict=True))
        runs[queue_id] = make_columns(rows, start_offset=100, queue_id=queue_id)
        middle = 100 + count // 3
        writer.append(runs[queue_id].slice(100, middle))
        writer.append(runs[queue_id].slice(middle, 100 + count))
    part = writer.finish()
    footer = decode_columns_footer(part[-4096:])
    assert footer.segment_id == SegmentId(3, 4)
    assert len(footer.blocks) == 1 + 3 + 1
    for queue_id, columns in runs.items():
        for block in footer.blocks_of(queue_id, start_offset=100, end_offset=columns.end_offset):
            stored = part[int(block["position"]) : int(block["position"]) + int(block["stored_bytes"])]
            found = footer.decode_block(stored, block)
            assert_equal(found, columns.slice(found.start_offset, found.end_offset))
    blocks = footer.blocks_of(1, start_offset=100 + BLOCK_RECORDS, end_offset=101 + BLOCK_RECORDS)
    assert blocks["start_offset"].tolist() == [100 + BLOCK_RECORDS]
    place = int(runs[1].physical_offsets[20])
    assert footer.blocks_at(place)["queue_id"].tolist() == [1]
    assert not len(footer.blocks_at(10**12))


def test_damage_is_noticed() -> None:
    writer = ColumnsWriter(SegmentId(1, 1))
    writer.append(make_columns([(100, 5, 1)] * 50))
    part = writer.finish()
    footer = decode_columns_footer(part)
    block = footer.blocks[0]
    stored = bytearray(part[int(block["position"]) : int(block["position"]) + int(block["stored_bytes"])])
    stored[-1] ^= 1
    with pytest.raises(FrameChecksumError):
        footer.decode_block(bytes(stored), block)
    tail_bytes = decode_trailer(part, magic=CQ_MAGIC).tail_bytes
    for position in range(len(part) - tail_bytes, len(part)):
        broken = bytearray(part)
        broken[position] ^= 0x10
        with pytest.raises((SegmentFormatError, FrameChecksumError)):
            decode_columns_footer(bytes(broken))
    with pytest.raises(SegmentFormatError):
        decode_columns(b"", queue_id=0, start_offset=0)


@pytest.mark.parametrize(("queue_count", "other_bytes_max"), [(1, 0), (4, 2_000), (16, 200_000)])
def test_a_message_takes_at_most_eight_bytes(queue_count: int, other_bytes_max: int) -> None:
    log = Log("flights", Random(2), queue_count=queue_count, other_bytes_max=other_bytes_max)
    log.append_flights(20_000)
    with write_segment(log) as segment:
        assert len(segment.cq) / 20_000 < 6
