"""Runs and coarse frames packed: they look like the tuples that they stand for, and are the same JSON."""

from __future__ import annotations

import pickle
import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiered.ledger_data import make_entry
from thermocline.tiered.objects.packed_rows import dec_hook, enc_hook
from thermocline.tiered.segments.segment_entry import CoarseFrame, CoarseRows, RunRows, SegmentEntry
from thermocline.tiered.segments.segment_format import QueueRun, SegmentId

numbers = st.integers(-(1 << 63), (1 << 63) - 1)
runs = st.lists(st.builds(QueueRun, *[numbers] * 9), max_size=6)
decoder = msgspec.json.Decoder(SegmentEntry, dec_hook=dec_hook)
encoder = msgspec.json.Encoder(enc_hook=enc_hook)


@given(rows=runs)
def test_they_are_the_rows_they_were_made_of(rows: list[QueueRun]) -> None:
    packed = RunRows.of(rows)
    assert list(packed) == rows
    assert packed == tuple(rows) == packed
    assert hash(packed) == hash(tuple(rows))
    assert len(packed) == len(rows)
    assert [packed[index] for index in range(-len(rows), len(rows))] == rows + rows
    assert packed[1:3] == tuple(rows[1:3])
    assert packed.column(4) == [row.max_store_ms for row in rows]
    assert pickle.loads(pickle.dumps(packed)) == packed
    assert msgspec.json.decode(encoder.encode(packed), type=list[QueueRun]) == rows
    assert msgspec.json.decode(encoder.encode(packed), type=RunRows, dec_hook=dec_hook) == packed
    with pytest.raises(IndexError):
        packed[len(rows)]


def test_runs_and_coarse_frames_are_never_equal() -> None:
    assert RunRows() != CoarseRows()
    assert RunRows.of([QueueRun(*range(9))]) != RunRows.of([QueueRun(*range(1, 10))])


def test_an_entry_is_the_same_json_as_ever() -> None:
    entry = make_entry(SegmentId(1, 2), queue_id=3, start=10, count=5)
    text = encoder.encode(entry)
    assert b'"runs":[[3,10,15,1000,2000,0,1,1000,1500]],"coarse":[[0,10,8,0,1000]]' in text
    read = decoder.decode(text)
    assert read == entry
    assert (read.runs[0].end_offset, read.coarse[0]) == (15, CoarseFrame(0, 10, 8, 0, 1000))
    assert (read.min_store_ms, read.max_store_ms) == (1000, 2000)
    assert (read.min_physical_offset, read.end_physical_offset) == (1000, 1500)


def test_fields_that_are_added_later_are_ignored() -> None:
    text = encoder.encode(make_entry(SegmentId(1, 2))).replace(b"[[0,0,8,0,1000]]", b'[[0,0,8,0,1000,"new"]]')
    assert decoder.decode(text).coarse == (CoarseFrame(0, 0, 8, 0, 1000),)


@pytest.mark.parametrize(
    "wrong", [b"[[1,2]]", b"[7]", b'{"a":1}', b'[["a","b","c","d","e"]]', b"[[1,2,3,4,1.5]]", b"null"]
)
def test_an_invalid_row_is_a_decode_error(wrong: bytes) -> None:
    text = encoder.encode(make_entry(SegmentId(1, 2))).replace(b"[[0,0,8,0,1000]]", wrong)
    with pytest.raises(msgspec.DecodeError):
        decoder.decode(text)


def test_a_catalogs_entries_take_little_memory() -> None:
    """Eight queues and sixteen coarse frames: 7 KiB as objects."""
    entry = make_entry(SegmentId(1, 2))
    texts = [
        encoder.encode(
            msgspec.structs.replace(
                entry,
                segment_id=str(SegmentId(1, number)),
                runs=RunRows.of([QueueRun(queue, *range(1 << 40, (1 << 40) + 8)) for queue in range(8)]),
                coarse=CoarseRows.of([CoarseFrame(frame, *range(1 << 40, (1 << 40) + 4)) for frame in range(16)]),
            )
        )
        for number in range(300)
    ]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = [decoder.decode(text) for text in texts]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / len(kept) < 2_700
