"""A real broker process for crash tests: started from a configuration file, killed in parts, started again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tests.waiting import until

START_TIMEOUT_S = 60.0
HELPERS = ("index", "tier")
SMALL_FILES = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}
"""So that a short test goes through many of them."""
FILES_GO_AT_ONCE = {
    "fileReservedTime": "0",
    "deleteWhen": "",
    "coldSegmentBytes": str(512 << 10),
    "coldFrameBytes": str(64 << 10),
    "coldSealAgeMs": "300",
    "coldAccountIntervalMs": "50",
}
TINY_FILES_GO_AT_ONCE = {**SMALL_FILES, "mappedFileSizeConsumeQueue": "600", **FILES_GO_AT_ONCE}
KEPT, GONE_AT_ONCE = "kept", "gone at once"
"""What becomes of local files that are full."""


def cold_settings(files: str, folder: Path) -> dict[str, str]:
    """Settings of a broker whose files are `KEPT`, or `GONE_AT_ONCE` to a cold tier in `folder`."""
    return {"coldUrl": f"file://{folder}/cold", **FILES_GO_AT_ONCE} if files == GONE_AT_ONCE else {}


class BrokerProcess:
    """`thermocline broker` on a free port, over one store directory. Later starts take the same port again."""

    COMMAND = (sys.executable, "-m", "thermocline.cli", "broker", "--config")

    def __init__(self, folder: Path, properties: dict[str, str]) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.properties = {
            "listenPort": "0",
            "bindAddress": "127.0.0.1",
            "storePathRootDir": str(self.store),
            "brokerName": "broker-a",
            **properties,
        }
        self.arguments: tuple[str, ...] = ()
        """Options of the next start."""
        self.environment: dict[str, str] = {}
        """Variables of the next start, besides those of the test itself."""
        self.notes: list[str] = []
        """What it printed before it was ready."""
        self._process: asyncio.subprocess.Process | None = None
        self.address = ""
        self.start_seconds = 0.0

    @property
    def pid(self) -> int:
        """The hot process."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """False before `start` and after the hot process ended."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start and wait for the ready line; fails the test with what the broker wrote when it does not come."""
        self.folder.mkdir(parents=True, exist_ok=True)
        configuration = self.folder / "broker.conf"
        configuration.write_text("".join(f"{name}={value}\n" for name, value in self.properties.items()))
        log = (self.folder / "broker.log").open("ab")
        started = time.monotonic()
        self._process = await asyncio.create_subprocess_exec(
            *self.COMMAND,
            str(configuration),
            *self.arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env={**os.environ, **self.environment},
        )
        log.close()
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                self.notes = []
                while (line := (await self._process.stdout.readline()).decode()) and not line.startswith("ready "):
                    self.notes.append(line.rstrip("\n"))
        except TimeoutError:
            self._process.kill()
            raise AssertionError(f"no ready line in time: {self.log_tail()}") from None
        assert line.startswith("ready "), f"{line!r}: {self.log_tail()}"
        self.address = dict(part.split("=", 1) for part in line.split()[1:])["broker"]
        self.properties["listenPort"] = self.address.rpartition(":")[2]
        self.start_seconds = time.monotonic() - started

    def helper_pid(self, role: str) -> int | None:
        """Process id of the index or tier process; None while it is away."""
        try:
            children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        except FileNotFoundError:
            return None
        for child in children:
            try:
                command = Path(f"/proc/{child}/cmdline").read_bytes()
            except FileNotFoundError:
                continue
            if f"{role}_process".encode() in command:
                return int(child)
        return None

    def kill_helper(self, role: str) -> bool:
        """`kill -9` of one helper; False when it is away already."""
        pid = self.helper_pid(role)
        if pid is None:
            return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    async def kill(self, *, helpers_first: bool = False) -> None:
        """`kill -9` of the hot process. Its helpers die with it, or a moment before."""
        assert self._process is not None
        helpers = [self.helper_pid(role) for role in HELPERS]
        if helpers_first:
            for role in HELPERS:
                self.kill_helper(role)
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await until(lambda: not any(pid is not None and _is_alive(pid) for pid in helpers))

    async def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.terminate()
        async with asyncio.timeout(20):
            return await self._process.wait()

    async def wait(self) -> int:
        """Wait until it ends by itself; returns the exit status."""
        assert self._process is not None
        return await self._process.wait()

    def newest_log_file(self) -> int:
        """The offset at which the newest file of the commit log begins."""
        names = [path.name for path in (self.store / "commitlog").iterdir() if path.name.isdecimal()]
        return max(map(int, names), default=0)

    @property
    def log(self) -> str:
        """Everything that the broker's processes wrote."""
        path = self.folder / "broker.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def log_tail(self) -> str:
        """The last lines that the broker wrote to its log."""
        return self.log[-4_000:]

    def check_log(self, *, expected: Iterable[str] = ()) -> None:
        """Fail on a traceback, or on what the broker calls a bug of its own."""
        for number, line in enumerate(lines := self.log.splitlines()):
            is_bug = "Traceback (most recent call last)" in line or "a bug of ours" in line or "AssertionError" in line
            assert not is_bug or any(text in line for text in expected), "\n".join(lines[max(0, number - 3) :][:60])


def resident_bytes(pid: int) -> int:
    """Memory that a process has to itself: mapped files are the page cache's."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon line")


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
