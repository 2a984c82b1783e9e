"""The official Java client's transactions: commit, rollback, unknown and asked about; also over a change of brokers."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.interop.cluster import (
    OFFICIAL,
    OFFICIAL_PROPERTIES,
    THERMOCLINE,
    Cluster,
    cluster_of,
    official_cluster,
    store_directory_of,
    thermocline_cluster,
)
from tests.interop.java_agent import JavaAgent, ReceivedMessage, message_body
from tests.waiting import wait_until
from tooling.official_rocketmq import OfficialSoftware

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("java-transactions")]

# As in the recorded dialogue.
SETTINGS = {"transactionTimeOut": "3000", "transactionCheckInterval": "2000", "transactionCheckMax": "4"}
OFFICIAL_NOTES = {"transactionOpBatchInterval": "500"}
"""The official broker notes what has ended before its next round: else it asks, and commits, again."""
CHECK_TIMEOUT_S = 60.0
_numbers = itertools.count(1)

HALF, PARKED = "RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"


@pytest.fixture(scope="module")
def asking_cluster(
    cluster_kind: str,
    official_software: OfficialSoftware,
    java_agent_process: JavaAgent,
    module_folder: Path,
) -> Iterator[Cluster]:
    """A broker that asks soon."""
    directory = module_folder / cluster_kind
    # With its usual 3 s the official one asks again about what was committed since, and shows that twice.
    more = {"transactionOpBatchInterval": "500"}
    with cluster_of(
        cluster_kind, official_software, java_agent_process, directory, settings=SETTINGS, official_settings=more
    ) as found:
        yield found


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics, groups and clients that no other test uses."""
    return f"Tx{next(_numbers)}x{request.node.originalname[5:35]}"


class Producers:
    """Transaction producers of one test; all are stopped after it."""

    def __init__(self, agent: JavaAgent, name: str) -> None:
        self._agent = agent
        self._name = name
        self._started: set[str] = set()

    def start(self, cluster: Cluster, producer: str, **arguments: Any) -> None:
        """Make one that sends nothing yet, but can be asked."""
        self._call("start_transaction_producer", cluster, producer, **arguments)

    def transact(self, cluster: Cluster, producer: str = "one", **arguments: Any) -> list[dict[str, Any]]:
        """Send messages in transactions."""
        answers: list[dict[str, Any]] = self._call("transact", cluster, producer, **arguments)
        return answers

    def checks(self, producer: str = "one") -> dict[int, int]:
        """How often each message was asked about at this producer."""
        counts: dict[str, int] = self._agent.call("checks", name=f"{self._name}-{producer}")
        return {int(index): count for index, count in counts.items()}

    def stop(self, producer: str) -> None:
        """It leaves."""
        self._agent.call("stop_transaction_producer", name=f"{self._name}-{producer}")
        self._started.discard(producer)

    def close(self) -> None:
        """All leave."""
        for producer in list(self._started):
            self.stop(producer)

    def _call(self, operation: str, cluster: Cluster, producer: str, **arguments: Any) -> Any:
        self._started.add(producer)
        return self._agent.call(
            operation,
            name=f"{self._name}-{producer}",
            group=f"{self._name}-group",
            namesrv=cluster.namesrv,
            topic=self._name,
            prefix=self._name,
            **arguments,
        )


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


def indexes(messages: Sequence[ReceivedMessage]) -> list[int]:
    """The messages' numbers."""
    return sorted(int(message.properties["index"]) for message in messages)


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


def test_an_immunity_time_of_its_own_is_waited_for(
    asking_cluster: Cluster, name: str, producers: Producers, consumer: Callable[..., list[ReceivedMessage]]
) -> None:
    if asking_cluster.kind == OFFICIAL:
        pytest.skip("it counts the rounds that pass meanwhile as checks, and parks the message unasked")
    producers.transact(asking_cluster, count=1, local=["unknown"], check=["commit"], immunity_s="9")
    (message,) = consumer(1)
    assert message.store_timestamp_ms - message.born_timestamp_ms >= 9_000
    assert producers.checks() == {0: 1}


# -- one broker begins, the other ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"), [pytest.param(THERMOCLINE, OFFICIAL, marks=pytest.mark.full), (OFFICIAL, THERMOCLINE)]
)
def test_the_other_broker_goes_on_with_open_transactions(
    first: str,
    second: str,
    official_software: OfficialSoftware,
    java_agent_process: JavaAgent,
    producers: Producers,
    name: str,
    tmp_path: Path,
) -> None:
    """Decisions stay, and open transactions are checked, by whichever broker opens the store."""
    agent = java_agent_process
    settings = {**SETTINGS, "transactionCheckMax": "15"}
    words = {"local": ["commit", "unknown", "rollback", "unknown"], "check": ["unknown,unknown,commit"]}
    begins = (
        thermocline_cluster(agent, tmp_path / "begins", settings=settings)
        if first == THERMOCLINE
        else official_cluster(
            official_software,
            agent,
            tmp_path / "begins",
            properties={**OFFICIAL_PROPERTIES, **settings, **OFFICIAL_NOTES},
            ends_cleanly=True,
        )
    )
    with begins as cluster:
        cluster.make_topic(name, queue_count=2)
        producers.transact(cluster, count=12, **words)
        # Some are asked about here, and put again.
        wait_until(lambda: len(producers.checks()) == 6, what="the first checks", timeout_s=CHECK_TIMEOUT_S)
        store, sizes = store_directory_of(cluster)
        producers.stop("one")
    with continued(second, official_software, agent, tmp_path / "ends", store, {**settings, **sizes}) as cluster:
        producers.start(cluster, "two")
        expected = [index for index in range(12) if index % 4 != 2]
        wait_until(
            lambda: Counter(indexes(agent.read_topic(cluster.namesrv, name))) == Counter(expected),
            what="everything but what was rolled back is visible once",
            timeout_s=CHECK_TIMEOUT_S,
        )
        settled = cluster.agent.queue_offsets(cluster.namesrv, HALF)
        wait_until(
            lambda: cluster.agent.queue_offsets(cluster.namesrv, HALF) == settled,
            what="no transaction is checked any more",
            timeout_s=CHECK_TIMEOUT_S,
            interval_s=5.0,
        )
        assert Counter(indexes(agent.read_topic(cluster.namesrv, name))) == Counter(expected)


def continued(
    kind: str,
    software: OfficialSoftware,
    agent: JavaAgent,
    directory: Path,
    store: Path,
    properties: dict[str, str],
) -> Any:
    """A broker of this kind over a store that another has left."""
    if kind == OFFICIAL:
        return official_cluster(
            software, agent, directory, store_directory=store, properties={**properties, **OFFICIAL_NOTES}
        )
    (directory / "data").mkdir(parents=True)
    store.rename(directory / "data" / "store")
    return thermocline_cluster(agent, directory, settings=properties)
