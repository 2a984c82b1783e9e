"""Official Java clients on a broker: a paced producer and the benchmark's consumer, each in a JVM of its own.

The producer (`java/PacedProducer.java`) does what the official benchmark's does, synchronous sends of many threads over
one client with binary headers, at a rate that is set while it runs. The consumer is the official class.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.broker_under_test import BrokerUnderTest
from thermocline import AdminClient
from thermocline.localstack.child_process import ChildProcess
from tooling.official_jvm import OPEN_MODULES
from tooling.official_rocketmq import OfficialSoftware

PRODUCER_SOURCE = Path(__file__).resolve().parent / "java" / "PacedProducer.java"
CONSUMER_CLASS = "org.apache.rocketmq.example.benchmark.Consumer"
FULL_SPEED = -1
"""The rate that means: as fast as answers come."""
RESTING = 0
JVM_OPTIONS = ("-Xms256m", "-Xmx256m", "-XX:+UseSerialGC")
START_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPair:
    """A producer and a consumer of one topic."""

    producer: ChildProcess
    consumer: ChildProcess
    rate_path: Path

    def send_at(self, rate_per_s: int) -> None:
        """Send so many messages a second within 100 ms from now on; see FULL_SPEED and RESTING."""
        partial = self.rate_path.with_suffix(".partial")
        partial.write_text(f"{rate_per_s}\n")
        partial.rename(self.rate_path)

    def failures(self) -> list[str]:
        """What the producer said of sends that failed."""
        return [line for line in self.producer.output().splitlines() if line.startswith("failed")]

    def pause(self) -> None:
        """Take both off the cores."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let both run again."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for process in (self.producer, self.consumer):
            os.killpg(process.process_id, number)


@contextlib.contextmanager
def start_clients(
    software: OfficialSoftware, broker: BrokerUnderTest, directory: Path, *, topic: str, threads: int, body_bytes: int
) -> Iterator[ClientPair]:
    """Both clients, at rest. `software` needs a JDK: the producer is compiled when it starts."""
    directory.mkdir(parents=True, exist_ok=True)
    rate_path = directory / "rate"
    rate_path.write_text(f"{RESTING}\n")
    with contextlib.ExitStack() as stack:
        consumer = stack.enter_context(
            start_consumer(software, broker, directory / "consumer", topic=topic, group="benchmark_consumer")
        )
        producer = _start(
            software,
            directory / "producer",
            stack,
            [str(PRODUCER_SOURCE), broker.namesrv, topic, str(threads), str(body_bytes), str(rate_path)],
            ready="producer started",
        )
        yield ClientPair(producer=producer, consumer=consumer, rate_path=rate_path)


@contextlib.contextmanager
def start_consumer(
    software: OfficialSoftware, broker: BrokerUnderTest, directory: Path, *, topic: str, group: str
) -> Iterator[ChildProcess]:
    """The official benchmark's consumer."""
    with contextlib.ExitStack() as stack:
        yield _start(
            software,
            directory,
            stack,
            [CONSUMER_CLASS, "-n", broker.namesrv, "-t", topic, "-g", group, "-ri", "1000"],
            ready="Consumer Started",
        )


def make_topic(broker: BrokerUnderTest, topic: str, *, queues: int) -> None:
    """Create the topic, the same on either broker."""
    with AdminClient(namesrv=broker.namesrv) as admin:
        admin.create_topic(topic, queue_nums=queues)


def _start(
    software: OfficialSoftware, directory: Path, stack: contextlib.ExitStack, arguments: list[str], *, ready: str
) -> ChildProcess:
    directory.mkdir()
    options = [f"-Duser.home={directory}", *JVM_OPTIONS, *OPEN_MODULES]
    process = ChildProcess(
        software.command(arguments[0], *arguments[1:], options=options),
        log_path=directory / "output.log",
        working_directory=directory,
    )
    stack.callback(process.kill)
    process.wait_until(lambda: ready in process.output(), timeout_s=START_TIMEOUT_S)
    return process
