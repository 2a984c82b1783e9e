"""A NameServer and brokers of this project as processes, over one cold tier in a directory: for hand-offs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from thermocline.client.admin.admin_client import AdminClient
from thermocline.remoting.errors import MQError

COMMAND = [sys.executable, "-m", "thermocline.cli"]
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60
POLL_S = 0.05
SMALL = {
    "mappedFileSizeCommitLog": str(256 << 10),
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "fileReservedTime": "0",
    "deleteWhen": "",
    "coldSegmentBytes": str(64 << 10),
    "coldFrameBytes": str(8 << 10),
    "coldSealAgeMs": "500",
    "coldSweepIntervalMs": "200",
    "coldGraceMs": "400",
}
"""Files go to the cold tier at once; expired segments and unpinned versions are deleted at once."""


class Daemon:
    """One process of the command line; a log beside it."""

    def __init__(self, folder: Path, name: str, arguments: list[str]) -> None:
        self._log = folder / f"{name}.log"
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> dict[str, str]:
        """Start and return the fields of the line that says that it serves."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*COMMAND, *self._arguments], stdout=subprocess.PIPE, stderr=log)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"ready "):
                return dict(part.split("=", 1) for part in line.decode().split()[1:])
        raise AssertionError(self._log.read_text()[-4_000:])

    def kill(self) -> None:
        """`kill -9`; its helpers die with it."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._end()

    def stop(self) -> None:
        """Stop it cleanly."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._end()

    def _end(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            self._process.wait(STOP_TIMEOUT_S)
        finally:
            self._process.kill()
            self._process.stdout.close()


class Cluster:
    """A context manager; `brokers` by name."""

    def __init__(self, folder: Path, *, broker_count: int, settings: dict[str, str]) -> None:
        self.folder = folder
        self.url = (folder / "cold").as_uri()
        self._settings = settings
        self._names = [f"broker-{letter}" for letter in "abcdefgh"[:broker_count]]
        self.brokers: dict[str, Daemon] = {}
        self.addresses: dict[str, str] = {}
        self.namesrv = ""
        self._name_server = Daemon(folder, "namesrv", ["namesrv", "--listen", "127.0.0.1:0"])

    def __enter__(self) -> Self:
        try:
            (self.namesrv,) = self._name_server.start().values()
            for name in self._names:
                self.brokers[name] = Daemon(self.folder, name, ["broker", "--config", str(self._configuration(name))])
                self.addresses[name] = address = self.brokers[name].start()["broker"]
                # The next start takes the same port again.
                self._configuration(name, port=address.rpartition(":")[2])
            self.wait_for_tiers()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for daemon in (*self.brokers.values(), self._name_server):
            daemon.stop()

    def wait_for_tiers(self) -> None:
        """Until every broker's tier process is there; they start behind the brokers."""
        deadline = time.monotonic() + START_TIMEOUT_S
        with AdminClient(namesrv=self.namesrv) as admin:
            while True:
                with contextlib.suppress(MQError):
                    status = admin.tier_status()
                    if set(status) == set(self._names) and all(one["ledgerVersion"] for one in status.values()):
                        return
                assert time.monotonic() < deadline, [log.read_text()[-2_000:] for log in self.folder.glob("*.log")]
                time.sleep(POLL_S)

    def _configuration(self, name: str, *, port: str = "0") -> Path:
        path = self.folder / f"{name}.conf"
        values = {
            "brokerName": name,
            "listenPort": port,
            "bindAddress": "127.0.0.1",
            "namesrvAddr": self.namesrv,
            "storePathRootDir": str(self.folder / name),
            "coldUrl": self.url,
            **self._settings,
        }
        path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        return path
