"""Programs that drive an official gRPC client through one scenario: Java, Go, Node and Rust.

Each is called as PROGRAM HOST:PORT PREFIX SCENARIO COUNT tls|plain. Its topics are PREFIX with a message type behind
it, its group is PREFIX-SCENARIO; it prints OK, or FAIL and why. `grpc_load.py` runs their scenario `load`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from thermocline.client import AdminClient
from thermocline.remoting.bodies import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
)

__all__ = ["SCENARIOS", "GrpcProgram", "make_places", "run_scenario"]

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


def make_places(namesrv: str, prefix: str) -> None:
    """Make the topics of a program, and the groups that are not as they are by default."""
    with AdminClient(namesrv=namesrv) as admin:
        for kind in ("NORMAL", "FIFO", "DELAY", "TRANSACTION"):
            admin.create_topic(f"{prefix}{kind}", queue_nums=4, attributes={"message.type": kind})
        listed = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next=[500, 500, 500]))
        admin.create_group(SubscriptionGroupConfig(group_name=f"{prefix}-retry", group_retry_policy=listed))
        # The Node client knows no listed delays: with them a message in order goes to the dead letters when it fails.
        doubled = GroupRetryPolicy(exponential_retry_policy=ExponentialRetryPolicy(initial=1_000), type="EXPONENTIAL")
        admin.create_group(
            SubscriptionGroupConfig(
                group_name=f"{prefix}-fifo", consume_message_orderly=True, group_retry_policy=doubled
            )
        )


def run_scenario(
    program: GrpcProgram,
    endpoint: str,
    scenario: str,
    *,
    home: Path,
    security: str = "plain",
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a program to its end; AssertionError with its output unless it prints OK.

    Its topics and groups are called after its language. `home`: where the client writes its logs.
    """
    finished = subprocess.run(
        [*program.words, endpoint, program.language, scenario, str(COUNT), security],
        capture_output=True,
        timeout=TIMEOUT_S,
        encoding="utf-8",
        check=False,
        env={**os.environ, **program.environment, "HOME": str(home), **(environment or {})},
    )
    assert finished.stdout.splitlines()[-1:] == ["OK"], finished.stdout[-2_000:] + finished.stderr[-3_000:]
