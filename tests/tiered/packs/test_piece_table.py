from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.tiered.objects.errors import LedgerCorruptError
from thermocline.tiered.packs.piece_table import PieceExtent, QueueRange, decode_piece_table, encode_piece_table
from thermocline.tiered.packs.ttl_classes import FOREVER, longest_ttl_ms, ttl_class

queue_ranges = st.builds(
    lambda queue_id, start, count: QueueRange(queue_id, start, start + count),
    st.integers(0, 70_000),
    st.integers(0, 1 << 50),
    st.integers(1, (1 << 32) - 1),
)
extents = st.builds(
    PieceExtent,
    incarnation=st.integers(0, 1 << 40),
    raw_bytes=st.integers(1, 1 << 40),
    stored_bytes=st.integers(1, 1 << 40),
    queues=st.lists(queue_ranges, min_size=1, max_size=5).map(tuple),
)


@given(pieces=st.lists(extents, min_size=1, max_size=20))
def test_a_table_comes_back(pieces: list[PieceExtent]) -> None:
    table = decode_piece_table(encode_piece_table(pieces), piece_count=len(pieces))
    assert [table.piece(index) for index in range(len(table))] == pieces
    assert [table.incarnation(index) for index in range(len(table))] == [piece.incarnation for piece in pieces]


def test_a_queue_costs_a_few_bytes() -> None:
    pieces = [
        PieceExtent(
            incarnation=number,
            raw_bytes=50_000 + number,
            stored_bytes=20_000 + number,
            queues=tuple(QueueRange(q, 900_000 + 37 * number + q, 900_050 + 37 * number + 3 * q) for q in range(8)),
        )
        for number in range(2_000)
    ]
    assert len(encode_piece_table(pieces)) < 5 * 16_000


@pytest.mark.parametrize("damage", [b"", b"no zstd frame", b"cut"])
def test_a_damaged_table_is_refused(damage: bytes) -> None:
    data = encode_piece_table([PieceExtent(incarnation=1, raw_bytes=1, stored_bytes=1, queues=(QueueRange(0, 0, 1),))])
    with pytest.raises(LedgerCorruptError):
        decode_piece_table(data[:-4] if damage == b"cut" else damage, piece_count=1)
    with pytest.raises(LedgerCorruptError):
        decode_piece_table(data, piece_count=2)


@given(ttl_ms=st.integers(0, 1 << 45))
def test_a_class_holds_times_that_are_close(ttl_ms: int) -> None:
    longest_ms = longest_ttl_ms(ttl_class(ttl_ms))
    assert longest_ms is not None
    assert ttl_ms <= longest_ms
    assert ttl_ms < 60_000 or longest_ms < 1.4143 * ttl_ms


def test_kept_messages_are_a_class() -> None:
    assert ttl_class(None) == FOREVER
    assert longest_ttl_ms(FOREVER) is None
    assert ttl_class(3_600_000) == ttl_class(43 * 60_000) == "h000"
    assert ttl_class(42 * 60_000) == "h-01"
    assert ttl_class(60_000) == "h-11"
    assert ttl_class(0) == ttl_class(56_000) == "h-12"
    assert ttl_class(3 * 24 * 3_600_000) == "h013"
