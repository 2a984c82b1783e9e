"""Piece rewriter over store times that fall, as in a log that RocketMQ wrote while its clock was set back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thermocline.remoting.records.message_record import encode_record
from thermocline.tiered.packs.piece_rewriter import PieceBytes, rewrite
from thermocline.tiered.segments import (
    DecodedFrame,
    FinishedSegment,
    SegmentId,
    SegmentOptions,
    SegmentWriter,
    decode_frame,
    decode_log_footer,
)

CUT_MS = 900
OPTIONS = SegmentOptions(frame_bytes=300)
"""Two or three records."""


def record(queue_offset: int, store_ms: int) -> bytes:
    return encode_record(
        topic="orders",
        queue_id=0,
        queue_offset=queue_offset,
        physical_offset=queue_offset * 1_000,
        flag=0,
        sys_flag=0,
        born_timestamp_ms=store_ms,
        born_host=("127.0.0.1", 1),
        store_timestamp_ms=store_ms,
        store_host=("127.0.0.1", 2),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"b",
        properties_text=b"",
    )


def written(number: int, start: int, times_ms: list[int]) -> FinishedSegment:
    writer = SegmentWriter(segment_id=SegmentId(1, number), topic="orders", incarnation=1, options=OPTIONS)
    records = [record(start + index, store_ms) for index, store_ms in enumerate(times_ms)]
    writer.append(0, start, records, [0] * len(records))
    return writer.finish()


def piece(finished: FinishedSegment) -> PieceBytes:
    entry = finished.entry(log_key="a.log", cq_key="a.cq", idx_key="a.idx", created_ms=1)
    return PieceBytes(entry, finished.log, finished.cq)


def kept(pieces: list[PieceBytes], folder: Path | None = None) -> list[tuple[int, int]]:
    """Offset and store time of each record of the new segment."""
    with rewrite(pieces, segment_id=SegmentId(2, 1), options=OPTIONS, folder=folder, cut_ms=CUT_MS) as finished:
        log = memoryview(finished.log)
        footer = decode_log_footer(log)
        frames: list[DecodedFrame] = []
        for index in range(len(footer.frames)):
            info = footer.frame(index)
            frames.append(decode_frame(log[info.position : info.end_position], info))
    return [
        (offset, frame.store_timestamp_ms(offset))
        for frame in frames
        for offset in range(frame.start_offset, frame.end_offset)
    ]


@pytest.mark.parametrize(
    "times_ms",
    [
        [CUT_MS - 1, CUT_MS, CUT_MS + 1],
        [100, 1_000, 1_001, 400, 401, 1_002],
        [1_000, 1_001, 400, 401, 402, 403, 404, 405, 1_002, 1_003],
        [100] * 7 + [1_000] + [400] * 9,
    ],
    ids=["at the cut", "within a frame", "whole frames", "to the end"],
)
def test_what_is_behind_a_lasting_record_stays(times_ms: list[int]) -> None:
    found = kept([piece(written(1, 0, times_ms))])
    first = next(index for index, store_ms in enumerate(times_ms) if store_ms >= CUT_MS)
    assert found == list(enumerate(times_ms))[first:]


@settings(max_examples=40)
@given(times_ms=st.lists(st.integers(880, 920), min_size=2, max_size=30), border=st.integers(1, 29))
def test_no_lasting_record_is_left_out_and_no_gap_is_made(times_ms: list[int], border: int) -> None:
    times_ms[-1], border = CUT_MS, min(border, len(times_ms) - 1)
    found = kept([piece(written(1, 0, times_ms[:border])), piece(written(2, border, times_ms[border:]))])
    first = next(index for index, store_ms in enumerate(times_ms) if store_ms >= CUT_MS)
    assert found == list(enumerate(times_ms))[first:]
