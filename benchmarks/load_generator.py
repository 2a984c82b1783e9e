"""The load generator (`load_generator.c`) as a function: one shape of load in, one result out."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.compiled_c import compile_c

SOURCE = Path(__file__).resolve().parent / "load_generator.c"


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Microseconds from the write of a request, or from when it was due, to its answer."""

    mean: float
    p50: float
    p90: float
    p99: float
    p999: float
    max: float


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the generator saw in the measured seconds."""

    requests: int
    messages: int
    answer_bytes: int
    requests_per_s: float
    messages_per_s: float
    errors: int
    protocol_errors: int
    unanswered: int
    codes: dict[str, int]
    latency_us: Latency
    offsets_gapless: bool | None
    generator_cpu_s: float
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether every answer was right: no error code, nothing unanswered, no offset missing or given twice."""
        return not (self.errors or self.protocol_errors or self.unanswered or self.offsets_gapless is False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShape:
    """What to send. `rate_per_s` makes it an open loop; otherwise each connection keeps `window` requests in flight.

    `tls`: the connections are TLS and check nothing. `fill`: bodies that are all the same (constant), or each another
    (json, random). `until`: a pull reads each queue
    once, from 0 up to this offset, and ends then. `topics`: sends go to that many in turn, `topic_name(topic, number)`.
    """

    mode: str = "send"
    connections: int = 1
    window: int = 64
    body_bytes: int = 100
    batch_count: int = 32
    rate_per_s: int | None = None
    queues: int = 4
    fill: str = "constant"
    until: int | None = None
    group: str = "BenchmarkGroup"
    topics: int | None = None
    tls: bool = False

    def arguments(self) -> list[str]:
        """The generator's command line for it."""
        arguments: dict[str, Any] = {
            "mode": self.mode,
            "connections": self.connections,
            "window": self.window,
            "body": self.body_bytes,
            "batch": self.batch_count,
            "queues": self.queues,
            "fill": self.fill,
            "group": self.group,
        }
        if self.topics is not None:
            arguments["topics"] = self.topics
        if self.until is not None:
            arguments["until"] = self.until
        if self.rate_per_s is not None:
            arguments["rate"] = self.rate_per_s
        return [f"--{name}={value}" for name, value in arguments.items()] + ["--tls"] * self.tls


def topic_name(prefix: str, number: int) -> str:
    """The name of one of a shape's topics."""
    return f"{prefix}{number:05d}"


def build_load_generator() -> Path:
    """The compiled generator.

    Raises:
        ToolMissingError: There is no C compiler.
    """
    return compile_c(SOURCE)


def run_load(
    shape: LoadShape,
    *,
    address: str,
    topic: str,
    seconds: float,
    warm_s: float,
    broker_name: str = "broker-a",
    cpus: str | None = None,
    is_real_time: bool = False,
    gives_way: bool = False,
) -> LoadResult:
    """Run the shape against the broker at `address`: `warm_s` unmeasured, then `seconds` measured.

    `cpus` pins the generator (a list as `taskset -c` takes it). `is_real_time`: it runs when it wants to (SCHED_FIFO),
    whatever else is on its cores, so that what it measures is never its own wait for a core. `gives_way`: it is the
    load beside a measurement and runs only on idle processors (nice 19).
    """
    host, _, port = address.rpartition(":")
    command = [
        *(["chrt", "--fifo", "1"] if is_real_time else []),
        *(["nice", "-n", "19"] if gives_way else []),
        *(["taskset", "-c", cpus] if cpus else []),
        str(build_load_generator()),
        *("--host", host),
        *("--port", port),
        *("--topic", topic),
        *("--broker-name", broker_name),
        *("--seconds", str(seconds)),
        *("--warm", str(warm_s)),
        *shape.arguments(),
    ]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=seconds + warm_s + 60)
    return msgspec.json.decode(answer.stdout, type=LoadResult)
