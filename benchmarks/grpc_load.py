"""The load generator for gRPC (`grpc_load_generator.c`) as a function: one shape of load in, one result out."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.compiled_c import compile_c
from benchmarks.load_generator import Latency

SOURCE = Path(__file__).resolve().parent / "grpc_load_generator.c"
SEND, RECEIVE, CLIENTS = "send", "receive", "clients"
OPENING_TIMEOUT_S = 120


class GrpcLoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the generator saw in the measured seconds; `received`: messages in all of its time."""

    requests: int
    messages: int
    requests_per_s: float
    messages_per_s: float
    errors: int
    empty: int
    heartbeats: int
    received: int
    closed: int
    open: int
    unanswered: int
    codes: dict[str, int]
    latency_us: Latency
    generator_cpu_s: float
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether every answer was right, and no connection was closed."""
        return not (self.errors or self.closed or self.unanswered)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcLoadShape:
    """What to do: SEND, RECEIVE (and acknowledge) or CLIENTS, each connection with `window` requests in flight.

    `polls`: how many CLIENTS hold a long poll of `poll_s`; each sends a heartbeat every `heartbeat_s`.
    """

    mode: str = SEND
    connections: int = 4
    window: int = 16
    body_bytes: int = 1024
    batch: int = 32
    group: str = "BenchmarkGroup"
    polls: int = 0
    poll_s: float = 15.0
    heartbeat_s: float = 10.0

    def arguments(self) -> list[str]:
        """The generator's command line for it."""
        values = {
            "mode": self.mode,
            "connections": self.connections,
            "window": self.window,
            "body": self.body_bytes,
            "batch": self.batch,
            "group": self.group,
            "polls": self.polls,
            "poll-seconds": self.poll_s,
            "heartbeat": self.heartbeat_s,
        }
        return [f"--{name}={value}" for name, value in values.items()]


def start_grpc_load(
    shape: GrpcLoadShape, *, endpoint: str, topic: str, seconds: float, warm_s: float = 0.0, cpus: str | None = None
) -> subprocess.Popen[bytes]:
    """Start the generator against the proxy at `endpoint`; `finish_grpc_load` gives its result.

    Raises:
        ToolMissingError: There is no C compiler.
    """
    host, _, port = endpoint.rpartition(":")
    command = [
        *(["taskset", "-c", cpus] if cpus else []),
        str(compile_c(SOURCE)),
        *("--host", host),
        *("--port", port),
        *("--topic", topic),
        *("--seconds", str(seconds)),
        *("--warm", str(warm_s)),
        *shape.arguments(),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def finish_grpc_load(process: subprocess.Popen[bytes], *, seconds: float) -> GrpcLoadResult:
    """The result of a generator that was started for so many seconds."""
    with process:
        try:
            answer, _ = process.communicate(timeout=seconds + OPENING_TIMEOUT_S + 60)
        finally:
            process.kill()
    if process.returncode != 0:
        raise SystemExit(f"the gRPC load generator ended with status {process.returncode}")
    return msgspec.json.decode(answer, type=GrpcLoadResult)


def run_grpc_load(
    shape: GrpcLoadShape, *, endpoint: str, topic: str, seconds: float, warm_s: float = 0.0, cpus: str | None = None
) -> GrpcLoadResult:
    """Run the shape: `warm_s` unmeasured, then `seconds` measured. `cpus` pins the generator, as `taskset -c` does."""
    process = start_grpc_load(shape, endpoint=endpoint, topic=topic, seconds=seconds, warm_s=warm_s, cpus=cpus)
    return finish_grpc_load(process, seconds=seconds + warm_s)
