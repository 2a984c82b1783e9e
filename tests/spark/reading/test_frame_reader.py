"""Reading planned slices: exactly the wanted rows, whatever the cut; damage and loss by the options."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spark.cold_tier import NOW_MS, ColdTier, by_place, flights, rows_of
from tests.spark.message_rows import EPOCH, normal_rows
from tests.tiered.cold_data import START_MS, Log
from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError
from thermocline.remoting.records import sys_flag as flags
from thermocline.remoting.records.compression import compress
from thermocline.remoting.records.sys_flag import CompressionType
from thermocline.spark.access.blocking_store import BlockingStore, blocking_store
from thermocline.spark.decoding.message_columns import MESSAGE_COLUMNS
from thermocline.spark.reading.cold_plan import resolve_plan
from thermocline.spark.reading.frame_reader import FrameReader
from thermocline.spark.reading.source_options import read_options_from
from thermocline.tiered.catalog.ledger_entry import LedgerChanges, TopicChange
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.segments.segment_format import MAGIC_BYTES
from thermocline.tiered.wrappers import MeteringObjectStore, StoreCounters, Verb
from thermocline.tiered.wrappers.wrapping import WrappingObjectStore

ALL_COLUMNS = ",".join(column.name for column in MESSAGE_COLUMNS)
TTL_MS = 1_000
_names = itertools.count()


def new_url() -> str:
    return f"memory://frames-{next(_names)}"


def read(url: str, *, topic: str = "orders", now_ms: int = NOW_MS, **options: str) -> list[dict[str, Any]]:
    """All rows, task by task, as Spark would get them."""
    checked = read_options_from({"path": url, "topic": topic, "columns": ALL_COLUMNS} | options)
    plan = resolve_plan(checked, now_ms=now_ms)
    batches = [batch for task in plan.tasks for batch in FrameReader(checked).read(task)]
    assert all(batch.num_rows <= checked.batch_rows_max for batch in batches)
    return normal_rows([row for batch in batches for row in batch.to_pylist()])


@pytest.fixture(scope="module")
def orders() -> tuple[ColdTier, Log]:
    """3000 messages of four queues in three segments with frames of 8 KiB."""
    tier, log = ColdTier(new_url()), flights("orders", 3_000)
    tier.seal_in_pieces(log, 3)
    return tier, log


@pytest.fixture(scope="module")
def expiring() -> tuple[ColdTier, Log]:
    """The same with a time to live, so that the moment of reading decides what has expired."""
    tier, log = ColdTier(new_url()), flights("orders", 3_000)
    tier.seal_in_pieces(log, 3)
    tier.commit(LedgerChanges(topics=(TopicChange(topic="orders", incarnation=1, ttl_ms=TTL_MS),)))
    return tier, log


def test_all_messages_are_read_once_and_in_order(orders: tuple[ColdTier, Log]) -> None:
    tier, log = orders
    rows = read(tier.url)
    assert by_place(rows) == by_place(rows_of(log))
    for queue_id in log.queues:
        offsets = [row["queueOffset"] for row in rows if row["queueId"] == queue_id]
        assert offsets == sorted(offsets)


@given(data=st.data())
@settings(deadline=None, max_examples=30)
def test_any_range_is_read_exactly(expiring: tuple[ColdTier, Log], data: st.DataObject) -> None:
    tier, log = expiring
    ends = log.ends()
    starting = {str(queue): data.draw(st.integers(0, end), label="start") for queue, end in ends.items()}
    ending = {str(queue): data.draw(st.integers(0, end), label="end") for queue, end in ends.items()}
    start_ms = START_MS + data.draw(st.integers(0, 1_600), label="start_ms")
    end_ms = START_MS + data.draw(st.integers(0, 1_600), label="end_ms")
    cut_ms = START_MS + data.draw(st.integers(-100, 500), label="cut_ms")
    tags = data.draw(st.one_of(st.none(), st.sets(st.sampled_from(["UA", "WN", "9E", "XX"]), min_size=1)), label="tags")
    options = {
        "startingOffsets": json.dumps({"orders": starting}),
        "endingOffsets": json.dumps({"orders": ending}),
        "startingTimestamp": str(start_ms),
        "endingTimestamp": str(end_ms),
        "maxPartitionBytes": data.draw(st.sampled_from(["1k", "20k", "100k", "256m"])),
        "fetchBytes": data.draw(st.sampled_from(["1", "10k", "8m"])),
        "rowsPerBatch": data.draw(st.sampled_from(["1", "100", "16384"])),
    } | ({} if tags is None else {"tags": " || ".join(tags)})
    rows = read(tier.url, now_ms=cut_ms + TTL_MS, **options)
    expected = [
        row
        for row in rows_of(log)
        if starting[str(row["queueId"])] <= row["queueOffset"] < ending[str(row["queueId"])]
        and max(start_ms, cut_ms) <= _milliseconds(row["timestamp"]) < end_ms
        and (tags is None or row["tag"] in tags)
    ]
    assert by_place(rows) == by_place(expected)


def _milliseconds(moment: Any) -> int:
    elapsed = moment - EPOCH
    return int(elapsed.days * 86_400_000 + elapsed.seconds * 1_000 + elapsed.microseconds // 1_000)


def test_several_topics_and_brokers_are_read_together() -> None:
    url = new_url()
    logs = {name: flights("orders", 200, seed=seed) for seed, name in enumerate(["broker-a", "broker-b"])}
    for name, log in logs.items():
        ColdTier(url, broker_name=name).seal(log)
    payments = flights("payments", 50)
    ColdTier(url, broker_name="broker-b").seal(payments)
    expected = [row for name, log in logs.items() for row in rows_of(log, broker_name=name)]
    expected += rows_of(payments, broker_name="broker-b")
    assert by_place(read(url, topic="orders,payments")) == by_place(expected)


def test_tags_with_the_same_hash_are_distinguished() -> None:
    """`Aa` and `BB` have one Java hash code: frames are found by it, rows by the tag itself."""
    tier, log = ColdTier(new_url()), Log(topic="orders", random=flights("x", 0).random)
    for number in range(300):
        log.append(0, body=b"x" * 100, tag=["Aa", "BB", "C", None][number % 4])
    tier.seal(log)
    assert {row["tag"] for row in read(tier.url, tags="Aa")} == {"Aa"}
    assert len(read(tier.url, tags="Aa")) == 75
    assert len(read(tier.url, tags="Aa || C")) == 150


# -- what is fetched -----------------------------------------------------------------------------------------------


def metered(store: BlockingStore, counters: StoreCounters) -> BlockingStore:
    return BlockingStore(MeteringObjectStore(store.store, counters), store.loop)


def fetched(url: str, **options: str) -> tuple[int, StoreCounters]:
    """How many frames a read looks into, and what it asks the store for once planned."""
    checked = read_options_from({"path": url, "topic": "orders"} | options)
    counters = StoreCounters()
    reader = FrameReader(checked, open_store=lambda at, options: metered(blocking_store(at, options), counters))
    frame_count = 0
    for task in resolve_plan(checked, now_ms=NOW_MS).tasks:
        frame_count += sum(1 for _ in reader.wanted_frames(task))
        counters.requests.clear()
        counters.received_bytes = 0
        for _ in reader.read(task):
            pass
    return frame_count, counters


def test_frames_outside_offsets_times_and_tags_are_not_fetched() -> None:
    tier, log = ColdTier(new_url()), Log(topic="orders", random=flights("x", 0).random)
    for number in range(2_000):
        log.now_ms += 1
        log.append(0, body=log.random.randbytes(400), tag="rare" if number in (700, 1_600) else "common")
    tier.seal(log)
    (entry,) = tier.entries("orders")
    total, _ = fetched(tier.url)
    assert total == entry.runs[0].frame_end > 40
    records_per_frame = 2_000 // total + 1
    assert fetched(tier.url, startingOffsets='{"orders": {"0": 1000}}')[0] == pytest.approx(total / 2, abs=1)
    middle = {"startingTimestamp": str(START_MS + 500), "endingTimestamp": str(START_MS + 500 + records_per_frame)}
    assert fetched(tier.url, **middle)[0] <= 3
    frame_count, counters = fetched(tier.url, tags="rare")
    assert frame_count == 2
    # Footer and blocks of .cq, two ranges of .log; its footer is still at hand.
    assert counters.requests == {Verb.GET_RANGE: 4}
    assert counters.received_bytes < entry.log.size_bytes // 5
    assert fetched(tier.url, tags="unheard of")[0] == 0


def test_frames_that_lie_together_are_fetched_together() -> None:
    tier, log = ColdTier(new_url()), flights("orders", 1_000, queue_count=4)
    tier.seal(log)
    (entry,) = tier.entries("orders")
    frame_count, counters = fetched(tier.url)
    assert frame_count > 20
    # All queues are small and lie in one object: one task, one range.
    assert counters.requests == {Verb.GET_RANGE: 1}
    assert counters.received_bytes == entry.log.footer_start - MAGIC_BYTES
    _, in_pieces = fetched(tier.url, fetchBytes="10k")
    assert in_pieces.requests[Verb.GET_RANGE] == pytest.approx(counters.received_bytes / 10_240, rel=0.8)


class PairwiseObjectStore(WrappingObjectStore):
    """Answers the read of the first of these ranges after the read of the second has started."""

    def __init__(self, inner: ObjectStore, starts: set[int]) -> None:
        super().__init__(inner)
        self._starts = starts
        self._asked = 0
        self._second = asyncio.Event()

    async def get_range(self, key: str, *, start: int, end: int) -> bytes:
        if start in self._starts:
            self._asked += 1
            if self._asked == 2:
                self._second.set()
            await asyncio.wait_for(self._second.wait(), timeout=60)
        return await super().get_range(key, start=start, end=end)


def test_a_range_is_requested_before_the_previous_one_has_arrived() -> None:
    tier = ColdTier(new_url())
    tier.seal(flights("orders", 300, queue_count=1))
    checked = read_options_from({"path": tier.url, "topic": "orders", "fetchBytes": "1"})  # a range for each frame
    (task,) = resolve_plan(checked, now_ms=NOW_MS).tasks
    frames = list(FrameReader(checked).wanted_frames(task))
    assert len(frames) > 3
    base = blocking_store(tier.url, checked.store)
    store = BlockingStore(PairwiseObjectStore(base.store, {frame.start for frame in frames}), base.loop)
    reader = FrameReader(checked, open_store=lambda _url, _options: store)
    assert sum(batch.num_rows for batch in reader.read(task)) == 300


class DamagingObjectStore(WrappingObjectStore):
    """Damages the first answer to each range, as a bad network might."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._seen: set[tuple[str, int]] = set()

    async def get_range(self, key: str, *, start: int, end: int) -> bytes:
        data = bytearray(await super().get_range(key, start=start, end=end))
        if key.endswith(".log") and (key, start) not in self._seen and len(data) > 3_000:
            self._seen.add((key, start))
            data[1_000] ^= 0xFF
        return bytes(data)


def test_a_frame_damaged_on_the_way_is_fetched_once_more() -> None:
    tier, log = ColdTier(new_url()), flights("orders", 300, queue_count=1)
    tier.seal(log)
    checked = read_options_from({"path": tier.url, "topic": "orders", "columns": "queueOffset"})
    base = blocking_store(tier.url, checked.store)
    store = BlockingStore(DamagingObjectStore(base.store), base.loop)
    reader = FrameReader(checked, open_store=lambda _url, _options: store)
    (task,) = resolve_plan(checked, now_ms=NOW_MS).tasks
    offsets = [offset for batch in reader.read(task) for offset in batch.column(0).to_pylist()]
    assert offsets == list(range(300))


# -- damage and loss -----------------------------------------------------------------------------------------------


@pytest.fixture
def damaged() -> tuple[ColdTier, Log]:
    """One queue of 400 messages in frames of 8 KiB, one byte of the third frame changed."""
    tier, log = ColdTier(new_url()), flights("orders", 400, queue_count=1)
    tier.seal(log)
    (entry,) = tier.entries("orders")
    # The frames lie between the magic and the footer; the third starts after about two ninths of them.
    tier.change_object(entry.log.key, position=entry.log.footer_start * 3 // 10)
    return tier, log


def test_a_damaged_frame_fails_by_object_frame_and_offsets(damaged: tuple[ColdTier, Log]) -> None:
    tier, _ = damaged
    with pytest.raises(CorruptDataError) as failure:
        read(tier.url)
    text = str(failure.value)
    assert tier.entries("orders")[0].log.key in text
    assert "queue=broker-a:0" in text
    assert "frame=" in text
    assert "offsets=[" in text


def test_a_damaged_frame_can_be_skipped(damaged: tuple[ColdTier, Log], caplog: pytest.LogCaptureFixture) -> None:
    tier, log = damaged
    with caplog.at_level(logging.WARNING):
        rows = by_place(read(tier.url, onCorruptFrame="skip"))
    (message,) = [record for record in caplog.records if "damaged frame skipped" in record.getMessage()]
    start, end = (int(message.getMessage().split(f"{name}=")[1].split()[0]) for name in ("start_offset", "end_offset"))
    assert end - start > 5
    assert rows == {
        place: row for place, row in by_place(rows_of(log)).items() if not start <= row["queueOffset"] < end
    }


@pytest.mark.parametrize("is_broken", [False, True])
def test_bodies_too_large_for_one_batch_are_read_all_the_same(monkeypatch: pytest.MonkeyPatch, is_broken: bool) -> None:
    """The read failed, once all were in memory. Of a body that its producer broke only the message is left out."""
    monkeypatch.setattr("thermocline.spark.decoding.arrow_decoder.BODIES_BYTES_MAX", 100_000)
    monkeypatch.setattr("thermocline.spark.decoding.arrow_decoder.PART_BYTES_MAX", 20_000)
    tier, log = ColdTier(new_url()), Log(topic="orders", random=Random(1), queue_count=1)
    flag = flags.with_compression(0, CompressionType.ZLIB)
    for number in range(400):
        body = b"%d" % number + bytes(3_000)
        is_whole = not (is_broken and number == 200)
        log.append(0, body=compress(body, CompressionType.ZLIB) if is_whole else b"no zlib", sys_flag=flag)
    tier.seal(log)
    if not is_broken:
        assert by_place(read(tier.url)) == by_place(rows_of(log))
        return
    with pytest.raises(CorruptDataError, match=r"body of a message does not decompress.*queue=.* queue_offset=200 "):
        read(tier.url)
    assert [row["queueOffset"] for row in read(tier.url, onCorruptFrame="skip")] == [*range(200), *range(201, 400)]
    assert len(read(tier.url, decompressBody="false")) == 400


def test_one_broken_body_takes_no_other_message_along(caplog: pytest.LogCaptureFixture) -> None:
    """Any producer can send one. The whole frame was left out, or the read failed as if the bucket were damaged."""
    tier, log = ColdTier(new_url()), flights("orders", 100, queue_count=1)
    log.append(0, body=b"no zstd", sys_flag=flags.with_compression(0, CompressionType.ZSTD))
    log.append_flights(100)
    tier.seal(log)
    checked = read_options_from({"path": tier.url, "topic": "orders", "onCorruptFrame": "skip"})
    (task,) = resolve_plan(checked, now_ms=NOW_MS).tasks
    reader = FrameReader(checked)
    with caplog.at_level(logging.WARNING):
        offsets = [row["queueOffset"] for batch in reader.read(task) for row in batch.to_pylist()]
    assert offsets == [*range(100), *range(101, 201)]
    assert (reader.counts.messages_skipped, reader.counts.frames_skipped) == (1, 0)
    assert "message with a damaged body skipped queue_offset=100" in caplog.text
    assert len(read(tier.url, columns="queueOffset")) == 201


def test_other_records_than_the_footer_speaks_of_are_damage() -> None:
    """A frame that decompresses, to the records of another place: caught by their offsets."""
    tier, other = ColdTier(new_url()), ColdTier(new_url())
    tier.seal(flights("orders", 50, queue_count=1))
    log = flights("orders", 60, queue_count=1)
    other.seal(log, starts={0: 10})
    (entry,), (foreign,) = tier.entries("orders"), other.entries("orders")
    data = other.read_object(foreign.log.key)
    tier.write_object(entry.log.key, data)
    with pytest.raises(CorruptDataError):
        read(tier.url)


def test_a_missing_object_fails_or_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    tier, log = ColdTier(new_url()), flights("orders", 400, queue_count=1)
    tier.seal_in_pieces(log, 2)
    gone = tier.entries("orders")[0]
    tier.delete_object(gone.log.key)
    with pytest.raises(ObjectNotFoundError, match="removed by other hands") as failure:
        read(tier.url)
    assert gone.log.key in str(failure.value)
    with caplog.at_level(logging.WARNING):
        rows = read(tier.url, failOnDataLoss="false")
    assert [row["queueOffset"] for row in rows] == list(range(200, 400))
    assert "their object is gone" in caplog.text
