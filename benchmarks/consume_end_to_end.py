"""Question: how many messages a second does a consumer get from end to end, from this broker and the official one?

Workload: a topic of 8 queues is filled with messages of 100 B by batches, then read by one member of a new group: the
official Java benchmark's push consumer (20 threads), or the SDK's push consumer with a listener that counts. The rate
is that between a fifth and nineteen twentieths of the messages: by then a JVM has started and queues are assigned. What
a Java consumer has got is what the broker has sent, less than 8 000 messages of which may still be in its queues.

Both brokers are measured in turn, while the one that waits is stopped.

    python -m benchmarks.consume_end_to_end [--quick] [--rounds 5] [--fill 4]
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.broker_under_test import BrokerUnderTest
from benchmarks.client_cpu import GET_COUNT
from benchmarks.command import run_command
from benchmarks.compare import PROPERTIES, parse_with_common, start_brokers, warm_broker
from benchmarks.java_clients import make_topic, start_consumer
from benchmarks.load_generator import LoadShape, build_load_generator, run_load
from benchmarks.markdown_table import markdown_table, spread
from thermocline import ConsumeFromWhere, PushConsumer
from thermocline.client import ReceivedMessage
from tooling.java_libraries import OFFICIAL_ROCKETMQ, find_jars
from tooling.official_rocketmq import OfficialSoftware
from tooling.system_packages import find_java_home

QUEUES = 8
FROM, UNTIL = 0.2, 0.95
"""Which part of the messages the rate is taken of."""
POLL_S = 0.05
TIMEOUT_S = 300.0
JAVA, SDK = "Java 5.5 push consumer", "SDK push consumer"


class Progress:
    """When which share of the messages had been consumed."""

    def __init__(self, count: int) -> None:
        self._from_count, self._until_count = int(count * FROM), int(count * UNTIL)
        self._started: tuple[float, int] | None = None
        self.rate_per_s: float | None = None
        """Known when enough has been consumed."""

    def consumed(self, count: int, now_s: float) -> None:
        """So many in all by now."""
        if self._started is None:
            if count >= self._from_count:
                self._started = now_s, count
        elif self.rate_per_s is None and count >= self._until_count:
            started_s, started_count = self._started
            self.rate_per_s = (count - started_count) / (now_s - started_s)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.consume_end_to_end", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--fill", type=float, help="seconds of batches that fill a topic (default 4)")
    options = parse_with_common(parser, arguments)
    options.fill = options.fill or (1.0 if options.quick else 4.0)
    software = OfficialSoftware(java_home=find_java_home(with_compiler=False), jars=find_jars(OFFICIAL_ROCKETMQ))
    build_load_generator()
    rates: dict[str, dict[str, list[float]]] = {JAVA: {}, SDK: {}}
    with (
        tempfile.TemporaryDirectory(prefix="thermocline-bench-", dir=options.directory) as name,
        contextlib.ExitStack() as stack,
    ):
        directory = Path(name)
        brokers = list(start_brokers(PROPERTIES["async"], stack, software, directory, options))
        for broker in brokers:
            warm_broker(broker, options)
            broker.pause()
        for number in range(options.rounds):
            for broker in brokers if number % 2 == 0 else reversed(brokers):
                for client in (JAVA, SDK):
                    place = directory / f"{broker.kind}-{number}"
                    rate = _measure(broker, client, software, place, number, fill_s=options.fill)
                    rates[client].setdefault(broker.kind, []).append(rate)
                    print(f"round {number + 1} {client}, {broker.kind}: {rate:,.0f}/s", file=sys.stderr, flush=True)
    print(table(rates))
    return 0


def _measure(
    broker: BrokerUnderTest, client: str, software: OfficialSoftware, place: Path, number: int, *, fill_s: float
) -> float:
    topic = f"Consumed{'Java' if client == JAVA else 'Sdk'}{number}"
    broker.resume()
    try:
        make_topic(broker, topic, queues=QUEUES)
        shape = LoadShape(mode="batch", connections=4, window=2, queues=QUEUES)
        filled = run_load(shape, address=broker.address, topic=topic, seconds=fill_s, warm_s=0.0)
        if not filled.is_clean:
            raise SystemExit(f"the {broker.kind} broker did not take the messages: {filled}")
        broker.wait_for_index()
        if client == JAVA:
            return _by_java(broker, software, place, topic, filled.messages)
        return _by_sdk(broker, topic, filled.messages)
    finally:
        broker.pause()


def _by_java(broker: BrokerUnderTest, software: OfficialSoftware, place: Path, topic: str, count: int) -> float:
    progress = Progress(count)

    def got_count() -> int:
        return int(broker.runtime_info()[GET_COUNT])

    before = got_count()
    with start_consumer(software, broker, place, topic=topic, group=f"{topic}-group"):
        return _wait(progress, lambda: progress.consumed(got_count() - before, time.monotonic()))


def _by_sdk(broker: BrokerUnderTest, topic: str, count: int) -> float:
    progress = Progress(count)
    lock = threading.Lock()
    consumed = 0

    def listener(messages: Sequence[ReceivedMessage], context: object) -> None:
        nonlocal consumed
        with lock:
            consumed += len(messages)
            progress.consumed(consumed, time.monotonic())

    consumer = PushConsumer(
        group=f"{topic}-group",
        namesrv=broker.namesrv,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe(topic)
    consumer.register_listener(listener)
    with consumer:
        return _wait(progress, lambda: None)


def _wait(progress: Progress, check: Callable[[], None]) -> float:
    deadline_s = time.monotonic() + TIMEOUT_S
    while progress.rate_per_s is None:
        if time.monotonic() > deadline_s:
            raise SystemExit("the messages were not consumed in time")
        time.sleep(POLL_S)
        check()
    return progress.rate_per_s


def table(rates: dict[str, dict[str, list[float]]]) -> str:
    """A line a client."""
    kinds = list(dict.fromkeys(kind for of_client in rates.values() for kind in of_client))
    rows = [
        [client, *(spread(of_client[kind], ".0f") for kind in kinds)]
        for client, of_client in rates.items()
        if of_client
    ]
    return markdown_table(["consumer", *(f"from {kind}, messages/s" for kind in kinds)], rows)


if __name__ == "__main__":
    run_command(main)
