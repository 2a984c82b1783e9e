"""Pulls that choose messages by an SQL92 expression: what they find, how far they look, waiting, and refusals."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.cold_tier import MemoryColdTier
from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.pulling import GROUP, TOPIC, Consumer, expire_local_files, messages, offsets, outcome, pull_fields
from tests.broker.wire import Wire
from thermocline.broker.process.loop_turns import LoopTurns
from thermocline.broker.pulls.long_polling import TICK_MS
from thermocline.broker.pulls.pull_finder import UNITS_EXAMINED_MAX
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.broker.tables.message_filters import MessageFilters
from thermocline.remoting.bodies import ConsumerData, SubscriptionData
from thermocline.remoting.command import RemotingCommand, SerializeType
from thermocline.remoting.language_code import LanguageCode
from thermocline.remoting.topic_validation import retry_topic

CONFIG = BrokerConfig(listen_host="127.0.0.1", property_filter=True)
HOSTILE = {
    "deep": "(" * 30_000 + "a = 1",
    "long": "a = 1 OR " * 3_600 + "a = 1",
    "negations": "NOT " * 8_000 + "a",
    "a string without end": "a = '" + "x" * 32_000,
    "a comment without end": "/*" * 16_000,
    "a list": "a IN (" + ", ".join(f"'{number}'" for number in range(3_000)) + ")",
    "huge": "x" * 4_000_000,
    "a number": "a = " + "9" * 30_000,
}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[DataBroker]:
    async with data_broker(tmp_path, topics=[TOPIC], config=CONFIG, start=False) as broker:
        yield broker


def by_sql(expression: str, **fields: Any) -> dict[str, Any]:
    """The fields of a pull that carries an expression."""
    return {"subscription": expression, "expressionType": "SQL92", **fields}


def send_prices(consumer: Consumer, count: int, start: int = 0, **fields: Any) -> None:
    for price in range(start, start + count):
        consumer.send(properties={"price": str(price)}, **fields)


async def one_message_a_turn(broker: DataBroker, *expressions: str) -> None:
    """Let every turn of the loop be over after one message; these expressions are compiled already."""
    for expression in expressions:
        await broker.parts.tables.filters.compile_in_turn(expression)
    turns = broker.parts.tables.turns
    turns._clock_s, turns._turn_s = (lambda: 0.0), 0.0


def subscribe(broker: DataBroker, *subscriptions: SubscriptionData) -> None:
    """A member of the group is connected."""
    broker.parts.tables.clients.register_consumer(
        ConsumerData(group_name=GROUP, subscription_data_set=list(subscriptions)),
        Wire(broker.dispatcher).connection,
        client_id="c",
        language=LanguageCode.JAVA,
        version=513,
    )


def sql(expression: str, *, version: int = 5, topic: str = TOPIC, expression_type: str = "SQL92") -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_string=expression, expression_type=expression_type, sub_version=version)


# -- what is found -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("through_chunks", [True, False])
async def test_messages_are_chosen_by_their_properties(broker: DataBroker, through_chunks: bool) -> None:
    consumer = Consumer(broker, through_chunks=through_chunks)
    send_prices(consumer, 20)
    answer = await consumer.pull_later(0, **by_sql("price BETWEEN 5 AND 7 OR price = 12"))
    assert offsets(answer) == [5, 6, 7, 12]
    assert outcome(answer) == (0, "FOUND", 20, 0, 20)
    stored = {record.queue_offset: record for record in broker.records()}
    assert messages(answer) == [stored[offset] for offset in (5, 6, 7, 12)]
    answer = await consumer.pull_later(6, **by_sql("price BETWEEN 5 AND 7"))
    assert offsets(answer) == [6, 7]
    assert (answer.ext_fields or {})["suggestWhichBrokerId"] == "0"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("TAGS = 'TagA'", [0, 2]),
        ("TAGS IS NOT NULL AND region = 'eu'", [0, 1]),
        ("region IS NULL", [2]),
        ("region <> 'eu'", []),
        ("UNIQ_KEY STARTSWITH '0A07'", [0, 1, 2]),
        ("TRUE", [0, 1, 2]),
        ("FALSE", []),
        ("NULL", []),
    ],
)
async def test_expressions(broker: DataBroker, expression: str, expected: list[int]) -> None:
    """Names are properties: the user's, the tag, and those that clients add."""
    consumer = Consumer(broker)
    consumer.send(properties={"region": "eu"})
    consumer.send(tag="TagB", properties={"region": "eu"})
    consumer.send()
    answer = await consumer.pull_later(0, **by_sql(expression))
    assert offsets(answer) == expected
    assert outcome(answer)[:3] == ((0, "FOUND", 3) if expected else (20, "NO_MATCHED_MESSAGE", 3))


@pytest.mark.parametrize("fields", [{"subscription": "TagA"}, {"subscription": "*"}, {"sysFlag": 0}])
async def test_tags_take_no_turn_and_no_look_into_records(
    broker: DataBroker, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pull that does not filter by properties is answered in the call, as if that filter did not exist."""
    consumer = Consumer(broker)
    subscribe(broker, SubscriptionData(topic=TOPIC, sub_string="*", sub_version=5))
    consumer.send(3)

    def looked(*_: object) -> bytes:
        raise AssertionError("a record was looked into")

    monkeypatch.setattr("thermocline.store.queues.filtered_runs.read_properties_text", looked)
    monkeypatch.setattr(LoopTurns, "add", looked)
    monkeypatch.setattr(MessageFilters, "find", looked)
    assert offsets(consumer.pull(0, **fields)) == [0, 1, 2]


async def test_lite_pull_and_binary_headers_find_the_same(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    send_prices(consumer, 9)
    expected = await consumer.pull_later(1, **by_sql("price > 3"))
    lite = await consumer.pull_later(1, code=361, **by_sql("price > 3"))
    binary = await consumer.pull_later(1, serialize_type=SerializeType.ROCKETMQ, **by_sql("price > 3"))
    for answer in (lite, binary):
        assert outcome(answer) == outcome(expected) == (0, "FOUND", 9, 0, 9)
        assert answer.body == expected.body
    assert binary.serialize_type is SerializeType.ROCKETMQ


async def test_limits_count_messages_that_match(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    send_prices(consumer, 100)
    answer = await consumer.pull_later(0, **by_sql("price > 10"))
    assert offsets(answer) == list(range(11, 43))
    assert outcome(answer)[2] == 43
    answer = await consumer.pull_later(0, **by_sql("price > 10", maxMsgNums=3))
    assert (offsets(answer), outcome(answer)[2]) == ([11, 12, 13], 14)
    size_bytes = messages(answer)[0].size_bytes
    answer = await consumer.pull_later(0, **by_sql("price > 10", maxMsgBytes=2 * size_bytes))
    assert (offsets(answer), outcome(answer)[2]) == ([11, 12], 13)
    answer = await consumer.pull_later(0, **by_sql("price > 10", maxMsgBytes=1))
    assert offsets(answer) == [11]


async def test_one_pull_looks_at_a_bounded_number_of_messages(broker: DataBroker) -> None:
    """Then it says how far it has come, and the client asks again from there."""
    consumer = Consumer(broker)
    send_prices(consumer, UNITS_EXAMINED_MAX + 50)
    answer = await consumer.pull_later(10, **by_sql("price > 820"))
    assert outcome(answer) == (20, "NO_MATCHED_MESSAGE", 810, 0, 850)
    answer = await consumer.pull_later(810, **by_sql("price > 820"))
    assert (offsets(answer), outcome(answer)[2]) == (list(range(821, 850)), 850)


async def test_messages_far_back_come_in_smaller_pieces(tmp_path: Path) -> None:
    async with data_broker(tmp_path, topics=[TOPIC], config=CONFIG, start=False, near_bytes=4_000) as broker:
        consumer = Consumer(broker)
        send_prices(consumer, 60)
        assert offsets(await consumer.pull_later(0, **by_sql("price >= 1"))) == list(range(1, 9))
        assert len(offsets(await consumer.pull_later(50, **by_sql("price >= 1")))) == 10


async def test_expired_messages_are_stepped_over(broker: DataBroker) -> None:
    await broker.make_topic("Short", queues=1, attributes="+thermocline.ttl.ms=5000")
    consumer = Consumer(broker)
    for price in range(10):
        consumer.send(topic="Short", properties={"price": str(price)})
        broker.clock.now_ms += 1_000
    assert offsets(await consumer.pull_later(0, topic="Short", **by_sql("price >= 0"))) == list(range(5, 10))


async def test_a_damaged_record_is_an_error(broker: DataBroker) -> None:
    """Not an endless search, nor a message that is passed by without a word."""
    consumer = Consumer(broker)
    consumer.send(2)
    queue = broker.store.queues.find(TOPIC, 0)
    assert queue is not None
    unit = queue.unit(1)
    queue.restart_at(1)
    queue.append_unit(unit.physical_offset + 1, unit.size_bytes - 1, 0)
    answer = await consumer.pull_later(0, **by_sql("a = 1"))
    assert answer.code == 1
    assert str(answer.remark).startswith(f"no message record starts here position={unit.physical_offset + 1}")


# -- turns of the loop -------------------------------------------------------------------------------------------------


async def test_others_are_served_while_a_search_goes_on(broker: DataBroker) -> None:
    consumer, other = Consumer(broker), Consumer(broker)
    send_prices(consumer, 50)
    await one_message_a_turn(broker, "price = 49")
    search = consumer.ask(0, **by_sql("price = 49"))
    for _ in range(10):
        await asyncio.sleep(0)
        assert offsets(other.pull(0, maxMsgNums=1)) == [0]
    assert consumer.wire.drain() == b""
    assert offsets(await consumer.answer_to(search)) == [49]


async def test_searches_take_turns(broker: DataBroker) -> None:
    """A short one is not kept waiting for the end of a long one that came before it."""
    consumer, other = Consumer(broker), Consumer(broker)
    send_prices(consumer, 100)
    await one_message_a_turn(broker, "price = 99", "price = 98")
    long = consumer.ask(0, **by_sql("price = 99"))
    short = other.ask(97, **by_sql("price = 98"))
    assert offsets(await other.answer_to(short)) == [98]
    assert consumer.wire.drain() == b""
    assert offsets(await consumer.answer_to(long)) == [99]


async def test_messages_that_arrive_during_a_search_are_the_next_one_s(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    send_prices(consumer, 5)
    await one_message_a_turn(broker, "price >= 3")
    search = consumer.ask(0, **by_sql("price >= 3"))
    await asyncio.sleep(0)
    send_prices(consumer, 5, start=5)
    answer = await consumer.answer_to(search)
    assert (offsets(answer), outcome(answer)) == ([3, 4], (0, "FOUND", 5, 0, 10))


async def test_a_client_that_leaves_ends_its_search(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    send_prices(consumer, 50)
    await one_message_a_turn(broker, "price = 49")
    consumer.ask(0, **by_sql("price = 49"))
    await asyncio.sleep(0)
    assert len(broker.parts.tables.turns) == 1
    consumer.wire.connection.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(broker.parts.tables.turns) == 0


async def test_local_files_may_go_during_a_search(tmp_path: Path) -> None:
    """The messages found are answered; the next pull returns the new minimum offset."""
    async with data_broker(tmp_path, topics=[TOPIC], config=CONFIG, start=False, log_file_bytes=8 * 1024) as broker:
        consumer = Consumer(broker)
        send_prices(consumer, 100)
        await one_message_a_turn(broker, "price = 2 OR price = 98")
        search = consumer.ask(0, **by_sql("price = 2 OR price = 98"))
        for _ in range(5):
            await asyncio.sleep(0)
        minimum = expire_local_files(broker, 60)
        answer = await consumer.answer_to(search)
        assert offsets(answer) == [2]
        reached = outcome(answer)[2]
        assert 3 <= reached < minimum
        answer = consumer.pull(reached, **by_sql("price = 2 OR price = 98"))
        assert outcome(answer)[:3] == (21, "OFFSET_TOO_SMALL", minimum)


async def test_more_searches_than_turns_take(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    send_prices(consumer, 5)
    await broker.parts.tables.filters.compile_in_turn("price > 1")
    broker.parts.tables.turns._jobs_max = 0
    for code in (11, 361):
        answer = consumer.pull(0, code=code, **by_sql("price > 1"))
        assert (answer.code, answer.remark) == (215, "too many pulls with a filter are on the way")


# -- waiting -----------------------------------------------------------------------------------------------------------


async def test_a_pull_waits_for_a_message_that_matches(broker: DataBroker) -> None:
    """It is answered by the first one; what comes while that is searched for is the client's next pull's."""
    consumer = Consumer(broker)
    send_prices(consumer, 3)
    await broker.parts.tables.filters.compile_in_turn("price > 100")
    opaque = consumer.ask(3, **by_sql("price > 100", sysFlag=6))
    assert len(broker.long_polling) == 1
    send_prices(consumer, 5, start=50)
    for _ in range(5):
        await asyncio.sleep(0)
    assert consumer.wire.drain() == b""
    assert len(broker.long_polling) == 1
    send_prices(consumer, 1, start=101)
    send_prices(consumer, 1, start=60)
    send_prices(consumer, 1, start=102)
    answer = await consumer.answer_to(opaque)
    assert offsets(answer) == [8]
    assert outcome(answer) == (0, "FOUND", 9, 0, 11)
    assert offsets(await consumer.pull_later(9, **by_sql("price > 100"))) == [10]
    assert len(broker.long_polling) == 0


async def test_a_pull_without_an_expression_compiled_yet_waits_too(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    opaque = consumer.ask(0, **by_sql("price = 7", sysFlag=6))
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(broker.long_polling) == 1
    send_prices(consumer, 10)
    assert offsets(await consumer.answer_to(opaque)) == [7]


async def test_a_client_that_leaves_while_its_expression_is_compiled_does_not_wait(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    consumer.ask(0, **by_sql("price = 7", sysFlag=6))
    consumer.wire.connection.close()
    consumer.wire.lose()
    await consumer.wire.connection.wait_requests()
    assert len(broker.long_polling) == 0


async def test_the_wait_ends_with_its_time(broker: DataBroker) -> None:
    """With 19 when nothing came, with 20 and a new offset when nothing that matches did."""
    consumer = Consumer(broker)
    send_prices(consumer, 3)
    await broker.parts.tables.filters.compile_in_turn("price = 50")
    silent = consumer.ask(0, **by_sql("price = 50", sysFlag=6, suspendTimeoutMillis=1_000, queueId=1))
    filtered = consumer.ask(3, **by_sql("price = 50", sysFlag=6, suspendTimeoutMillis=1_000))
    assert len(broker.long_polling) == 2
    send_prices(consumer, 2)
    for _ in range(5):
        await asyncio.sleep(0)
    broker.clock.now_ms += 1_000 + TICK_MS
    broker.hot.tick(broker.clock.now_ms)
    answers = {answer.opaque: outcome(answer) for answer in await consumer.wire.wait_commands(2)}
    assert answers == {
        silent: (19, "NO_MATCHED_LOGIC_QUEUE", 0, 0, 0),
        filtered: (20, "NO_MATCHED_MESSAGE", 5, 0, 5),
    }
    assert len(broker.long_polling) == 0


@pytest.mark.parametrize("price", [1, 50])
async def test_time_that_is_up_during_a_search_lets_it_end(broker: DataBroker, price: int) -> None:
    """What has arrived by then is still looked at, once."""
    consumer = Consumer(broker)
    await one_message_a_turn(broker, "price = 50")
    opaque = consumer.ask(0, **by_sql("price = 50", sysFlag=6, suspendTimeoutMillis=1_000))
    send_prices(consumer, 9)
    send_prices(consumer, 1, start=price)
    await asyncio.sleep(0)
    broker.clock.now_ms += 1_000 + TICK_MS
    broker.hot.tick(broker.clock.now_ms)
    assert len(broker.long_polling) == 0
    answer = await consumer.answer_to(opaque)
    # The search began with the first of them; what came behind is the client's next pull's.
    assert outcome(answer)[0] == 20
    again = await consumer.pull_later(outcome(answer)[2], **by_sql("price = 50"))
    assert offsets(again) == ([9] if price == 50 else [])


async def test_a_waiting_pull_that_finds_no_turn_answers_at_its_time(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    send_prices(consumer, 1)
    await broker.parts.tables.filters.compile_in_turn("price = 1")
    opaque = consumer.ask(1, **by_sql("price = 1", sysFlag=6, suspendTimeoutMillis=1_000))
    broker.parts.tables.turns._jobs_max = 0
    send_prices(consumer, 1, start=1)
    assert len(broker.long_polling) == 1
    broker.clock.now_ms += 1_000 + TICK_MS
    broker.hot.tick(broker.clock.now_ms)
    assert outcome(await consumer.answer_to(opaque))[:3] == (20, "NO_MATCHED_MESSAGE", 1)


async def test_a_waiting_client_that_leaves_is_searched_for_no_more(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    await one_message_a_turn(broker, "price = 9")
    consumer.ask(0, **by_sql("price = 9", sysFlag=6))
    sender = Consumer(broker)
    send_prices(sender, 5)
    await asyncio.sleep(0)
    consumer.wire.connection.close()
    consumer.wire.lose()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (len(broker.parts.tables.turns), len(broker.long_polling)) == (0, 0)
    send_prices(sender, 5, start=5)
    assert consumer.wire.drain() == b""


async def test_a_group_s_new_expression_counts_for_a_pull_that_waits(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    subscribe(broker, sql("price = 1"))
    opaque = consumer.ask(0, sysFlag=2, subVersion=5)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(broker.long_polling) == 1
    subscribe(broker, sql("price = 4", version=6))
    send_prices(consumer, 3)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(broker.long_polling) == 1
    send_prices(consumer, 3, start=3)
    assert offsets(await consumer.answer_to(opaque)) == [4]


# -- what a group has subscribed to ------------------------------------------------------------------------------------


async def test_the_registered_expression_counts(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    send_prices(consumer, 6)
    subscribe(broker, sql("price > 3"))
    assert consumer.pull(0, sysFlag=0, subVersion=6).code == 25
    assert offsets(await consumer.pull_later(0, sysFlag=0, subVersion=5)) == [4, 5]
    subscribe(broker, sql("price < 2", version=6))
    assert offsets(await consumer.pull_later(0, sysFlag=0, subVersion=6)) == [0, 1]


@pytest.mark.parametrize("subscription", [sql("price >"), sql(""), sql("price > 1", expression_type="XPATH")])
async def test_a_registered_expression_that_is_none(broker: DataBroker, subscription: SubscriptionData) -> None:
    consumer = Consumer(broker)
    consumer.send()
    subscribe(broker, subscription)
    answer = await consumer.pull_later(0, sysFlag=0, subVersion=5)
    assert (answer.code, answer.remark) == (
        27,
        "The broker's consumer filter data is not exist!Your expression may be wrong!",
    )


async def test_messages_that_come_back_are_all_for_the_group(broker: DataBroker) -> None:
    """Clients subscribe to their retry topic with `*`, whatever they want of the topic itself."""
    topic = retry_topic(GROUP)
    await broker.parts.tables.topics.ensure(topic, queue_count=1)
    consumer = Consumer(broker)
    for price in (1, 9):
        consumer.send(topic=topic, properties={"price": str(price), "RETRY_TOPIC": TOPIC})
    subscribe(broker, sql("price > 3"), SubscriptionData(topic=topic, sub_version=5))
    assert offsets(consumer.pull(0, sysFlag=0, topic=topic, subVersion=5)) == [0, 1]
    subscribe(broker, sql("price > 3"), sql("price < 3", topic=topic, version=6))
    assert offsets(await consumer.pull_later(0, sysFlag=0, topic=topic, subVersion=6)) == [0]


# -- refusals ----------------------------------------------------------------------------------------------------------


async def test_an_invalid_expression_is_reported_with_its_position(broker: DataBroker) -> None:
    consumer = Consumer(broker)
    consumer.send()
    for _ in range(2):
        answer = await consumer.pull_later(0, **by_sql("price > "))
        assert (answer.code, answer.remark) == (
            23,
            "parse the consumer's subscription failed: the expression is not complete position=8",
        )
    assert (await consumer.pull_later(0, **by_sql(""))).code == 23
    answer = consumer.pull(0, subscription="price > 1", expressionType="XPATH")
    assert (answer.code, answer.remark) == (
        23,
        "parse the consumer's subscription failed: no type of expression: XPATH",
    )


async def test_the_setting_counts_at_once(broker: DataBroker) -> None:
    """With the setting off, only tags filter: a request's expression and a group's registered one are both refused."""
    consumer = Consumer(broker)
    send_prices(consumer, 2)
    subscribe(broker, sql("price = 1"))
    assert offsets(await consumer.pull_later(0, sysFlag=0, subVersion=5)) == [1]
    broker.change_config(property_filter=False)
    for fields in ({"sysFlag": 0, "subVersion": 5}, by_sql("price = 1"), by_sql("price >")):
        answer = consumer.pull(0, **fields)
        assert (answer.code, answer.remark) == (1, "The broker does not support consumer to filter message by SQL92")
    broker.change_config(property_filter=True)
    assert offsets(await consumer.pull_later(0, sysFlag=0, subVersion=5)) == [1]


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_expression_is_refused_in_bounded_time(broker: DataBroker, name: str) -> None:
    """Over a real socket, where meanwhile others are served."""
    consumer = Consumer(broker)
    consumer.send()
    connection = await broker.connect()
    command = RemotingCommand.request(11, ext_fields=pull_fields(0, **by_sql(HOSTILE[name])))
    started_at = time.monotonic()
    answer = await broker.ask(command, connection)
    elapsed_s = time.monotonic() - started_at
    assert answer.code == 23
    assert answer.remark is not None
    assert answer.remark.startswith("parse the consumer's subscription failed: ")
    assert len(answer.remark) < 300
    assert elapsed_s < 2.0
    assert offsets(consumer.pull(0)) == [0]


# -- cold --------------------------------------------------------------------------------------------------------------


async def test_cold_and_hot_are_one_queue(tmp_path: Path) -> None:
    cold = MemoryColdTier()
    async with data_broker(
        tmp_path, topics=[TOPIC], config=CONFIG, cold=cold, start=False, log_file_bytes=8 * 1024
    ) as broker:
        consumer = Consumer(broker)
        send_prices(consumer, 100)
        cold.copy_from(broker.store, TOPIC, 0, end=90)
        minimum = expire_local_files(broker, 60)
        expression = "price > 10 AND NOT (price BETWEEN 20 AND 89)"
        seen: list[int] = []
        offset = 0
        while offset < 100:
            answer = await consumer.pull_later(offset, **by_sql(expression, maxMsgNums=3))
            assert outcome(answer)[0] in (0, 20)
            seen += offsets(answer)
            offset = outcome(answer)[2]
        assert seen == [*range(11, 20), *range(90, 100)]
        assert {pull.expression for pull in cold.pulls} == {expression}
        assert all(pull.offset < minimum for pull in cold.pulls)


async def test_a_waiting_pull_whose_place_turned_cold(tmp_path: Path) -> None:
    cold = MemoryColdTier()
    async with data_broker(
        tmp_path, topics=[TOPIC], config=CONFIG, cold=cold, start=False, log_file_bytes=8 * 1024
    ) as broker:
        consumer = Consumer(broker)
        send_prices(consumer, 60)
        await one_message_a_turn(broker, "price = 70")
        opaque = consumer.ask(60, **by_sql("price = 70", sysFlag=6, suspendTimeoutMillis=1_000))
        send_prices(consumer, 60, start=60)
        cold.copy_from(broker.store, TOPIC, 0, end=110)
        assert expire_local_files(broker, 110) > 60
        for _ in range(5):
            await asyncio.sleep(0)
        broker.clock.now_ms += 1_000 + TICK_MS
        broker.hot.tick(broker.clock.now_ms)
        answer = await consumer.answer_to(opaque)
        assert outcome(answer)[0] == 20
        assert offsets(await consumer.pull_later(outcome(answer)[2], **by_sql("price = 70"))) == [70]
