"""This project's SDK against a real broker, and in one consumer group with official clients.

On the official broker too (`--official-peer`): what passes there is RocketMQ's behaviour, not our own idea of it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import pytest

from tests.interop.cluster import Cluster
from tests.waiting import wait_until
from thermocline import (
    EARLIEST,
    AdminClient,
    CompressionType,
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MQError,
    OrderlyContext,
    OrderlyResult,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    ReplyTimeoutError,
    SendStatus,
    UnavailableError,
    select_by_hash,
)
from thermocline.client.message_queue import MessageQueue

pytestmark = pytest.mark.java

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
TIMEOUT_MS = 15_000
_numbers = itertools.count(1)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics and groups that no other test uses."""
    return f"Sdk{next(_numbers)}x{request.node.originalname[5:35]}"


def make_topic(cluster: Cluster, topic: str, *, queue_nums: int = 4) -> str:
    with AdminClient(namesrv=cluster.tools_namesrv, request_timeout_ms=TIMEOUT_MS) as admin:
        admin.create_topic(topic, queue_nums=queue_nums)
        wait_until(lambda: bool(_route(admin, topic)), what=f"the route of {topic}")
    return topic


def _route(admin: AdminClient, topic: str) -> Sequence[MessageQueue]:
    try:
        return admin.topic_route(topic).publish_queues
    except MQError:
        return []


def producer_of(cluster: Cluster, **options: object) -> Producer:
    return Producer(namesrv=cluster.namesrv, send_timeout_ms=TIMEOUT_MS, **options)  # type: ignore[arg-type]


class Member:
    """A push consumer of this SDK that remembers what it got."""

    def __init__(self, cluster: Cluster, group: str, topic: str, *, expression: str = "*", **options: object) -> None:
        self._lock = threading.Lock()
        self.got: list[ReceivedMessage] = []
        self.answer: Callable[[ReceivedMessage], ConsumeResult] | None = None
        self.consumer = PushConsumer(
            namesrv=cluster.namesrv,
            group=group,
            consume_from_where=FIRST,
            poll_name_server_interval_ms=1_000,
            persist_consumer_offset_interval_ms=500,
            **options,  # type: ignore[arg-type]
        )
        self.topic = topic
        self.consumer.subscribe(topic, expression)
        self.consumer.register_listener(self._listen)

    def _listen(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult | None:
        with self._lock:
            self.got += messages
        context.delay_level_when_next_consume = 1
        return None if self.answer is None else self.answer(messages[0])

    @property
    def ids(self) -> Counter[str]:
        with self._lock:
            return Counter(message.message_id for message in self.got)

    @property
    def queues(self) -> set[int]:
        return {queue.queue_id for queue in self.consumer.assigned_queues() if queue.topic == self.topic}


# -- producing ---------------------------------------------------------------------------------------------------------


def test_every_way_to_send_is_read_back_by_the_official_client(cluster: Cluster, name: str) -> None:
    topic = make_topic(cluster, name)
    with producer_of(cluster, group=f"{name}-producers", compress_type=CompressionType.LZ4) as producer:
        single = producer.send(Message(topic, b"single", tags="t", keys="k", properties={"own": "grün"}, flag=7))
        many = producer.send_many(Message(topic, b"many-%d" % i) for i in range(300))
        batch = producer.send_batch([Message(topic, b"batch-%d" % i, keys=f"b{i}") for i in range(20)])
        long = producer.send(Message(topic, b"long " * 5_000))
        futures = [producer.send_async(Message(topic, b"async-%d" % i)) for i in range(50)]
        results = [single, *many, *batch, long, *(future.result() for future in futures)]
        producer.send_one_way(Message(topic, b"one way"))
        wait_until(lambda: len(cluster.agent.read_topic(cluster.namesrv, topic)) == 373, what="the one-way message")
    assert {result.status for result in results} == {SendStatus.SEND_OK}
    read = {message.message_id: message for message in cluster.agent.read_topic(cluster.namesrv, topic)}
    for result in results:
        message = read[result.message_id]
        assert (message.queue_id, message.queue_offset) == (result.queue.queue_id, result.queue_offset)
    assert Counter(message.body for message in read.values()) == Counter(
        [b"single", b"long " * 5_000, b"one way"]
        + [b"many-%d" % i for i in range(300)]
        + [b"batch-%d" % i for i in range(20)]
        + [b"async-%d" % i for i in range(50)]
    )
    found = read[single.message_id]
    assert (found.tags, found.keys, found.flag, found.properties["own"]) == ("t", "k", 7, "grün")


def test_lingering_batches_and_automatic_topics(cluster: Cluster, name: str) -> None:
    with producer_of(cluster, auto_batch=True) as producer:
        results = producer.send_many(Message(name, b"%d" % i) for i in range(500))
    assert len({result.message_id for result in results}) == 500
    read = {message.message_id: message.body for message in cluster.agent.read_topic(cluster.namesrv, name)}
    assert [read[result.message_id] for result in results] == [b"%d" % i for i in range(500)]


def test_both_clients_choose_one_queue_for_a_key(cluster: Cluster, name: str) -> None:
    topic = make_topic(cluster, name, queue_nums=8)
    # The official producer's kind "ordered" picks queue index modulo shards; an int hashes to itself in Java.
    answers = cluster.agent.produce(
        kind="ordered",
        name=f"producer-{topic}",
        group=f"{name}-producers",
        namesrv=cluster.namesrv,
        topic=topic,
        prefix=topic,
        tags=["t"],
        shards=8,
        count=16,
    )
    with producer_of(cluster) as producer:
        for index, answer in enumerate(answers):
            ours = producer.send(Message(topic, b"x"), selector=select_by_hash, argument=index % 8)
            assert ours.queue.queue_id == answer.queue_id


# -- consuming ---------------------------------------------------------------------------------------------------------


def test_two_members_share_and_one_takes_over(cluster: Cluster, name: str) -> None:
    topic = make_topic(cluster, name)
    first, second = Member(cluster, f"{name}-group", topic), Member(cluster, f"{name}-group", topic)
    with producer_of(cluster) as producer, first.consumer:
        with second.consumer:
            wait_until(lambda: len(first.queues) == len(second.queues) == 2, what="the queues are shared")
            assert first.queues | second.queues == {0, 1, 2, 3}
            sent = {result.message_id for result in producer.send_many(Message(topic, b"x") for _ in range(200))}
            wait_until(lambda: (first.ids + second.ids).keys() == sent, what="all messages are consumed")
            assert set((first.ids + second.ids).values()) == {1}
        wait_until(lambda: first.queues == {0, 1, 2, 3}, what="one takes over")
        more = {result.message_id for result in producer.send_many(Message(topic, b"x") for _ in range(80))}
        wait_until(lambda: more <= first.ids.keys(), what="all messages are consumed by one")
    with AdminClient(namesrv=cluster.tools_namesrv, request_timeout_ms=TIMEOUT_MS) as admin:
        progress = [row for row in admin.group_progress(f"{name}-group") if row.queue.topic == topic]
    assert sum(row.consumer_offset for row in progress) == 280
    assert sum(row.lag for row in progress) == 0


def test_one_group_of_two_languages(cluster: Cluster, name: str) -> None:
    topic, group, java = make_topic(cluster, name, queue_nums=6), f"{name}-group", f"{name}-java"
    python = Member(cluster, group, topic)
    with producer_of(cluster) as producer, python.consumer:
        cluster.agent.call("start_push_consumer", name=java, namesrv=cluster.namesrv, group=group, topics={topic: "*"})
        try:
            wait_until(
                lambda: len(python.queues) == 3 and len(cluster.agent.assigned(java, topic)) == 3,
                what="both have three queues",
            )
            assert python.queues | {queue for _, queue in cluster.agent.assigned(java, topic)} == set(range(6))
            sent = {result.message_id for result in producer.send_many(Message(topic, b"x") for _ in range(300))}
            theirs: Counter[str] = Counter()

            def all_consumed() -> bool:
                messages = cluster.agent.received(java, count=0, timeout_s=0.1)
                theirs.update(message.message_id for message in messages)
                return (theirs + python.ids).keys() == sent

            wait_until(all_consumed, what="all messages are consumed")
            assert set((theirs + python.ids).values()) == {1}
            assert theirs
            assert python.ids
        finally:
            cluster.agent.call("stop_consumer", name=java)
        wait_until(lambda: len(python.queues) == 6, what="the official client's queues are taken over")


def test_tags(cluster: Cluster, name: str) -> None:
    topic = make_topic(cluster, name)
    member = Member(cluster, f"{name}-group", topic, expression="red || blue")
    with producer_of(cluster) as producer, member.consumer:
        sent = [producer.send(Message(topic, b"x", tags=tag)) for tag in ("red", "green", "blue", "") * 10]
        wanted = {result.message_id for i, result in enumerate(sent) if i % 4 in (0, 2)}
        wait_until(lambda: member.ids.keys() == wanted, what="the wanted tags arrive")


def test_failures_come_again_and_end_in_the_dead_letter_topic(cluster: Cluster, name: str) -> None:
    topic, group = make_topic(cluster, name), f"{name}-group"
    member = Member(cluster, group, topic, max_reconsume_times=1)
    member.answer = lambda message: ConsumeResult.RECONSUME_LATER
    with producer_of(cluster) as producer, member.consumer:
        sent = producer.send(Message(topic, b"bad", keys="k"))
        wait_until(lambda: member.ids[sent.message_id] == 2, what="the message comes again")
        wait_until(lambda: len(_dead(cluster, group)) == 1, what="the message is dead")
    assert [(m.topic, m.reconsume_times) for m in member.got] == [(topic, 0), (topic, 1)]
    assert _dead(cluster, group)[0].body == b"bad"


def _dead(cluster: Cluster, group: str) -> list[ReceivedMessage]:
    with AdminClient(namesrv=cluster.tools_namesrv, request_timeout_ms=TIMEOUT_MS) as admin:
        try:
            queues = admin.topic_route(f"%DLQ%{group}").subscribe_queues
        except MQError:
            return []
        return [message for queue in queues for message in admin.pull(queue, 0).messages]


def test_order_survives_failures_and_a_change_of_members(cluster: Cluster, name: str) -> None:
    topic, group = make_topic(cluster, name), f"{name}-group"
    seen: dict[int, list[int]] = defaultdict(list)
    lock = threading.Lock()

    def member() -> PushConsumer:
        failed: set[MessageQueue] = set()

        def listener(messages: Sequence[ReceivedMessage], context: OrderlyContext) -> OrderlyResult:
            if context.queue not in failed:
                failed.add(context.queue)
                return OrderlyResult.SUSPEND_CURRENT_QUEUE_A_MOMENT
            with lock:
                seen[context.queue.queue_id] += [message.queue_offset for message in messages]
            return OrderlyResult.SUCCESS

        consumer = PushConsumer(
            namesrv=cluster.namesrv,
            group=group,
            consume_from_where=FIRST,
            consume_message_batch_max_size=4,
            suspend_current_queue_ms=50,
        )
        consumer.subscribe(topic)
        consumer.register_orderly_listener(listener)
        return consumer

    def total() -> int:
        with lock:
            return sum(map(len, seen.values()))

    first, second = member(), member()
    with producer_of(cluster) as producer, first:
        with second:
            producer.send_many(Message(topic, b"%d" % i, sharding_key=str(i % 9)) for i in range(400))
            wait_until(lambda: total() == 400, what="all messages are consumed")
        producer.send_many(Message(topic, b"%d" % i, sharding_key=str(i % 9)) for i in range(400))
        wait_until(lambda: total() == 800, what="all messages are consumed by one")
    assert all(offsets == list(range(len(offsets))) for offsets in seen.values())


def test_pull_consumers_subscribe_assign_seek_and_commit(cluster: Cluster, name: str) -> None:
    topic, group = make_topic(cluster, name), f"{name}-group"
    with producer_of(cluster) as producer:
        sent = [result.message_id for result in producer.send_many(Message(topic, b"x") for _ in range(200))]
    options = {"namesrv": cluster.namesrv, "group": group, "consume_from_where": FIRST, "pull_batch_size": 32}
    got: list[str] = []
    with PullConsumer(**options) as consumer:  # type: ignore[arg-type]
        consumer.subscribe(topic)
        deadline = time.monotonic() + 60
        while len(got) < 200 and time.monotonic() < deadline:
            got += [message.message_id for message in consumer.poll(1_000)]
    assert sorted(got) == sorted(sent)
    with PullConsumer(**options) as consumer:  # type: ignore[arg-type]
        queues = consumer.fetch_message_queues(topic)
        assert [consumer.committed(queue) for queue in queues] == [50, 50, 50, 50]
        consumer.assign(queues[:1])
        wait_until(lambda: consumer.assignment() == queues[:1], what="the queue is taken up")
        consumer.seek(queues[0], 45)
        assert [message.queue_offset for message in consumer.poll(TIMEOUT_MS)] == [45, 46, 47, 48, 49]
        assert consumer.offset_for_timestamp(queues[0], 0) == 0
        consumer.seek_to_begin(queues[0])
        assert consumer.poll(TIMEOUT_MS)[0].queue_offset == 0


def test_a_reset_moves_a_running_group(cluster: Cluster, name: str) -> None:
    topic, group = make_topic(cluster, name), f"{name}-group"
    member = Member(cluster, group, topic)
    with (
        producer_of(cluster) as producer,
        AdminClient(namesrv=cluster.tools_namesrv, request_timeout_ms=TIMEOUT_MS) as admin,
        member.consumer,
    ):
        sent = {result.message_id for result in producer.send_many(Message(topic, b"x") for _ in range(40))}
        wait_until(lambda: member.ids.keys() == sent, what="all messages are consumed")
        offsets = admin.reset_offsets(group, topic, timestamp_ms=EARLIEST)
        assert set(offsets.values()) == {0}
        # A broker tells a waiting pull of a reset at the latest when the pull's time is up.
        wait_until(lambda: set(member.ids.values()) == {2}, what="all messages come again")


# -- administration ----------------------------------------------------------------------------------------------------


def test_administration_agrees_with_mqadmin(cluster: Cluster, name: str) -> None:
    topic, group = make_topic(cluster, name), f"{name}-group"
    with (
        producer_of(cluster, group=f"{name}-producers") as producer,
        AdminClient(namesrv=cluster.tools_namesrv, request_timeout_ms=TIMEOUT_MS) as admin,
    ):
        sent = producer.send(Message(topic, b"body", keys="k1 k2"))
        assert sum(one.max_offset for one in admin.topic_stats(topic)) == 1
        assert topic in admin.list_topics()
        wait_until(lambda: len(_by_key(admin, topic, "k2")) == 1, what="the key is indexed")
        assert admin.query_by_unique_key(topic, sent.message_id)[0].body == b"body"
        assert admin.view_message(sent.offset_message_id).body == b"body"
        assert admin.view_by_offset(sent.queue, sent.queue_offset).message_id == sent.message_id
        assert admin.query_by_key(topic, "nothing") == []
        wait_until(
            lambda: producer.client_id in _producer_ids(admin, f"{name}-producers"), what="the producer is announced"
        )
        admin.create_group(group)
        assert group in admin.list_groups()
        admin.update_topic(topic, read_queue_nums=6)
        assert admin.topic_config(topic)[cluster.broker_name].read_queue_nums == 6
        assert '"readQueueNums":6' in cluster.admin("topicRoute", "-t", topic)
        assert admin.broker_config(cluster.broker_name)["brokerName"] == cluster.broker_name
        assert admin.broker_runtime_info(cluster.broker_address)["brokerVersionDesc"].startswith("V5_")
        admin.put_kv("space", "key", "value")
        assert admin.list_kv("space") == {"key": "value"}
        admin.delete_kv("space", "key")
        admin.delete_group(group, clean_offsets=True)
        admin.delete_topic(topic)
        assert topic not in admin.list_topics()


def _by_key(admin: AdminClient, topic: str, key: str) -> list[ReceivedMessage]:
    try:
        return admin.query_by_key(topic, key)
    except UnavailableError:
        return []  # the index is still starting


def _producer_ids(admin: AdminClient, group: str) -> set[str]:
    try:
        return {one.client_id for one in admin.producer_connections(group)}
    except MQError:
        return set()


# -- requests and replies ----------------------------------------------------------------------------------------------


def test_a_request_of_the_sdk_is_answered_by_the_official_client(cluster: Cluster, name: str) -> None:
    topic, java = make_topic(cluster, name), f"{name}-java"
    cluster.agent.call(
        "start_replier",
        name=java,
        namesrv=cluster.namesrv,
        group=f"{name}-group",
        topics={topic: "*"},
    )
    try:
        with producer_of(cluster, group=f"{name}-askers") as producer:
            for text in (b"short", b"long " * 2_000):
                reply = producer.request(Message(topic, text), timeout_ms=60_000)
                assert reply.body == b"reply to " + text
                assert reply.properties["MSG_TYPE"] == "reply"
                assert reply.topic == f"{cluster.cluster_name}_REPLY_TOPIC"
    finally:
        cluster.agent.call("stop_consumer", name=java)


def test_a_request_of_the_official_client_is_answered_by_the_sdk(cluster: Cluster, name: str) -> None:
    topic = make_topic(cluster, name)
    with producer_of(cluster, group=f"{name}-repliers") as repliers:
        member = Member(cluster, f"{name}-group", topic)

        def answer(message: ReceivedMessage) -> ConsumeResult:
            repliers.reply(message, b"reply to " + message.body)
            return ConsumeResult.SUCCESS

        member.answer = answer
        with member.consumer:
            replies = cluster.agent.call(
                "request",
                name=f"{name}-asker",
                group=f"{name}-askers",
                namesrv=cluster.namesrv,
                topic=topic,
                prefix=topic,
                start=0,
                count=4,
                timeout_ms=30_000,
            )
            cluster.agent.call("stop_producer", name=f"{name}-asker")
    assert replies == [f"reply to {topic}-{index}" for index in range(4)]


def test_a_request_without_a_reply_ends_in_time(cluster: Cluster, name: str) -> None:
    topic = make_topic(cluster, name)
    with producer_of(cluster) as producer, pytest.raises(ReplyTimeoutError, match="is_stored=True"):
        producer.request(Message(topic, b"x"), timeout_ms=1_000)
