"""A slave stands in for its master: what works while the master is dead, and the master's return.

Brokers and NameServer of ours as processes, or the official NameServer.
Covers `broker/assembly/stand_in.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.interop.acting_set import ACTING, QUEUES, TOPIC, ActingSet, acting_set, answer_to
from tests.interop.cluster import BROKER_NAME
from tests.interop.killable_broker import daemon, name_server
from tests.interop.replica_brokers import ReplicaBroker
from tests.interop.test_slave_metadata import ask
from tests.waiting import TIMEOUT_S, wait_until
from thermocline.client import (
    AdminClient,
    ConsumeFromWhere,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SendStatus,
)
from thermocline.localstack.loopback_port import LOOPBACK, free_port
from thermocline.remoting.bodies import LockBatchRequestBody, LockBatchResponseBody
from thermocline.remoting.bodies import MessageQueue as LockedQueue
from thermocline.remoting.request_code import RequestCode
from tooling.official_rocketmq import OfficialSoftware, official_namesrv

GROUP = "ActedGroup"
LEVEL_5_S = 2
"""The delay level of five seconds."""
DELAY_MS = 6_000


@pytest.fixture(params=["ours", pytest.param("official", marks=[pytest.mark.java, pytest.mark.full])])
def acted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ActingSet]:
    """The brokers, behind a NameServer that shows acting masters."""
    with contextlib.ExitStack() as stack:
        if request.param == "ours":
            settings = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
            namesrv = stack.enter_context(name_server(tmp_path / "namesrv", **settings))
        else:
            software: OfficialSoftware = request.getfixturevalue("official_software")
            properties = {"supportActingMaster": "true"}
            daemon = stack.enter_context(official_namesrv(software, tmp_path / "namesrv", properties=properties))
            namesrv = daemon.address
        yield stack.enter_context(acting_set(tmp_path, namesrv))


class Consumer:
    """A push consumer of the group, with what it got."""

    def __init__(self, namesrv: str) -> None:
        self.bodies: list[bytes] = []
        self._push = PushConsumer(
            group=GROUP,
            namesrv=namesrv,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            poll_name_server_interval_ms=1_000,
        )
        self._push.subscribe(TOPIC)
        self._push.register_listener(self._on_messages)

    def _on_messages(self, messages: Sequence[ReceivedMessage], context: object) -> None:
        self.bodies += [message.body for message in messages]

    def __enter__(self) -> Consumer:
        self._push.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._push.close()

    def wait_for(self, *bodies: bytes) -> None:
        wait_until(lambda: set(bodies) <= set(self.bodies), what=f"{bodies!r} are consumed")


def send(namesrv: str, body: bytes, *, queue_id: int = 0, **options: int) -> None:
    """Send to a queue of the set."""
    queue = MessageQueue(topic=TOPIC, broker_name=BROKER_NAME, queue_id=queue_id)
    with Producer(group="producers", namesrv=namesrv, send_timeout_ms=10_000) as producer:
        result = producer.send(Message(TOPIC, body, **options), queue=queue)
        assert result.status is SendStatus.SEND_OK


def lock(address: str, client_id: str) -> list[int]:
    """The queues of the set that a client gets locked at a broker."""
    queues = [LockedQueue(topic=TOPIC, broker_name=BROKER_NAME, queue_id=number) for number in range(QUEUES)]
    body = LockBatchRequestBody(consumer_group=GROUP, client_id=client_id, mq_set=queues).encode()
    answer = asyncio.run(ask(address, RequestCode.LOCK_BATCH_MQ, body=body))
    return sorted(queue.queue_id for queue in LockBatchResponseBody.decode(answer.body).lock_ok_mq_set)


def test_consumption_goes_on_through_the_death_of_the_master_and_its_return(acted: ActingSet) -> None:
    namesrv = acted.namesrv
    with Consumer(namesrv) as consumer:
        send(namesrv, b"before")
        consumer.wait_for(b"before")
        wait_until(lambda: acted.committed(acted.slave, GROUP).get(0) == 1, what="the slave has the offset")
        send(namesrv, b"last", queue_id=1)
        send(namesrv, b"delayed", delay_level=LEVEL_5_S)
        send(namesrv, b"timed", delay_ms=DELAY_MS)
        acted.wait_followed()
        acted.master.kill()
        acted.wait_acting()
        consumer.wait_for(b"last", b"delayed", b"timed")
        wait_until(
            lambda: acted.committed(acted.slave, GROUP) == {0: 1, 1: 1}, what="the group has committed at the slave"
        )
        assert lock(acted.slave.address, "one") == [0, 1]
        acted.master.start()
        acted.wait_ended()
        acted.wait_followed()
        assert acted.committed(acted.master, GROUP) == {0: 1, 1: 1}
        assert b'"offsetTable":{2:1}' in answer_to(acted.master.address, RequestCode.GET_ALL_DELAY_OFFSET)
        # A client that still takes the slave for the master locks at the master.
        assert lock(acted.slave.address, "two") == [0, 1]
        assert lock(acted.master.address, "one") == []
        send(namesrv, b"after")
        send(namesrv, b"delayed after", delay_level=1)
        consumer.wait_for(b"after", b"delayed after")
        assert sorted(consumer.bodies) == sorted(set(consumer.bodies)), "nothing came twice"
    acted.wait_followed()


def test_an_offset_that_is_committed_late_at_the_slave_reaches_the_master(acted: ActingSet) -> None:
    """A consumer whose route is old commits at the slave when the master is back."""
    with AdminClient(namesrv=acted.namesrv) as admin:
        admin.create_group(GROUP)
    send(acted.namesrv, b"one")
    acted.wait_followed()
    acted.master.kill()
    acted.wait_acting()
    with PullConsumer(
        group=GROUP,
        namesrv=acted.namesrv,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        poll_name_server_interval_ms=600_000,
    ) as consumer:
        consumer.subscribe(TOPIC)
        received: set[bytes] = set()

        def has_one() -> bool:
            received.update(message.body for message in consumer.poll(timeout_ms=500))
            return b"one" in received

        wait_until(has_one, what="the message is consumed")
        acted.master.start()
        acted.wait_followed()
    assert acted.committed(acted.master, GROUP).get(0) == 1


@pytest.mark.full
def test_a_master_that_was_frozen_gets_the_offsets_of_the_slave(acted: ActingSet) -> None:
    """It is there again without having started."""
    with AdminClient(namesrv=acted.namesrv) as admin:
        admin.create_group(GROUP)
    send(acted.namesrv, b"one")
    acted.wait_followed()
    assert isinstance(acted.master, ReplicaBroker)
    acted.master.freeze()
    acted.wait_acting()
    with Consumer(acted.namesrv) as consumer:
        consumer.wait_for(b"one")
        wait_until(lambda: acted.committed(acted.slave, GROUP).get(0) == 1, what="the group has committed at the slave")
    acted.master.thaw()
    acted.wait_ended()
    acted.wait_whole()
    wait_until(lambda: acted.committed(acted.master, GROUP).get(0) == 1, what="the master has the offset")
    assert acted.committed(acted.slave, GROUP).get(0) == 1


@pytest.mark.full
def test_a_slave_that_stands_in_writes_nothing_to_the_bucket(tmp_path: Path) -> None:
    """Its master goes on to seal when it is back."""
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    settings = {"coldUrl": bucket.as_uri(), "coldSealAgeMs": "200", "coldSweepIntervalMs": "200"}

    def objects() -> set[Path]:
        return {path for path in bucket.rglob("*") if path.suffix in (".pack", ".log")}

    with (
        name_server(tmp_path / "namesrv", supportActingMaster="true") as namesrv,
        acting_set(tmp_path, namesrv, settings=settings) as acted,
    ):
        send(namesrv, b"sealed")
        wait_until(objects, what="the master has sealed")
        send(namesrv, b"delayed", delay_level=LEVEL_5_S)
        acted.wait_followed()
        acted.master.kill()
        acted.wait_acting()
        before = objects()
        with Consumer(namesrv) as consumer:
            consumer.wait_for(b"sealed", b"delayed")
            assert objects() == before
            acted.master.start()
            acted.wait_followed()
            send(namesrv, b"after")
            consumer.wait_for(b"after")
            wait_until(lambda: objects() > before, what="the master seals")


def test_a_master_that_waits_can_be_stopped(tmp_path: Path) -> None:
    """No NameServer tells it which slaves there are."""
    broker = ReplicaBroker(tmp_path, f"{LOOPBACK}:{free_port()}", "ASYNC_MASTER", **ACTING)
    process = daemon(*broker._words(), directory=tmp_path)
    process.wait_until(lambda: "no NameServer tells which slaves there are" in process.output(), timeout_s=TIMEOUT_S)
    assert process.stop() == 0
    broker.check_log()
