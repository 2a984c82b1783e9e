"""The JVM that drives official clients and mqadmin for the tests; its other half is `java/interop/Agent.java`.

There are two generations of clients, 4.9 and 5.x, whose classes have the same names: an agent has one of them. Our
sources in `java/` serve both; code that differs is in `java4/` and `java5/`.

One agent serves all tests of a worker, so that none pays a JVM start. Requests are answered one after another; what
consumers receive meanwhile waits in the agent.
"""

from __future__ import annotations

import base64
import contextlib
import enum
import hashlib
import json
import select
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.agent_process import agent_process
from thermocline.localstack.cache_directory import default_cache_directory
from thermocline.localstack.made_once import made_once
from tooling.java_libraries import OFFICIAL_ROCKETMQ, OFFICIAL_ROCKETMQ_4
from tooling.official_jvm import OPEN_MODULES, quick_jvm
from tooling.official_rocketmq import OfficialSoftware

SOURCES = Path(__file__).resolve().parent
MAIN_CLASS = "interop.Agent"
ANSWER_TIMEOUT_S = 90.0
REBALANCE_OPTIONS = tuple(f"-Drocketmq.client.rebalance.{name}=2000" for name in ("waitInterval", "lockInterval"))
"""Consumers look for their queues, and renew the locks of ordered ones, every 2 s, not every 20 s."""


class JavaClients(enum.Enum):
    """A generation of the official clients; the value is its folder of our sources."""

    V4 = "java4"
    V5 = "java5"

    @property
    def jars_name(self) -> str:
        """Of its jars, for `find_jars`."""
        return OFFICIAL_ROCKETMQ if self is JavaClients.V5 else OFFICIAL_ROCKETMQ_4


class JavaAgentError(Exception):
    """The official client failed; the message is its exception's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """A message as an official client handed it to the application."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    message_id: str
    sys_flag: int
    flag: int
    body: bytes
    tags: str | None
    keys: str | None
    properties: Mapping[str, str]
    reconsume_times: int
    born_timestamp_ms: int
    store_timestamp_ms: int

    @classmethod
    def read(cls, fields: dict[str, Any]) -> ReceivedMessage:
        """From one JSON object of the agent."""
        return cls(**{"tags": None, "keys": None, **fields, "body": base64.b64decode(fields["body"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAnswer:
    """What an official producer was answered."""

    status: str
    message_id: str
    offset_message_id: str
    broker_name: str
    queue_id: int
    queue_offset: int
    region: str
    recall_handle: str | None = None


def message_body(prefix: str, index: int, size_bytes: int = 0) -> bytes:
    """The body that the agent gives message `index`."""
    return f"{prefix}-{index}".ljust(size_bytes, ".").encode()


def compiled_classes(software: OfficialSoftware, clients: JavaClients) -> Path:
    """The directory of our compiled Java programs; compiled again only when they, or the jars, have changed."""
    sources = sorted(path for folder in ("java", clients.value) for path in (SOURCES / folder).rglob("*.java"))
    digest = hashlib.sha256(software.jars.name.encode())
    for source in sources:
        digest.update(source.read_bytes())
    target = default_cache_directory() / "java-classes" / digest.hexdigest()[:16]

    def compile_all(partial: Path) -> None:
        javac = [str(software.java_home / "bin" / "javac"), "-nowarn", "-encoding", "UTF-8"]
        compiled = subprocess.run(
            [*javac, "-cp", f"{software.jars}/*", "-d", str(partial), *map(str, sources)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert compiled.returncode == 0, compiled.stderr

    return made_once(target, compile_all, doing="compiling the Java agent")


class JavaAgent:
    """A running agent; made by `java_agent`."""

    def __init__(self, process: subprocess.Popen[bytes], log_path: Path) -> None:
        self._process = process
        self._log_path = log_path
        self._calling = threading.Lock()

    def call(self, operation: str, *, timeout_s: float = ANSWER_TIMEOUT_S, **arguments: Any) -> Any:
        """Have the agent do something and return its answer. Calls from several threads wait for one another.

        Raises:
            JavaAgentError: The official client threw.
        """
        with self._calling:
            answer = self._ask(operation, arguments, timeout_s)
        if "error" in answer:
            raise JavaAgentError(answer["error"])
        return answer.get("result")

    def _ask(self, operation: str, arguments: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        request = {"operation": operation, **{key: value for key, value in arguments.items() if value is not None}}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        deadline = time.monotonic() + timeout_s
        pieces: list[bytes] = []
        while not pieces or not pieces[-1].endswith(b"\n"):
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"the Java agent did not answer {operation} in {timeout_s} s\n{self._last_words()}"
            if select.select([process.stdout], [], [], left_s)[0]:
                piece = process.stdout.read1()  # type: ignore[attr-defined]  # a buffered reader
                assert piece, f"the Java agent ended during {operation}\n{self._last_words()}"
                pieces.append(piece)
        answer: dict[str, Any] = json.loads(b"".join(pieces))
        return answer

    def admin(self, namesrv: str, command: str, *arguments: str) -> str:
        """Run one mqadmin command and return what it printed. (It has no exit status worth reading.)"""
        return str(self.call("admin", arguments=[command, "-n", namesrv, *arguments]))

    def produce(self, *, kind: str, **arguments: Any) -> list[SendAnswer]:
        """Send messages; see `Producers.produce`. One-way sends have no answers."""
        answers = self.call("produce", kind=kind, **arguments)
        for answer in answers:
            assert answer is None or isinstance(answer, dict), answer
        return [SendAnswer(**answer) for answer in answers if answer is not None]

    def received(self, name: str, *, count: int, timeout_s: float = 60.0) -> list[ReceivedMessage]:
        """Wait until consumer `name` holds at least `count` messages that were not taken yet, and take all it holds."""
        answer = self.call(
            "received", name=name, count=count, timeout_ms=int(timeout_s * 1000), timeout_s=timeout_s + ANSWER_TIMEOUT_S
        )
        return [ReceivedMessage.read(fields) for fields in answer]

    def stop_consumer(self, name: str) -> list[ReceivedMessage]:
        """Stop consumer `name`, if it runs, and take the messages that it holds."""
        return [ReceivedMessage.read(fields) for fields in self.call("stop_consumer", name=name)]

    def assigned(self, name: str, topic: str) -> set[tuple[str, int]]:
        """The (broker name, queue id)s of `topic` that consumer `name` works on now."""
        return {(broker, queue) for broker, of_topic, queue in self.call("assigned", name=name) if of_topic == topic}

    def read_topic(
        self, namesrv: str, topic: str, *, group: str = "interop-reader", sql: str | None = None
    ) -> list[ReceivedMessage]:
        """Every message of a topic, or those that an SQL92 expression means, read by explicit offsets."""
        answer = self.call("read_topic", namesrv=namesrv, topic=topic, group=group, sql=sql)
        return [ReceivedMessage.read(fields) for fields in answer]

    def queue_offsets(self, namesrv: str, topic: str, *, timestamp_ms: int | None = None) -> list[dict[str, int]]:
        """Minimum, maximum, earliest time of every queue, and the offset found for a timestamp."""
        answer: list[dict[str, int]] = self.call(
            "queue_offsets", namesrv=namesrv, topic=topic, group="interop-reader", timestamp_ms=timestamp_ms
        )
        return answer

    def kill(self) -> None:
        """`kill -9`: all of its clients are gone at once, without unregistering."""
        self._process.kill()
        self._process.wait()

    def _last_words(self) -> str:
        return self._log_path.read_text(errors="replace")[-3_000:]


@contextlib.contextmanager
def java_agent(
    software: OfficialSoftware,
    directory: Path,
    *,
    clients: JavaClients = JavaClients.V5,
    options: Sequence[str] = (),
) -> Iterator[JavaAgent]:
    """Run an agent; its log and the clients' own logs lie in `directory`. The jars of `software` are the clients'."""
    directory.mkdir(parents=True, exist_ok=True)
    log_path = directory / "agent.log"
    java = str(software.java_home / "bin" / "java")
    class_path = f"{compiled_classes(software, clients)}:{software.jars}/*"
    # The clients read HOME-relative files and write logs below it; both stay in the test's directory.
    jvm_options = [*quick_jvm(directory, heap_mb=384), *OPEN_MODULES, *REBALANCE_OPTIONS]
    if clients is JavaClients.V4:
        jvm_options.append(_home_for_mqadmin_4(directory))
    arguments = [java, *jvm_options, *options, "-cp", class_path, MAIN_CLASS]
    with agent_process(arguments, directory, log_path=log_path) as process:
        yield JavaAgent(process, log_path)


def _home_for_mqadmin_4(directory: Path) -> str:
    """The JVM option that names it: without a logging configuration there, mqadmin 4.9 runs no command."""
    configuration = directory / "conf" / "logback_tools.xml"
    configuration.parent.mkdir(exist_ok=True)
    configuration.write_text("<configuration/>\n")
    return f"-Drocketmq.home.dir={directory}"
