"""Query by key, unique id and tag: newest first, each record once, from both tiers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.cold_tier import MemoryColdTier
from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.pulling import TOPIC, expire_local_files, messages, send_with_keys
from tests.store.send_frames import unique_key
from thermocline.broker.cold.key_index import KeyMatches, KeyQuery
from thermocline.remoting.command import RemotingCommand


async def query(broker: DataBroker, key: str, **fields: Any) -> RemotingCommand:
    usual = {"key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 2**63 - 1}
    return await broker.ask_wire(12, **(usual | fields))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[DataBroker]:
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        yield broker


async def test_query_by_key_unique_id_and_tag(broker: DataBroker) -> None:
    """Newest first, at most as many as wanted."""
    send_with_keys(broker, 10)
    assert broker.parts.base.stats.served_bytes == 0
    answer = await query(broker, "k3")
    assert broker.parts.base.stats.served_bytes == len(answer.body) > 0
    assert [record.queue_offset for record in messages(answer)] == [3]
    assert answer.ext_fields is not None
    last = broker.records()[-1]
    assert answer.ext_fields["indexLastUpdatePhyoffset"] == str(last.physical_offset)
    assert answer.ext_fields["indexLastUpdateTimestamp"] == str(last.store_timestamp_ms)
    assert [r.queue_offset for r in messages(await query(broker, "shared", maxNum=3))] == [9, 8, 7]
    assert [r.queue_offset for r in messages(await query(broker, unique_key(4)))] == [4]
    assert [
        r.queue_offset for r in messages(await query(broker, unique_key(4), _UNIQUE_KEY_QUERY="true", maxNum=0))
    ] == [4]
    assert [r.queue_offset for r in messages(await query(broker, unique_key(4), indexType="U"))] == [4]
    assert [r.queue_offset for r in messages(await query(broker, "Tag1", indexType="T"))] == [9, 7, 5, 3, 1]
    assert (await query(broker, "k3", indexType="X")).code == 1
    # As RocketMQ reads the flag, which has the last word over the type.
    assert [
        r.queue_offset
        for r in messages(await query(broker, unique_key(4), _UNIQUE_KEY_QUERY="True", indexType="T", maxNum=0))
    ] == [4]


async def test_query_within_a_time(broker: DataBroker) -> None:
    start_ms = broker.clock.now_ms
    send_with_keys(broker, 10)
    within = await query(broker, "shared", beginTimestamp=start_ms + 2_000, endTimestamp=start_ms + 4_000)
    assert [record.queue_offset for record in messages(within)] == [4, 3, 2]


async def test_nothing_messages(broker: DataBroker) -> None:
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
    assert [record.queue_offset for record in messages(await query(broker, "k1"))] == [1]


async def test_messages_of_a_deleted_topic_are_not_messages(broker: DataBroker) -> None:
    send_with_keys(broker, 2)
    (record, _) = broker.records()
    await broker.parts.tables.topics.delete(TOPIC)
    assert (await query(broker, "k0")).code == 22
    assert (await broker.ask_wire(33, offset=record.physical_offset)).code == 1
    await broker.parts.tables.topics.ensure(TOPIC, queue_count=4)
    assert (await query(broker, "k0")).code == 22


async def test_expired_messages_are_not_messages(broker: DataBroker) -> None:
    await broker.make_topic(TOPIC, attributes="+thermocline.ttl.ms=5000")
    send_with_keys(broker, 10)
    assert [record.queue_offset for record in messages(await query(broker, "shared"))] == [9, 8, 7, 6, 5]
    gone, kept = broker.records()[4], broker.records()[5]
    assert (await broker.ask_wire(33, offset=gone.physical_offset)).code == 1
    assert (await broker.ask_wire(33, offset=kept.physical_offset)).code == 0


async def test_query_in_both_tiers(tmp_path: Path) -> None:
    """A record in both is one; half an answer is none."""
    cold = MemoryColdTier()
    async with data_broker(tmp_path, topics=[TOPIC], cold=cold, start=False, log_file_bytes=4_096) as broker:
        send_with_keys(broker, 60)
        cold.copy_from(broker.store, TOPIC, 0, end=50)
        minimum = expire_local_files(broker, 30)
        everything = messages(await query(broker, "shared", maxNum=64))
        assert [record.queue_offset for record in everything] == list(range(59, -1, -1))
        assert [r.queue_offset for r in messages(await query(broker, "shared", maxNum=5))] == [59, 58, 57, 56, 55]
        broker.change_config(query_count_max=3)
        assert [r.queue_offset for r in messages(await query(broker, "shared", maxNum=5))] == [59, 58, 57]
        broker.change_config(query_count_max=64)
        assert [r.queue_offset for r in messages(await query(broker, unique_key(3), indexType="U"))] == [3]
        cold.is_away = True
        assert (await query(broker, "shared", maxNum=64)).code == 2
        assert (await query(broker, unique_key(3), indexType="U")).code == 2
        assert (await query(broker, unique_key(minimum), indexType="U")).code == 0
        assert (await query(broker, "shared", maxNum=5)).code == 0
