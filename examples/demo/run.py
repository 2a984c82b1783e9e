"""The whole path on real data: producer -> hot tier -> bucket -> consumers -> Spark, every message checked.

Every flight that left New York City in 2013 becomes a message (JSON body, key = tail number, tag = carrier, ordered by
origin airport), every weather reading one of a second topic with another time to live. See README.md of the project.

    python examples/demo/run.py [--cold file|minio|versitygw|localstack|moto] [--grpc-client DIRECTORY]

With `--grpc-client` the weather goes through a proxy: RocketMQ's Python client for gRPC, which is in that directory,
sends it and receives it (grpc_weather.py).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from thermocline import ConsumeFromWhere, Message, Producer, PushConsumer, ReceivedMessage, select_by_hash

sys.path.insert(0, str(Path(__file__).parent))

from cluster import ColdStore, DevBroker, cold_store
from dataset import FLIGHT_COUNT, WEATHER_COUNT, Dataset, DelayRow, Row
from spark_answer import spark_delays

FLIGHTS, WEATHER = "flights", "weather"
FLIGHTS_TTL_MS, WEATHER_TTL_MS = 30 * 86_400_000, 7 * 86_400_000
MIB, GIB = 1 << 20, 1 << 30
WAIT_S = 180.0
SEND_SLICE = 20_000


class Follower:
    """A consumer group that counts what it gets and checks that each airport's flights come in order."""

    def __init__(self, group: str, name_server: str) -> None:
        self.count = 0
        self.body_bytes = 0
        self.seconds = 0.0
        self._next: dict[str, int] = defaultdict(int)
        self._failure = ""
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._consumer = PushConsumer(
            group=group,
            namesrv=name_server,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            consume_message_batch_max_size=64,
        )
        self._consumer.subscribe(FLIGHTS)
        self._consumer.register_orderly_listener(self._listen)
        self._consumer.start()

    def _listen(self, messages: list[ReceivedMessage], context: object) -> None:
        with self._lock:
            for message in messages:
                origin, number = message.properties["origin"], int(message.properties["number"])
                if number != self._next[origin]:
                    self._failure = f"{origin}: flight {number} where {self._next[origin]} was due"
                self._next[origin] = number + 1
                self.body_bytes += len(message.body)
            self.count += len(messages)
            self.seconds = time.monotonic() - self._started

    def check(self, expected: int) -> None:
        """Wait until all have come, then fail loudly unless each came once and in order."""
        wait_until(lambda: self.count >= expected or bool(self._failure), f"{expected} messages, got {self.count}")
        if self._failure or self.count != expected:
            raise SystemExit(f"demo FAILED: {self._failure or f'{self.count} messages instead of {expected}'}")

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that another process does; fails loudly when it does not come."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"demo FAILED: waited {WAIT_S:.0f} s for {what}")
        time.sleep(0.2)


def weather_by_grpc(data: Dataset, client: Path, endpoint: str) -> dict[str, float]:
    """Have the gRPC client send and receive the weather; returns what it counted."""
    readings = [
        json.dumps({"body": _json(row).decode(), "tag": str(row["origin"]), "key": str(row["time_hour"])})
        for row in data.weather()
    ]
    program = Path(__file__).parent / "grpc_weather.py"
    finished = subprocess.run(
        [sys.executable, str(program), endpoint, WEATHER, "demo-grpc"],
        input="\n".join(readings),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(client)},
    )
    if finished.returncode != 0:
        raise SystemExit(f"demo FAILED: the gRPC client ended with {finished.returncode}: {finished.stderr[-2_000:]}")
    counted: dict[str, float] = json.loads(finished.stdout)
    if counted["received"] != len(readings):
        raise SystemExit(f"demo FAILED: the gRPC client received {counted['received']} of {len(readings)} readings")
    return counted


def _json(row: Row) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode()


def send_flights(data: Dataset, producer: Producer, console: Console) -> tuple[int, float]:
    """Send the flights; returns how many, and how many seconds it took."""
    started = time.monotonic()
    numbers: dict[str, int] = defaultdict(int)

    def flight_messages() -> list[list[Message]]:
        by_origin: dict[str, list[Message]] = defaultdict(list)
        for row in data.flights():
            origin = str(row["origin"])
            number = numbers[origin]
            numbers[origin] += 1
            by_origin[origin].append(
                Message(
                    topic=FLIGHTS,
                    body=_json(row),
                    tags=str(row["carrier"]),
                    keys=str(row["tailnum"] or ""),
                    properties={"origin": origin, "number": str(number)},
                )
            )
        return list(by_origin.values())

    sent = 0
    with console.status("sending flights ...") as status:
        streams = flight_messages()
        # The airports take turns, a slice each, as three producers would; order within an airport is kept.
        for start in range(0, max(map(len, streams)), SEND_SLICE):
            for messages in streams:
                part = messages[start : start + SEND_SLICE]
                if part:
                    # One slice is one airport: one queue, in the order of the list.
                    producer.send_many(part, selector=select_by_hash, argument=part[0].properties["origin"])
                    sent += len(part)
                    status.update(f"sending flights ... {sent} of {FLIGHT_COUNT}")
    return sent, time.monotonic() - started


def send_weather(data: Dataset, producer: Producer) -> tuple[int, float]:
    """Send the weather; returns how many readings, and how many seconds it took."""
    started = time.monotonic()
    weather = [
        Message(topic=WEATHER, body=_json(row), tags=str(row["origin"]), keys=str(row["time_hour"]))
        for row in data.weather()
    ]
    producer.send_many(weather)
    return len(weather), time.monotonic() - started


def send_everything(
    data: Dataset, producer: Producer, broker: DevBroker, grpc_client: Path | None, console: Console
) -> tuple[int, int, list[tuple[str, str]]]:
    """Send flights and weather, the weather by gRPC if there is such a client; how many of each, and rows to report."""
    flights, flight_seconds = send_flights(data, producer, console)
    if grpc_client is None:
        readings, seconds = send_weather(data, producer)
        rate = (flights + readings) / (flight_seconds + seconds)
        return flights, readings, [("sent", f"{flights + readings:,} messages, {rate:,.0f}/s")]
    with console.status("a gRPC client sends and receives the weather ..."), broker.proxy() as endpoint:
        counted = weather_by_grpc(data, grpc_client, endpoint)
    sent, received, repeated = (int(counted[name]) for name in ("sent", "received", "repeated"))
    rows = [
        ("sent", f"{flights:,} messages, {flights / flight_seconds:,.0f}/s"),
        ("sent and received by gRPC", f"{sent:,} and {received:,}, {sent / counted['seconds']:,.0f}/s"),
        ("received by gRPC again", f"{repeated}"),
    ]
    return flights, sent, rows


def queue_states(broker: DevBroker, topic: str) -> list[dict[str, int]]:
    """Local and cold ranges of a topic's queues."""
    states: list[dict[str, int]] = broker.tier_status(topic)["topics"][0]["queues"]
    return states


def wait_until_cold(broker: DevBroker) -> None:
    """Seal everything, then wait until local retention has let go of what is committed."""
    broker.admin.tier_seal()

    def all_committed() -> bool:
        states = [state for topic in (FLIGHTS, WEATHER) for state in queue_states(broker, topic)]
        return all(state["coldEnd"] == state["localEnd"] for state in states if state["localEnd"])

    def history_is_gone() -> bool:
        return all(state["localMin"] > 0 for state in queue_states(broker, FLIGHTS) if state["localEnd"])

    wait_until(all_committed, "everything to be committed to the cold tier")
    wait_until(history_is_gone, "local files to be deleted")


def compare(expected: list[DelayRow], found: list[DelayRow]) -> None:
    """Fail loudly on the first row in which Spark and the files differ."""
    if len(expected) != len(found):
        raise SystemExit(f"demo FAILED: Spark found {len(found)} rows, the files hold {len(expected)}")
    for want, have in zip(expected, found, strict=True):
        same = (want.carrier, want.month, want.flights, want.delay_minutes, want.wind_readings) == (
            have.carrier,
            have.month,
            have.flights,
            have.delay_minutes,
            have.wind_readings,
        )
        # Sums of decimals depend on their order in the last digits.
        if not same or abs(want.wind_speed_sum - have.wind_speed_sum) > 1e-6 * max(1.0, want.wind_speed_sum):
            raise SystemExit(f"demo FAILED: the files say {want}, Spark says {have}")


def run(cold: ColdStore, folder: Path, data: Dataset, grpc_client: Path | None, console: Console) -> Table:
    """The demo proper; returns its report."""
    report = Table(title="From a producer to Spark, every message accounted for", show_header=False)
    broker = DevBroker(folder, cold.broker_url)
    try:
        with Producer(group="demo-producer", namesrv=broker.name_server, send_timeout_ms=60_000) as producer:
            live: Follower | None = None
            try:
                for topic, ttl_ms in ((FLIGHTS, FLIGHTS_TTL_MS), (WEATHER, WEATHER_TTL_MS)):
                    broker.admin.create_topic(topic, queue_nums=4)
                    broker.admin.set_ttl(topic, ttl_ms)
                live = Follower("demo-live", broker.name_server)
                flights, readings, sent_rows = send_everything(data, producer, broker, grpc_client, console)
                if (flights, readings) != (FLIGHT_COUNT, WEATHER_COUNT):
                    raise SystemExit(f"demo FAILED: the data set holds {flights} flights and {readings} readings")
                live.check(flights)
            finally:
                if live is not None:
                    live.close()
        with console.status("waiting until history is in the bucket and gone from local disk ..."):
            wait_until_cold(broker)
        local = sum(state["localEnd"] - state["localMin"] for state in queue_states(broker, FLIGHTS))
        with console.status("a new group starts at the first message ..."):
            newcomer = Follower("demo-newcomer", broker.name_server)
            try:
                newcomer.check(flights)
            finally:
                newcomer.close()
        served_before = broker.served_bytes()
        with console.status("Spark reads the bucket ..."):
            answer = spark_delays(cold, flights_topic=FLIGHTS, weather_topic=WEATHER)
        served_by_broker = broker.served_bytes() - served_before
        compare(data.delays(), answer.rows)
        if (answer.flights_read, answer.weather_read) != (flights, readings):
            raise SystemExit(f"demo FAILED: Spark read {answer.flights_read} flights, {answer.weather_read} readings")
        if served_by_broker:
            raise SystemExit(f"demo FAILED: {served_by_broker} message bytes passed the broker while Spark read")
        tier = broker.tier_status()
    finally:
        status = broker.stop()
    if status != 0:
        raise SystemExit(f"demo FAILED: the broker ended with status {status}")
    topics = [topic for topic in tier["topics"] if topic["segments"]]
    raw, stored = sum(topic["rawBytes"] for topic in topics), sum(topic["storedBytes"] for topic in topics)
    segments = sum(topic["segments"] for topic in topics)
    puts = tier["requests"]["put"] + tier["requests"]["create_if_absent"]
    rows = (
        *sent_rows,
        ("consumed live, in order", f"{live.count:,} flights"),
        ("local messages left", f"{local:,} of {flights:,} flights"),
        (
            "consumed by a newcomer, cold then hot",
            f"{newcomer.count:,} flights, {newcomer.body_bytes / newcomer.seconds / MIB:,.1f} MiB/s of bodies",
        ),
        ("read by Spark from the bucket", f"{answer.flights_read + answer.weather_read:,} in {answer.seconds:.1f} s"),
        ("Spark tasks for the flights", f"{answer.partitions}"),
        ("message bytes from the broker meanwhile", f"{served_by_broker}"),
        ("carrier-months compared with the files", f"{len(answer.rows)}"),
        ("segments, objects", f"{segments}, {segments * 3}"),
        ("bytes raw, stored", f"{raw:,}, {stored:,} ({raw / stored:.1f} : 1)"),
        ("PUTs (all kinds, small demo segments)", f"{puts}, {puts / (raw / GIB):,.0f} per GiB raw"),
    )
    for name, value in rows:
        report.add_row(name, value)
    return report


def main() -> None:
    """Run the demo; `demo ok` is its last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cold", choices=("file", "minio", "versitygw", "localstack", "moto"), default="file")
    parser.add_argument("--grpc-client", type=Path, metavar="DIRECTORY")
    parser.add_argument("--cache", type=Path, default=Path(".cache/demo"))
    options = parser.parse_args()
    console = Console()
    started = time.monotonic()
    data = Dataset.fetch(options.cache)
    with tempfile.TemporaryDirectory(prefix="thermocline-demo-") as name:
        folder = Path(name)
        with cold_store(options.cold, folder) as cold:
            report = run(cold, folder, data, options.grpc_client, console)
    report.add_row("cold tier", options.cold)
    report.add_row("whole demo", f"{time.monotonic() - started:.0f} s")
    console.print(report)
    print("demo ok")


if __name__ == "__main__":
    main()
