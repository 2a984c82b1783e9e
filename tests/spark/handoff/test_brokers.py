"""Groups moved on two real brokers, which are killed in between, and whose members come and go. No Spark takes part."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from tests.spark.handoff.cluster import Cluster
from thermocline.cli.spark.spark_hand_off import hand_off as hand_off_command
from thermocline.client.admin.admin_client import AdminClient
from thermocline.client.consumer.options import ConsumeFromWhere
from thermocline.client.consumer.pull_consumer import PullConsumer
from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.producer import Producer
from thermocline.remoting.bodies.hand_off import HandOffBody, TopicTarget
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import (
    GroupActiveError,
    GroupHeldError,
    InvalidRequestError,
    ObjectNotFoundError,
    TopicChangedError,
)
from thermocline.remoting.header_codec import encode_header
from thermocline.remoting.private_requests import HandOffHeader, PrivateRequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.spark.access.store_options import StoreOptions
from thermocline.spark.handoff.hand_off import hand_off
from thermocline.spark.handoff.receipt import Receipt, ReceiptBroker, ReceiptQueue, write_receipt

BROKERS = ("broker-a", "broker-b")
QUEUES = 2
MESSAGES = 10
TIMEOUT_MS = 10_000


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A topic of this test with MESSAGES in every queue of both brokers."""
    name = re.sub(r"\W", "_", request.node.name)
    with AdminClient(namesrv=cluster.namesrv) as admin, Producer(namesrv=cluster.namesrv) as producer:
        admin.create_topic(name, queue_nums=QUEUES)
        for broker_name in BROKERS:
            for queue_id in range(QUEUES):
                queue = MessageQueue(topic=name, broker_name=broker_name, queue_id=queue_id)
                for number in range(MESSAGES):
                    producer.send(Message(name, b"%d" % number), queue=queue)
    return name


def receipt_of(cluster: Cluster, topic: str, *, receipt_id: str = "r", end: int = 7) -> Receipt:
    """A receipt of a load that ended at `end` in the first queue of each broker, and found nothing in the second."""
    with AdminClient(namesrv=cluster.namesrv) as admin:
        incarnations = {place.queue.broker_name: place.incarnation for place in admin.group_places("any-group", topic)}
    return Receipt(
        receipt_id=f"{topic}-{receipt_id}",
        created_ms=0,
        topics=(topic,),
        output="",
        row_count=2 * end,
        snapshot_ms=0,
        group=None,
        brokers=tuple(
            ReceiptBroker(
                broker_name=name, root=f"DefaultCluster/{name}", version=1, incarnations={topic: incarnations[name]}
            )
            for name in BROKERS
        ),
        queues=tuple(
            ReceiptQueue(topic=topic, broker_name=name, queue_id=queue_id, start_offset=start, end_offset=stop)
            for name in BROKERS
            for queue_id, start, stop in ((0, 0, end), (1, -2, -2))
        ),
        all_queues=True,
        obstacles=(),
    )


def offsets(cluster: Cluster, group: str, topic: str) -> dict[str, list[int | None]]:
    with AdminClient(namesrv=cluster.namesrv) as admin:
        found: dict[str, list[int | None]] = {}
        for place in admin.group_places(group, topic):
            found.setdefault(place.queue.broker_name, []).append(place.offset)
        return found


def ask(cluster: Cluster, broker_name: str, command: RemotingCommand) -> RemotingCommand:
    """One raw request to a broker."""

    async def call() -> RemotingCommand:
        connection = await ClientConnection.open(cluster.addresses[broker_name])
        try:
            return await connection.call(command, timeout_ms=TIMEOUT_MS)
        finally:
            connection.close()

    return asyncio.run(call())


def prepare(cluster: Cluster, receipt: Receipt, group: str, brokers: Sequence[str] = BROKERS) -> None:
    """What a driver does before it is killed."""
    for name in brokers:
        topics: list[TopicTarget] = receipt.targets(group)[name]
        body = HandOffBody(group=group, receipt_id=receipt.receipt_id, topics=topics)
        answer = ask(cluster, name, RemotingCommand.request(PrivateRequestCode.HAND_OFF_PREPARE, body=body.encode()))
        assert answer.code == 0, answer.remark


def apply(cluster: Cluster, receipt: Receipt, group: str, broker_name: str) -> RemotingCommand:
    header = encode_header(HandOffHeader(group=group, receipt_id=receipt.receipt_id))
    return ask(cluster, broker_name, RemotingCommand.request(PrivateRequestCode.HAND_OFF_APPLY, ext_fields=header))


def commit(cluster: Cluster, group: str, topic: str, broker_name: str, offset: int) -> RemotingCommand:
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": str(offset)}
    return ask(cluster, broker_name, RemotingCommand.request(15, ext_fields=fields))


DONE: dict[str, list[int | None]] = {name: [7, 0] for name in BROKERS}


@pytest.mark.parametrize("seed", [*(pytest.param(seed, marks=pytest.mark.full) for seed in (0, 2)), 1])
def test_a_broker_is_killed_between_prepare_and_apply(
    cluster: Cluster, topic: str, seed: int, case_count: Callable[..., int]
) -> None:
    random = Random(seed)
    for number in range(case_count(quick=1, soak=10)):
        group = f"killed-{seed}-{number}"
        receipt = receipt_of(cluster, topic, receipt_id=f"{seed}-{number}")
        victim = random.choice(BROKERS)
        prepare(cluster, receipt, group, random.choice([BROKERS, (victim,)]))
        was_applied = random.random() < 0.5
        if was_applied:
            assert apply(cluster, receipt, group, victim).code == 0
        cluster.brokers[victim].kill()
        cluster.brokers[victim].start()
        cluster.wait_for_tiers()
        if was_applied:
            assert commit(cluster, group, topic, victim, 9).code == 0, "its members have gone on since"
        hand_off(receipt, group=group, namesrv=cluster.namesrv)
        expected = {**DONE, victim: [9, 0]} if was_applied else DONE
        assert offsets(cluster, group, topic) == expected
        assert hand_off(receipt, group=group, namesrv=cluster.namesrv) == []
        assert offsets(cluster, group, topic) == expected


def test_an_applied_hand_off_survives_kill_nine(cluster: Cluster, topic: str) -> None:
    receipt = receipt_of(cluster, topic)
    moved = hand_off(receipt, group="durable", namesrv=cluster.namesrv)
    assert [(row.queue.broker_name, row.queue.queue_id, row.before, row.offset) for row in moved] == [
        (name, queue_id, None, offset) for name in BROKERS for queue_id, offset in ((0, 7), (1, 0))
    ]
    for name in BROKERS:
        cluster.brokers[name].kill()
    for name in BROKERS:
        cluster.brokers[name].start()
    cluster.wait_for_tiers()
    assert offsets(cluster, "durable", topic) == DONE


def test_a_driver_that_was_killed_is_repeated(cluster: Cluster, topic: str) -> None:
    receipt = receipt_of(cluster, topic)
    prepare(cluster, receipt, "driver")
    assert apply(cluster, receipt, "driver", "broker-a").code == 0
    refused = commit(cluster, "driver", topic, "broker-b", 3)
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert "being handed over" in (refused.remark or "")
    with pytest.raises(GroupHeldError):
        hand_off(replaced(receipt, "another"), group="driver", namesrv=cluster.namesrv)
    hand_off(receipt, group="driver", namesrv=cluster.namesrv)
    assert offsets(cluster, "driver", topic) == DONE


def replaced(receipt: Receipt, receipt_id: str) -> Receipt:
    """The same receipt under another id."""
    fields = {name: getattr(receipt, name) for name in receipt.__struct_fields__}
    return Receipt(**{**fields, "receipt_id": receipt_id})


def test_one_that_refuses_leaves_all_as_they_were(cluster: Cluster, topic: str) -> None:
    receipt = receipt_of(cluster, topic)
    with AdminClient(namesrv=cluster.namesrv) as admin:
        admin.delete_topic(topic, cluster="DefaultCluster")
        admin.create_topic(topic, queue_nums=QUEUES)
    with pytest.raises(TopicChangedError):
        hand_off(receipt, group="refused", namesrv=cluster.namesrv, force=True)
    assert offsets(cluster, "refused", topic) == {name: [None, None] for name in BROKERS}
    assert commit(cluster, "refused", topic, "broker-a", 0).code == 0, "no group is held"


def test_members_keep_a_group_and_go_on_where_it_was_moved(cluster: Cluster, topic: str) -> None:
    receipt = receipt_of(cluster, topic)
    options = {"group": "members", "namesrv": cluster.namesrv}
    with PullConsumer(**options) as consumer:
        consumer.subscribe(topic)
        consumer.poll(timeout_ms=100)
        with pytest.raises(GroupActiveError, match="members of the group are connected"):
            hand_off(receipt, group="members", namesrv=cluster.namesrv)
    hand_off(replaced(receipt, f"{topic}-2"), group="latecomers", namesrv=cluster.namesrv)
    # A member that comes while the group is held is let in as soon as it is not.
    late = receipt_of(cluster, topic, receipt_id="late")
    prepare(cluster, late, "late")
    with PullConsumer(
        group="late",
        namesrv=cluster.namesrv,
        heartbeat_broker_interval_ms=200,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    ) as consumer:
        consumer.subscribe(topic)
        assert consumer.poll(timeout_ms=300) == []
        hand_off(late, group="late", namesrv=cluster.namesrv)
        found: list[tuple[str, int, int]] = []
        while len(found) < 2 * (3 + MESSAGES):
            found += [
                (one.queue.broker_name, one.queue.queue_id, one.record.queue_offset)
                for one in consumer.poll(timeout_ms=500)
            ]
    assert sorted(found) == sorted(
        (name, queue_id, offset)
        for name in BROKERS
        for queue_id, start in ((0, 7), (1, 0))
        for offset in range(start, MESSAGES)
    )


def test_a_topic_on_a_broker_that_was_not_read_is_no_whole_load(cluster: Cluster, topic: str) -> None:
    whole = receipt_of(cluster, topic)
    fields = {name: getattr(whole, name) for name in whole.__struct_fields__}
    half = Receipt(**{**fields, "brokers": whole.brokers[:1], "queues": whole.queues[:2]})
    with pytest.raises(InvalidRequestError, match="a broker has the topic that was not read"):
        hand_off(half, group="half", namesrv=cluster.namesrv)
    hand_off(half, group="half", namesrv=cluster.namesrv, force=True)
    assert offsets(cluster, "half", topic) == {"broker-a": [7, 0], "broker-b": [None, None]}
    stranger = ReceiptBroker(broker_name="broker-x", root="DefaultCluster/broker-x", version=1, incarnations={})
    nothing_there = Receipt(**{**fields, "brokers": (*whole.brokers, stranger)})
    hand_off(nothing_there, group="stranger", namesrv=cluster.namesrv)
    read_there = ReceiptQueue(topic=topic, broker_name="broker-x", queue_id=0, start_offset=0, end_offset=1)
    with pytest.raises(ObjectNotFoundError, match="broker-x"):
        hand_off(
            Receipt(**{**fields, "brokers": (*whole.brokers, stranger), "queues": (*whole.queues, read_there)}),
            group="stranger-2",
            namesrv=cluster.namesrv,
        )


def test_the_command(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    receipt = receipt_of(cluster, topic)
    place = tmp_path / "orders.receipt.json"
    write_receipt(receipt, str(place), StoreOptions())
    arguments = [str(place), "--group", "by-command", "--namesrv", cluster.namesrv]
    first = CliRunner().invoke(hand_off_command, arguments, catch_exceptions=False)
    assert first.exit_code == 0
    assert first.stdout.split()[:5] == ["topic", "broker", "queue", "before", "offset"]
    assert offsets(cluster, "by-command", topic) == DONE
    second = CliRunner().invoke(hand_off_command, arguments, catch_exceptions=False)
    assert "had been handed over by this receipt before" in second.stderr
    fields = {name: getattr(receipt, name) for name in receipt.__struct_fields__}
    partial = Receipt(**{**fields, "receipt_id": "partial", "obstacles": ("it ends at a time",)})
    write_receipt(partial, str(place), StoreOptions())
    refused = CliRunner().invoke(hand_off_command, arguments, catch_exceptions=False, standalone_mode=False)
    assert refused.return_value == 1
    assert "no group can go on after this load: it ends at a time" in refused.stderr
    assert CliRunner().invoke(hand_off_command, [*arguments, "--force"], catch_exceptions=False).exit_code == 0
