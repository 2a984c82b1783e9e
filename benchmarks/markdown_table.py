"""What a benchmark has measured, as it is pasted into `docs/benchmarks.md`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    assert all(len(row) == len(head) for row in rows)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows))


def spread(values: Sequence[float], form: str) -> str:
    """`median [least-most]`, or the one value alone; `form` as `format` takes it."""
    if not values:
        return "-"
    median = format(statistics.median(values), form)
    return median if len(values) == 1 else f"{median} [{format(min(values), form)}-{format(max(values), form)}]"
