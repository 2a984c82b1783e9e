"""docs/replicas.md, "A set on one machine": its commands are run as printed, on real processes, up to the kill."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.docs.command_lines import Daemon
from tests.docs.pages import DOCS, CodeBlock, code_blocks
from tests.waiting import wait_until
from thermocline.client import AdminClient, MQError
from thermocline.localstack.loopback_port import free_port
from thermocline.remoting.bodies.replica import ReplicasInfo
from tooling.official_rocketmq import free_broker_port

PAGE, SECTION, NAME = DOCS / "replicas.md", "A set on one machine", "broker-a"
TIMEOUT_S = 60.0


class Section:
    """The section's blocks with free ports in the place of those that are printed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = {
            "9876": free_port(),
            "9878": free_port(),
            "10911": free_broker_port(),
            "10931": free_broker_port(),
        }
        self.namesrv = f"127.0.0.1:{self.ports['9876']}"
        self.controllers = f"127.0.0.1:{self.ports['9878']}"
        self.daemons: list[Daemon] = []

    def blocks(self, *languages: str) -> list[str]:
        """The texts of its blocks."""
        return [self._at(block) for block in code_blocks(PAGE, *languages) if SECTION in block.headings]

    def _at(self, block: CodeBlock) -> str:
        text = block.text
        for printed, port in self.ports.items():
            text = text.replace(f"127.0.0.1:{printed}", f"127.0.0.1:{port}")
        return text

    def start(self, command: str) -> dict[str, str]:
        """Run one of the daemons; the fields of its line."""
        words = shlex.split(command)
        assert words[0] == "thermocline"
        folder = self.directory / f"terminal-{len(self.daemons)}"
        folder.mkdir()
        shutil.copy(self.directory / "set.conf", folder)
        self.daemons.append(Daemon(words[1:], folder))
        return self.daemons[-1].ready()

    def run(self, text: str) -> str:
        """Run a block in a shell; what it prints."""
        done = subprocess.run(
            ["bash", "-euc", text],
            cwd=self.directory,
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "NAMESRV_ADDR": self.namesrv,
                "THERMOCLINE_CONTROLLERS": self.controllers,
            },
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        return done.stdout

    def wait_for(self, members: set[int], *, master: int) -> None:
        """Return when these are in sync and alive, and clients find this master."""

        def info() -> ReplicasInfo:
            with suppress(MQError), AdminClient(namesrv=self.namesrv) as admin:
                return admin.replica_sets(self.controllers, [NAME]).get(NAME, ReplicasInfo())
            return ReplicasInfo()

        def is_so() -> bool:
            found = info()
            alive = {each.broker_id: each.broker_address for each in found.in_sync_replicas if each.alive}
            if alive.keys() != members or found.master_broker_id != master:
                return False
            with suppress(MQError), AdminClient(namesrv=self.namesrv) as admin:
                shown = {one.address for one in admin.cluster_info() if one.broker_id == 0}
                return shown == {alive[master]}
            return False

        wait_until(is_so, what=f"{members} are in sync under {master}", timeout_s=TIMEOUT_S)


@pytest.fixture
def section(tmp_path: Path) -> Iterator[Section]:
    found = Section(tmp_path)
    try:
        yield found
    finally:
        for daemon in reversed(found.daemons):
            daemon.stop()
        shutil.rmtree(tmp_path, ignore_errors=True)  # log files have their full size


def test_the_section_runs_as_printed(section: Section) -> None:
    (config,) = section.blocks("properties")
    (section.directory / "set.conf").write_text(config)
    namesrv, controller, first, second, send, after = section.blocks("sh")
    assert section.start(namesrv)["namesrv"] == section.namesrv
    assert section.start(controller)["controller"] == section.controllers
    section.start(first)
    section.start(second)
    section.wait_for({1, 2}, master=1)
    section.run(send)
    section.wait_for({1, 2}, master=2)
    section.daemons[-1].process.send_signal(signal.SIGKILL)
    section.wait_for({1}, master=1)
    shown = section.run(after)
    assert "taken by both" in shown
    assert "after the switch" in shown
