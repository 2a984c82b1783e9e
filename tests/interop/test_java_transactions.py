"""The official Java client's transactions: commit, rollback, unknown and asked about."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.cluster import OFFICIAL, Cluster, cluster_of
from tests.interop.java_agent import JavaAgent, ReceivedMessage, message_body
from tests.interop.transaction_producers import ASK_SOON, OFFICIAL_NOTES, Producers, indexes
from tests.waiting import wait_until
from tooling.official_rocketmq import OfficialSoftware

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("java-transactions")]

SETTINGS = {**ASK_SOON, "transactionCheckMax": "4"}
CHECK_TIMEOUT_S = 60.0
_numbers = itertools.count(1)

PARKED = "TRANS_CHECK_MAX_TIME_TOPIC"


@pytest.fixture(scope="module")
def asking_cluster(
    cluster_kind: str,
    official_software: OfficialSoftware,
    java_agent_process: JavaAgent,
    module_folder: Path,
) -> Iterator[Cluster]:
    """A broker that asks soon."""
    directory = module_folder / cluster_kind
    with cluster_of(
        cluster_kind,
        official_software,
        java_agent_process,
        directory,
        settings=SETTINGS,
        official_settings=OFFICIAL_NOTES,
    ) as found:
        yield found


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics, groups and clients that no other test uses."""
    return f"Tx{next(_numbers)}x{request.node.originalname[5:35]}"


@pytest.fixture
def producers(java_agent_process: JavaAgent, name: str) -> Iterator[Producers]:
    """See `Producers`."""
    producers = Producers(java_agent_process, name)
    yield producers
    producers.close()


@pytest.fixture
def consumer(asking_cluster: Cluster, name: str) -> Iterator[Callable[..., list[ReceivedMessage]]]:
    """`consumer(count)` waits until a push consumer holds so many messages."""
    asking_cluster.make_topic(name, queue_count=2)
    asking_cluster.agent.call(
        "start_push_consumer",
        name=f"{name}-consumer",
        namesrv=asking_cluster.namesrv,
        group=f"{name}-consumers",
        topics={name: "*"},
    )
    yield lambda count: asking_cluster.agent.received(f"{name}-consumer", count=count, timeout_s=CHECK_TIMEOUT_S)
    asking_cluster.agent.call("stop_consumer", name=f"{name}-consumer")


def test_committed_messages_arrive_and_others_do_not(
    asking_cluster: Cluster, name: str, producers: Producers, consumer: Callable[..., list[ReceivedMessage]]
) -> None:
    answers = producers.transact(
        asking_cluster, count=30, local=["commit", "rollback", "commit"], check=["rollback"], tags=["red", "blue"]
    )
    assert {answer["status"] for answer in answers} == {"SEND_OK"}
    assert [answer["state"] for answer in answers[:2]] == ["COMMIT_MESSAGE", "ROLLBACK_MESSAGE"]
    received = consumer(20)
    assert indexes(received) == [index for index in range(30) if index % 3 != 1]
    for message in received:
        index = int(message.properties["index"])
        assert message.body == message_body(name, index)
        assert (message.topic, message.tags, message.keys) == (name, ["red", "blue"][index % 2], f"{name}-key-{index}")
        assert message.message_id == answers[index]["transaction_id"] == answers[index]["message_id"]
        assert message.sys_flag & 0xC == 8
        assert message.properties["TRAN_MSG"] == "true"
        assert message.properties["PGROUP"] == f"{name}-group"
        assert message.properties["__transactionId__"] == message.message_id
        assert not {"REAL_TOPIC", "REAL_QID"} & message.properties.keys()
    assert producers.checks() == {}


def test_an_undecided_transaction_is_checked_until_it_is_decided(
    asking_cluster: Cluster, name: str, producers: Producers, consumer: Callable[..., list[ReceivedMessage]]
) -> None:
    producers.transact(
        asking_cluster, count=8, local=["unknown"], check=["commit", "rollback", "unknown,commit", "unknown,rollback"]
    )
    assert indexes(consumer(4)) == [0, 2, 4, 6]
    wait_until(
        lambda: producers.checks() == {index: 1 + index % 4 // 2 for index in range(8)},
        what="the last are asked about a second time",
        timeout_s=CHECK_TIMEOUT_S,
    )
    assert consumer(0) == []


def test_an_undecided_transaction_is_parked_and_may_be_resumed(
    asking_cluster: Cluster, name: str, producers: Producers, consumer: Callable[..., list[ReceivedMessage]]
) -> None:
    producers.transact(asking_cluster, count=1, local=["unknown"], check=["unknown,unknown,unknown,unknown,commit"])

    def parked() -> list[ReceivedMessage]:
        printed = asking_cluster.admin("topicList")
        if PARKED not in printed:
            return []
        messages = asking_cluster.agent.read_topic(asking_cluster.namesrv, PARKED)
        return [message for message in messages if message.properties["REAL_TOPIC"] == name]

    wait_until(lambda: len(parked()) == 1, what="the message is parked", timeout_s=CHECK_TIMEOUT_S)
    assert producers.checks() == {0: 4}
    (message,) = parked()
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "4"
    assert message.body == message_body(name, 0)
    offset_id = f"7F000001{int(asking_cluster.broker_address.rpartition(':')[2]):08X}{message.physical_offset:016X}"
    agent = asking_cluster.agent
    assert agent.call("resume_check", namesrv=asking_cluster.namesrv, topic=PARKED, message_id=offset_id) is True
    assert indexes(consumer(1)) == [0]
    assert producers.checks() == {0: 5}


def test_another_producer_of_the_group_is_asked(
    asking_cluster: Cluster, name: str, producers: Producers, consumer: Callable[..., list[ReceivedMessage]]
) -> None:
    producers.transact(asking_cluster, "one", count=4, local=["unknown"], check=["commit"])
    producers.stop("one")
    producers.start(asking_cluster, "two")
    assert indexes(consumer(4)) == [0, 1, 2, 3]
    assert producers.checks("two").keys() <= {0, 1, 2, 3}
    assert producers.checks("two")


@pytest.mark.full
def test_an_immunity_time_of_its_own_is_waited_for(
    asking_cluster: Cluster, name: str, producers: Producers, consumer: Callable[..., list[ReceivedMessage]]
) -> None:
    if asking_cluster.kind == OFFICIAL:
        pytest.skip("it counts the rounds that pass meanwhile as checks, and parks the message unasked")
    producers.transact(asking_cluster, count=1, local=["unknown"], check=["commit"], immunity_s="9")
    (message,) = consumer(1)
    assert message.store_timestamp_ms - message.born_timestamp_ms >= 9_000
    assert producers.checks() == {0: 1}
