"""Offset lookup, query by key, view by id: the answers of one endless log, wherever its messages are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.broker.cold_tier import MemoryColdTier
from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.test_pull import Consumer, expire_local_files
from tests.broker.wire import Wire
from tests.store.send_frames import send_frame, unique_key
from thermocline.broker.key_index import KeyMatches, KeyQuery
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.message_record import MessageRecord, iterate_records
from thermocline.store.store_config import FlushDiskType

TOPIC = "TopicA"


async def ask(broker: DataBroker, code: int, **fields: Any) -> RemotingCommand:
    wire = Wire(broker.dispatcher)
    ext_fields = {name: str(value) for name, value in ({"topic": TOPIC, "queueId": 0} | fields).items()}
    wire.receive(RemotingCommand(code=code, opaque=1, ext_fields=ext_fields).encode())
    (answer,) = await wire.wait_commands()
    return answer


async def number(broker: DataBroker, code: int, **fields: Any) -> int:
    """An offset or a time; -100 - code for an error."""
    answer = await ask(broker, code, **fields)
    if answer.code:
        return -100 - answer.code
    assert answer.ext_fields is not None
    return int(answer.ext_fields.get("offset") or answer.ext_fields["timestamp"])


async def search(broker: DataBroker, timestamp_ms: int, boundary: str | None = None) -> int:
    fields = {} if boundary is None else {"boundaryType": boundary}
    return await number(broker, 29, timestamp=timestamp_ms, **fields)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[DataBroker]:
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        yield broker


def send_each_second(broker: DataBroker, count: int, *, twice: bool = False) -> list[int]:
    """Store messages, one a second (or two); their times."""
    consumer = Consumer(broker)
    times = []
    for _ in range(count):
        consumer.send(2 if twice else 1)
        times += [broker.clock.now_ms] * (2 if twice else 1)
        broker.clock.now_ms += 1_000
    return times


async def test_a_queue_without_messages(broker: DataBroker) -> None:
    """It begins and ends at 0, and has no first message."""
    for make in (False, True):
        if make:
            broker.store.queues.find_or_create(TOPIC, 0)
        assert await number(broker, 30) == 0
        assert await number(broker, 31) == 0
        assert await number(broker, 32) == -1
        assert await search(broker, 5) == 0
        assert await search(broker, 5, "upper") == 0


async def test_minimum_keeps_an_empty_remark(broker: DataBroker) -> None:
    """As RocketMQ answers it."""
    assert (await ask(broker, 31)).remark == ""
    assert (await ask(broker, 30)).remark is None


async def test_search_by_time(broker: DataBroker) -> None:
    """Equal times are widened to the first (lower) and the last (upper) of them."""
    times = send_each_second(broker, 5, twice=True)
    assert await search(broker, times[0]) == 0
    assert await search(broker, times[2]) == 2
    assert await search(broker, times[2], "LOWER") == 2
    assert await search(broker, times[2] - 1) == 2
    assert await search(broker, times[2] + 1) == 4
    assert await search(broker, times[-1] + 1) == 10
    assert await search(broker, 0) == 0
    assert await search(broker, times[2], "upper") == 3
    assert await search(broker, times[2] - 1, "UPPER") == 1
    assert await search(broker, times[-1] + 9_999, "upper") == 9
    assert await search(broker, 0, "upper") == 0
    assert (await ask(broker, 29, timestamp=5, boundaryType="middle")).code == 1
    assert await number(broker, 32) == times[0]


async def test_unflushed_messages_are_not_counted(tmp_path: Path) -> None:
    async with data_broker(tmp_path, topics=[TOPIC], start=False, flush_disk_type=FlushDiskType.SYNC_FLUSH) as broker:
        broker.store.flush.use(lambda job, done: None)
        Consumer(broker).send(2)
        assert await number(broker, 30) == 0


class OneList:
    """The queue as one endless list: what every lookup must agree with."""

    def __init__(self, times: list[int], cut_ms: int) -> None:
        self._times = times
        self.start = next((offset for offset, time_ms in enumerate(times) if time_ms >= cut_ms), len(times))

    def lower(self, timestamp_ms: int) -> int:
        found = (o for o in range(self.start, len(self._times)) if self._times[o] >= timestamp_ms)
        return next(found, len(self._times))

    def upper(self, timestamp_ms: int) -> int:
        found = (o for o in range(len(self._times) - 1, self.start - 1, -1) if self._times[o] <= timestamp_ms)
        return next(found, self.start)

    def earliest(self) -> int:
        return self._times[self.start] if self.start < len(self._times) else -1


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    count=st.integers(1, 60),
    cold_count=st.integers(0, 60),
    ttl_s=st.one_of(st.none(), st.integers(1, 70)),
    probes=st.lists(st.integers(-2, 62), min_size=4, max_size=8),
)
async def test_hot_and_cold_answer_as_one_list(
    tmp_path_factory: pytest.TempPathFactory, count: int, cold_count: int, ttl_s: int | None, probes: list[int]
) -> None:
    """Whatever part is local, cold or expired."""
    cold = MemoryColdTier()
    root = tmp_path_factory.mktemp("store")
    async with data_broker(root, topics=[TOPIC], cold=cold, start=False, log_file_bytes=4_096) as broker:
        start_ms = broker.clock.now_ms
        times = send_each_second(broker, count)
        cold_count = min(cold_count, count)
        if cold_count:
            cold.take(broker.store, TOPIC, 0, end=cold_count)
            expire_local_files(broker, cold_count - 1)
        if ttl_s is not None:
            await broker.make_topic(TOPIC, attributes=f"+thermocline.ttl.ms={ttl_s * 1_000}")
        expected = OneList(times, 0 if ttl_s is None else broker.clock.now_ms - ttl_s * 1_000)
        assert await number(broker, 30) == count
        assert await number(broker, 31) == expected.start
        assert await number(broker, 32) == expected.earliest()
        for probe in probes:
            timestamp_ms = start_ms + probe * 1_000
            for around in (timestamp_ms - 1, timestamp_ms, timestamp_ms + 1):
                assert await search(broker, around) == expected.lower(around)
                assert await search(broker, around, "upper") == expected.upper(around)


@pytest.mark.parametrize("trouble", ["is_away", "is_known"])
async def test_what_only_the_tier_knows_is_busy_without_it(tmp_path: Path, trouble: str) -> None:
    """Never the local minimum: a new group would start behind the history."""
    cold = MemoryColdTier()
    async with data_broker(tmp_path, topics=[TOPIC], cold=cold, start=False, log_file_bytes=8_192) as broker:
        times = send_each_second(broker, 60)
        cold.take(broker.store, TOPIC, 0, end=40)
        minimum = expire_local_files(broker, 40)
        setattr(cold, trouble, trouble == "is_away")
        assert await number(broker, 31) == -102
        assert await number(broker, 32) == -102
        assert await search(broker, times[0]) == -102
        assert await search(broker, times[0], "upper") == -102
        assert await number(broker, 30) == 60
        assert await search(broker, times[minimum] + 1) == minimum + 1
        assert await search(broker, times[minimum], "upper") == minimum


# -- by key and by id --------------------------------------------------------------------------------------------------


def found(answer: RemotingCommand) -> list[MessageRecord]:
    return list(iterate_records(bytes(answer.body)))


async def query(broker: DataBroker, key: str, **fields: Any) -> RemotingCommand:
    usual = {"key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 2**63 - 1}
    return await ask(broker, 12, **(usual | fields))


def send_with_keys(broker: DataBroker, count: int, **fields: Any) -> None:
    for index in range(count):
        properties = {
            "KEYS": f"k{index} shared",
            "UNIQ_KEY": unique_key(index),
            "TAGS": f"Tag{index % 2}",
            "WAIT": "true",
        }
        Wire(broker.dispatcher, broker.hot).receive(send_frame(properties=properties, opaque=index, **fields))
        broker.clock.now_ms += 1_000


async def test_query_by_key_unique_id_and_tag(broker: DataBroker) -> None:
    """Newest first, at most as many as wanted."""
    send_with_keys(broker, 10)
    answer = await query(broker, "k3")
    assert [record.queue_offset for record in found(answer)] == [3]
    assert answer.ext_fields is not None
    last = broker.records()[-1]
    assert answer.ext_fields["indexLastUpdatePhyoffset"] == str(last.physical_offset)
    assert answer.ext_fields["indexLastUpdateTimestamp"] == str(last.store_timestamp_ms)
    assert [r.queue_offset for r in found(await query(broker, "shared", maxNum=3))] == [9, 8, 7]
    assert [r.queue_offset for r in found(await query(broker, unique_key(4)))] == [4]
    assert [r.queue_offset for r in found(await query(broker, unique_key(4), _UNIQUE_KEY_QUERY="true", maxNum=0))] == [
        4
    ]
    assert [r.queue_offset for r in found(await query(broker, unique_key(4), indexType="U"))] == [4]
    assert [r.queue_offset for r in found(await query(broker, "Tag1", indexType="T"))] == [9, 7, 5, 3, 1]
    assert (await query(broker, "k3", indexType="X")).code == 1


async def test_query_within_a_time(broker: DataBroker) -> None:
    start_ms = broker.clock.now_ms
    send_with_keys(broker, 10)
    within = await query(broker, "shared", beginTimestamp=start_ms + 2_000, endTimestamp=start_ms + 4_000)
    assert [record.queue_offset for record in found(within)] == [4, 3, 2]


async def test_nothing_found(broker: DataBroker) -> None:
    """Code 22, with an index header of zeroes."""
    send_with_keys(broker, 1)
    answer = await query(broker, "missing")
    assert (answer.code, answer.body) == (22, b"")
    assert answer.ext_fields == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
    assert (await query(broker, "k0", topic="Other")).code == 22


async def test_places_that_do_not_hold_the_key_are_left_out(broker: DataBroker) -> None:
    """A hash may be shared, a topic may have been made anew, a message may have expired."""
    send_with_keys(broker, 2)

    class WrongPlaces:
        async def find(self, query: KeyQuery) -> KeyMatches:
            places = [record.physical_offset for record in broker.records()] + [3, 10**9]
            return KeyMatches(physical_offsets=places, last_store_timestamp_ms=1, last_physical_offset=2)

    broker.use_index(WrongPlaces())
    assert [record.queue_offset for record in found(await query(broker, "k1"))] == [1]


async def test_messages_of_a_deleted_topic_are_not_found(broker: DataBroker) -> None:
    send_with_keys(broker, 2)
    (record, _) = broker.records()
    await broker.context.topics.delete(TOPIC)
    assert (await query(broker, "k0")).code == 22
    assert (await ask(broker, 33, offset=record.physical_offset)).code == 1
    await broker.context.topics.ensure(TOPIC, queue_count=4)
    assert (await query(broker, "k0")).code == 22


async def test_expired_messages_are_not_found(broker: DataBroker) -> None:
    await broker.make_topic(TOPIC, attributes="+thermocline.ttl.ms=5000")
    send_with_keys(broker, 10)
    assert [record.queue_offset for record in found(await query(broker, "shared"))] == [9, 8, 7, 6, 5]
    gone, kept = broker.records()[4], broker.records()[5]
    assert (await ask(broker, 33, offset=gone.physical_offset)).code == 1
    assert (await ask(broker, 33, offset=kept.physical_offset)).code == 0


async def test_query_in_both_tiers(tmp_path: Path) -> None:
    """A record in both is one; half an answer is none."""
    cold = MemoryColdTier()
    async with data_broker(tmp_path, topics=[TOPIC], cold=cold, start=False, log_file_bytes=4_096) as broker:
        send_with_keys(broker, 60)
        cold.take(broker.store, TOPIC, 0, end=50)
        minimum = expire_local_files(broker, 30)
        everything = found(await query(broker, "shared", maxNum=64))
        assert [record.queue_offset for record in everything] == list(range(59, -1, -1))
        assert [r.queue_offset for r in found(await query(broker, "shared", maxNum=5))] == [59, 58, 57, 56, 55]
        assert [r.queue_offset for r in found(await query(broker, unique_key(3), indexType="U"))] == [3]
        cold.is_away = True
        assert (await query(broker, "shared", maxNum=64)).code == 2
        assert (await query(broker, unique_key(3), indexType="U")).code == 2
        assert (await query(broker, unique_key(minimum), indexType="U")).code == 0
        assert (await query(broker, "shared", maxNum=5)).code == 0


async def test_view_by_id(tmp_path: Path) -> None:
    """One record by its place, from either tier."""
    cold = MemoryColdTier()
    async with data_broker(tmp_path, topics=[TOPIC], cold=cold, start=False, log_file_bytes=4_096) as broker:
        send_with_keys(broker, 60)
        cold.take(broker.store, TOPIC, 0, end=50)
        stored = broker.records()
        expire_local_files(broker, 30)
        for record in (stored[0], stored[29], stored[59]):
            assert found(await ask(broker, 33, offset=record.physical_offset)) == [record]
        end = broker.store.commit_log.append_offset
        for nowhere in (1, stored[40].physical_offset + 1, end - 1, end, end + 5, -1, 2**62):
            answer = await ask(broker, 33, offset=nowhere)
            assert (answer.code, answer.remark) == (1, f"can not find message by the offset, {nowhere}")
        cold.is_away = True
        assert (await ask(broker, 33, offset=stored[0].physical_offset)).code == 2
        assert (await ask(broker, 33, offset=stored[59].physical_offset)).code == 0
