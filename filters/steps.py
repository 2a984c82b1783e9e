"""Steps: a computation that can be left between any two of its steps and gone on with later.

steps = compile_steps(text)      a generator: each `next` is a step, its return value the result
run_steps(steps)                 all of them at once
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

Result = TypeVar("Result")

Steps: TypeAlias = Generator[None, None, Result]


def run_steps(steps: Steps[Result]) -> Result:
    """The result; whatever a step raises."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
