"""The official Java producer where brokers fail or refuse: it avoids a dead one, and gets the reason of a refusal."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.interop.java_agent import JavaAgent, JavaAgentError, SendAnswer
from tests.interop.killable_broker import KillableBroker, name_server
from tests.waiting import wait_until
from thermocline.client import AdminClient

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("java-load-balancing")]

BUSY_TIMEOUT_S = 60.0
NEVER_MS = 600_000
_numbers = itertools.count(1)


class Brokers:
    """Brokers of one cluster, and the topic that all of them hold."""

    def __init__(self, namesrv: str, brokers: Mapping[str, KillableBroker], agent: JavaAgent, topic: str) -> None:
        self.namesrv = namesrv
        self.by_name = brokers
        self.agent = agent
        self.topic = topic

    def send(self, producer: str, *, count: int = 1, kind: str = "sync", **more: Any) -> list[SendAnswer]:
        return self.agent.produce(kind=kind, count=count, **self._where(producer), **more)

    def send_all(self, producer: str, *, count: int, **more: Any) -> list[dict[str, Any] | str]:
        """Send asynchronously; answers, and what was thrown instead."""
        answers: list[dict[str, Any] | str] = self.agent.call(
            "produce", kind="async", count=count, **self._where(producer), **more
        )
        return answers

    def send_one_by_one(self, producer: str, *, count: int, **more: Any) -> Counter[str]:
        """By the broker that took it, or "failed", how often."""
        found: Counter[str] = Counter()
        for _ in range(count):
            try:
                found[self.send(producer, **more)[0].broker_name] += 1
            except JavaAgentError:
                found["failed"] += 1
        return found

    def _where(self, producer: str) -> dict[str, Any]:
        name = f"{producer}-{self.topic}"
        return {"name": name, "group": name, "namesrv": self.namesrv, "topic": self.topic, "prefix": self.topic}


@pytest.fixture
def start(tmp_path: Path, java_agent_process: JavaAgent) -> Iterator[Any]:
    """`start(*names, **settings)` starts brokers with these settings, and makes a topic on all of them."""
    with ExitStack() as stack:
        namesrv = stack.enter_context(name_server(tmp_path / "namesrv"))

        def begin(*names: str, order: bool = False, **settings: str) -> Brokers:
            brokers = {
                name: stack.enter_context(KillableBroker(tmp_path / name, namesrv, name=name, settings=settings))
                for name in names
            }
            topic = f"Balanced{next(_numbers)}"
            with AdminClient(namesrv=namesrv) as admin:
                wait_until(lambda: len(admin.cluster_info()) == len(names), what="the brokers are registered")
                admin.create_topic(topic, queue_nums=4, order=order)
            return Brokers(namesrv, brokers, java_agent_process, topic)

        yield begin
        java_agent_process.call("stop_producers", namesrv=namesrv)


def test_a_producer_goes_round_a_broker_that_has_died(start: Any) -> None:
    """Without retries each message has one try, so that each choice of the dead broker shows."""
    brokers: Brokers = start("broker-a", "broker-b")
    once = {"retries": 0, "poll_namesrv_ms": NEVER_MS}
    for producer, avoids in (("avoiding", True), ("plain", False)):
        found = brokers.send_one_by_one(producer, count=16, send_latency_fault=avoids, **once)
        assert set(found) == {"broker-a", "broker-b"}, "both of them are used"
    brokers.by_name["broker-b"].kill()
    # The first failure is how it finds out, perhaps twice: a connection that breaks, then one that is refused.
    avoiding = brokers.send_one_by_one("avoiding", count=60)
    assert avoiding["failed"] <= 2
    assert avoiding["broker-a"] >= 58
    # And what would have happened without: it takes the brokers in turn, as its route says.
    assert brokers.send_one_by_one("plain", count=60)["failed"] >= 10
    # With the client's usual retries no send fails, whether it avoids the dead broker or not.
    retrying = brokers.send("retrying", count=60, send_latency_fault=True)
    assert {answer.broker_name for answer in retrying} == {"broker-a"}


def test_a_broker_that_may_not_be_written_is_named_and_passed_over(start: Any) -> None:
    """As in RocketMQ the broker itself refuses only topics in order; of others the route says who takes messages."""
    brokers: Brokers = start("broker-a", "broker-b", order=True)
    found = brokers.send_one_by_one("before", count=16, poll_namesrv_ms=NEVER_MS)
    assert set(found) == {"broker-a", "broker-b"}
    with AdminClient(namesrv=brokers.namesrv) as admin:
        admin.update_broker_config("broker-b", {"brokerPermission": "4"})
        assert brokers.send_one_by_one("before", count=16) == {"broker-a": 16}
        admin.update_broker_config("broker-a", {"brokerPermission": "4"})
    answers = brokers.send_all("before", count=8)
    assert all(isinstance(answer, str) for answer in answers)
    assert all("CODE: 16" in answer and "is forbidden" in answer for answer in answers if isinstance(answer, str))
    # A producer that requests the route now gets none, as no broker accepts messages.
    with pytest.raises(JavaAgentError, match="No route info of this topic"):
        brokers.send("after")


def test_a_full_queue_of_sends_answers_busy(start: Any) -> None:
    """One send may wait for the disk here; a send during that time is refused, and its message is not stored.

    On a busy machine a send is not refused because it waited too long for the broker, which is the next test's subject.
    """
    brokers: Brokers = start(
        "broker-a", flushDiskType="SYNC_FLUSH", sendThreadPoolQueueCapacity="1", waitTimeMillsInSendQueue="60000"
    )
    stored, refused = 0, []
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while not refused:
        assert time.monotonic() < deadline, "the disk was always faster than the producer"
        for answer in brokers.send_all("hasty", count=500):
            if isinstance(answer, str):
                refused.append(answer)
            else:
                assert answer["status"] == "SEND_OK"
                stored += 1
    assert all("CODE: 2" in text and "[OVERLOAD]system busy" in text for text in refused), refused[:3]
    assert len(brokers.agent.read_topic(brokers.namesrv, brokers.topic)) == stored
    # What official clients do by themselves: they try a plain send again.
    assert len(brokers.send("patient", count=20)) == 20


def test_a_broker_that_does_not_keep_up_says_so(start: Any) -> None:
    """Its process gets a tenth of the time, so sends wait for half a second before it comes to them."""
    brokers: Brokers = start("broker-a")
    brokers.send("before", count=1)
    stored, refused = 1, []
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    with slowed_down(brokers.by_name["broker-a"].process_id):
        while not refused:
            assert time.monotonic() < deadline, "no send was refused"
            for answer in brokers.send_all("hasty", count=50):
                if isinstance(answer, str):
                    refused.append(answer)
                else:
                    stored += 1
    assert all("CODE: 2" in text and "[TIMEOUT_CLEAN_QUEUE]broker busy" in text for text in refused), refused[:3]
    assert len(brokers.agent.read_topic(brokers.namesrv, brokers.topic)) == stored
    # It takes sends again with the first look that is in time; the client's retries are over in milliseconds.
    wait_until(lambda: not brokers.send_one_by_one("again", count=1)["failed"], what="the broker keeps up again")
    assert len(brokers.send("after", count=20)) == 20


@contextmanager
def slowed_down(process_id: int) -> Iterator[None]:
    """Let a process run for 50 ms of every 500 ms."""
    is_over = Event()

    def work() -> None:
        while not is_over.is_set():
            os.kill(process_id, signal.SIGSTOP)
            is_over.wait(0.45)
            os.kill(process_id, signal.SIGCONT)
            is_over.wait(0.05)

    worker = Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        is_over.set()
        worker.join()
