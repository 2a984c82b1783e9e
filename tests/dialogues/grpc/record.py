"""`python -m tests.dialogues.grpc.record [LANGUAGE ...]`: record dialogues of official clients with the official proxy.

Runs each scenario of each client against RocketMQ 5.5.0 through `tap.py`, and writes the facts to `recorded/`. It takes
some minutes. A client whose program is not there is left out, and its recording stays as it is.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.dialogues.grpc.derive import derive
from tests.dialogues.grpc.facts import RECORDED
from tests.interop.foreign_agent import ForeignAgent
from tests.interop.grpc_programs import (
    SCENARIOS,
    GrpcProgram,
    go_program,
    java_program,
    make_places,
    node_program,
    run_scenario,
    rust_program,
)
from tests.interop.grpc_python_agent import grpc_python_agent
from tests.waiting import wait_until
from thermocline.client import AdminClient
from thermocline.localstack import ToolMissingError
from tooling.java_libraries import OFFICIAL_ROCKETMQ_PROXY, find_jars
from tooling.official_rocketmq import OfficialSoftware, official_broker, official_namesrv, official_proxy
from tooling.pinned_wheels import ROCKETMQ_GRPC_PYTHON
from tooling.system_packages import find_java_home

TAP = Path(__file__).resolve().parent / "tap.py"
COUNT = 3
TRIES = 4
"""The Node client hangs at its start when settings come before its last route answer."""
BROKER_PROPERTIES = {
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "waitTimeMillsInSendQueue": "10000",  # a busy machine
}
PROXY_SETTINGS = {"useEndpointPortFromRequest": True, "minInvisibleTimeMillsForRecv": 1_000}


@contextmanager
def tap(wheels: Path, upstream: str, path: Path) -> Iterator[str]:
    """A tap before a server, writing to `path`; its address."""
    process = subprocess.Popen(
        [sys.executable, str(TAP), upstream, str(path)],
        env={"PYTHONPATH": str(wheels)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline().decode().split()
        assert ready[:1] == ["ready"], ready
        yield f"127.0.0.1:{ready[1]}"
    finally:
        process.kill()
        process.wait()


def python_scenarios(agent: ForeignAgent, endpoint: str) -> dict[str, Callable[[], None]]:
    """What the programs of other languages do, by the Python client's agent."""

    def clients(scenario: str, message_type: str, *kinds: str, **more: Any) -> str:
        topic = f"Python{message_type}"
        for kind in kinds:
            place = {"topics": [topic]} if kind == "producer" else {"topic": topic, "group": f"Python-{scenario}"}
            agent.call(f"start_{kind}", name=f"{scenario}-{kind}", endpoint=endpoint, **place, **more.get(kind, {}))
        return topic

    def stop(scenario: str, *kinds: str) -> None:
        for kind in kinds:
            agent.call("stop", name=f"{scenario}-{kind}")

    def simple() -> None:
        topic = clients("simple", "NORMAL", "producer", "simple")
        sent = [
            {"body": f"body {number}", "tag": "tag", "keys": ["key"], "properties": {"name": "value"}}
            for number in range(COUNT)
        ]
        agent.call("send", name="simple-producer", topic=topic, messages=sent)
        found: list[dict[str, Any]] = []
        wait_until(
            lambda: found.extend(agent.call("receive", name="simple-simple")) or len(found) == COUNT, what="messages"
        )
        agent.call("change", name="simple-simple", message_id=found[0]["message_id"], invisible_s=60)
        for message in found:
            agent.call("ack", name="simple-simple", message_id=message["message_id"])
        stop("simple", "producer", "simple")

    def pushed(scenario: str, message_type: str, messages: list[dict[str, Any]], count: int, **more: Any) -> None:
        topic = clients(scenario, message_type, "push", "producer", **more)
        agent.call("send", name=f"{scenario}-producer", topic=topic, messages=messages)
        agent.taken(f"{scenario}-push", count=count)
        stop(scenario, "push", "producer")

    def transaction() -> None:
        topic = clients("transaction", "TRANSACTION", "push", "producer", producer={"checks": True})
        for number in range(COUNT):
            agent.call(
                "send_half", name="transaction-producer", topic=topic, transaction=str(number), body=f"tx-{number}"
            )
            agent.call("end", transaction=str(number), commits=number % 2 == 0)
        agent.taken("transaction-push", count=1)
        stop("transaction", "push", "producer")

    def check() -> None:
        topic = clients("check", "TRANSACTION", "push", "producer", producer={"checks": True})
        for body in ("commit", "rollback"):
            agent.call("send_half", name="check-producer", topic=topic, transaction=body, body=body)
        agent.taken("check-push", count=1)
        wait_until(lambda: len(agent.call("checked", count=2, timeout_ms=1_000)) >= 2, what="both are checked")
        stop("check", "push", "producer")

    bodies = [{"body": f"push-{number}"} for number in range(COUNT)]
    ordered = [{"body": f"{name}-{number}", "group": name} for number in range(COUNT) for name in ("a", "b", "c")]
    failing = {"push": {"fails_below": 3}}
    return {
        "simple": simple,
        "push": lambda: pushed("push", "NORMAL", bodies, COUNT),
        "retry": lambda: pushed("retry", "NORMAL", [{"body": "retry"}], 3, **failing),
        "fifo": lambda: pushed("fifo", "FIFO", ordered, len(ordered)),
        "delay": lambda: pushed("delay", "DELAY", [{"body": "later", "delay_s": 3}], 1),
        "transaction": transaction,
        "check": check,
    }


def write(language: str, dialogues: dict[str, list[dict[str, Any]]]) -> None:
    """A file of the language: a line an exchange, each with its scenario."""
    lines = [
        json.dumps({"scenario": scenario, **exchange}, ensure_ascii=False, separators=(",", ":"))
        for scenario, exchanges in dialogues.items()
        for exchange in exchanges
    ]
    (RECORDED / f"{language}.jsonl").write_text("\n".join(lines) + "\n")
    print(f"{language}: {len(lines)} exchanges", flush=True)  # noqa: T201


def programs(directory: Path, jdk_home: Path) -> Iterator[GrpcProgram]:
    """Those that are there."""
    for find in (lambda: java_program(jdk_home, directory), go_program, node_program, rust_program):
        try:
            yield find()
        except ToolMissingError as error:
            print(error, flush=True)  # noqa: T201


@contextmanager
def official_endpoint(directory: Path) -> Iterator[tuple[str, str]]:
    """The official NameServer, broker and proxy; where the first and the last serve.

    Raises:
        ToolMissingError: Java or their jars are missing.
    """
    java_home = find_java_home(with_compiler=False)
    software = OfficialSoftware(java_home=java_home, jars=find_jars(OFFICIAL_ROCKETMQ_PROXY))
    with (
        official_namesrv(software, directory / "namesrv") as namesrv,
        official_broker(
            software,
            directory / "broker",
            namesrv_address=namesrv.address,
            store_directory=directory / "store",
            properties=BROKER_PROPERTIES,
        ),
        official_proxy(
            software, directory / "proxy", namesrv_address=namesrv.address, proxy_settings=PROXY_SETTINGS
        ) as proxy,
    ):
        with AdminClient(namesrv=namesrv.address) as admin:
            wait_until(lambda: bool(admin.cluster_info()), what="the broker registers")
        yield namesrv.address, proxy.address


def record_program(program: GrpcProgram, wheels: Path, upstream: str, directory: Path) -> None:
    """Record each scenario of a program."""
    dialogues = {}
    for scenario in SCENARIOS:
        if program.language == "Rust" and scenario in ("push", "retry"):
            continue  # it has no push consumer
        path = directory / f"{program.language}-{scenario}.jsonl"
        for attempt in range(TRIES):
            try:
                with tap(wheels, upstream, path) as endpoint:
                    run_scenario(program, endpoint, scenario, home=directory / "home", count=COUNT)
                break
            except AssertionError:
                if attempt == TRIES - 1:
                    raise
        dialogues[scenario] = derive(path)
    write(program.language, dialogues)


def record_python(wheels: Path, upstream: str, directory: Path) -> None:
    """Record each scenario of the Python client."""
    dialogues = {}
    for scenario in SCENARIOS:
        path = directory / f"Python-{scenario}.jsonl"
        with (
            tap(wheels, upstream, path) as endpoint,
            grpc_python_agent(wheels, directory / f"agent-{scenario}") as agent,
        ):
            python_scenarios(agent, endpoint)[scenario]()
        dialogues[scenario] = derive(path)
    write("Python", dialogues)


def main() -> None:
    """Record the clients that are named, or all."""
    wanted = sys.argv[1:]
    wheels = ROCKETMQ_GRPC_PYTHON.find()
    with (
        tempfile.TemporaryDirectory(prefix="grpc-dialogues-") as name,
        official_endpoint(Path(name)) as (namesrv, address),
    ):
        for program in programs(Path(name), find_java_home(with_compiler=True)):
            if not wanted or program.language in wanted:
                make_places(namesrv, program.language)
                record_program(program, wheels, address, Path(name))
        if not wanted or "Python" in wanted:
            make_places(namesrv, "Python")
            record_python(wheels, address, Path(name))


if __name__ == "__main__":
    main()
