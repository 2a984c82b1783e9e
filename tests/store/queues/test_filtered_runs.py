"""Filtered runs: what matches is found however often the search pauses, within the limits, and stays readable."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.queues.test_message_runs import FILE_BYTES, open_store, put, queue_of
from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.records.message_record import iterate_records
from thermocline.remoting.records.properties import decode_properties
from thermocline.store.message_store import MessageStore
from thermocline.store.queues.consume_queue import FILLER, UNIT
from thermocline.store.queues.filtered_runs import UNITS_READ, FilteredRuns
from thermocline.store.queues.message_runs import RunLimits


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    store = open_store(tmp_path)
    yield store
    store.close()


def has_tag(tag: str) -> Callable[[bytes], bool]:
    return lambda text: decode_properties(text).get("TAGS") == tag


def search(
    store: MessageStore,
    tag: str = "b",
    *,
    start: int = 0,
    end: int | None = None,
    count_max: int = 1_000,
    bytes_max: int = 1 << 20,
    far_offset: int = 0,
    far_limits: RunLimits | None = None,
) -> FilteredRuns:
    queue = queue_of(store)
    return FilteredRuns(
        store.commit_log,
        queue,
        matches=has_tag(tag),
        start=start,
        end=queue.next_offset if end is None else end,
        count_max=count_max,
        bytes_max=bytes_max,
        far_offset=far_offset,
        far_limits=far_limits,
    )


def never() -> bool:
    return False


def always() -> bool:
    return True


def offsets(runs: FilteredRuns) -> list[int]:
    return [record.queue_offset for buffer in runs.buffers() for record in iterate_records(buffer)]


def test_matching_neighbours_are_one_slice(store: MessageStore) -> None:
    for tag in "abbabb":
        put(store, 0, tag=tag)
    put(store, 1, tag="b")
    put(store, 0, tag="b")
    runs = search(store)
    assert runs.go_on(never)
    assert offsets(runs) == [1, 2, 4, 5, 6]
    assert len(runs.buffers()) == 3
    assert (runs.message_count, runs.size_bytes, runs.next_offset) == (5, sum(map(len, runs.buffers())), 7)


def test_nothing_matches(store: MessageStore) -> None:
    for _ in range(UNITS_READ + 5):
        put(store, 0, tag="a")
    runs = search(store)
    assert runs.go_on(never)
    assert (runs.buffers(), runs.message_count, runs.next_offset) == ([], 0, UNITS_READ + 5)


def test_each_pause_lets_one_message_be_looked_at(store: MessageStore) -> None:
    for tag in "abab":
        put(store, 0, tag=tag)
    runs = search(store)
    seen = []
    while not runs.go_on(always):
        seen.append((runs.next_offset, runs.message_count))
    assert seen == [(1, 0), (2, 1), (3, 1)]
    assert offsets(runs) == [1, 3]


@pytest.fixture(scope="module")
def mixed_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    """150 messages over several files: runs of both tags, other queues' messages between them, offsets without one."""
    store = open_store(tmp_path_factory.mktemp("store"))
    for index in range(150):
        put(store, 0, tag="ab"[index * index % 7 % 2], body_bytes=index % 300)
        if index % 5 == 0:
            put(store, 1)
        if index % 40 == 39:
            for _ in range(2):
                queue_of(store).append_unit(*UNIT.unpack(FILLER))
    yield store
    store.close()


@given(
    start=st.integers(0, 160),
    span=st.integers(0, 160),
    count_max=st.integers(1, 40),
    bytes_max=st.integers(1, 6_000),
    patience=st.integers(1, 50),
)
def test_any_search_finds_the_same_as_a_plain_loop(
    mixed_store: MessageStore, start: int, span: int, count_max: int, bytes_max: int, patience: int
) -> None:
    queue = queue_of(mixed_store)
    end = min(start + span, queue.next_offset)
    start = min(start, end)
    expected: list[int] = []
    size_bytes = 0
    next_offset = start
    while next_offset < end and len(expected) < count_max:
        unit = queue.unit(next_offset)
        if not unit.is_empty and mixed_store.read_record(unit.physical_offset).tags == "b":
            if expected and size_bytes + unit.size_bytes > bytes_max:
                break
            expected.append(unit.physical_offset)
            size_bytes += unit.size_bytes
        next_offset += 1
    runs = search(mixed_store, start=start, end=end, count_max=count_max, bytes_max=bytes_max)
    looks = itertools.count(1)
    while not runs.go_on(lambda: next(looks) % patience == 0):
        pass
    found = [record.physical_offset for buffer in runs.buffers() for record in iterate_records(buffer)]
    assert found == expected
    assert (runs.message_count, runs.size_bytes, runs.next_offset) == (len(expected), size_bytes, next_offset)


def test_far_messages_have_lower_limits(store: MessageStore) -> None:
    """The position of the first matching message decides."""
    for _ in range(20):
        put(store, 0, tag="b")
    border = queue_of(store).unit(10).physical_offset
    far = RunLimits(count_max=3, bytes_max=1 << 20)

    def count(start: int) -> int:
        runs = search(store, start=start, count_max=8, far_offset=border, far_limits=far)
        assert runs.go_on(never)
        return runs.message_count

    assert (count(0), count(9), count(10)) == (3, 3, 8)


def test_found_messages_outlive_their_file(store: MessageStore) -> None:
    """Retention may run while a search pauses: it ends where the log begins to miss something."""
    for _ in range(60):
        put(store, 0, tag="b", body_bytes=200)
    runs = search(store)
    looks = iter(range(100))
    assert not runs.go_on(lambda: next(looks) == 4)
    assert runs.next_offset == 5
    log = store.commit_log
    log.flush()
    for file in log.raise_minimum(2 * FILE_BYTES):
        store.queues.files.log_min_offset = log.min_offset
        log.delete_file(file)
    assert queue_of(store).min_offset > 5
    assert runs.go_on(never)
    assert offsets(runs) == [0, 1, 2, 3, 4]
    assert runs.next_offset == 5


def test_a_damaged_record_is_noticed(store: MessageStore) -> None:
    for _ in range(3):
        put(store, 0, tag="b")
    queue = queue_of(store)
    unit = queue.unit(2)
    queue.restart_at(2)
    queue.append_unit(unit.physical_offset - 1, unit.size_bytes, 0)
    runs = search(store)
    with pytest.raises(CorruptDataError):
        runs.go_on(never)
    assert offsets(runs) == [0, 1]
