"""Looking without taking: peeks, notifications, polling information.

Covers `broker/pops/pop_request.py`, `broker/pops/pop_reviver.py`, `broker/queues/message_reader.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.popping import GROUP, INVISIBLE_MS, TOPIC, PopClient, bodies
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.records.message_record import iterate_records


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[DataBroker]:
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        yield broker


def place(**fields: object) -> dict[str, object]:
    return {"consumerGroup": GROUP, "topic": TOPIC, "queueId": -1} | fields


def peek(client: PopClient, **fields: object) -> RemotingCommand:
    return client.answer(client.ask(200_052, **place(**{"maxMsgNums": 32, **fields})))


def ask_notice(client: PopClient, poll_ms: int = 0, **fields: object) -> int:
    return client.ask(200_054, **place(**{"pollTime": poll_ms, "bornTime": client.broker.clock(), **fields}))


def has_message(answer: RemotingCommand) -> bool:
    assert answer.code == 0
    assert answer.ext_fields is not None
    assert answer.ext_fields["pollingFull"] == "false"
    return answer.ext_fields["hasMsg"] == "true"


# -- peek --------------------------------------------------------------------------------------------------------------


async def test_a_peek_takes_nothing(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a", b"b", queue_id=2)
    for _ in range(2):
        answer = peek(client)
        assert (answer.code, answer.remark) == (0, "FOUND")
        assert [record.body for record in iterate_records(bytes(answer.body))] == [b"a", b"b"]
        assert answer.ext_fields is not None
        assert answer.ext_fields["restNum"] == "2"
    assert bodies(client.pop()) == [b"a", b"b"]
    answer = peek(client)
    assert (answer.code, answer.remark) == (19, "NO_MESSAGE_IN_QUEUE")


async def test_a_peek_brings_no_more_than_a_pop(broker: DataBroker) -> None:
    client = PopClient(broker)
    for queue_id in range(2):
        client.send(*(b"%d" % number for number in range(30)), queue_id=queue_id)
    answer = peek(client, maxMsgNums=2**31 - 1)
    assert len(list(iterate_records(bytes(answer.body)))) == 32


async def test_a_peek_sees_returned_messages_and_only_its_queue(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"back", queue_id=1)
    client.pop()
    broker.clock.now_ms += INVISIBLE_MS
    await broker.pop.reviver.step()
    client.send(b"new", queue_id=1)
    client.send(b"other", queue_id=2)
    found = {record.body for record in iterate_records(bytes(peek(client, queueId=1).body))}
    assert found == {b"back", b"new"}
    assert len(list(iterate_records(bytes(peek(client, maxMsgNums=2).body)))) == 2


@pytest.mark.parametrize(("fields", "code"), [({"topic": "Missing"}, 17), ({"queueId": 9}, 29)])
async def test_invalid_requests_are_refused(broker: DataBroker, fields: dict[str, object], code: int) -> None:
    client = PopClient(broker)
    assert peek(client, **fields).code == code
    assert client.answer(ask_notice(client, **fields)).code == code
    assert client.answer(client.ask(200_055, **place(**fields))).code == code


# -- notification ------------------------------------------------------------------------------------------------------


async def test_whether_there_is_something(broker: DataBroker) -> None:
    client = PopClient(broker)
    assert not has_message(client.answer(ask_notice(client)))
    client.send(b"a", queue_id=1)
    assert has_message(client.answer(ask_notice(client)))
    assert not has_message(client.answer(ask_notice(client, queueId=0)))
    assert has_message(client.answer(ask_notice(client, queueId=1)))
    client.pop()
    assert not has_message(client.answer(ask_notice(client)))
    broker.clock.now_ms += INVISIBLE_MS
    await broker.pop.reviver.step()
    assert has_message(client.answer(ask_notice(client)))


async def test_it_waits(broker: DataBroker) -> None:
    client = PopClient(broker)
    opaque = ask_notice(client, 15_000)
    assert client.wire.take_commands() == []
    client.send(b"a")
    assert has_message(await client.wait_answer(opaque))
    client.pop()
    for ahead_ms in (0, 3_600_000):
        opaque = ask_notice(client, 15_000, bornTime=broker.clock() + ahead_ms)
        broker.clock.now_ms += 15_000
        broker.hot.tick(broker.clock())
        assert not has_message(await client.wait_answer(opaque))


async def test_too_many_wait(broker: DataBroker) -> None:
    broker.change_config(pop_polling_max=1)
    client = PopClient(broker)
    ask_notice(client, 15_000)
    answer = client.answer(ask_notice(client, 15_000))
    assert answer.ext_fields == {"hasMsg": "false", "pollingFull": "true"}


async def test_a_queue_that_is_popped_in_order_has_nothing_while_it_is_blocked(broker: DataBroker) -> None:
    client = PopClient(broker)
    client.send(b"a", b"b")
    (held,) = client.pop(order=True, maxMsgNums=1)
    assert not has_message(client.answer(ask_notice(client, order=True)))
    opaque = ask_notice(client, 15_000, order=True)
    client.ack(held)
    assert has_message(await client.wait_answer(opaque))


# -- polling information -----------------------------------------------------------------------------------------------


async def test_how_many_wait(broker: DataBroker) -> None:
    client = PopClient(broker)

    def count(queue_id: int) -> str:
        answer = client.answer(client.ask(200_055, **place(queueId=queue_id)))
        assert answer.ext_fields is not None
        return answer.ext_fields["pollingNum"]

    assert count(-1) == "0"
    client.ask_pop(pollTime=15_000)
    client.ask_pop(pollTime=15_000)
    client.ask_pop(pollTime=15_000, queueId=1)
    assert (count(-1), count(-7), count(1), count(0)) == ("2", "2", "1", "0")
