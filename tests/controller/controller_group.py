"""A group of controllers as processes, each with a folder of its own; they are killed, frozen and started again."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.waiting import wait_until
from thermocline.client.admin.admin_client import AdminClient
from thermocline.localstack.child_process import ChildProcess
from thermocline.remoting.bodies.replica import ControllerStatus
from thermocline.remoting.errors import MQError
from tooling.official_rocketmq import free_broker_port

READY_TIMEOUT_S = 60.0


class ControllerGroup:
    """See the module."""

    def __init__(self, directory: Path, *, size: int, settings: Mapping[str, str] | None = None) -> None:
        self._directory = directory
        self._settings = dict(settings or {})
        self.addresses = {f"n{number}": f"127.0.0.1:{port}" for number, port in enumerate(_ports(size))}
        self.processes: dict[str, ChildProcess] = {}

    @property
    def text(self) -> str:
        """The addresses as brokers and tools are given them."""
        return ";".join(self.addresses.values())

    def start(self, name: str) -> None:
        """Start a node; its folder is what it was."""
        folder = self._directory / name
        folder.mkdir(parents=True, exist_ok=True)
        peers = ";".join(f"{node}-{address}" for node, address in self.addresses.items())
        settings = [word for item in self._settings.items() for word in ("--set", "=".join(item))]
        process = ChildProcess(
            [
                *(str(Path(sys.executable).parent / "thermocline"), "controller", "--data", str(folder / "data")),
                *("--peers", peers, "--id", name, *settings),
            ],
            log_path=folder / "controller.log",
            working_directory=folder,
        )
        self.processes[name] = process
        process.wait_until(lambda: "ready controller=" in process.output(), timeout_s=READY_TIMEOUT_S)

    def kill(self, name: str) -> None:
        """End a node as `kill -9` does."""
        self.processes.pop(name).kill()

    def freeze(self, name: str) -> None:
        """Stop a node's process where it is."""
        os.kill(self.processes[name].process_id, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Let it go on."""
        os.kill(self.processes[name].process_id, signal.SIGCONT)

    def close(self) -> None:
        """End all."""
        for name in list(self.processes):
            self.thaw(name)
            self.kill(name)

    def status(self, name: str) -> ControllerStatus | None:
        """A node's state; None when it does not answer."""
        address = self.addresses[name]
        try:
            with AdminClient(namesrv=address, request_timeout_ms=1_000, connect_timeout_ms=1_000) as admin:
                return admin.controller_status(address)[address]
        except MQError:
            return None

    def leader(self, *, other_than: str = "") -> str:
        """Wait until a node serves as leader, and return it."""
        found = ""

        def leads() -> bool:
            nonlocal found
            for name in self.processes.keys() - {other_than}:
                status = self.status(name)
                if status is not None and status.is_leader:
                    found = name
            return bool(found)

        wait_until(leads, what="a controller leads", interval_s=0.05)
        return found


@contextlib.contextmanager
def controller_group(
    directory: Path, *, size: int, settings: Mapping[str, str] | None = None
) -> Iterator[ControllerGroup]:
    """A group whose nodes all run."""
    group = ControllerGroup(directory, size=size, settings=settings)
    try:
        for name in group.addresses:
            group.start(name)
        yield group
    finally:
        group.close()


def _ports(count: int) -> list[int]:
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_broker_port())
    return sorted(ports)
