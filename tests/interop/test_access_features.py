"""With TLS and access control on broker and NameServer, clients work as before for a user with rights to topics and
groups: tests of other modules, each feature once, by Java clients 5.5 and our SDK.

More of them: test_access_features_full.py, test_access_features_java_4.py, test_access_features_go.py.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence

import pytest

from tests.interop import (
    test_java_client,
    test_java_consumption,
    test_java_pop,
    test_java_transactions,
    test_python_sdk,
    test_trace,
)
from tests.interop.cluster import Cluster
from tests.interop.fixtures_secured import secured_cluster
from tests.interop.java_agent import JavaAgent
from tests.interop.secured import Secured
from tests.waiting import wait_until
from thermocline.client import (
    ConsumeFromWhere,
    Credentials,
    LocalTransactionState,
    Message,
    PopConsumer,
    Producer,
    PushConsumer,
    TlsOptions,
    TransactionProducer,
)
from thermocline.client.received_message import ReceivedMessage
from thermocline.remoting.errors import MQError, UnavailableError

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("secured")]

COUNT = 12
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def java_agent_process(secured_java: JavaAgent) -> JavaAgent:
    return secured_java


@pytest.fixture(scope="module")
def cluster(secured: Secured, java_agent_process: JavaAgent) -> Iterator[Cluster]:
    yield from secured_cluster(secured, java_agent_process)


@pytest.fixture
def asking_cluster(cluster: Cluster) -> Cluster:
    return cluster


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics, groups and clients that no other test uses."""
    return f"Access{next(_numbers)}x{request.node.originalname[5:35]}"


def test_a_name_server_refuses_the_unsigned(cluster: Cluster) -> None:
    for credentials in (None, Credentials(access_key="app", secret_key="not-the-key")):
        with (
            pytest.raises(MQError) as refused,
            Producer(namesrv=cluster.namesrv, group="refused", credentials=credentials) as producer,
        ):
            producer.send(Message("TBW102", b"never stored"))
        assert "username cannot be null." in str(refused.value) or "check signature failed." in str(refused.value)


@pytest.mark.parametrize("fault", ["plain", "no authority"])
def test_a_name_server_and_clients_refuse_other_connections(cluster: Cluster, fault: str) -> None:
    """Signed, but not over TLS; over TLS, but to a server whose authority is not trusted."""
    tls = None if fault == "plain" else TlsOptions()
    with pytest.raises(UnavailableError), Producer(namesrv=cluster.namesrv, group="refused", tls=tls) as producer:
        producer.send(Message("TBW102", b"never stored"))


test_sends = test_java_client.test_every_kind_of_send_arrives_exactly_once
test_lite_pull = test_java_client.test_the_lite_pull_consumer_reads_everything
test_pop = test_java_pop.test_an_unacknowledged_message_is_redelivered_after_its_invisible_time
test_request_and_reply = test_java_consumption.test_a_request_gets_its_reply

producers = test_java_transactions.producers
consumer = test_java_transactions.consumer
test_transactions = test_java_transactions.test_committed_messages_arrive_and_others_do_not

test_sdk_members = test_python_sdk.test_two_members_share_and_one_takes_over
test_sdk_pull = test_python_sdk.test_pull_consumers_subscribe_assign_seek_and_commit
test_sdk_traces = test_trace.test_the_sdks_traces_are_read_by_the_official_tool


class Decides:
    """Commits what has an even number, asks for a check of the others, and rolls those back."""

    def __init__(self) -> None:
        self.checked = threading.Event()

    def execute_local_transaction(
        self, message: Message, transaction_id: str, argument: object
    ) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE if int(message.body) % 2 == 0 else LocalTransactionState.UNKNOWN

    def check_local_transaction(self, message: ReceivedMessage, transaction_id: str) -> LocalTransactionState:
        self.checked.set()
        return LocalTransactionState.ROLLBACK_MESSAGE


def test_sdk_transactions(cluster: Cluster, name: str) -> None:
    topic = cluster.make_topic(name, queue_count=2)
    decides = Decides()
    received: list[bytes] = []

    def listener(messages: Sequence[ReceivedMessage], context: object) -> None:
        received.extend(message.body for message in messages)

    consumer = PushConsumer(
        namesrv=cluster.namesrv,
        group=f"{name}-group",
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe(topic)
    consumer.register_listener(listener)
    producer = TransactionProducer(namesrv=cluster.namesrv, group=f"{name}-producers")
    producer.register_transaction_listener(decides)
    with producer, consumer:
        for index in range(COUNT):
            producer.send_message_in_transaction(Message(topic, b"%d" % index))
        wait_until(lambda: len(received) >= COUNT // 2, what="what is committed arrives")
        assert decides.checked.wait(60)
    assert sorted(received, key=int) == [b"%d" % index for index in range(0, COUNT, 2)]


def test_sdk_pop(cluster: Cluster, name: str) -> None:
    topic = cluster.make_topic(name, queue_count=2)
    with (
        Producer(namesrv=cluster.namesrv, group=f"{name}-producers") as producer,
        PopConsumer(
            namesrv=cluster.namesrv,
            group=f"{name}-group",
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer,
    ):
        consumer.subscribe(topic)
        producer.send_many(Message(topic, b"%d" % index) for index in range(COUNT))
        bodies: list[bytes] = []

        def pop() -> bool:
            for message in consumer.receive(await_ms=1_000):
                bodies.append(message.body)
                consumer.ack(message)
            return len(bodies) >= COUNT

        wait_until(pop, what="everything is popped")
    assert sorted(bodies, key=int) == [b"%d" % index for index in range(COUNT)]
