"""What does access control cost a send? A broker with it against one without, in alternation.

`python -m benchmarks.acl_sends [--rounds 7] [--seconds 3]`

Two brokers without a cold tier. Clients send frames that were made, and for the one broker signed, before: the same
message again and again, in the form of the official Java clients, with 100 bytes of body. Each shape is measured on one
and on the other in turn, the order changing each time, while the one that waits is stopped. `single` is one send at a
time on each of 32 connections, `window` has 64 under way on each of 4.

The ratio is with to without access control: messages a second, and messages a second of the broker's own CPU time,
which other work on the machine does not falsify. `denied` is a send without the right, on the broker with access
control, beside a send that is allowed there: a denial must not cost more. `forged` is one that another key has signed.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.broker_under_test import BrokerUnderTest, start_thermocline
from benchmarks.command import run_command
from benchmarks.verdicts import Verdict, show_verdicts
from thermocline import AdminClient, Credentials
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.frames import INCOMPLETE_FRAME, frame_end
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.socket_address import parse_address

ROOT = Credentials(access_key="root", secret_key="the-key-of-root")
USER = Credentials(access_key="app", secret_key="the-key-of-app")
FORGER = Credentials(access_key="app", secret_key="not-the-key-of-app")
OFF, ON, DENIED, FORGED = "off", "on", "denied", "forged"
KINDS = (OFF, ON, DENIED, FORGED)
TOPIC, OTHER_TOPIC = "BenchAcl", "BenchAclOther"
BODY = b"x" * 100
READ_BYTES_MAX = 1 << 18
PATIENT = {"brokerFastFailureEnable": "false"}
"""On a machine with much else to do, no send is refused for having waited."""
WANTED_RATIO = 0.9


@dataclass(frozen=True, slots=True)
class Shape:
    """How many connections, and how many sends under way on each."""

    connections: int
    window: int


SHAPES = {"single": Shape(32, 1), "window": Shape(4, 64)}


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run."""

    per_s: float
    per_cpu_s: float


def main() -> int:
    """Measure, print; 1 when a wanted ratio is missed."""
    options = _parse()
    runs: dict[str, dict[str, list[Run]]] = {name: {kind: [] for kind in KINDS} for name in SHAPES}
    access = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key}),
    }
    with tempfile.TemporaryDirectory(prefix="thermocline-bench-") as name, ExitStack() as stack:
        brokers = {
            kind: stack.enter_context(
                start_thermocline(Path(name) / kind, properties={**PATIENT, **properties}, cold_url="none")
            )
            for kind, properties in ((OFF, {}), (ON, access))
        }
        for kind, broker in brokers.items():
            _prepare(broker, with_users=kind == ON)
            broker.pause()
        print(f"load at the start: {os.getloadavg()}", file=sys.stderr)
        for number in range(options.rounds + 1):
            order = KINDS if number % 2 == 0 else KINDS[::-1]
            for shape_name, kind in itertools.product(SHAPES, order):
                run = _measure(brokers[OFF if kind == OFF else ON], kind, SHAPES[shape_name], options.seconds)
                if number:  # the first warms up
                    runs[shape_name][kind].append(run)
        print(f"load at the end: {os.getloadavg()}", file=sys.stderr)
    verdicts = []
    for shape_name, of_kind in runs.items():
        for kind, base in ((ON, OFF), (DENIED, ON), (FORGED, ON)):
            for what in ("per_s", "per_cpu_s"):
                ratios = [
                    getattr(mine, what) / getattr(other, what)
                    for mine, other in zip(of_kind[kind], of_kind[base], strict=True)
                ]
                print(
                    f"{shape_name:7} {kind:7} to {base:4} {what:10} {statistics.median(ratios):.3f} "
                    f"[{min(ratios):.3f}-{max(ratios):.3f}]"
                )
                if shape_name == "single" and what == "per_s" and kind == ON:
                    clause = "single sends, access control on to off"
                    verdicts.append(Verdict(clause, statistics.median(ratios), WANTED_RATIO, at_least=True))
                if what == "per_cpu_s" and kind == DENIED:
                    clause = f"{shape_name} sends, denied to allowed, a second of the broker's CPU"
                    verdicts.append(Verdict(clause, statistics.median(ratios), 1.0, at_least=True))
        for kind, found in of_kind.items():
            rate = statistics.median(run.per_s for run in found)
            print(f"{shape_name:7} {kind:7} {rate:,.0f} messages/s", file=sys.stderr)
    return show_verdicts(verdicts)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.acl_sends", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="measured runs of each shape (default 7)")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds a run (default 3)")
    return parser.parse_args()


def _prepare(broker: BrokerUnderTest, *, with_users: bool) -> None:
    with AdminClient(namesrv=broker.namesrv, credentials=ROOT if with_users else None) as admin:
        for topic in (TOPIC, OTHER_TOPIC):
            admin.create_topic(topic, queue_nums=8)
        if with_users:
            admin.create_user(USER.access_key, USER.secret_key)
            admin.set_acl("User:app", [f"Topic:{TOPIC}"], ["Pub"])


def _frames(kind: str) -> Iterator[bytes]:
    """Sends to all queues, in turn, for ever."""
    frames = []
    for queue_id in range(8):
        fields = {
            "a": "BenchProducers",
            "b": OTHER_TOPIC if kind == DENIED else TOPIC,
            "c": "TBW102",
            "d": "4",
            "e": str(queue_id),
            "f": "0",
            "g": "1700000000000",
            "h": "0",
            "i": "UNIQ_KEY\x01AC11000200002A9F4D2F3C1B2A000001\x02WAIT\x01true\x02TAGS\x01TagA\x02",
            "j": "0",
            "k": "false",
            "m": "false",
            "n": "broker-a",
        }
        command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=BODY)
        if kind != OFF:
            (FORGER if kind == FORGED else USER).sign(command)
        frames.append(command.encode())
    return itertools.cycle(frames)


def _measure(broker: BrokerUnderTest, kind: str, shape: Shape, seconds: float) -> Run:
    broker.resume()
    try:
        cpu_s, started_s = broker.cpu_s(), time.monotonic()
        is_denied = kind in (DENIED, FORGED)
        answered = asyncio.run(_send_all(broker.address, _frames(kind), shape, seconds, is_denied=is_denied))
        elapsed_s = time.monotonic() - started_s
        return Run(answered / elapsed_s, answered / (broker.cpu_s() - cpu_s))
    finally:
        broker.pause()


async def _send_all(address: str, frames: Iterator[bytes], shape: Shape, seconds: float, *, is_denied: bool) -> int:
    wanted = b'"code":16,' if is_denied else b'"code":0,'
    deadline_s = time.monotonic() + seconds

    async def send() -> int:
        reader, writer = await asyncio.open_connection(*parse_address(address))
        answered = in_flight = 0
        buffer = bytearray()
        while time.monotonic() < deadline_s or in_flight:
            if time.monotonic() < deadline_s:
                writer.write(b"".join(itertools.islice(frames, shape.window - in_flight)))
                in_flight = shape.window
            buffer += await reader.read(READ_BYTES_MAX)
            start = 0
            while (end := frame_end(buffer, start)) != INCOMPLETE_FRAME:
                if wanted not in buffer[start:end]:
                    raise SystemExit(f"an unexpected answer: {bytes(buffer[start:end])!r}")
                start, in_flight, answered = end, in_flight - 1, answered + 1
            del buffer[:start]
        writer.close()
        return answered

    return sum(await asyncio.gather(*(send() for _ in range(shape.connections))))


if __name__ == "__main__":
    run_command(main)
