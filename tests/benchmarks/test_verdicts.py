"""A verdict is met or missed, and one that is missed makes the exit status 1."""

from __future__ import annotations

import pytest

from benchmarks.recovery import Outcome, ProcessMemory
from benchmarks.recovery import verdicts_of as verdicts_of_recovery
from benchmarks.verdicts import Verdict, missed, show_verdicts


def test_a_bound_may_be_reached_and_not_passed(capsys: pytest.CaptureFixture[str]) -> None:
    most, least = Verdict("PUTs", 40.0, 40.0), Verdict("range", 512, 512, "KiB", at_least=True)
    assert show_verdicts([most, least]) == 0
    assert capsys.readouterr().out.count("ok") == 2
    too_many, too_small = Verdict("PUTs", 40.1, 40.0), Verdict("range", 511, 512, "KiB", at_least=True)
    assert missed([most, too_many, least, too_small]) == [too_many, too_small]
    assert show_verdicts([too_many, least]) == 1
    assert "MISSED  PUTs: 40.1, wanted at most 40" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ready_s", "first_read_s", "tier_mb", "clause"),
    [
        (59.0, 0.9, 399.0, ""),
        (61.0, 0.9, 399.0, "until ready"),
        (59.0, 1.1, 399.0, "first message"),
        (59.0, 0.9, 401.0, "resident memory"),
    ],
)
def test_each_clause_of_a_recovery_is_judged(ready_s: float, first_read_s: float, tier_mb: float, clause: str) -> None:
    memory = ProcessMemory(resident_mb=tier_mb, anonymous_mb=100.0)
    outcome = Outcome(ready_s=ready_s, first_read_s=first_read_s, hot=memory, tier=memory, used_s=9.0, others=0.0)
    found = [verdict.clause for verdict in missed(verdicts_of_recovery([outcome], segments=100_000))]
    assert len(found) == bool(clause)
    assert all(each.startswith(clause) for each in found)
