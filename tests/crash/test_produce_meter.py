"""What the meter of an outage test calls affected."""

from __future__ import annotations

import pytest

from tests.crash.produce_meter import SENDS_MIN, Produce, check_unaffected

BESIDE = Produce.of([0.002] * 1_000, batch=20, cpu_s=1.0, wall_s=2.0)


def relation(*, sends: int = 1_000, slow: int = 0, cpu_s: float = 1.0) -> Produce:
    took_s = [0.002] * (sends - slow) + [0.5] * slow
    return Produce.of(took_s, batch=20, cpu_s=cpu_s, wall_s=2.0).beside(BESIDE)


def test_a_steady_rate_is_unaffected() -> None:
    check_unaffected(relation(), relation())
    check_unaffected(relation(), relation(sends=600, slow=5, cpu_s=0.7))
    # Both have become as slow: that is the machine.
    slower = Produce.of([0.02] * 100, batch=20, cpu_s=0.4, wall_s=2.0)
    check_unaffected(relation(), slower.beside(slower))


@pytest.mark.parametrize(
    "during",
    [relation(sends=SENDS_MIN, cpu_s=0.05), relation(sends=400, cpu_s=0.4), relation(slow=20), relation(cpu_s=1.6)],
    ids=["a twentieth of the rate", "less than half of the rate", "one in fifty waits", "more work for each"],
)
def test_a_rate_that_falls_is_affected(during: Produce) -> None:
    with pytest.raises(AssertionError):
        check_unaffected(relation(), during)


def test_too_few_sends_say_nothing() -> None:
    with pytest.raises(AssertionError, match="say nothing"):
        relation(sends=SENDS_MIN - 1)
