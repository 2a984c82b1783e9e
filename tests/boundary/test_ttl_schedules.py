"""Time to live is true everywhere: random schedules against a model, by offset, by time, by key, and by Spark."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.boundary.ttl_schedule import Schedule
from thermocline.spark.access.blocking_store import close_stores

SEED = 5_300
SEEDS_FOUND = (6_182, 6_511, 10_393)
"""Tried first: queue files of a topic made anew went by retention; a purge beside a deletion of its topic left all of
it; a pack of which topics ended and expired in one commit stayed."""
STORES_OPEN_MAX = 200


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for a socket."""
    path = Path(tempfile.mkdtemp(prefix="tc-"))
    yield path
    shutil.rmtree(path)


def test_schedules_of_time_to_live(folder: Path, case_count: Callable[..., int]) -> None:
    """No read returns an expired message, every read returns the others, whatever the order of events."""
    witness: Counter[str] = Counter()
    with asyncio.Runner() as runner:
        count = case_count(quick=20, full=30, soak=10_000)
        for number, seed in enumerate((*SEEDS_FOUND, *range(SEED, SEED + count))):
            case = folder / str(number)
            case.mkdir()
            try:
                runner.run(Schedule(seed, case, witness).run())
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise
            shutil.rmtree(case)
            if number % STORES_OPEN_MAX == 0:
                close_stores()
    close_stores()
    for name in (
        "segments",
        "packed",
        "segments after a sweep",
        "partly expired segments",
        "packs after a sweep",
        "partly expired packs",
        "expired in a moment",
        "restarts",
        "clocks set back",
        "read",
        "not read",
        "rows",
        "objects in the end",
        "packs merged",
        "indexed",
        "index objects",
        "packs purged",
        "segments purged",
        "purged",
        "beside",
    ):
        assert witness[name], f"no schedule met this: {name}; {witness}"
