"""Question: what do 10 000 gRPC clients that wait cost a proxy: memory for each, and CPU time while nothing happens?

Each client has a connection and an open Telemetry stream of its own and sends a heartbeat every ten seconds, as
official clients do; 1 000 of them hold a long poll all the time. No message is sent. Figures are those of the proxy's
processes alone: proportional set size before the first client and in the last second, and CPU time meanwhile.

    python -m benchmarks.proxy_clients [--quick] [--only merged,...] [--clients 10000] [--polls 1000] [--seconds 60]

1 when a connection was closed or an answer was wrong. Two open files a client are needed (`ulimit -n`), one in the
generator and one in the proxy.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.broker_under_test import cpu_seconds, proportional_kb
from benchmarks.command import run_command
from benchmarks.grpc_load import CLIENTS, GrpcLoadResult, GrpcLoadShape, finish_grpc_load, start_grpc_load
from benchmarks.markdown_table import markdown_table
from benchmarks.proxy_under_test import MERGED, SEPARATE, ProxyUnderTest, named_deployments, software_for, start_proxy

TOPIC = "Waiting"
SETTLE_S = 2.0
LAST_S = 1.0
HEARTBEAT_S = 10.0
POLL_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What the clients of one proxy cost it. `cpu_share`: of one core, while all are connected."""

    result: GrpcLoadResult
    clients: int
    before_mb: float
    after_mb: float
    cpu_share: float

    @property
    def kb_per_client(self) -> float:
        """Memory that each client takes."""
        return (self.after_mb - self.before_mb) * 1000 / self.clients

    @property
    def is_right(self) -> bool:
        """Whether every client was there to the end, and no answer was wrong."""
        return not (self.result.errors or self.result.closed) and self.result.open == self.clients


def main(arguments: list[str] | None = None) -> int:
    """Measure one deployment after the other, and print."""
    options = _parse(arguments)
    software = software_for(options.only)
    found: dict[str, Waiting] = {}
    with tempfile.TemporaryDirectory(prefix="thermocline-bench-", dir=options.directory) as directory:
        for name in options.only:
            with start_proxy(name, Path(directory) / name.replace(" ", "-"), software=software) as proxy:
                found[name] = measure(proxy, clients=options.clients, polls=options.polls, seconds=options.seconds)
    head = [
        "deployment",
        "clients",
        "long polls",
        "KB a client",
        "MB before",
        "MB after",
        "cores, idle",
        "polls answered",
    ]
    rows = [
        [
            name,
            f"{each.result.open:,} of {each.clients:,}",
            f"{options.polls:,}",
            f"{each.kb_per_client:.1f}",
            f"{each.before_mb:.0f}",
            f"{each.after_mb:.0f}",
            f"{each.cpu_share:.2f}",
            f"{each.result.empty:,}",
        ]
        for name, each in found.items()
    ]
    print(markdown_table(head, rows))
    wrong = [f"{name}: {each.result}" for name, each in found.items() if not each.is_right]
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.proxy_clients", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--only", default=f"{MERGED},{SEPARATE}", help="deployments, separated by commas")
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--polls", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="measured seconds (default 60)")
    parser.add_argument("--quick", action="store_true", help="a few clients for a short time: does it work at all?")
    parser.add_argument("--directory", type=Path, help="where stores are written (default: the temporary directory)")
    options = parser.parse_args(arguments)
    options.only = named_deployments(parser, options.only)
    if options.quick:
        options.clients, options.polls, options.seconds = 200, 50, 5.0
    return options


def measure(proxy: ProxyUnderTest, *, clients: int, polls: int, seconds: float, poll_s: float = POLL_S) -> Waiting:
    """Let so many clients wait, of which so many hold a long poll."""
    shape = GrpcLoadShape(mode=CLIENTS, connections=clients, polls=polls, heartbeat_s=HEARTBEAT_S, poll_s=poll_s)
    proxy.make_topic(TOPIC)
    proxy.make_group(shape.group)
    process_ids = proxy.proxy_ids()
    before_mb = sum(map(proportional_kb, process_ids)) / 1000
    load = start_grpc_load(shape, endpoint=proxy.endpoint, topic=TOPIC, seconds=seconds)
    try:
        _wait_connected(process_ids, clients)
        time.sleep(SETTLE_S)  # for the last of them to have its settings, and its poll
        cpu_s, started_s = sum(map(cpu_seconds, process_ids)), time.monotonic()
        time.sleep(max(LAST_S, seconds - SETTLE_S - LAST_S))
        share = (sum(map(cpu_seconds, process_ids)) - cpu_s) / (time.monotonic() - started_s)
        after_mb = sum(map(proportional_kb, process_ids)) / 1000
    finally:
        result = finish_grpc_load(load, seconds=seconds)
    return Waiting(result=result, clients=clients, before_mb=before_mb, after_mb=after_mb, cpu_share=share)


def _wait_connected(process_ids: list[int], clients: int) -> None:
    """Wait until the proxy has a file open for each of them."""
    deadline = time.monotonic() + 120
    while sum(len(list(Path(f"/proc/{each}/fd").iterdir())) for each in process_ids) < clients:
        if time.monotonic() > deadline:
            raise SystemExit("the clients do not get their connections")
        time.sleep(0.1)


if __name__ == "__main__":
    run_command(main)
