"""The demo's producers."""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from cluster import DemoCluster
from dataset import FLIGHT_COUNT, Dataset, Row
from failures import MasterKiller, Timeline, send_through_failures
from followers import FLIGHTS
from replica_set import ReplicaSet
from rich.console import Console

from thermocline import Message, Producer, select_by_hash

WEATHER = "weather"
SEND_SLICE = 20_000
ReportRow = tuple[str, str]


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


def flight_streams(data: Dataset) -> list[list[Message]]:
    """The flights of each airport, numbered in their order."""
    by_origin: dict[str, list[Message]] = defaultdict(list)
    for row in data.flights():
        origin = str(row["origin"])
        by_origin[origin].append(
            Message(
                topic=FLIGHTS,
                body=_json(row),
                tags=str(row["carrier"]),
                keys=str(row["tailnum"] or ""),
                properties={"origin": origin, "number": str(len(by_origin[origin]))},
            )
        )
    return list(by_origin.values())


def send_flights(data: Dataset, producer: Producer, console: Console) -> tuple[int, float]:
    """Send the flights; returns how many, and how many seconds it took."""
    started = time.monotonic()
    sent = 0
    with console.status("sending flights ...") as status:
        streams = flight_streams(data)
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


def send_while_masters_die(data: Dataset, brokers: ReplicaSet, console: Console) -> tuple[int, float, list[ReportRow]]:
    """Send the flights; returns how many, how many seconds it took, and rows to report."""
    streams = flight_streams(data)
    with console.status("sending flights while masters are killed ..."):
        timeline = Timeline()
        with MasterKiller(brokers, timeline):
            timeline.begin()
            sent = send_through_failures(brokers, streams, timeline)
            seconds = timeline.now()
    brokers.forget_history()
    console.print(timeline.picture(brokers.numbers, columns=max(20, min(100, console.width - 18))))
    pauses = sorted(timeline.pauses())
    if not pauses:
        raise SystemExit("demo FAILED: no master was killed")
    rows = [
        ("masters killed", f"{len(pauses)}, in a set of {len(brokers.numbers)}"),
        ("until sends went on, median and longest", f"{pauses[len(pauses) // 2]:.2f} s, {pauses[-1]:.2f} s"),
        ("batches sent again", f"{timeline.unanswered}"),
    ]
    return sent, seconds, rows


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
    data: Dataset, producer: Producer, broker: DemoCluster, grpc_client: Path | None, console: Console
) -> tuple[int, int, list[ReportRow]]:
    """Send flights and weather, the weather by gRPC if there is such a client; how many of each, and rows to report.

    With a replica set, masters are killed while flights are sent.
    """
    if isinstance(broker, ReplicaSet):
        flights, flight_seconds, failure_rows = send_while_masters_die(data, broker, console)
    else:
        (flights, flight_seconds), failure_rows = send_flights(data, producer, console), []
    if grpc_client is None:
        readings, seconds = send_weather(data, producer)
        rate = (flights + readings) / (flight_seconds + seconds)
        return flights, readings, [("sent", f"{flights + readings:,} messages, {rate:,.0f}/s"), *failure_rows]
    with console.status("a gRPC client sends and receives the weather ..."), broker.proxy() as endpoint:
        counted = weather_by_grpc(data, grpc_client, endpoint)
    sent, received, repeated = (int(counted[name]) for name in ("sent", "received", "repeated"))
    rows = [
        ("sent", f"{flights:,} messages, {flights / flight_seconds:,.0f}/s"),
        ("sent and received by gRPC", f"{sent:,} and {received:,}, {sent / counted['seconds']:,.0f}/s"),
        ("received by gRPC again", f"{repeated}"),
        *failure_rows,
    ]
    return flights, sent, rows
