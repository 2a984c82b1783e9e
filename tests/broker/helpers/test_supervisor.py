"""Supervisor: real child processes."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import pytest

from tests.waiting import until
from thermocline.broker.helpers.supervisor import EXIT_REFUSED, HelperSpec, SupervisedHelper, Supervisor

HELPER = """
import argparse, pathlib, sys, time
from thermocline.broker.helpers.supervisor import bind_to_parent
parser = argparse.ArgumentParser()
parser.add_argument("--parent-pid", type=int)
parser.add_argument("--log")
parser.add_argument("--status", type=int, default=None)
options = parser.parse_args()
bind_to_parent(options.parent_pid)
import os
with open(options.log, "a") as log:
    log.write(f"{os.getpid()}\\n")
if options.status is not None:
    sys.exit(options.status)
while True:
    time.sleep(60)
"""


@pytest.fixture
def helper_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "supervised_helper.py").write_text(HELPER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "supervised_helper"


def started(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().splitlines()] if log.exists() else []


def process_state(pid: int) -> str:
    """As in /proc: `T` is stopped, `Z` a zombie; empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


async def test_a_killed_helper_comes_back_and_stops_with_the_broker(helper_module: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    spec = HelperSpec(name="test", module=helper_module, arguments=(f"--log={log}",))
    helper = SupervisedHelper(spec, now_ms=lambda: time.monotonic_ns() // 1_000_000, restart_delay_ms=1)
    helper.start()
    await until(lambda: len(started(log)) == 1)
    os.kill(started(log)[0], signal.SIGKILL)
    await until(lambda: len(started(log)) == 2)
    assert helper.status().restarts == 1
    assert helper.status().last_exit_status == -signal.SIGKILL
    await helper.stop(timeout_ms=10_000)
    with pytest.raises(ProcessLookupError):
        os.kill(started(log)[1], 0)
    assert helper.status().state == "stopped"


async def test_a_frozen_helper_is_gone_when_its_stop_returns(
    helper_module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of the role goes on with a recovery, which cuts files that the helper writes to. A killed process ends
    with the system call that it is in, here a little later."""
    log = tmp_path / "log"
    spec = HelperSpec(name="test", module=helper_module, arguments=(f"--log={log}",))
    helper = SupervisedHelper(spec, now_ms=lambda: time.monotonic_ns() // 1_000_000)
    helper.start()
    await until(lambda: len(started(log)) == 1)
    (pid,) = started(log)
    loop = asyncio.get_running_loop()
    kill = lambda _: loop.call_later(0.05, os.kill, pid, signal.SIGKILL)  # noqa: E731
    monkeypatch.setattr(asyncio.subprocess.Process, "kill", kill)
    os.kill(pid, signal.SIGSTOP)
    await until(lambda: process_state(pid) == "T", what="it is frozen")
    await helper.stop(timeout_ms=10)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_the_delay_doubles_until_a_helper_has_lived_long_enough(
    helper_module: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lives_ms = [0, 0, 0, 9, 10, 0]
    times_ms = chain.from_iterable((1_000_000, 1_000_000 + life_ms) for life_ms in lives_ms)
    (tmp_path / "ends_at_once.py").write_text("raise SystemExit(3)")
    spec = HelperSpec(name="test", module="ends_at_once", arguments=())
    helper = SupervisedHelper(
        spec,
        now_ms=lambda: next(times_ms, 2_000_000),
        restart_delay_ms=1,
        restart_delay_ms_max=4,
        healthy_ms=10,
    )

    def delays_ms() -> list[int]:
        messages = [record.getMessage() for record in caplog.records]
        return [int(each.partition("restart_delay_ms=")[2]) for each in messages if "helper stopped" in each]

    helper.start()
    with pytest.raises(AssertionError):
        helper.start()
    await until(lambda: len(delays_ms()) >= len(lives_ms))
    assert helper.status().last_exit_status == 3
    await helper.stop(timeout_ms=10_000)
    assert delays_ms()[: len(lives_ms)] == [1, 2, 4, 4, 1, 2]
    assert helper.status().pid is None


async def test_a_helper_that_cannot_be_started_is_tried_again(
    helper_module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without free memory or process ids for a moment must not cost the helper for good."""
    log = tmp_path / "log"
    spec = HelperSpec(name="test", module=helper_module, arguments=(f"--log={log}",))
    helper = SupervisedHelper(spec, now_ms=lambda: 0, restart_delay_ms=1)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(tmp_path / "no such program"))
        helper.start()
        await until(lambda: helper.status().state == "waiting")
        assert helper.status().pid is None
    await until(lambda: len(started(log)) == 1)
    await helper.stop(timeout_ms=10_000)
    assert helper.status().state == "stopped"


async def test_a_helper_that_never_started_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no such program"))
    helper = SupervisedHelper(HelperSpec(name="test", module="none", arguments=()), now_ms=lambda: 0)
    helper.start()
    await until(lambda: helper.status().state == "waiting")
    await helper.stop(timeout_ms=1_000)
    assert helper.status().state == "stopped"


async def test_a_helper_that_refuses_is_held_down(helper_module: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    spec = HelperSpec(name="test", module=helper_module, arguments=(f"--log={log}", f"--status={EXIT_REFUSED}"))
    helper = SupervisedHelper(spec, now_ms=lambda: 0, restart_delay_ms=1)
    helper.start()
    await until(lambda: helper.status().state == "refused")
    assert len(started(log)) == 1
    await helper.stop(timeout_ms=1_000)


async def test_one_helper_stops_before_the_others(helper_module: str, tmp_path: Path) -> None:
    logs = {name: tmp_path / name for name in ("first", "second")}
    supervisor = Supervisor(
        [HelperSpec(name=name, module=helper_module, arguments=(f"--log={log}",)) for name, log in logs.items()],
        now_ms=lambda: time.monotonic_ns() // 1_000_000,
    )
    supervisor.start()
    await until(lambda: all(started(log) for log in logs.values()), what="both run")
    await supervisor.stop_one("first", timeout_ms=5_000)
    assert [status.state for status in supervisor.statuses()] == ["stopped", "running"]
    await supervisor.stop(timeout_ms=5_000)
    assert [status.state for status in supervisor.statuses()] == ["stopped", "stopped"]


async def test_a_helper_dies_with_its_parent(helper_module: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    parent = subprocess.Popen(  # noqa: ASYNC220 - starting it is quick
        [
            sys.executable,
            "-c",
            "import os, subprocess, sys, time\n"
            f"subprocess.Popen([sys.executable, '-m', {helper_module!r},\n"
            f"    f'--parent-pid={{os.getpid()}}', '--log={log}'])\n"
            "time.sleep(60)\n",
        ]
    )
    try:
        await until(lambda: len(started(log)) == 1)
    finally:
        parent.kill()
        parent.wait()
    child = started(log)[0]
    await until(lambda: process_state(child) in ("", "Z"))
