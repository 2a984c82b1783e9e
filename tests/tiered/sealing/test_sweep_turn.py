"""Sweep turns: an interval apart, for another commit's sake or in the end alone, and after the clock was set back."""

from __future__ import annotations

from thermocline.tiered.sealing.sweep_turn import SweepTurn

NOW_MS = 7_000_000


def is_on(turn: SweepTurn, now_ms: int, *, is_made: bool = False) -> bool:
    return turn.is_on(now_ms=now_ms, is_made=is_made, can_pay=lambda: True)


def test_a_sweep_waits_for_another_commit_and_not_for_ever() -> None:
    turn = SweepTurn(interval_ms=1_000, waited_max_ms=3_000, now_ms=NOW_MS)
    assert is_on(turn, NOW_MS), "the first one"
    assert not is_on(turn, NOW_MS + 999, is_made=True)
    assert is_on(turn, NOW_MS + 1_000, is_made=True)
    assert not is_on(turn, NOW_MS + 4_999)
    assert is_on(turn, NOW_MS + 5_000)


def test_a_sweep_does_not_wait_until_a_clock_has_caught_up() -> None:
    turn = SweepTurn(interval_ms=1_000, waited_max_ms=0, now_ms=NOW_MS)
    assert is_on(turn, NOW_MS)
    assert not is_on(turn, NOW_MS)
    assert is_on(turn, NOW_MS - 5_000_000)
    assert not is_on(turn, NOW_MS - 5_000_000 + 999)
