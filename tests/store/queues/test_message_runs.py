"""Message runs: adjacent records are one slice, limits and filters hold, files end runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thermocline.remoting.errors import OffsetOutOfRangeError
from thermocline.remoting.records.message_record import iterate_records
from thermocline.remoting.string_hash import tags_code
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.files.disk import RealDisk
from thermocline.store.log.message_draft import MessageDraft
from thermocline.store.message_store import MessageStore
from thermocline.store.queues.consume_queue import FILLER, UNIT, ConsumeQueue
from thermocline.store.queues.message_runs import MessageRuns, RunLimits, read_runs

FILE_BYTES = 4_096


def put(store: MessageStore, queue_id: int, *, tag: str = "", body_bytes: int = 20) -> None:
    store.put(
        MessageDraft(
            topic="T",
            queue_id=queue_id,
            body=bytes(body_bytes),
            properties_text=f"TAGS\x01{tag}\x02".encode() if tag else b"",
            born_timestamp_ms=0,
            born_host=("127.0.0.1", 1),
        )
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    store = open_store(tmp_path)
    yield store
    store.close()


def open_store(root: Path) -> MessageStore:
    config = StoreConfig(root_path=str(root), log_file_bytes=FILE_BYTES, queue_file_bytes=20 * 100)
    return MessageStore.open(config, disk=RealDisk(), clock=lambda: 1_000)


def queue_of(store: MessageStore, queue_id: int = 0) -> ConsumeQueue:
    queue = store.queues.find("T", queue_id)
    assert queue is not None
    return queue


def read(
    store: MessageStore,
    start: int = 0,
    *,
    count_max: int = 1_000,
    bytes_max: int = 1 << 20,
    codes: frozenset[int] | None = None,
) -> MessageRuns:
    units = queue_of(store).units(start, 1_000)
    return read_runs(store.commit_log, units, codes=codes, count_max=count_max, bytes_max=bytes_max)


def offsets(runs: MessageRuns) -> list[int]:
    return [record.queue_offset for buffer in runs.buffers for record in iterate_records(buffer)]


def test_adjacent_records_are_one_slice(store: MessageStore) -> None:
    for queue_id in (0, 0, 0, 1, 0, 0):
        put(store, queue_id, tag="a")
    all_units = read(store)
    chosen = read(store, codes=frozenset([tags_code("a")]))
    for runs in (all_units, chosen):
        assert offsets(runs) == [0, 1, 2, 3, 4]
        assert runs.size_bytes == sum(map(len, runs.buffers))
        assert runs.message_count == runs.examined == 5
    assert [len(runs.buffers) for runs in (all_units, chosen)] == [5, 2]
    assert [len(runs.buffers) for runs in (read(store, count_max=3), read(store, 3))] == [1, 1]


@pytest.mark.parametrize("count", [1, 32, 64, 65])
def test_a_read_in_one_step_gives_what_a_read_unit_by_unit_gives(store: MessageStore, count: int) -> None:
    for number in range(count):
        put(store, 0, tag="a", body_bytes=number)
        if number % 3 == 1:
            put(store, 1)
    at_once, by_unit = read(store), read(store, codes=frozenset([tags_code("a")]))
    assert b"".join(at_once.buffers) == b"".join(by_unit.buffers)
    assert (at_once.message_count, at_once.examined, at_once.size_bytes) == (count, count, by_unit.size_bytes)


def test_a_filler_counts_as_no_message_whatever_the_limit_is(store: MessageStore) -> None:
    put(store, 0)
    queue_of(store).append_unit(*UNIT.unpack(FILLER))
    put(store, 0)
    runs = read(store, bytes_max=1 << 40)
    assert (offsets(runs), runs.message_count, runs.examined) == ([0, 2], 2, 3)


def test_a_damaged_unit_in_the_middle_reads_no_bytes_of_other_files(store: MessageStore) -> None:
    for queue_id in (0, 1, 0, 1, 0):
        put(store, queue_id)
    units = [bytes(queue_of(store).units(number, 1)) for number in range(3)]
    units[1] = UNIT.pack(1 << 40, UNIT.unpack(units[0])[1], 0)
    with pytest.raises(OffsetOutOfRangeError):
        read_runs(store.commit_log, b"".join(units), codes=None, count_max=32, bytes_max=1 << 20)


def test_a_file_ends_a_run(store: MessageStore) -> None:
    for _ in range(60):
        put(store, 0, body_bytes=200)
    runs = read(store)
    assert offsets(runs) == list(range(60))
    assert len(runs.buffers) == len(store.commit_log.files) > 2


def test_limits(store: MessageStore) -> None:
    """The first message that matches always goes."""
    for _ in range(5):
        put(store, 0)
    size_bytes = read(store).size_bytes // 5
    assert offsets(read(store, count_max=2)) == [0, 1]
    assert offsets(read(store, bytes_max=3 * size_bytes)) == [0, 1, 2]
    assert offsets(read(store, bytes_max=3 * size_bytes - 1)) == [0, 1]
    assert offsets(read(store, bytes_max=1)) == [0]
    assert read(store, bytes_max=1).examined == 1


def test_filters_and_fillers_are_stepped_over(store: MessageStore) -> None:
    for tag in ("a", "b", "a"):
        put(store, 0, tag=tag)
    for _ in range(2):
        queue_of(store).append_unit(*UNIT.unpack(FILLER))
    put(store, 0, tag="b")
    runs = read(store, codes=frozenset([tags_code("b")]))
    assert [record.tags for buffer in runs.buffers for record in iterate_records(buffer)] == ["b", "b"]
    assert runs.examined == 6
    nothing = read(store, codes=frozenset([tags_code("c")]))
    assert (nothing.buffers, nothing.message_count, nothing.examined) == ([], 0, 6)
    assert read(store, 3).message_count == 1


def test_far_messages_have_lower_limits(store: MessageStore) -> None:
    """The position of the first message decides."""
    for _ in range(20):
        put(store, 0)
    border = queue_of(store).unit(10).physical_offset
    far = RunLimits(count_max=3, bytes_max=1 << 20)

    def count(start: int) -> int:
        units = queue_of(store).units(start, 100)
        runs = read_runs(
            store.commit_log, units, codes=None, count_max=8, bytes_max=1 << 20, far_offset=border, far_limits=far
        )
        return runs.message_count

    assert (count(0), count(9), count(10)) == (3, 3, 8)


def test_a_file_that_has_gone(store: MessageStore) -> None:
    for _ in range(60):
        put(store, 0, body_bytes=200)
    units = queue_of(store).units(0, 10)
    store.commit_log.flush()
    store.commit_log.raise_minimum(FILE_BYTES)
    with pytest.raises(OffsetOutOfRangeError):
        read_runs(store.commit_log, units, codes=None, count_max=10, bytes_max=1 << 20)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    puts=st.lists(st.tuples(st.integers(0, 1), st.sampled_from("abc"), st.integers(0, 400)), max_size=60),
    start=st.integers(0, 30),
    count_max=st.integers(1, 40),
    bytes_max=st.integers(1, 6_000),
    wanted=st.sets(st.sampled_from("abc")),
)
def test_runs_are_the_same_as_a_plain_loop_finds(
    tmp_path_factory: pytest.TempPathFactory,
    puts: list[tuple[int, str, int]],
    start: int,
    count_max: int,
    bytes_max: int,
    wanted: set[str],
) -> None:
    """Record by record, with every limit, whatever records are between."""
    store = open_store(tmp_path_factory.mktemp("store"))
    store.queues.find_or_create("T", 0)
    for queue_id, tag, body_bytes in puts:
        put(store, queue_id, tag=tag, body_bytes=body_bytes)
    queue = queue_of(store)
    start = min(start, queue.next_offset)
    expected: list[int] = []
    size_bytes = examined = 0
    for offset in range(start, queue.next_offset):
        record = store.read_record(queue.unit(offset).physical_offset)
        if not wanted or record.tags in wanted:
            if expected and (len(expected) >= count_max or size_bytes + record.size_bytes > bytes_max):
                break
            expected.append(offset)
            size_bytes += record.size_bytes
        examined += 1
    codes = frozenset(map(tags_code, wanted)) or None
    runs = read(store, start, count_max=count_max, bytes_max=bytes_max, codes=codes)
    assert (offsets(runs), runs.size_bytes, runs.examined) == (expected, size_bytes, examined)
    assert runs.message_count == len(expected)
    store.close()
