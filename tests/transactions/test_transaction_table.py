"""The table of open transactions: window, copies, progress; by hand, and beside a plain model."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thermocline.transactions.transaction_table import TransactionState, TransactionTable

OPEN, COMMITTED, ROLLED_BACK, MOVED, ENDED = (
    TransactionState.OPEN,
    TransactionState.COMMITTED,
    TransactionState.ROLLED_BACK,
    TransactionState.MOVED,
    TransactionState.ENDED,
)


def table_of(end: int, *, base: int = 0) -> TransactionTable:
    table = TransactionTable(half_offset=base, op_offset=0)
    table.extend(end)
    return table


def write_all(table: TransactionTable, op_offset: int) -> tuple[int, int]:
    """Write every note as one op message."""
    for offsets, _ in table.buffer.bodies(bytes_max=1 << 20):
        table.buffer.written(len(offsets))
        table.note_op(op_offset, offsets)
    return table.advance()


def test_the_base_waits_for_notes_and_open_transactions() -> None:
    table = table_of(4, base=10)
    table.extend(14)
    assert (table.end, table.open_count) == (14, 4)
    table.finish(10, COMMITTED, now_ms=1)
    table.finish(12, ROLLED_BACK, now_ms=1)
    assert table.advance() == (10, 0)  # no op message names them yet
    assert write_all(table, 0) == (11, 0)  # the op message names 12 too
    assert table.state(10) is ENDED
    assert table.state(12) is ROLLED_BACK
    table.finish(11, COMMITTED, now_ms=2)
    assert write_all(table, 1) == (13, 2)
    assert table.open_count == 1


def test_open_ones_are_found_in_order() -> None:
    table = table_of(10)
    for offset in (0, 1, 4):
        table.finish(offset, COMMITTED, now_ms=1)
    write_all(table, 0)
    assert table.base == 2
    assert table.next_open(0, 10) == 2
    assert table.next_open(4, 10) == 5
    assert table.next_open(4, 5) is None
    assert table.next_open(0, 1) is None


def test_a_copy_stands_for_all_before_it() -> None:
    table = table_of(3)
    table.move(1, 3, now_ms=1)
    assert table.state(1) is MOVED
    assert table.last_copy(1) == 3
    assert table.last_copy(0) == 0
    table.move(1, 4, now_ms=1)
    assert (table.state(3), table.state(4), table.last_copy(1)) == (MOVED, OPEN, 4)
    for offset in (0, 2):
        table.finish(offset, COMMITTED, now_ms=1)
    assert write_all(table, 0)[0] == 4
    assert table.last_copy(1) == 4
    table.finish(4, COMMITTED, now_ms=2)
    assert table.last_copy(1) == 4
    assert table.state(4) is COMMITTED
    write_all(table, 1)
    assert table.base == 5
    assert table.last_copy(1) == 1  # forgotten: everything below the base has ended
    assert table.state(1) is ENDED


def test_a_start_marks_half_messages_that_op_messages_name() -> None:
    table = table_of(16, base=10)
    table.mark_ended([3, 10, 12, 99])
    table.note_op(5, [3])
    table.note_op(6, [10, 12])
    table.note_op(7, [99])
    assert table.advance() == (11, 6)
    assert table.open_count == 4
    assert table.state(12) is ENDED


def test_messages_missing_in_the_table_need_no_note() -> None:
    table = table_of(2)
    table.finish(0, TransactionState.MISSING, now_ms=1)
    assert not table.buffer
    assert table.advance()[0] == 1


def test_a_finished_one_cannot_finish_again() -> None:
    table = table_of(1)
    table.finish(0, COMMITTED, now_ms=1)
    with pytest.raises(AssertionError):
        table.finish(0, ROLLED_BACK, now_ms=1)


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 120))
def test_the_table_agrees_with_a_dictionary(random: Random, steps: int) -> None:
    """Whatever half messages come, move and end, and whenever notes are written."""
    table = table_of(0)
    states: dict[int, TransactionState] = {}
    origin_of: dict[int, int] = {}
    noted: set[int] = set()
    ops: list[set[int]] = []
    for _ in range(steps):
        open_offsets = [offset for offset, state in states.items() if state is OPEN]
        action = random.choice(("put", "put", "end", "move", "write"))
        if action == "put":
            offset = len(states)
            states[offset], origin_of[offset] = OPEN, offset
            table.extend(offset + 1)
        elif action == "end" and open_offsets:
            offset = random.choice(open_offsets)
            states[offset] = random.choice((COMMITTED, ROLLED_BACK))
            table.finish(offset, states[offset], now_ms=1)
        elif action == "move" and open_offsets:
            before, copy = random.choice(open_offsets), len(states)
            states[before], states[copy], origin_of[copy] = MOVED, OPEN, origin_of[before]
            table.move(origin_of[before], copy, now_ms=1)
        elif action == "write":
            for offsets, _ in table.buffer.bodies(bytes_max=random.choice((1, 8, 4_096))):
                table.buffer.written(len(offsets))
                table.note_op(len(ops), offsets)
                ops.append(set(offsets))
                noted |= set(offsets)
            table.advance()
        base = next((offset for offset in states if offset not in noted), len(states))
        assert table.base <= base
        if action == "write":
            assert table.base == base
            assert table.op_offset == next(
                (number for number, offsets in enumerate(ops) if max(offsets) >= base), len(ops)
            )
        assert table.open_count == sum(state is OPEN for state in states.values())
        assert table.next_open(0, len(states)) == min(
            (offset for offset, state in states.items() if state is OPEN), default=None
        )
        for offset, state in states.items():
            assert table.state(offset) is (ENDED if offset < table.base else state)
            if state is OPEN:
                assert table.last_copy(origin_of[offset]) == offset
