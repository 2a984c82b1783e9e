"""Static topics end to end: official clients and tools, ours, and queues that move from broker to broker under them.

What is produced while queues move is consumed once, in the order of each logic queue's offsets.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cli.shell import Shell
from tests.interop.java_agent import JavaAgent, JavaAgentError, ReceivedMessage
from tests.interop.killable_broker import KillableBroker, name_server
from tests.waiting import wait_until
from thermocline.client import AdminClient, ConsumeFromWhere, Message, OrderlyContext, Producer, PushConsumer
from thermocline.client.received_message import ReceivedMessage as OwnMessage
from thermocline.remoting.errors import MQError

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("static-topics")]

QUEUES = 4
NEVER_MS = 600_000
VIRTUAL = "__syslo__global__"
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Brokers:
    namesrv: str
    a: KillableBroker
    b: KillableBroker
    agent: JavaAgent


@pytest.fixture(scope="module")
def brokers(module_folder: Path, java_agent_process: JavaAgent) -> Iterator[Brokers]:
    with ExitStack() as stack:
        namesrv = stack.enter_context(name_server(module_folder / "namesrv"))
        a, b = (
            stack.enter_context(KillableBroker(module_folder / name, namesrv, name=name))
            for name in ("broker-a", "broker-b")
        )
        with AdminClient(namesrv=namesrv) as admin:
            wait_until(lambda: len(admin.cluster_info()) == 2, what="both brokers are registered")
        yield Brokers(namesrv, a, b, java_agent_process)
        java_agent_process.call("stop_producers", namesrv=namesrv)
        a.check_log()
        b.check_log()


@pytest.fixture
def topic() -> str:
    return f"Static{next(_numbers)}"


def leaders(namesrv: str, topic: str) -> dict[int, str]:
    """Logic queue -> leader, as clients learn it."""
    with AdminClient(namesrv=namesrv) as admin:
        return {queue.queue_id: name for queue, name in admin.topic_route(topic).leaders.items()}


def wait_until_led_by(namesrv: str, topic: str, *names: str) -> None:
    wait_until(lambda: set(leaders(namesrv, topic).values()) == set(names), what=f"{topic} is led by {names}")


@dataclass
class Stream:
    """Sends numbered messages, one after another, until `stop`; a refused message is sent again."""

    send: Callable[[int], tuple[int, int]]
    """Message number -> queue id and offset; raises when it was refused."""
    refusals: type[Exception]
    places: dict[int, tuple[int, int]] = field(default_factory=dict)
    refused_count: int = 0
    last_refusal: str = ""
    is_ending: bool = False

    def run(self) -> None:
        number = len(self.places)
        while not self.is_ending:
            try:
                self.places[number] = self.send(number)
            except self.refusals as error:
                self.refused_count += 1
                self.last_refusal = str(error)
                time.sleep(0.1)
            else:
                number += 1

    def __enter__(self) -> Stream:
        self._thread = threading.Thread(target=self.run)
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.is_ending = True
        self._thread.join()

    def wait_for(self, more: int) -> None:
        """Return when so many more are stored."""
        count = len(self.places) + more
        try:
            wait_until(lambda: len(self.places) >= count, what=f"{count} messages are stored")
        except AssertionError as error:
            raise AssertionError(f"{error}; last refusal: {self.last_refusal}") from error


def check_order(received: Iterable[tuple[int, int, int]], expected: int) -> None:
    """Pass (number, queue, offset)s that are all the numbers once, each queue's in the order of its offsets."""
    numbers: list[int] = []
    by_queue: dict[int, list[int]] = defaultdict(list)
    for number, queue_id, offset in received:
        numbers.append(number)
        by_queue[queue_id].append(offset)
    assert sorted(numbers) == list(range(expected))
    assert sorted(by_queue) == list(range(QUEUES))
    for offsets in by_queue.values():
        assert offsets == sorted(set(offsets))


def as_place(message: ReceivedMessage) -> tuple[int, int, int]:
    assert message.broker_name == VIRTUAL
    return int(message.properties["index"]), message.queue_id, message.queue_offset


def start_orderly(agent: JavaAgent, namesrv: str, group: str, topic: str, *, name: str) -> None:
    """Start the member `name` of a group that reads the topic from its beginning, in order."""
    agent.call(
        "start_push_consumer",
        name=name,
        namesrv=namesrv,
        group=group,
        topics={topic: "*"},
        orderly=True,
        **{"from": "first"},
    )


def test_official_clients_go_on_while_queues_move(brokers: Brokers, topic: str, tmp_path: Path) -> None:
    agent, namesrv = brokers.agent, brokers.namesrv
    printed = agent.admin(namesrv, "updateStaticTopic", "-t", topic, "-qn", str(QUEUES), "-b", "broker-a")
    assert "The new mapping data is written" in printed
    wait_until_led_by(namesrv, topic, "broker-a")
    exported = agent.admin(namesrv, "exportMetadata", "-c", "DefaultCluster", "-f", str(tmp_path))
    assert "success" in exported, "with an official broker the tool fails here on unquoted keys"
    group = f"{topic}-consumers"
    start_orderly(agent, namesrv, group, topic, name=group)

    def send(number: int, name: str = topic, poll_namesrv_ms: int = 200) -> tuple[int, int]:
        (answer,) = agent.produce(
            kind="sync",
            start=number,
            count=1,
            name=name,
            group=topic,
            namesrv=namesrv,
            topic=topic,
            prefix=topic,
            poll_namesrv_ms=poll_namesrv_ms,
        )
        return answer.queue_id, answer.queue_offset

    def send_by_old_route(number: int) -> tuple[int, int]:
        return send(number, name=f"{topic}-old-route", poll_namesrv_ms=NEVER_MS)

    with Stream(send, JavaAgentError, {0: send_by_old_route(0)}) as stream:
        stream.wait_for(40)
        with AdminClient(namesrv=namesrv) as admin:
            admin.apply_static_plan(admin.plan_static_move(topic, brokers=["broker-b"]))
        with pytest.raises(JavaAgentError):
            send_by_old_route(len(stream.places))
        stream.wait_for(40)
    wait_until_led_by(namesrv, topic, "broker-b")
    printed = agent.admin(namesrv, "remappingStaticTopic", "-t", topic, "-b", "broker-a,broker-b")
    assert "mapping data is written" in printed
    wait_until_led_by(namesrv, topic, "broker-a", "broker-b")
    last = len(stream.places)

    def is_taken(number: int) -> bool:
        try:
            stream.places[number] = send(number)
        except JavaAgentError:
            return False
        return True

    for number in range(last, last + 40):
        wait_until(lambda number=number: is_taken(number), what="the message is stored")  # type: ignore[misc]
    received = agent.received(group, count=last + 40)
    received += agent.stop_consumer(group)
    assert all(offset >= 10_000 for _, offset in list(stream.places.values())[-40:])
    check_order(map(as_place, received), last + 40)

    # The group's offsets were committed, wherever the queues were: another member has nothing to do.
    again = f"{group}-again"
    start_orderly(agent, namesrv, group, topic, name=again)
    wait_until(lambda: len(agent.assigned(again, topic)) == QUEUES, what="the second member has all queues")
    assert agent.received(again, count=1, timeout_s=5) == []
    assert agent.stop_consumer(again) == []
    assert {as_place(message)[0] for message in agent.read_topic(namesrv, topic)} == set(range(last + 40))


def test_a_crash_keeps_mapping_messages_and_offsets(brokers: Brokers, topic: str) -> None:
    agent, namesrv = brokers.agent, brokers.namesrv
    agent.admin(namesrv, "updateStaticTopic", "-t", topic, "-qn", str(QUEUES), "-b", "broker-b")
    wait_until_led_by(namesrv, topic, "broker-b")
    with AdminClient(namesrv=namesrv) as admin, Producer(namesrv=namesrv, group=topic) as producer:
        for number in range(20):
            producer.send(Message(topic, b"%d" % number))
        moved = admin.apply_static_plan(admin.plan_static_move(topic, brokers=["broker-a"]))
        assert moved == dict.fromkeys(range(QUEUES), 10_000)
        wait_until_led_by(namesrv, topic, "broker-a")
        before = admin.static_topic(topic)
        for broker in (brokers.a, brokers.b):
            broker.kill()
            broker.start()
        wait_until(lambda: len(admin.cluster_info()) == 2, what="both brokers are registered")
        wait_until_led_by(namesrv, topic, "broker-a")
        assert admin.static_topic(topic) == before
    with Producer(namesrv=namesrv, group=topic) as producer:
        results = [producer.send(Message(topic, b"%d" % number)) for number in range(20, 40)]
    assert {result.queue_offset for result in results} == {10_000, 10_001, 10_002, 10_003, 10_004}
    bodies = [message.body for message in agent.read_topic(namesrv, topic)]
    assert sorted(map(int, bodies)) == list(range(40))


def test_our_clients_go_on_while_queues_move(
    brokers: Brokers, topic: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shell = Shell(capsys, brokers.namesrv)
    shell("topic", "static", "create", topic, "--queues", "2", "--broker", "broker-a")
    grown = tmp_path / "grown.plan"
    more = ("--queues", str(QUEUES), "--broker", "broker-a")
    shell("topic", "static", "grow", topic, *more, "--plan-only", "--plan", str(grown))
    assert leaders(brokers.namesrv, topic).keys() == {0, 1}
    shell("topic", "static", "apply", str(grown))
    wait_until(lambda: leaders(brokers.namesrv, topic).keys() == set(range(QUEUES)), what="there are four queues")
    received: list[tuple[int, int, int]] = []

    def listen(messages: Sequence[OwnMessage], context: OrderlyContext) -> None:
        received.extend((int(one.body), one.queue.queue_id, one.queue_offset) for one in messages)

    group = f"{topic}-consumers"
    consumer = PushConsumer(
        namesrv=brokers.namesrv,
        group=group,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        poll_name_server_interval_ms=1_000,
    )
    consumer.subscribe(topic)
    consumer.register_orderly_listener(listen)
    with Producer(namesrv=brokers.namesrv, group=topic) as producer, consumer:

        def send(number: int) -> tuple[int, int]:
            result = producer.send(Message(topic, b"%d" % number))
            assert result.queue.broker_name == VIRTUAL
            return result.queue.queue_id, result.queue_offset

        with Stream(send, MQError) as stream:
            stream.wait_for(200)
            both = ("--broker", "broker-a", "--broker", "broker-b")
            assert len(shell.json("topic", "static", "remap", topic, *both)["moved"]) == 2
            stream.wait_for(200)
            shell("topic", "static", "remap", topic, "--broker", "broker-b", "--exact")
            stream.wait_for(200)
        assert stream.refused_count == 0, "the producer finds the new leader by itself"
        count = len(stream.places)
        wait_until(lambda: len(received) >= count, what="everything is consumed")
    check_order(received, count)
    rows = shell.json("topic", "static", "show", topic)
    assert {row["broker"] for row in rows if row["is_leader"]} == {"broker-b"}
    assert sorted(row["generation"] for row in rows if row["is_leader"]) == [1, 1, 1, 1]
