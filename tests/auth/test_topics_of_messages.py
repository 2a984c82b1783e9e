"""A request that names a message by its place needs a right to the topic of the message, whatever topic it claims.

Covers `broker/processors/messages/topic_check.py`, `broker/processors/consumer_call.py`.
"""

from __future__ import annotations

from pathlib import Path

from tests.auth.broker_with_users import ALICE, ROOT, broker_with_users, entry
from tests.auth.test_effects import SEND
from thermocline.auth.actions import Action
from thermocline.remoting.bodies import ConsumerData, HeartbeatData, SubscriptionGroupConfig
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.records.message_id import decode_message_id
from thermocline.remoting.records.message_record import decode_record
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import PROOF_FIELDS
from thermocline.remoting.response_code import ResponseCode

DENIED = "User:alice has no permission to access Topic:{} from 127.0.0.1, no matched policies."
RIGHTS = (
    entry("Topic:Mine", Action.PUB, Action.SUB, Action.GET, Action.UPDATE),
    entry("Group:Mine", Action.SUB),
)


async def test_messages_of_other_topics_are_out_of_reach(tmp_path: Path) -> None:
    async with broker_with_users(tmp_path) as broker:
        places = {}
        for topic in ("Mine", "Other"):
            await broker.process._parts.tables.topics.ensure(topic, queue_count=1)
            sent = await broker.ask(RequestCode.SEND_MESSAGE_V2, user=ROOT, fields={**SEND, "b": topic}, body=b"body")
            places[topic] = str(decode_message_id((sent.ext_fields or {})["msgId"]).physical_offset)
        await broker.process._parts.tables.groups.update([SubscriptionGroupConfig(group_name="Mine")])
        await broker.add_user(ALICE, *RIGHTS)
        for claimed in ({"topic": "Mine"}, {}):
            for topic, place in places.items():
                view = await broker.ask(RequestCode.VIEW_MESSAGE_BY_ID, user=ALICE, fields={"offset": place, **claimed})
                assert view.code == (ResponseCode.SUCCESS if topic == "Mine" else ResponseCode.NO_PERMISSION)
                assert topic == "Mine" or view.remark == DENIED.format("Other")
        for topic, place in places.items():
            back = await broker.ask(
                RequestCode.CONSUMER_SEND_MSG_BACK,
                user=ALICE,
                fields={"group": "Mine", "offset": place, "delayLevel": "0", "originTopic": "Mine"},
            )
            assert back.code == (ResponseCode.SUCCESS if topic == "Mine" else ResponseCode.NO_PERMISSION), back.remark


async def test_a_transaction_of_another_topic_can_be_neither_resumed_nor_ended(tmp_path: Path) -> None:
    async with broker_with_users(tmp_path) as broker:
        for topic in ("Mine", "Other"):
            await broker.process._parts.tables.topics.ensure(topic, queue_count=1)
        await broker.add_user(ALICE, *RIGHTS)
        for topic, code in (("Mine", ResponseCode.SUCCESS), ("Other", ResponseCode.NO_PERMISSION)):
            half = await broker.ask(
                RequestCode.SEND_MESSAGE_V2,
                user=ROOT,
                fields={**SEND, "b": topic, "f": "4", "i": "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01AC\x02"},
                body=b"body",
            )
            assert half.code == ResponseCode.SUCCESS, half.remark
            answer = half.ext_fields or {}
            again = await broker.ask(
                RequestCode.RESUME_CHECK_HALF_MESSAGE, user=ALICE, fields={"topic": "Mine", "msgId": answer["msgId"]}
            )
            assert again.code == code, again.remark
            end = await broker.ask(
                RequestCode.END_TRANSACTION,
                user=ALICE,
                fields={
                    "topic": "Mine",
                    "producerGroup": "P",
                    "tranStateTableOffset": answer["queueOffset"],
                    "commitLogOffset": str(decode_message_id(answer["msgId"]).physical_offset),
                    "commitOrRollback": "8",
                    "fromTransactionCheck": "false",
                    "msgId": "AC",
                },
            )
            assert end.code == code, end.remark


class Consumer:
    """A client that keeps what the broker asks of it, and answers."""

    def __init__(self) -> None:
        self.asked: list[RemotingCommand] = []

    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        if command.is_oneway:
            return None
        self.asked.append(command)
        return RemotingCommand.response(command)

    def connection_opened(self, connection: Connection) -> None: ...

    def connection_closed(self, connection: Connection) -> None: ...


async def test_a_consumer_is_given_neither_another_topics_message_nor_the_signature_of_who_asks(tmp_path: Path) -> None:
    async with broker_with_users(tmp_path) as broker:
        sent_ids = {}
        for topic in ("Mine", "Other"):
            await broker.process._parts.tables.topics.ensure(topic, queue_count=1)
            sent = await broker.ask(RequestCode.SEND_MESSAGE_V2, user=ROOT, fields={**SEND, "b": topic}, body=b"body")
            sent_ids[topic] = (sent.ext_fields or {})["msgId"]
        await broker.add_user(ALICE, *RIGHTS)
        consumer = Consumer()
        connection = await ClientConnection.open(broker.address, handler=consumer)
        broker.connections.append(connection)
        heartbeat = HeartbeatData(client_id="c", consumer_data_set=[ConsumerData(group_name="Mine")]).encode()
        joined = await broker.ask(RequestCode.HEART_BEAT, user=ALICE, body=heartbeat, connection=connection)
        assert joined.code == ResponseCode.SUCCESS
        for topic, message_id in sent_ids.items():
            fields = {"consumerGroup": "Mine", "clientId": "c", "topic": "Mine", "msgId": message_id}
            answer = await broker.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, user=ALICE, fields=fields)
            assert answer.code == (ResponseCode.SUCCESS if topic == "Mine" else ResponseCode.NO_PERMISSION)
        assert [decode_record(command.body).topic for command in consumer.asked] == ["Mine"]
        operator = {"consumerGroup": "Mine", "clientId": "c", "jstackEnable": "false"}
        answer = await broker.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, user=ROOT, fields=operator)
        assert answer.code == ResponseCode.SUCCESS
        assert consumer.asked[1].ext_fields == operator
        assert not PROOF_FIELDS & (consumer.asked[0].ext_fields or {}).keys()
