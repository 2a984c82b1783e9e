"""What a broker cannot answer yet is asked again: right after its start, while it has not heard of its cold tier.

A real broker on a real port, most of whose messages are in a cold tier in memory, of which it comes to know only once
it has been asked about it some times.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.broker.cluster.test_registration import name_server
from tests.broker.cold_tier import MemoryColdTier
from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.pulling import TOPIC, Consumer, expire_local_files
from tests.clock import Clock
from tests.waiting import until
from thermocline.broker.cold.cold_reads import ColdBounds
from thermocline.client import (
    AsyncAdminClient,
    AsyncPopConsumer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    MessageQueue,
    ReceivedMessage,
)
from thermocline.client.busy_retry import BusyPauses, retry_while_busy
from thermocline.client.testing import FakeBroker
from thermocline.remoting.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import BrokerBusyError
from thermocline.remoting.headers import RegisterBrokerRequestHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

QUEUE = MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=0)
MESSAGES = 40
BODY = b"x" * 40_000
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class LateColdTier(MemoryColdTier):
    """Is known once it was asked about `late_count` times."""

    late_count = 0

    def bounds(self, topic: str, queue_id: int) -> ColdBounds | None:
        if queue_id == QUEUE.queue_id and self.late_count > 0:
            self.late_count -= 1
            return None
        return super().bounds(topic, queue_id)


@dataclass
class Late:
    broker: DataBroker
    cold: LateColdTier
    namesrv: str


@asynccontextmanager
async def registered(namesrv: str, port: int) -> AsyncIterator[None]:
    wrapper = TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=1, timestamp=1),
        topic_config_table={  # a broker's first registration is never of a single topic
            name: TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1) for name in (TOPIC, "Other")
        },
    )
    header = RegisterBrokerRequestHeader(
        broker_name="broker-a", broker_addr=f"127.0.0.1:{port}", cluster_name="DefaultCluster", broker_id=0
    )
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode()
    connection = await ClientConnection.open(namesrv)
    await connection.request(RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body=body), timeout_ms=10_000)
    try:
        yield
    finally:
        connection.close()


@pytest.fixture
async def late(tmp_path: Path) -> AsyncIterator[Late]:
    cold, clock = LateColdTier(), Clock()
    clock.now_ms = wall_clock_ms()  # from which a client computes how long it holds a popped message
    broker_of_test = data_broker(tmp_path, clock=clock, cold=cold, topics=[TOPIC])
    async with name_server() as (_, namesrv), broker_of_test as broker:
        Consumer(broker).send(MESSAGES, body=BODY)
        cold.copy_from(broker.store, TOPIC, 0, end=MESSAGES)
        assert expire_local_files(broker, MESSAGES - 1) > 0
        async with registered(namesrv, broker.port):
            yield Late(broker=broker, cold=cold, namesrv=namesrv)


CALLS: dict[str, tuple[Callable[[AsyncAdminClient], Awaitable[object]], Callable[[object], object], object]] = {
    "min_offset": (lambda admin: admin.min_offset(QUEUE), lambda found: found, 0),
    "search_offset": (lambda admin: admin.search_offset(QUEUE, 0), lambda found: found, 0),
    "earliest_store_time": (lambda admin: admin.earliest_store_time(QUEUE), lambda found: found is not None, True),
    "pull": (lambda admin: admin.pull(QUEUE, 0), lambda found: found.messages[0].queue_offset, 0),  # type: ignore[attr-defined]
    "view_by_offset": (lambda admin: admin.view_by_offset(QUEUE, 0), lambda found: found.queue_offset, 0),  # type: ignore[attr-defined]
    "pull_topic": (lambda admin: admin.pull_topic(TOPIC), lambda found: found[0].queue_offset, 0),  # type: ignore[index]
}


@pytest.mark.parametrize("name", CALLS)
async def test_administration_asks_again(late: Late, name: str) -> None:
    ask, shown, wanted = CALLS[name]
    async with AsyncAdminClient(namesrv=late.namesrv, request_timeout_ms=30_000) as admin:
        late.cold.late_count = 3
        assert shown(await ask(admin)) == wanted
        assert late.cold.late_count == 0


async def test_a_call_ends_with_its_deadline(late: Late) -> None:
    async with AsyncAdminClient(namesrv=late.namesrv, request_timeout_ms=300) as admin:
        late.cold.is_known = False
        with pytest.raises(BrokerBusyError, match="has not reported yet"):
            await admin.min_offset(QUEUE)
        with pytest.raises(BrokerBusyError, match="has not reported yet"):
            await admin.pull(QUEUE, 0)


async def test_a_pull_consumer_seeks_to_the_beginning(late: Late) -> None:
    async with AsyncPullConsumer(group="g", namesrv=late.namesrv, request_timeout_ms=30_000) as consumer:
        await consumer.assign([QUEUE])
        await until(lambda: consumer.assignment() == [QUEUE] and QUEUE in consumer.queues())
        late.cold.late_count = 3
        await consumer.seek_to_begin(QUEUE)
        assert late.cold.late_count == 0
        late.cold.late_count = 3
        assert await consumer.offset_for_timestamp(QUEUE, 0) == 0
        messages = await consumer.poll(timeout_ms=30_000)
        assert messages[0].queue_offset == 0


@pytest.mark.parametrize("where", [FIRST, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP])
async def test_a_push_consumer_begins_with_the_first_message(late: Late, where: ConsumeFromWhere) -> None:
    """As soon as it is there: not only with the next balancing, nor behind what is in the cold tier."""
    offsets: list[int] = []
    done = asyncio.Event()

    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        offsets.extend(message.queue_offset for message in messages)
        if len(offsets) >= MESSAGES:
            done.set()
        return ConsumeResult.SUCCESS

    consumer = AsyncPushConsumer(
        group="g",
        namesrv=late.namesrv,
        consume_from_where=where,
        consume_timestamp_ms=1,
        pull_time_delay_ms_when_exception=600_000,
    )
    consumer.subscribe(TOPIC)
    consumer.register_listener(listen)
    late.cold.late_count = 3
    async with consumer, asyncio.timeout(30):
        await done.wait()
    assert sorted(offsets) == list(range(MESSAGES))


async def test_a_pop_consumer_begins_with_the_first_message(late: Late) -> None:
    consumer = AsyncPopConsumer(group="g", namesrv=late.namesrv, consume_from_where=FIRST)
    await consumer.subscribe(TOPIC)
    late.cold.late_count = 3
    async with consumer:
        messages = await consumer.receive(await_ms=30_000)
        assert messages[0].queue_offset == 0
        assert late.cold.late_count == 0


async def test_commands_that_change_something_are_not_asked_again() -> None:
    with FakeBroker() as broker:
        broker.create_topic("orders", queue_nums=1)
        async with AsyncAdminClient(namesrv=broker.namesrv_address) as admin:
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            broker.refuse(code, response_code=ResponseCode.SYSTEM_BUSY)
            with pytest.raises(BrokerBusyError):
                await admin.create_group("billing")
            assert len(broker.requests(code)) == 1


def test_pauses_grow() -> None:
    pauses = BusyPauses(0.15)
    assert [pauses.next_s() for _ in range(4)] == [0.05, 0.1, 0.15, 0.15]
    pauses.reset()
    assert pauses.next_s() == 0.05


async def test_another_error_ends_it() -> None:
    async def refuse(left_ms: int) -> None:
        raise ValueError(left_ms)

    with pytest.raises(ValueError, match="1000"):
        await retry_while_busy(refuse, timeout_ms=1_000)
