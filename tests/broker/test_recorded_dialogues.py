"""Answers of the control plane, compared with recorded dialogues of the official broker 5.5.0.

Each exchange in `recorded_dialogues.json` is one request as official clients or mqadmin sent it, and the answer they
got. Values differ between runs; code, remark, names of header fields and the shape of the body may not.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.control_broker import RECORDED, Client, ControlBroker, control_broker, shape
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.json_dialect import loads

COMPARED_APART = {
    26,  # settings differ
    28,  # test_runtime_info
    46,  # recorded with filtering by SQL switched on
    36,  # test_send_back
    307,  # test_consumer_call
    309,  # test_consumer_call
    317,  # no recorded body
}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    async with control_broker(tmp_path) as broker:
        yield broker


async def prepare(broker: ControlBroker, dialogue: dict[str, Any]) -> None:
    """What the recording broker had: the topic with messages, the group with members and offsets, statistics."""
    fields = dialogue["extFields"] or {}
    parts = broker.parts
    topic = fields.get("topic") or "AdminTopic"
    if dialogue["answer"]["code"] != 17 and topic not in parts.tables.topics and dialogue["code"] not in (17, 215):
        await broker.create_topic(topic)
    group = fields.get("consumerGroup") or fields.get("group") or "AdminGroup"
    parts.tables.groups.find_or_create(group)
    if topic in parts.tables.topics and not parts.tables.topics.is_system_topic(topic):
        for queue_id in range(4):
            if not (dialogue["code"] == 14 and dialogue["answer"]["code"] == 22):
                for _ in range(6):
                    broker.put(topic, queue_id, TAGS="tag")
            if dialogue["code"] in (208, 300):
                parts.tables.offsets.commit(topic, group, queue_id, 6)
    if dialogue["code"] == 315 and dialogue["answer"]["code"] == 0:
        parts.base.stats.add_put(fields["statsKey"], 1, 100)
    if dialogue["answer"]["remark"] == "Offset has been previously reset":
        parts.tables.offsets.assign_reset(topic, group, int(fields["queueId"]), 2)
    if dialogue["code"] in (38, 203, 204, 328) and dialogue["answer"]["code"] == 0:
        await join(broker, group=group, producer=fields.get("producerGroup", "AdminProducer"), topic=topic)


async def join(broker: ControlBroker, *, group: str, producer: str, topic: str) -> None:
    connection = await broker.connect(Client())
    subscription = (
        f'{{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":1,'
        f'"tagsSet":[],"topic":"{topic}"}}'
    )
    retry = subscription.replace(f'"topic":"{topic}"', f'"topic":"%RETRY%{group}"')
    body = (
        f'{{"clientID":"10.7.0.1@live","consumerDataSet":[{{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",'
        f'"consumeType":"CONSUME_PASSIVELY","groupName":"{group}","messageModel":"CLUSTERING",'
        f'"subscriptionDataSet":[{subscription},{retry}],"unitMode":false}}],"heartbeatFingerprint":0,'
        f'"producerDataSet":[{{"groupName":"{producer}"}}],"withoutSub":false}}'
    )
    answer = await broker.ask(34, body=body.encode(), connection=connection)
    assert answer.code == 0


@pytest.mark.parametrize(
    "dialogue",
    [item for item in RECORDED if item["code"] not in COMPARED_APART],
    ids=lambda item: f"{item['code']}-{item['answer']['code']}-{item['source'].removesuffix('.jsonl')}",
)
async def test_answers_have_the_recorded_form(broker: ControlBroker, dialogue: dict[str, Any]) -> None:
    await prepare(broker, dialogue)
    answer = await broker.replay(dialogue)
    compare(answer, dialogue)


def compare(answer: RemotingCommand, dialogue: dict[str, Any]) -> None:
    expected = dialogue["answer"]
    assert answer.code == expected["code"], answer.remark
    assert answer.remark == expected["remark"]
    assert (answer.ext_fields or {}).keys() == (expected["extFields"] or {}).keys()
    assert (answer.ext_fields is None) == (expected["extFields"] is None)
    if expected["body"] == "":
        assert bytes(answer.body) == b""
    elif expected["body"] is not None:
        got, wanted = loads(answer.body), loads(expected["body"].encode())
        if dialogue["code"] == 305:
            assert set(got["topicList"]) == set(wanted["topicList"])
        elif dialogue["code"] == 203:
            assert got.keys() == wanted.keys()
            for table in (got, wanted):
                table["subscriptionTable"] = next(iter(table["subscriptionTable"].values()))
            assert shape(got) == shape(wanted)
        elif dialogue["code"] == 328:
            assert shape(next(iter(got["data"].values()))) == shape(next(iter(wanted["data"].values())))
        elif "offsetTable" in got:
            assert got.keys() == wanted.keys()
            assert [shape({str(sorted(key)): value}) for key, value in list(got["offsetTable"].items())[:1]] == [
                shape({str(sorted(key)): value}) for key, value in list(wanted["offsetTable"].items())[:1]
            ]
        else:
            assert shape(got) == shape(wanted)


async def test_table_bodies_have_the_recorded_members(broker: ControlBroker) -> None:
    """GET_ALL_TOPIC_CONFIG, GET_ALL_SUBSCRIPTIONGROUP_CONFIG: the recordings left these large bodies out."""
    topics = loads((await broker.ask(21)).body)
    assert sorted(topics) == [
        "dataVersion",
        "mappingDataVersion",
        "topicConfigTable",
        "topicQueueMappingDetailMap",
    ]
    assert sorted(topics["topicConfigTable"]["TBW102"]) == [
        "attributes",
        "order",
        "perm",
        "readQueueNums",
        "topicFilterType",
        "topicName",
        "topicSysFlag",
        "writeQueueNums",
    ]
    groups = loads((await broker.ask(201)).body)
    assert sorted(groups) == ["dataVersion", "forbiddenTable", "subscriptionGroupTable"]
    assert sorted(groups["subscriptionGroupTable"]["TOOLS_CONSUMER"]) == [
        "attributes",
        "brokerId",
        "consumeBroadcastEnable",
        "consumeEnable",
        "consumeFromMinEnable",
        "consumeMessageOrderly",
        "consumeTimeoutMinute",
        "groupName",
        "groupRetryPolicy",
        "groupSysFlag",
        "notifyConsumerIdsChangedEnable",
        "retryMaxTimes",
        "retryQueueNums",
        "whichBrokerWhenConsumeSlowly",
    ]
