"""Compiling can be left between any two of its steps."""

from __future__ import annotations

import pytest

from thermocline.filters import CompiledFilterCache, ExpressionError, Steps
from thermocline.filters.compiled_filter import compile_steps
from thermocline.filters.steps import run_steps


def test_the_result_of_all_steps() -> None:
    done: list[int] = []

    def count() -> Steps[str]:
        for number in range(3):
            done.append(number)
            yield
        return "done"

    assert run_steps(count()) == "done"
    assert done == [0, 1, 2]


def test_a_step_a_token() -> None:
    assert sum(1 for _ in compile_steps("a = 1 OR b IN ('x', 'y')")) == 11


def test_an_error_is_raised_by_the_step_that_meets_it() -> None:
    steps = compile_steps("a = 1 OR OR b = 2")
    with pytest.raises(ExpressionError, match="OR cannot stand here"):
        run_steps(steps)


def test_two_may_compile_the_same_text_at_once() -> None:
    cache = CompiledFilterCache()
    first, second = cache.compile_steps("a = 1"), cache.compile_steps("a = 1")
    next(first)
    next(second)
    assert cache.find("a = 1") is None
    assert run_steps(first).matches({"a": "1"})
    assert run_steps(second).matches({"a": "1"})
    assert len(cache) == 1
    found = cache.find("a = 1")
    assert found is not None
    assert found.matches({"a": "1"})
