"""Programs that drive an official gRPC client through one scenario: Java, Go, Node and Rust.

Each is called as PROGRAM HOST:PORT PREFIX SCENARIO COUNT tls|plain. Its topics are PREFIX with a message type behind
it, its group is PREFIX-SCENARIO; it prints OK, or FAIL and why. `grpc_load.py` runs their scenario `load`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.built_programs import built_go_program
from thermocline.client import AdminClient
from thermocline.remoting.bodies import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
)
from tooling.java_libraries import OFFICIAL_ROCKETMQ_GRPC, find_jars
from tooling.node_packages import ROCKETMQ_GRPC_NODE
from tooling.official_jvm import quick_jvm
from tooling.pinned_wheels import ROCKETMQ_GRPC_PYTHON
from tooling.rust_client import find_rust_client
from tooling.system_packages import find_node

__all__ = [
    "SCENARIOS",
    "GrpcProgram",
    "go_program",
    "java_program",
    "make_places",
    "make_places_by",
    "node_program",
    "python_load_program",
    "run_scenario",
    "rust_program",
]

HERE = Path(__file__).resolve().parent
SCENARIOS = ("simple", "push", "retry", "fifo", "delay", "transaction", "check")
COUNT = 10
TIMEOUT_S = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcProgram:
    """How a program is started: the words before its arguments, and what is different in its environment."""

    language: str
    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    takes_list: bool = True
    """Whether HOST:PORT may be several, with `;` between."""


def java_program(jdk_home: Path, target: Path) -> GrpcProgram:
    """`java_grpc/GrpcClients.java`, compiled into the folder `target`.

    Raises:
        ToolMissingError: The client's jars are missing.
    """
    jars = find_jars(OFFICIAL_ROCKETMQ_GRPC)
    javac = [str(jdk_home / "bin" / "javac"), "-nowarn", "-encoding", "UTF-8", "-cp", f"{jars}/*", "-d", str(target)]
    subprocess.run([*javac, str(HERE / "java_grpc" / "GrpcClients.java")], check=True, timeout=TIMEOUT_S)
    options = quick_jvm(target, heap_mb=256)
    java = str(jdk_home / "bin" / "java")
    return GrpcProgram(language="Java", words=[java, *options, "-cp", f"{target}:{jars}/*", "GrpcClients"])


def go_program() -> GrpcProgram:
    """`go_grpc/main.go`.

    Raises:
        ToolMissingError: It has to be built, and there is no Go.
    """
    return GrpcProgram(language="Go", words=[str(built_go_program(HERE / "go_grpc", "go-grpc"))])


def node_program() -> GrpcProgram:
    """`node_grpc/clients.js`.

    Raises:
        ToolMissingError: The client or Node is missing.
    """
    modules = {"NODE_PATH": str(ROCKETMQ_GRPC_NODE.find() / "node_modules")}
    words = [str(find_node()), str(HERE / "node_grpc" / "clients.js")]
    return GrpcProgram(language="Node", words=words, environment=modules, takes_list=False)


def rust_program() -> GrpcProgram:
    """`rust_grpc/src/main.rs`.

    Raises:
        ToolMissingError: It has not been built.
    """
    return GrpcProgram(language="Rust", words=[str(find_rust_client())])


def python_load_program() -> GrpcProgram:
    """`grpc_python/load.py`, which has the one scenario `load`.

    Raises:
        ToolMissingError: The client is missing.
    """
    words = [sys.executable, str(HERE / "grpc_python" / "load.py")]
    return GrpcProgram(language="Python", words=words, environment={"PYTHONPATH": str(ROCKETMQ_GRPC_PYTHON.find())})


def make_places(namesrv: str, prefix: str) -> None:
    """Make the topics of a program, and the groups that are not as they are by default."""
    with AdminClient(namesrv=namesrv) as admin:
        make_places_by(admin, prefix)


def make_places_by(admin: AdminClient, prefix: str) -> None:
    """The same by an admin client that may have keys."""
    for kind in ("NORMAL", "FIFO", "DELAY", "TRANSACTION"):
        admin.create_topic(f"{prefix}{kind}", queue_nums=4, attributes={"message.type": kind})
    listed = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next=[500, 500, 500]))
    admin.create_group(SubscriptionGroupConfig(group_name=f"{prefix}-retry", group_retry_policy=listed))
    # The Node client has no listed delays: with them a message in order goes to the dead letters when it fails.
    doubled = GroupRetryPolicy(exponential_retry_policy=ExponentialRetryPolicy(initial=1_000), type="EXPONENTIAL")
    admin.create_group(
        SubscriptionGroupConfig(group_name=f"{prefix}-fifo", consume_message_orderly=True, group_retry_policy=doubled)
    )


def run_scenario(
    program: GrpcProgram,
    endpoint: str,
    scenario: str,
    *,
    home: Path,
    security: str = "plain",
    count: int = COUNT,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a program to its end; AssertionError with its output unless it prints OK.

    Its topics and groups are called after its language. `home`: where the client writes its logs.
    """
    finished = subprocess.run(
        [*program.words, endpoint, program.language, scenario, str(count), security],
        capture_output=True,
        timeout=TIMEOUT_S,
        encoding="utf-8",
        check=False,
        env={**os.environ, **program.environment, "HOME": str(home), **(environment or {})},
    )
    assert finished.stdout.splitlines()[-1:] == ["OK"], finished.stdout[-2_000:] + finished.stderr[-3_000:]
