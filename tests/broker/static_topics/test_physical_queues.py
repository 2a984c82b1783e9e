"""PhysicalQueues: another broker's queues answer as this broker's own do, for every question."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.static_topics.two_brokers import GROUP, TOPIC, TwoBrokers, item, two_brokers
from thermocline.broker.cold.cold_reads import Boundary
from thermocline.broker.static_topics.physical_queues import LocalQueues, MappedQueues, PhysicalQueues, RemoteQueues
from thermocline.broker.tables.static_topic_table import LedQueue
from thermocline.remoting.errors import MQError, ResponseError
from thermocline.remoting.response_code import ResponseCode

EMPTY, FULL = 0, 2
COUNT, STEP_MS = 4, 10


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[TwoBrokers]:
    """Broker b has messages in physical queue 2, stored STEP_MS apart, and none in queue 0."""
    async with two_brokers(tmp_path) as both:
        assert (await both.b.map({0: [item(0, "b", 0, queue_id=FULL)]})).code == 0
        assert (await both.b.ask(200, body=b'{"groupName":"%s"}' % GROUP.encode())).code == 0
        for _ in range(COUNT):
            assert (await both.b.send()).code == 0
            both.b.broker.clock.now_ms += STEP_MS
        yield both


@pytest.fixture(params=["local", "remote"])
def queues(brokers: TwoBrokers, request: pytest.FixtureRequest) -> PhysicalQueues:
    """Broker b's."""
    parts = brokers.b.broker.parts
    if request.param == "local":
        return LocalQueues(parts.reads.lookup, parts.tables.offsets)
    return RemoteQueues(brokers.peers, "b")


async def test_bounds_and_times(brokers: TwoBrokers, queues: PhysicalQueues) -> None:
    first_ms = brokers.b.broker.clock.now_ms - COUNT * STEP_MS
    assert [await queues.minimum(TOPIC, queue_id) for queue_id in (EMPTY, FULL)] == [0, 0]
    assert [await queues.end(TOPIC, queue_id) for queue_id in (EMPTY, FULL)] == [0, COUNT]
    assert await queues.earliest_time_ms(TOPIC, FULL) == first_ms
    assert await queues.earliest_time_ms(TOPIC, EMPTY) is None
    between_ms = first_ms + STEP_MS + 1
    assert await queues.offset_at(TOPIC, FULL, between_ms, Boundary.LOWER) == 2
    assert await queues.offset_at(TOPIC, FULL, between_ms, Boundary.UPPER) == 1


async def test_a_group_without_an_offset_has_none(queues: PhysicalQueues) -> None:
    """Not 0, which would be its first message."""
    for queue_id in (EMPTY, FULL):
        assert await queues.committed(TOPIC, queue_id, GROUP) is None
    assert list(await queues.groups(TOPIC)) == []
    await queues.commit(TOPIC, FULL, GROUP, 0)
    assert await queues.committed(TOPIC, FULL, GROUP) == 0
    await queues.commit(TOPIC, FULL, GROUP, 3)
    assert await queues.committed(TOPIC, FULL, GROUP) == 3
    assert await queues.committed(TOPIC, EMPTY, GROUP) is None
    assert list(await queues.groups(TOPIC)) == [GROUP]


async def test_another_answer_names_its_broker(brokers: TwoBrokers) -> None:
    queues = RemoteQueues(brokers.peers, "b")
    with pytest.raises(ResponseError, match="broker b answered 17: ") as raised:
        await queues.commit("NoSuchTopic", 0, GROUP, 5)
    assert raised.value.code == ResponseCode.SYSTEM_ERROR
    with pytest.raises(MQError, match="broker c"):
        await RemoteQueues(brokers.peers, "c").end(TOPIC, FULL)


async def test_a_mapping_names_the_broker(brokers: TwoBrokers) -> None:
    parts = brokers.b.broker.parts
    mapped = MappedQueues(lookup=parts.reads.lookup, offsets=parts.tables.offsets, peers=brokers.peers)
    led = parts.tables.static_topics.led(TOPIC, 0, is_logical=None)
    assert isinstance(led, LedQueue)
    assert isinstance(mapped.find(led, item(0, "b", 0)), LocalQueues)
    assert isinstance(mapped.find(led, item(0, "a", 0)), RemoteQueues)
