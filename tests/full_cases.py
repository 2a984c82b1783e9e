"""Cases of `pytest.mark.parametrize` that only `make test-full` and `make soak` try."""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["full"]


def full(*cases: Any) -> list[Any]:
    """Mark cases `full`, in a list to unpack behind the others; a tuple has a value for each parameter."""
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.full) for case in cases]
