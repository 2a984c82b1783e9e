"""A request that names a message by its place needs a right to the topic of the message, whatever topic it claims.

Covers `broker/processors/messages/topic_check.py`.
"""

from __future__ import annotations

from pathlib import Path

from tests.auth.broker_with_users import ALICE, ROOT, broker_with_users, entry
from tests.auth.test_effects import SEND
from thermocline.auth.actions import Action
from thermocline.remoting.bodies import SubscriptionGroupConfig
from thermocline.remoting.records.message_id import decode_message_id
from thermocline.remoting.request_code import RequestCode
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
