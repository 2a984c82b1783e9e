"""Official gRPC clients of several languages under load: each sends to one topic and consumes all of it in a group.

The programs print each acknowledged and each received message; `load` in `go_grpc/load.go` says how.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.interop.agent_process import agent_process
from tests.interop.grpc_programs import GrpcProgram
from tests.waiting import wait_until

__all__ = ["TOPIC", "GrpcLoad", "running_load"]

PREFIX = "Load"
TOPIC = f"{PREFIX}NORMAL"
PERIOD_MS = 50
"""Between two sends of a program."""
NOTE = re.compile(r"(?P<what>ready|sent|got|stopped) (?P<time_ms>\d+) (?P<body>\S*)$")


class LoadClient:
    """One program. `sent` and `got`: times (ms) and bodies, in the order of the notes."""

    def __init__(self, process: subprocess.Popen[bytes], *, has_all_endpoints: bool) -> None:
        self.has_all_endpoints = has_all_endpoints
        self.sent: list[tuple[int, str]] = []
        self.got: list[tuple[int, str]] = []
        self.is_ready = False
        self.is_stopped = False
        self._process = process
        threading.Thread(target=self._read, daemon=True).start()

    def stop_sending(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            note = NOTE.match(line.decode())
            if note is None:
                continue  # OK at the end
            what, time_ms, body = note["what"], int(note["time_ms"]), note["body"]
            if what == "sent":
                self.sent.append((time_ms, body))
            elif what == "got":
                self.got.append((time_ms, body))
            self.is_ready |= what == "ready"
            self.is_stopped |= what == "stopped"


class GrpcLoad:
    """The programs, by language; made by `running_load`."""

    def __init__(self, clients: dict[str, LoadClient]) -> None:
        self.clients = clients

    def acknowledged(self) -> set[str]:
        """The bodies that any program got an answer for."""
        return {body for client in self.clients.values() for _, body in client.sent}

    def wait_for_progress(self, *, is_first_away: bool = False) -> None:
        """Return when each program has had a send acknowledged after now, and each has received these messages.

        `is_first_away`: the first proxy does not run, so programs that have only its address are left out.
        """
        clients = {name: each for name, each in self.clients.items() if each.has_all_endpoints or not is_first_away}
        before = {name: len(client.sent) for name, client in clients.items()}
        wait_until(
            lambda: all(len(client.sent) > before[name] for name, client in clients.items()), what="each client sends"
        )
        newest = {client.sent[-1][1] for client in clients.values()}
        for name, client in clients.items():
            wait_until(lambda got=client.got: newest <= {body for _, body in got}, what=f"{name} receives")  # type: ignore[misc]

    def finish(self, *, timeout_s: float = 120.0) -> None:
        """Stop the sending, and return when each program has received everything that was acknowledged."""
        for client in self.clients.values():
            client.stop_sending()
        for name, client in self.clients.items():
            wait_until(lambda client=client: client.is_stopped, what=f"{name} stops sending")  # type: ignore[misc]
        wanted = self.acknowledged()
        for name, client in self.clients.items():
            try:
                wait_until(
                    lambda got=client.got: wanted <= {body for _, body in got},  # type: ignore[misc]
                    what=f"{name} receives everything",
                    timeout_s=timeout_s,
                )
            except AssertionError as error:
                missing = sorted(wanted - {body for _, body in client.got})
                raise AssertionError(f"{error}; it misses {len(missing)} of {len(wanted)}: {missing[:20]}") from error

    def repeated(self) -> dict[str, int]:
        """How many receipts of each program were not the first one of their message."""
        return {
            name: sum(count - 1 for count in Counter(body for _, body in client.got).values())
            for name, client in self.clients.items()
        }

    def longest_pauses_ms(self, start_ms: int, end_ms: int | None = None) -> dict[str, int]:
        """The longest time between two receipts of each program from `start_ms` on, and before `end_ms`."""

        def is_between(time_ms: int) -> bool:
            return start_ms <= time_ms and (end_ms is None or time_ms < end_ms)

        return {
            name: max(
                later - earlier
                for earlier, later in itertools.pairwise(time_ms for time_ms, _ in client.got if is_between(time_ms))
            )
            for name, client in self.clients.items()
        }


@contextlib.contextmanager
def running_load(programs: Sequence[GrpcProgram], endpoints: Sequence[str], directory: Path) -> Iterator[GrpcLoad]:
    """Start the programs against proxies; all of them send and consume when this returns.

    One that takes no list of addresses gets the first.
    """
    with contextlib.ExitStack() as stack:
        clients = {}
        for program in programs:
            home = directory / program.language
            home.mkdir(parents=True)
            endpoint = ";".join(endpoints) if program.takes_list else endpoints[0]
            process = stack.enter_context(
                agent_process(
                    [*program.words, endpoint, PREFIX, "load", str(PERIOD_MS), "plain"],
                    home,
                    log_path=home / "errors.log",
                    environment={**program.environment, "HOME": str(home)},
                )
            )
            clients[program.language] = LoadClient(process, has_all_endpoints=program.takes_list)
        for name, client in clients.items():
            wait_until(lambda client=client: client.is_ready, what=f"{name} starts")  # type: ignore[misc]
        load = GrpcLoad(clients)
        load.wait_for_progress()
        yield load
