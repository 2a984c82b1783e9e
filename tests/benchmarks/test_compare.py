"""The comparison's arithmetic: above one is better for us, in every kind of shape."""

from __future__ import annotations

import pytest

from benchmarks.broker_under_test import OFFICIAL, THERMOCLINE
from benchmarks.compare import Run, ShapeRuns
from benchmarks.load_generator import Latency, LoadResult, LoadShape


def run(kind: str, *, messages_per_s: float = 1.0, p99_us: float = 1.0, errors: int = 0) -> Run:
    latency = Latency(mean=1, p50=1, p90=1, p99=p99_us, p999=1, max=1)
    result = LoadResult(
        requests=1,
        messages=1,
        answer_bytes=1,
        requests_per_s=messages_per_s,
        messages_per_s=messages_per_s,
        errors=errors,
        protocol_errors=0,
        unanswered=0,
        codes={},
        latency_us=latency,
        offsets_gapless=True,
        generator_cpu_s=0.1,
        seconds=1.0,
    )
    return Run(kind=kind, result=result, broker_cores=1.0, generator_cores=0.1, megabytes=1.0, index_lag_s=0.0)


def test_twice_the_rate_is_a_ratio_of_two() -> None:
    runs = ShapeRuns(LoadShape())
    runs.pairs.append({THERMOCLINE: run(THERMOCLINE, messages_per_s=200), OFFICIAL: run(OFFICIAL, messages_per_s=100)})
    assert runs.ratios() == [2.0]


def test_half_the_tail_latency_is_a_ratio_of_two() -> None:
    runs = ShapeRuns(LoadShape(rate_per_s=10_000))
    runs.pairs.append({THERMOCLINE: run(THERMOCLINE, p99_us=300), OFFICIAL: run(OFFICIAL, p99_us=600)})
    assert runs.ratios() == [2.0]


def test_a_run_without_its_neighbour_has_no_ratio() -> None:
    runs = ShapeRuns(LoadShape())
    runs.pairs.append({OFFICIAL: run(OFFICIAL)})
    assert runs.ratios() == []


@pytest.mark.parametrize(("errors", "expected"), [(0, True), (1, False)])
def test_one_error_makes_a_run_unclean(errors: int, expected: bool) -> None:
    assert run(OFFICIAL, errors=errors).result.is_clean is expected
