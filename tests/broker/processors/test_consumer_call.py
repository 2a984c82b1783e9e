"""Questions that the broker passes on to a client: running info, direct consumption, offsets."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.control_broker import STORE_HOST, Client, ControlBroker, control_broker, recorded
from thermocline.remoting.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    HeartbeatData,
    MessageQueue,
)
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections.connection import Connection
from thermocline.remoting.records.message_id import encode_message_id
from thermocline.remoting.records.message_record import decode_record

QUEUE = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    async with control_broker(tmp_path) as broker:
        await broker.create_topic("AdminTopic")
        yield broker


def answer_everything(connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
    if command.is_oneway:
        return None
    bodies = {
        307: ConsumerRunningInfo(properties={"PROP_CLIENT_VERSION": "V5_5_0"}).encode(),
        309: ConsumeMessageDirectlyResult(consume_result="CR_SUCCESS", spent_time_mills=2).encode(),
        221: GetConsumerStatusBody(message_queue_table={QUEUE: 7}).encode(),
    }
    return RemotingCommand.response(command, remark="not set any response code", body=bodies[command.code])


async def join(broker: ControlBroker, client: Client, client_id: str = "10.7.0.1@live", *, version: int = 513) -> None:
    data = HeartbeatData(client_id=client_id, consumer_data_set=[ConsumerData(group_name="AdminGroup")])
    await broker.ask(34, body=data.encode(), version=version, connection=await broker.connect(client))


async def test_running_info_comes_back_unread(broker: ControlBroker) -> None:
    client = Client(answer_everything)
    await join(broker, client)
    fields = {"consumerGroup": "AdminGroup", "clientId": "10.7.0.1@live", "jstackEnable": "false"}
    answer = await broker.ask(307, fields)
    assert (answer.code, answer.remark) == (0, "not set any response code")
    assert ConsumerRunningInfo.decode(answer.body).properties == {"PROP_CLIENT_VERSION": "V5_5_0"}
    asked = next(command for command in client.requests if command.code == 307)
    assert asked.ext_fields == fields


async def test_a_message_is_consumed_directly_as_recorded(broker: ControlBroker) -> None:
    client = Client(answer_everything)
    await join(broker, client)
    sent = broker.put("AdminTopic", body=b"again")
    dialogue = recorded(309)
    answer = await broker.replay(dialogue, msgId=encode_message_id(STORE_HOST, sent.physical_offset))
    assert (answer.code, answer.remark) == (0, dialogue["answer"]["remark"])
    assert ConsumeMessageDirectlyResult.decode(answer.body).consume_result == "CR_SUCCESS"
    asked = next(command for command in client.requests if command.code == 309)
    assert (asked.ext_fields or {}).keys() == {
        "brokerName",
        "clientId",
        "consumerGroup",
        "groupSysFlag",
        "msgId",
        "topic",
        "topicSysFlag",
    }
    assert decode_record(asked.body).body == b"again"


@pytest.mark.parametrize("message_id", ["nonsense", encode_message_id(STORE_HOST, 10**12)])
async def test_a_missing_message_is_an_error(broker: ControlBroker, message_id: str) -> None:
    await join(broker, Client(answer_everything))
    answer = await broker.replay(recorded(309), msgId=message_id)
    assert answer.code != 0


async def test_clients_that_cannot_answer(broker: ControlBroker) -> None:
    fields = {"consumerGroup": "AdminGroup", "clientId": "c"}
    answer = await broker.ask(307, fields)
    assert (answer.code, answer.remark) == (1, "The Consumer <AdminGroup> <c> not online")
    await join(broker, Client(answer_everything), "c", version=60)
    answer = await broker.ask(307, fields)
    assert answer.code == 1
    assert "too low" in (answer.remark or "")
    await join(broker, Client(), "silent")
    await broker.ask(25, body=b"consumerCallTimeoutMills=100\n")
    answer = await broker.ask(307, {**fields, "clientId": "silent"})
    assert answer.code == 207
    assert "Timeout" in (answer.remark or "")


async def test_a_client_that_disconnects_meanwhile_is_an_error(broker: ControlBroker) -> None:
    def leave(connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        if command.code == 307:
            connection.abort()
        return None

    await join(broker, Client(leave), "c")
    answer = await asyncio.wait_for(broker.ask(307, {"consumerGroup": "AdminGroup", "clientId": "c"}), timeout=5)
    assert answer.code == 1


async def test_the_offsets_of_all_members(broker: ControlBroker) -> None:
    fields = {"topic": "T", "group": "AdminGroup"}
    assert (await broker.ask(223, fields)).code == 1
    await join(broker, Client(answer_everything), "one")
    await join(broker, Client(answer_everything), "two")
    table = GetConsumerStatusBody.decode((await broker.ask(223, fields)).body).consumer_table
    assert table == {"one": {QUEUE: 7}, "two": {QUEUE: 7}}
    table = GetConsumerStatusBody.decode((await broker.ask(223, {**fields, "clientAddr": "two"})).body).consumer_table
    assert table == {"two": {QUEUE: 7}}
