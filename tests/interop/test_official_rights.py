"""The right of each request code beside what RocketMQ's own `auth` module asks for, on one request of each code."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.interop.official_access import OfficialAccess, official_access
from thermocline.auth.rights_table import RULES
from thermocline.remoting import bodies
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.request_code import RequestCode
from tooling.official_rocketmq import OfficialSoftware

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("official-access")]

CLUSTER = "DefaultCluster"
FIELDS = {
    "AccessKey": "alice",
    "topic": "T",
    "b": "T",
    "originTopic": "T",
    "consumerGroup": "G",
    "group": "G",
    "groupName": "G",
    "producerGroup": "P",
    "srcGroup": "S",
    "destGroup": "D",
    "compareGroup": "G",
    "filterGroups": "F1,F2",
    "topicList": "T1;T2",
    "clusterName": CLUSTER,
    "brokerClusterName": CLUSTER,
}
"""All resources, by each name that a field with one has."""


@pytest.fixture(scope="module")
def official(official_software: OfficialSoftware, new_module_folder: Callable[[str], Path]) -> Iterator[OfficialAccess]:
    with official_access(official_software, new_module_folder("official-rights")) as running:
        yield running


QUEUE = bodies.MessageQueue(topic="T", broker_name="broker-a", queue_id=0)
LOCKS = bodies.LockBatchRequestBody(client_id="c", consumer_group="G", mq_set=[QUEUE]).encode()
BODIES: Mapping[int, bytes] = {
    RequestCode.HEART_BEAT: bodies.HeartbeatData(
        client_id="c",
        consumer_data_set=[
            bodies.ConsumerData(
                group_name="G",
                subscription_data_set=[bodies.SubscriptionData(topic="T"), bodies.SubscriptionData(topic="%RETRY%G")],
            )
        ],
        producer_data_set=[bodies.ProducerData(group_name="P")],
    ).encode(),
    RequestCode.LOCK_BATCH_MQ: LOCKS,
    RequestCode.UNLOCK_BATCH_MQ: LOCKS,
}
EXPECTED_FIELDS: Mapping[int, Mapping[str, str]] = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: {"topicFilterType": "SINGLE_TAG"},
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: {"topicFilterType": "SINGLE_TAG"},
}
"""Fields whose header class takes certain values alone."""

ASKED_HERE_ALONE = frozenset(
    {
        # a reply is stored in the topic that it names, whichever that is: every user of RocketMQ may send to each topic
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        # RocketMQ finds the names in a header alone; these have theirs in the body
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        # it shares its header class with another code, which alone has the annotation
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
        # its annotation names a type and no resource: RocketMQ then asks for nothing
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        # no header class, so no annotation: any user of RocketMQ may read, or change, the broker's settings
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.GET_TIMER_CHECK_POINT,
        RequestCode.GET_TIMER_METRICS,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.POP_ROLLBACK,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.GET_BROKER_EPOCH_CACHE,
        RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
        RequestCode.SET_COMMITLOG_READ_MODE,
        # of a NameServer, which has no access control in RocketMQ
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.GET_NAMESRV_CONFIG,
        # of a controller, which has none either, and no header class
        RequestCode.CONTROLLER_GET_METADATA_INFO,
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
        RequestCode.UPDATE_CONTROLLER_CONFIG,
        RequestCode.GET_CONTROLLER_CONFIG,
    }
)
"""Codes for which RocketMQ asks for no right at all: every user may send them."""

ASKED_HERE_TOO: Mapping[int, frozenset[tuple[str, str]]] = {
    RequestCode.CLONE_GROUP_OFFSET: frozenset({("Group:S", "Get")}),  # whose offsets are read
}

Rights = frozenset[tuple[str, str]]


def official_rights(official: OfficialAccess, codes: list[RequestCode]) -> list[Rights]:
    questions = [
        {
            "kind": "rights",
            "code": int(code),
            "version": 513,
            "fields": {**FIELDS, **EXPECTED_FIELDS.get(code, {})},
            "body": base64.b64encode(BODIES.get(code, b"{}")).decode(),
        }
        for code in codes
    ]
    found = []
    for code, answer in zip(codes, official.ask(questions), strict=True):
        assert "needed" in answer, (code.name, answer)
        found.append(frozenset((right["resource"], ",".join(right["actions"])) for right in answer["needed"]))
    return found


def our_rights(code: RequestCode) -> Rights:
    command = RemotingCommand.request(code, ext_fields=FIELDS, body=BODIES.get(code, b""))
    return frozenset(
        (right.resource.key, ",".join(action.title for action in right.actions))
        for right in RULES[code].rights(command, CLUSTER)
    )


def test_every_code_asks_for_what_rocketmq_asks_for(official: OfficialAccess) -> None:
    codes = [code for code in RequestCode if code in RULES]
    for code, theirs in zip(codes, official_rights(official, codes), strict=True):
        if code in ASKED_HERE_ALONE:
            assert theirs == frozenset(), code.name
            assert RULES[code].needs, code.name
        else:
            assert our_rights(code) == theirs | ASKED_HERE_TOO.get(code, frozenset()), code.name
