"""The process that drives the official Go client for the tests; its other half is `go/main.go`.

It speaks the Java agent's protocol, so it has the same methods, as far as the Go client can do the same.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.interop.agent_process import agent_process
from tests.interop.built_programs import built_go_program
from tests.interop.cluster import BROKER_NAME
from tests.interop.java_agent import JavaAgent, ReceivedMessage

SOURCES = Path(__file__).resolve().parent / "go"


class GoAgent(JavaAgent):
    """A running agent; made by `go_agent`."""

    def pull_topic(self, namesrv: str, topic: str, *, name: str, count: int) -> list[ReceivedMessage]:
        """Read `count` messages of a topic with the pull consumer."""
        answer: list[dict[str, Any]] = self.call(
            "pull_topic", namesrv=namesrv, topic=topic, name=name, group=name, count=count, timeout_ms=60_000
        )
        return [ReceivedMessage.read(fields) for fields in answer]

    def pull_queue(
        self,
        namesrv: str,
        topic: str,
        *,
        broker_name: str = BROKER_NAME,
        queue_id: int = 0,
        offset: int = 0,
        expression: str | dict[str, str] = "*",
    ) -> list[ReceivedMessage]:
        """Read a queue from an offset to its end: what tags, or `{"sql": ...}`, mean. It must hold a message there."""
        answer: list[dict[str, Any]] = self.call(
            "pull_queue",
            namesrv=namesrv,
            topic=topic,
            name=f"{topic}-reader",
            group=f"{topic}-reader",
            broker_name=broker_name,
            queue_id=queue_id,
            offset=offset,
            expression=expression,
        )
        return [ReceivedMessage.read(fields) for fields in answer]


class GoClients(enum.Enum):
    """Which of the official clients; the value has the options of `go build`."""

    RELEASE = ()
    """The last release, 2.1.2."""
    WITH_TLS = ("-modfile=tls.mod", "-tags=tls")
    """As it is after that release, which has no TLS: the commit is in `go/tls.mod`."""


def built_agent(clients: GoClients = GoClients.RELEASE) -> Path:
    """The agent's program; built again only when its sources have changed.

    Raises:
        ToolMissingError: It has to be built, and there is no Go.
    """
    return built_go_program(SOURCES, "go-agent", clients.value)


@contextlib.contextmanager
def go_agent(
    directory: Path, *, clients: GoClients = GoClients.RELEASE, environment: Mapping[str, str] | None = None
) -> Iterator[GoAgent]:
    """Run an agent; it writes its log to `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    log_path = directory / "agent.log"
    with agent_process(
        [str(built_agent(clients))],
        directory,
        log_path=log_path,
        environment={"HOME": str(directory), **(environment or {})},
    ) as process:
        yield GoAgent(process, log_path)
