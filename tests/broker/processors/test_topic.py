"""Topic requests over real sockets: refusals, and durability of changes at the time of the answer."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.control_broker import ControlBroker, control_broker
from tests.clock import Clock
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.broker.tables import consumer_offsets
from thermocline.remoting.bodies import TopicConfig, TopicConfigListBody, TopicList
from thermocline.remoting.errors import DiskFullError
from thermocline.remoting.json_dialect import loads

CREATE = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
    "attributes": "",
}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    async with control_broker(tmp_path) as broker:
        yield broker


async def test_the_system_topics_are_there_from_the_start(broker: ControlBroker) -> None:
    """As the official broker registers them with tracing off."""
    expected = {
        "BenchmarkTest": (1024, 6),
        "DefaultCluster": (16, 7),
        "DefaultCluster_REPLY_TOPIC": (1, 6),
        "OFFSET_MOVED_EVENT": (1, 6),
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": (1, 6),
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC": (1, 6),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "SELF_TEST_TOPIC": (1, 6),
        "TBW102": (8, 7),
        "broker-a": (1, 7),
        "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1),
        "rmq_sys_wheel_timer": (1, 6),
    }
    topics = broker.parts.tables.topics.configs()
    assert {name: (config.write_queue_nums, config.perm) for name, config in topics.items()} == expected


async def test_topics_survive_a_restart_with_their_attributes(tmp_path: Path) -> None:
    clock = Clock()
    async with control_broker(tmp_path, clock=clock) as broker:
        await broker.create_topic("T", queues=3, attributes="+message.type=FIFO,+reserve.time=24")
        version = broker.parts.tables.topics.data_version
    async with control_broker(tmp_path, clock=clock) as broker:
        config = broker.parts.tables.topics.get("T")
        assert config is not None
        assert (config.read_queue_nums, config.attributes) == (3, {"message.type": "FIFO", "reserve.time": "24"})
        assert broker.parts.tables.topics.time_to_live_ms("T") == 24 * 3_600_000
        assert broker.parts.tables.topics.data_version.counter <= version.counter


@pytest.mark.parametrize(
    ("change", "code", "remark"),
    [
        ({"topic": "bad topic"}, 29, "illegal characters"),
        ({"topic": " "}, 29, "blank"),
        ({"topic": "x" * 128}, 29, "longer than topic max length"),
        ({"topic": "TBW102"}, 29, "conflict with system topic"),
        ({"topic": "broker-a"}, 29, "conflict with system topic"),
        ({"topic": "rmq_sys_anything"}, 29, "conflict with system topic"),
        ({"readQueueNums": "-1"}, 29, "queues"),
        ({"writeQueueNums": "2000000000"}, 29, "queues"),
        ({"perm": "99"}, 29, "permission"),
        ({"topicFilterType": "NO_TAG"}, 29, "value invalid"),
        ({"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported"),
        ({"attributes": "+no.such=1"}, 1, "unsupported key: no.such"),
        ({"attributes": "nonsense"}, 1, "format is wrong"),
    ],
)
async def test_a_wrong_topic_is_refused(broker: ControlBroker, change: dict[str, str], code: int, remark: str) -> None:
    answer = await broker.ask(17, {**CREATE, **change})
    assert answer.code == code
    assert remark in (answer.remark or "")
    assert "T" not in broker.parts.tables.topics


async def test_a_list_is_checked_before_its_first_topic_is_made(broker: ControlBroker) -> None:
    good, bad = TopicConfig(topic_name="Good"), TopicConfig(topic_name="TBW102")
    answer = await broker.ask(18, body=TopicConfigListBody(topic_config_list=[good, bad]).encode())
    assert answer.code == 29
    assert "Good" not in broker.parts.tables.topics
    other = TopicConfig(topic_name="Other", attributes={"+message.type": "FIFO"})
    answer = await broker.ask(18, body=TopicConfigListBody(topic_config_list=[good, other]).encode())
    assert answer.code == 0
    assert broker.parts.tables.topics.get("Other") == TopicConfig(
        topic_name="Other", attributes={"message.type": "FIFO"}
    )


async def test_deleting_a_topic_takes_offsets_and_pop_retry_topics_along(broker: ControlBroker) -> None:
    parts = broker.parts
    await broker.create_topic("T")
    await broker.create_topic("%RETRY%G_T", queues=1)
    await parts.tables.topics.ensure("%RETRY%G+T", queue_count=1)
    broker.put("T")
    parts.tables.offsets.commit("T", "G", 0, 1)
    parts.base.stats.add_put("T", 1, 1)
    assert (await broker.ask(215, {"topic": "T"})).code == 0
    assert "T" not in parts.tables.topics
    assert "%RETRY%G_T" not in parts.tables.topics
    assert "%RETRY%G+T" not in parts.tables.topics
    assert parts.tables.offsets.query("T", "G", 0) is None
    assert parts.base.stats.view("TOPIC_PUT_NUMS", "T") is None
    assert parts.base.store.queues.find("T", 0) is None
    assert (await broker.ask(215, {"topic": "T"})).code == 0  # twice is fine
    assert (await broker.ask(215, {"topic": " "})).code == 29
    assert (await broker.ask(215, {"topic": "SCHEDULE_TOPIC_XXXX"})).code == 29


async def test_groups_get_a_topic_from_its_start_that_is_made_again_after_its_deletion_failed(
    broker: ControlBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full: the topic is gone from memory only, until a producer goes on, or the operator asks again."""
    tables = broker.parts.tables
    await broker.create_topic("T")
    broker.put("T")
    tables.offsets.commit("T", "G", 0, 1)
    await tables.persister.save(consumer_offsets.FILE_NAME)
    with monkeypatch.context() as patch:
        patch.setattr(broker.parts.base.disk, "rename", refuse)
        assert (await broker.ask(215, {"topic": "T"})).code != 0
    assert "T" not in tables.topics
    await tables.topics.auto_create("T", default_topic="TBW102", queue_count=4)
    assert tables.offsets.query("T", "G", 0) is None
    assert not tables.offsets.changes.is_unsaved, "else a crash brings the offset back"
    broker.put("T")
    queue = broker.parts.base.store.queues.find("T", 0)
    assert queue is not None
    assert queue.next_offset == 1


def refuse(source: str, target: str) -> None:
    raise DiskFullError("no room left on the disk", path=target)


async def test_topics_come_in_pages(broker: ControlBroker) -> None:
    names = sorted(broker.parts.tables.topics)
    first = await broker.ask(21, {"topicSeq": "0", "dataVersion": "", "maxTopicNum": "4"})
    assert first.ext_fields == {"totalTopicNum": str(len(names))}
    table = loads(first.body)
    assert list(table["topicConfigTable"]) == names[:4]
    version = broker.parts.tables.topics.data_version.encode().decode()
    second = await broker.ask(21, {"topicSeq": "4", "dataVersion": version, "maxTopicNum": "4"})
    assert list(loads(second.body)["topicConfigTable"]) == names[4:8]
    await broker.create_topic("New")
    again = await broker.ask(21, {"topicSeq": "4", "dataVersion": version, "maxTopicNum": "4"})
    assert list(loads(again.body)["topicConfigTable"]) == sorted(broker.parts.tables.topics)[:4]
    old_client = loads((await broker.ask(21)).body)
    assert set(old_client["topicConfigTable"]) == set(broker.parts.tables.topics)


async def test_the_system_topic_list_names_the_cluster(tmp_path: Path) -> None:
    async with control_broker(tmp_path, config=BrokerConfig(cluster_name="C", broker_name="b")) as broker:
        topics = TopicList.decode((await broker.ask(305)).body).topic_list
        assert {"C", "b", "C_REPLY_TOPIC", "TBW102", "RMQ_SYS_TRACE_TOPIC"} <= set(topics)


async def test_unused_queues_are_forgotten(broker: ControlBroker) -> None:
    broker.put("NeverSetUp")
    broker.put("SCHEDULE_TOPIC_XXXX")
    assert (await broker.ask(316)).code == 0
    assert broker.parts.base.store.queues.find("NeverSetUp", 0) is None
    assert broker.parts.base.store.queues.find("SCHEDULE_TOPIC_XXXX", 0) is not None
