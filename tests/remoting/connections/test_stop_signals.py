"""Stop signals: each process stops at the first one with exit status 0, whatever signals come while it ends.

Covers `broker/process/event_loop.py`, `remoting/connections/daemon.py`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

STOP_TIMEOUT_S = 60
SIGNAL_PAUSE_S = 0.002

AFTER_THE_LOOP = """
import asyncio, os, signal
from thermocline.remoting.connections import stop_signals

class Loop(asyncio.SelectorEventLoop):
    def _close_self_pipe(self):
        super()._close_self_pipe()
        os.kill(os.getpid(), signal.SIGTERM)

async def serve():
    with stop_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()

with asyncio.Runner(loop_factory=Loop) as runner:
    runner.run(serve())
os.kill(os.getpid(), signal.SIGINT)
os.kill(os.getpid(), signal.SIGTERM)
print("ended")
"""


WHILE_IT_STARTS = """
import asyncio, os, signal
from thermocline.remoting.connections import serve_until_stopped

class Daemon:
    async def start(self):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()  # a resolver that does not answer, a master without its slaves

    async def close(self):
        print("closed")

asyncio.run(serve_until_stopped(Daemon, name="daemon", host="127.0.0.1", on_ready=print))
"""


def test_a_daemon_whose_start_takes_long_stops_all_the_same() -> None:
    """The signal counted when the start had ended: a service manager then kills the process."""
    ended = subprocess.run(
        [sys.executable, "-c", WHILE_IT_STARTS], capture_output=True, text=True, timeout=STOP_TIMEOUT_S, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "closed\n", "")


def test_signals_have_no_effect_while_the_loop_closes_and_behind_it() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", AFTER_THE_LOOP], capture_output=True, text=True, timeout=STOP_TIMEOUT_S, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ended\n", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("daemon", ["namesrv", "dev"])
def test_a_daemon_that_gets_signals_until_it_has_ended_stops_cleanly(
    daemon: str, number: signal.Signals, tmp_path: Path
) -> None:
    arguments = {
        "namesrv": ["namesrv", "--listen", "127.0.0.1:0"],
        "dev": ["dev", "--data", str(tmp_path / "data"), "--namesrv", "127.0.0.1:0", "--listen", "127.0.0.1:0"],
    }[daemon]
    log = tmp_path / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "thermocline.cli", *arguments], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        while process.poll() is None and time.monotonic() < deadline_s:
            process.send_signal(number)
            time.sleep(SIGNAL_PAUSE_S)
        assert process.returncode == 0, log.read_text()
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
