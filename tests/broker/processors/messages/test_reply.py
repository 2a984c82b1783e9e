"""Replies of request-reply: pushed to who asked, stored, and answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.control_broker import Client
from tests.broker.data_broker import DataBroker, data_broker
from thermocline.remoting.bodies import HeartbeatData, ProducerData
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections.connection import Connection
from thermocline.remoting.records.message_id import decode_message_id
from thermocline.remoting.records.properties import decode_properties

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
REQUESTER = "10.7.0.1@requester"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[DataBroker]:
    async with data_broker(tmp_path) as broker:
        await broker.connect()
        yield broker


class Requester(Client):
    """A client that takes replies, or refuses them."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(self.receive_reply)
        self.code = code

    def receive_reply(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return RemotingCommand.response(command, self.code)


async def join(broker: DataBroker, requester: Client) -> None:
    connection = await broker.connect(requester)
    data = HeartbeatData(client_id=REQUESTER, producer_data_set=[ProducerData(group_name="askers")])
    answer = await broker.ask(RemotingCommand.request(34, body=data.encode()), connection)
    assert answer.code == 0


async def reply(broker: DataBroker, *, properties: str | None = None, topic: str = REPLY_TOPIC) -> RemotingCommand:
    if properties is None:
        properties = f"MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01{REQUESTER}\x02CORRELATION_ID\x01c1\x02"
    fields = {
        "a": "repliers",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "5",
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
    }
    return await broker.ask(RemotingCommand.request(325, ext_fields=fields, body=b"yes"))


async def test_a_reply_reaches_who_asked_and_the_reply_topic(broker: DataBroker) -> None:
    requester = Requester()
    await join(broker, requester)
    answer = await reply(broker)
    assert answer.code == 0, answer.remark
    fields = answer.ext_fields or {}
    assert fields.keys() == {"msgId", "queueId", "queueOffset", "MSG_REGION", "TRACE_ON"}

    (pushed,) = [command for command in requester.requests if command.code == 326]
    assert bytes(pushed.body) == b"yes"
    properties = decode_properties((pushed.ext_fields or {})["properties"])
    assert properties["CORRELATION_ID"] == "c1"
    assert properties.keys() >= {"PUSH_REPLY_TIME", "MSG_REGION", "TRACE_ON", "MSG_TYPE"}
    assert (pushed.ext_fields or {})["storeHost"] == broker.parts.base.advertised_address

    (record,) = broker.records()
    assert (record.topic, record.body) == (REPLY_TOPIC, b"yes")
    assert record.physical_offset == decode_message_id(fields["msgId"]).physical_offset
    assert "PUSH_REPLY_TIME" not in record.properties


async def test_a_reply_without_a_connected_requester_is_an_error_and_is_stored(broker: DataBroker) -> None:
    answer = await reply(broker)
    assert (answer.code, answer.remark) == (1, f"push reply message fail, channel of <{REQUESTER}> not found.")
    assert (answer.ext_fields or {}).keys() == {"MSG_REGION", "TRACE_ON"}
    assert len(broker.records()) == 1


async def test_a_reply_without_a_requester_name_is_an_error(broker: DataBroker) -> None:
    answer = await reply(broker, properties="MSG_TYPE\x01reply\x02")
    assert (answer.code, answer.remark) == (1, "reply message properties[REPLY_TO_CLIENT] is null")


async def test_a_refused_reply_is_an_error(broker: DataBroker) -> None:
    await join(broker, Requester(code=1))
    answer = await reply(broker)
    assert (answer.code, answer.remark) == (1, f"push reply message to {REQUESTER}fail.")


async def test_replies_are_kept_only_when_the_setting_says_so(broker: DataBroker) -> None:
    broker.change_config(store_replies=False)
    await join(broker, Requester())
    answer = await reply(broker)
    assert answer.code == 0
    assert (answer.ext_fields or {})["msgId"] == "0"
    assert broker.records() == []


async def test_a_requester_that_has_left_is_not_found(broker: DataBroker) -> None:
    await join(broker, Requester())
    leave = RemotingCommand.request(35, ext_fields={"clientID": REQUESTER, "producerGroup": "askers"})
    assert (await broker.ask(leave, broker.connections[-1])).code == 0
    assert broker.parts.tables.clients.producer_connection(REQUESTER) is None
    assert (await reply(broker)).code == 1
