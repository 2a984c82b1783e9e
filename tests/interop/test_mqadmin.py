"""The official mqadmin: each command that the broker's request families serve prints the right answer."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.interop.cluster import THERMOCLINE, Cluster
from tests.interop.java_agent import ReceivedMessage, SendAnswer, message_body
from tests.waiting import wait_until

pytestmark = pytest.mark.java

QUEUE_COUNT = 4
MESSAGE_COUNT = 20
TAGS = ["T0", "T1"]
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTopic:
    """A topic with messages, a producer that is connected, and a group that has consumed all and is connected."""

    topic: str
    group: str
    producer_group: str
    sent: list[SendAnswer]
    received: list[ReceivedMessage]


@pytest.fixture(scope="module")
def live(cluster: Cluster) -> Iterator[LiveTopic]:
    topic, group, producer_group = "AdminTopic", "AdminGroup", "AdminProducers"
    cluster.make_topic(topic, queue_count=QUEUE_COUNT)
    sent = cluster.agent.produce(
        kind="ordered",
        name=producer_group,
        group=producer_group,
        namesrv=cluster.namesrv,
        topic=topic,
        prefix=topic,
        tags=TAGS,
        shards=QUEUE_COUNT,
        count=MESSAGE_COUNT,
    )
    cluster.agent.call("start_push_consumer", name=group, namesrv=cluster.namesrv, group=group, topics={topic: "*"})
    received = cluster.agent.received(group, count=MESSAGE_COUNT)
    assert len(received) == MESSAGE_COUNT
    yield LiveTopic(topic=topic, group=group, producer_group=producer_group, sent=sent, received=received)
    cluster.agent.call("stop_consumer", name=group)
    cluster.agent.call("stop_producer", name=producer_group)


@pytest.fixture
def new_name() -> str:
    return f"AdminNew{next(_numbers)}"


def table(printed: str) -> list[dict[str, str]]:
    """The rows of an mqadmin table by column name. Columns start where their header does."""
    lines = printed.splitlines()
    header = next(line for line in lines if line.startswith("#"))
    names = [name.strip() for name in header.split("#") if name.strip()]
    rows = []
    for line in lines[lines.index(header) + 1 :]:
        if not line.strip():
            break
        rows.append(dict(zip(names, line.split(maxsplit=len(names) - 1), strict=False)))
    return rows


def fields(printed: str) -> dict[str, str]:
    """Lines of `name : value`."""
    return _pairs(printed, ":")


def properties(printed: str) -> dict[str, str]:
    """Lines of `name = value`."""
    return _pairs(printed, "=")


def _pairs(printed: str, separator: str) -> dict[str, str]:
    pairs = (line.partition(separator) for line in printed.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs if value}


def eventually(run_command: Callable[[], str], pattern: str, *, what: str) -> str:
    """The first output that matches, for what the broker learns a moment later (commits, index)."""
    seen: list[str] = []

    def matches() -> bool:
        seen.append(run_command())
        return re.search(pattern, seen[-1], re.MULTILINE) is not None

    wait_until(matches, what=f"{what}; the last answer was\n{seen[-1] if seen else ''}", timeout_s=30.0)
    return seen[-1]


def check_message(printed: str, message: ReceivedMessage) -> None:
    """What the message commands print of one message."""
    shown = fields(printed)
    assert shown["Topic"] == message.topic
    assert shown["Tags"] == f"[{message.tags}]"
    assert shown["Keys"] == f"[{message.keys}]"
    assert shown["Queue ID"] == str(message.queue_id)
    assert shown["Queue Offset"] == str(message.queue_offset)
    assert shown["CommitLog Offset"] == str(message.physical_offset)
    assert shown["Reconsume Times"] == "0"
    assert shown["System Flag"] == str(message.sys_flag)
    assert f"UNIQ_KEY={message.message_id}" in shown["Properties"]
    assert f"index={message.properties['index']}" in shown["Properties"]
    assert "CLUSTER=DefaultCluster" in shown["Properties"]


def test_cluster_list_shows_the_broker(cluster: Cluster) -> None:
    (row,) = table(cluster.admin("clusterList"))
    assert row["Cluster Name"] == cluster.cluster_name
    assert row["Broker Name"] == cluster.broker_name
    assert row["BID"] == "0"
    assert row["Addr"] == cluster.broker_address
    assert row["Version"] == "V5_5_0"


def test_topic_list_shows_the_topic_and_its_retry_topic(cluster: Cluster, live: LiveTopic) -> None:
    topics = cluster.admin("topicList").split()
    assert {live.topic, f"%RETRY%{live.group}", "TBW102", cluster.cluster_name, cluster.broker_name} <= set(topics)
    assert len(topics) == len(set(topics))


def test_topic_route_names_the_broker_and_its_queues(cluster: Cluster, live: LiveTopic) -> None:
    printed = cluster.admin("topicRoute", "-t", live.topic)
    route = json.loads(re.sub(r"(\d+):", r'"\1":', printed.replace(cluster.broker_address, "ADDRESS")))
    assert route["brokerDatas"] == [
        {
            "brokerAddrs": {"0": "ADDRESS"},
            "brokerName": cluster.broker_name,
            "cluster": cluster.cluster_name,
            "enableActingMaster": False,
        }
    ]
    assert route["queueDatas"] == [
        {
            "brokerName": cluster.broker_name,
            "perm": 6,
            "readQueueNums": QUEUE_COUNT,
            "topicSysFlag": 0,
            "writeQueueNums": QUEUE_COUNT,
        }
    ]
    assert "CODE: 17" in cluster.admin("topicRoute", "-t", "NoSuchTopic")


def test_topic_status_counts_each_queue(cluster: Cluster, live: LiveTopic) -> None:
    rows = table(cluster.admin("topicStatus", "-t", live.topic))
    assert [(row["QID"], row["Min Offset"], row["Max Offset"]) for row in rows] == [
        (str(queue_id), "0", str(MESSAGE_COUNT // QUEUE_COUNT)) for queue_id in range(QUEUE_COUNT)
    ]
    for row in rows:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", row["Last Updated"])


def test_update_topic_creates_and_changes(cluster: Cluster, new_name: str) -> None:
    printed = cluster.admin("updateTopic", "-b", cluster.broker_address, "-t", new_name, "-r", "4", "-w", "4")
    assert f"create topic to {cluster.broker_address} success." in printed
    assert "readQueueNums=4, writeQueueNums=4, perm=RW-" in printed
    cluster.admin("updateTopic", "-c", cluster.cluster_name, "-t", new_name, "-r", "8", "-w", "2", "-p", "4")

    def route() -> str:
        return cluster.admin("topicRoute", "-t", new_name)

    printed = eventually(route, r'"perm":4', what="the change reaches the NameServer")
    assert '"readQueueNums":8' in printed
    assert '"writeQueueNums":2' in printed


def test_update_topic_refuses_an_illegal_name(cluster: Cluster) -> None:
    printed = cluster.admin("updateTopic", "-c", cluster.cluster_name, "-t", "no/such*name", "-r", "4", "-w", "4")
    assert "success" not in printed
    assert "illegal characters" in printed


def test_delete_topic_removes_it_everywhere(cluster: Cluster, new_name: str) -> None:
    cluster.make_topic(new_name)
    cluster.agent.produce(
        kind="sync", name=new_name, group=new_name, namesrv=cluster.namesrv, topic=new_name, prefix=new_name, count=4
    )
    cluster.agent.call("stop_producer", name=new_name)
    printed = cluster.admin("deleteTopic", "-c", cluster.cluster_name, "-t", new_name)
    assert f"delete topic [{new_name}] from cluster [{cluster.cluster_name}] success." in printed
    assert f"delete topic [{new_name}] from NameServer success." in printed
    assert new_name not in cluster.admin("topicList").split()
    assert "CODE: 17" in cluster.admin("topicRoute", "-t", new_name)
    # The same name made again starts empty.
    cluster.make_topic(new_name)
    offsets = cluster.agent.queue_offsets(cluster.namesrv, new_name)
    assert [(queue["min_offset"], queue["max_offset"]) for queue in offsets] == [(0, 0)] * 4


def test_update_sub_group_stores_its_arguments(cluster: Cluster, new_name: str) -> None:
    printed = cluster.admin(
        "updateSubGroup",
        "-b",
        cluster.broker_address,
        "-g",
        new_name,
        *["-s", "true", "-m", "true", "-d", "false", "-q", "2", "-r", "5"],
    )
    assert f"create subscription group to {cluster.broker_address} success." in printed
    assert f"groupName={new_name}, consumeEnable=true" in printed
    assert "consumeBroadcastEnable=false" in printed
    assert "retryQueueNums=2, retryMaxTimes=5" in printed
    read_back = cluster.admin("getConsumerConfig", "-g", new_name)
    assert re.search(r"retryMaxTimes\s*= *5", read_back)
    assert re.search(r"retryQueueNums\s*= *2", read_back)
    assert re.search(r"consumeBroadcastEnable\s*= *false", read_back)


def test_broker_status_reports_the_run(cluster: Cluster, live: LiveTopic) -> None:
    status = fields(cluster.admin("brokerStatus", "-b", cluster.broker_address))
    assert status["brokerVersionDesc"] == "V5_5_0"
    assert status["brokerActive"] == "true"
    assert int(status["bootTimestamp"]) > 1_600_000_000_000
    assert int(status["putMessageTimesTotal"]) >= MESSAGE_COUNT
    assert int(status["msgPutTotalTodayNow"]) >= MESSAGE_COUNT
    assert int(status["commitLogMinOffset"]) == 0
    last = max(live.received, key=lambda message: message.physical_offset)
    assert int(status["commitLogMaxOffset"]) >= last.physical_offset + last.store_size
    assert 0 <= float(status["commitLogDiskRatio"]) <= 1
    # One figure for each window that is full by now: 10 s, a minute, ten.
    assert re.fullmatch(r"[\d. ]*", status["putTps"])


def test_broker_config_is_readable_and_changeable(cluster: Cluster) -> None:
    config = properties(cluster.admin("getBrokerConfig", "-b", cluster.broker_address))
    assert config["brokerName"] == cluster.broker_name
    assert config["brokerClusterName"] == cluster.cluster_name
    assert config["brokerId"] == "0"
    assert config["listenPort"] == cluster.broker_address.rpartition(":")[2]
    assert config["autoCreateTopicEnable"] == "true"
    assert config["maxMessageSize"] == str(4 << 20)
    printed = cluster.admin("updateBrokerConfig", "-b", cluster.broker_address, "-k", "fileReservedTime", "-v", "71")
    assert "success" in printed
    config = properties(cluster.admin("getBrokerConfig", "-b", cluster.broker_address))
    assert config["fileReservedTime"] == "71"


def test_unsupported_options_are_refused(cluster: Cluster) -> None:
    if cluster.kind != THERMOCLINE:
        pytest.skip("the official broker has replicas")
    broker = ("-b", cluster.broker_address)
    printed = cluster.admin("updateBrokerConfig", *broker, "-k", "minInSyncReplicas", "-v", "2")
    assert "CODE: 29" in printed
    assert "minInSyncReplicas is refused: it would promise" in printed
    assert properties(cluster.admin("getBrokerConfig", *broker))["minInSyncReplicas"] == "1"
    printed = cluster.admin("updateNamesrvConfig", "-k", "clusterTest", "-v", "true")
    assert "CODE: 29" in printed
    assert "clusterTest=true is refused: it would promise" in printed


def test_consumer_progress_shows_no_lag(cluster: Cluster, live: LiveTopic) -> None:
    def progress() -> str:
        return cluster.admin("consumerProgress", "-g", live.group)

    # Before the first commit there are no rows, and the total is 0, too.
    committed = rf"(?s)^{live.topic} .*^Consume Diff Total: 0$"
    printed = eventually(progress, committed, what="the group's offsets are committed")
    rows = [row for row in table(printed) if row["Topic"] == live.topic]
    end = str(MESSAGE_COUNT // QUEUE_COUNT)
    assert [(row["QID"], row["Broker Offset"], row["Consumer Offset"], row["Diff"]) for row in rows] == [
        (str(queue_id), end, end, "0") for queue_id in range(QUEUE_COUNT)
    ]
    (summary,) = [line for line in cluster.admin("consumerProgress").splitlines() if line.startswith(live.group + " ")]
    assert summary.split()[1] == "1"  # one client


def test_consumer_connection_shows_client_and_subscription(cluster: Cluster, live: LiveTopic) -> None:
    printed = cluster.admin("consumerConnection", "-g", live.group)
    (row,) = table(printed)
    assert row["ClientId"].endswith(f"@{live.group}")
    assert row["ClientAddr"].startswith("127.0.0.1:")
    assert (row["Language"], row["Version"]) == ("JAVA", "V5_5_0")
    subscriptions = dict(line.split() for line in printed.splitlines() if line.rstrip().endswith(" *"))
    assert subscriptions == {f"%RETRY%{live.group}": "*", live.topic: "*"}
    assert "ConsumeType: CONSUME_PASSIVELY" in printed
    assert "MessageModel: CLUSTERING" in printed
    assert "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET" in printed


def test_producer_connection_shows_the_client(cluster: Cluster, live: LiveTopic) -> None:
    def connection() -> str:
        return cluster.admin("producerConnection", "-g", live.producer_group, "-t", live.topic)

    printed = eventually(connection, r"^0001 ", what="the producer's heartbeat")
    number, client_id, address, language, version = printed.split()
    assert number == "0001"
    assert client_id.endswith(f"@{live.producer_group}")
    assert address.startswith("127.0.0.1:")
    assert (language, version) == ("JAVA", "V5_5_0")


def test_a_message_is_found_by_its_offset_id(cluster: Cluster, live: LiveTopic) -> None:
    message = live.received[7]
    answer = next(
        sent for sent in live.sent if (sent.queue_id, sent.queue_offset) == (message.queue_id, message.queue_offset)
    )
    printed = cluster.admin("queryMsgById", "-t", live.topic, "-i", answer.offset_message_id)
    assert fields(printed)["OffsetID"] == answer.offset_message_id
    check_message(printed, message)
    assert f"MessageTrack [consumerGroup={live.group}, trackType=CONSUMED" in printed


def test_a_message_is_found_by_its_key(cluster: Cluster, live: LiveTopic) -> None:
    message = live.received[3]
    assert message.keys is not None

    def query() -> str:
        return cluster.admin("queryMsgByKey", "-t", live.topic, "-k", str(message.keys))

    printed = eventually(query, message.message_id, what="the index has the message")
    (row,) = table(printed)
    assert (row["Message ID"], row["QID"], row["Offset"]) == (
        message.message_id,
        str(message.queue_id),
        str(message.queue_offset),
    )
    assert "no message" in cluster.admin("queryMsgByKey", "-t", live.topic, "-k", "no-such-key")


def test_a_message_is_found_by_its_unique_key(cluster: Cluster, live: LiveTopic) -> None:
    message = live.received[11]

    def query() -> str:
        return cluster.admin("queryMsgByUniqueKey", "-t", live.topic, "-i", message.message_id)

    check_message(eventually(query, r"^Topic: ", what="the index has the message"), message)


def test_a_message_is_found_by_its_queue_offset(cluster: Cluster, live: LiveTopic) -> None:
    message = next(m for m in live.received if (m.queue_id, m.queue_offset) == (2, 1))
    printed = cluster.admin("queryMsgByOffset", "-t", live.topic, "-b", cluster.broker_name, "-i", "2", "-o", "1")
    check_message(printed, message)


def test_print_msg_shows_every_message(cluster: Cluster, live: LiveTopic) -> None:
    printed = cluster.admin("printMsg", "-t", live.topic, "-d", "true")
    ends = re.findall(r"minOffset=(\d+), maxOffset=(\d+), MessageQueue \[.*queueId=(\d+)\]", printed)
    assert sorted(ends) == [("0", "5", str(queue_id)) for queue_id in range(QUEUE_COUNT)]
    bodies = re.findall(r"^MSGID: (\S+) .* BODY: (\S+)$", printed, re.MULTILINE)
    assert sorted(bodies) == sorted((message.message_id, message.body.decode()) for message in live.received)


def test_a_sent_message_can_be_consumed_by_command(cluster: Cluster, new_name: str) -> None:
    cluster.make_topic(new_name, queue_count=1)
    (sent,) = table(cluster.admin("sendMessage", "-t", new_name, "-p", "hello", "-k", "key1", "-c", "tag1"))
    assert (sent["Broker Name"], sent["QID"], sent["Send Result"]) == (cluster.broker_name, "0", "SEND_OK")
    printed = cluster.admin("consumeMessage", "-t", new_name, *f"-b {cluster.broker_name} -i 0 -o 0 -c 1".split())
    assert "Consume ok" in printed
    (line,) = [line for line in printed.splitlines() if line.startswith("MSGID: ")]
    assert line.split()[1] == sent["MsgId"]
    assert "KEYS=key1" in line
    assert "TAGS=tag1" in line
    assert line.endswith("BODY: hello")


def test_write_permission_is_wiped_and_given_back(cluster: Cluster, live: LiveTopic) -> None:
    def perm() -> str:
        return cluster.admin("topicRoute", "-t", live.topic)

    where = rf"broker\[{cluster.broker_name}\] in name server\[{cluster.namesrv}\]"
    printed = cluster.admin("wipeWritePerm", "-b", cluster.broker_name)
    try:
        match = re.search(rf"wipe write perm of {where} OK, (\d+)", printed)
        assert match is not None, printed
        assert int(match[1]) >= 1
        assert '"perm":4' in perm()
    finally:
        printed = cluster.admin("addWritePerm", "-b", cluster.broker_name)
    assert re.search(rf"add write perm of {where} OK, \d+", printed)
    assert '"perm":6' in perm()


def test_the_bodies_are_as_the_tests_assume(live: LiveTopic) -> None:
    for message in live.received:
        assert message.body == message_body(live.topic, int(message.properties["index"]))
