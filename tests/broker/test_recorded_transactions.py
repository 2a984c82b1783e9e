"""A dialogue of an official client with the official broker 5.5.0, replayed: the same answers, questions and messages.

`recorded_transactions.json` holds it in its order: half messages with their answers, decisions, questions with the
message in them, and what a consumer pulled. Times, hosts and places in the log differ; names of fields, properties and
queue offsets may not.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from tests.broker.data_broker import data_broker
from tests.broker.transacting import TransactionClient
from thermocline.broker.assembly.recurring import make_transaction_service
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.records.message_record import MessageRecord, decode_record, iterate_records

RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("recorded_transactions.json").read_text())
TOPIC, GROUP = "ItTransaction_rec", "GitTransaction_rec_tx"
OWN_TIMES = {"commitLogOffset", "msgId", "offsetMsgId"}
"""Fields whose values name a place in the log."""


def rows(kind: str) -> list[dict[str, Any]]:
    return [row for row in RECORDED if row["kind"] == kind]


def seen(record: MessageRecord) -> dict[str, Any]:
    """What does not depend on when and where it was stored."""
    return {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "reconsume_times": record.reconsume_times,
        "born_timestamp_ms": record.born_timestamp_ms,
        "body": record.body,
        "properties": record.properties,
    }


def recorded_records(row: dict[str, Any]) -> list[MessageRecord]:
    return list(iterate_records(base64.b64decode(row["body"])))


async def test_the_recorded_dialogue(tmp_path: Path) -> None:
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        # The recording broker's clock, and its settings.
        broker.clock.now_ms = int(rows("send")[0]["extFields"]["g"])
        await broker.parts.base.settings.update({"transactionTimeOut": "3000"}, broker.parts.tables.persister)
        service = make_transaction_service(broker.parts)
        client = TransactionClient(broker, group=GROUP)
        await client.join("10.7.0.1@27987#3492127014725")
        places: dict[tuple[str, str], str] = {}  # recorded place of a half message -> ours
        waiting: list[RemotingCommand] = []
        for row in RECORDED:
            fields = dict(row.get("extFields") or {})
            if row["kind"] == "send":
                command = RemotingCommand(code=310, opaque=1, ext_fields=fields, body=base64.b64decode(row["body"]))
                answer = await client.ask(command)
                expected = row["answer"]["extFields"]
                assert answer.code == row["answer"]["code"]
                assert answer.ext_fields is not None
                assert answer.ext_fields.keys() == expected.keys()
                for name in expected.keys() - OWN_TIMES:
                    assert answer.ext_fields[name] == expected[name], name
                place = str(int(expected["msgId"][16:], 16))
                places[expected["queueOffset"], place] = str(int(answer.ext_fields["msgId"][16:], 16))
            elif row["kind"] == "end":
                key = (fields["tranStateTableOffset"], fields["commitLogOffset"])
                fields["commitLogOffset"] = places[key]
                client.wire.receive(RemotingCommand(code=37, opaque=2, flag=row["flag"], ext_fields=fields).encode())
                assert client.wire.take_commands() == []
            elif row["kind"] == "check":
                if not waiting:
                    broker.clock.now_ms += 8_000
                    await service.check()
                    waiting = client.wire.take_commands()
                question = waiting.pop(0)
                assert (question.code, question.flag) == (39, row["flag"])
                assert question.ext_fields is not None
                assert question.ext_fields.keys() == fields.keys()
                for name in fields.keys() - {"commitLogOffset", "offsetMsgId"}:
                    assert question.ext_fields[name] == fields[name], name
                key = (fields["tranStateTableOffset"], fields["commitLogOffset"])
                places[key] = question.ext_fields["commitLogOffset"]
                (expected_record,) = recorded_records(row)
                assert seen(decode_record(question.body)) == seen(expected_record)
        assert not waiting
        visible = {
            (record.queue_id, record.queue_offset): seen(record) for record in broker.records() if record.topic == TOPIC
        }
        assert len(visible) == 6
        pulled = [record for row in rows("pulled") for record in recorded_records(row)]  # longer answers are left out
        assert pulled
        for record in pulled:
            assert visible[record.queue_id, record.queue_offset] == seen(record)
        service.close()
