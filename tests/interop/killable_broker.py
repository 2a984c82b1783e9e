"""A NameServer and brokers as processes of their own, so that a broker can be killed while the others go on."""

from __future__ import annotations

import contextlib
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.cluster import BROKER_NAME, FREE_PORT, READY_TIMEOUT_S
from tests.interop.merged_broker import assignments, merged_endpoint, merged_words
from thermocline.localstack.child_process import ChildProcess

SIGNS_OF_BUGS = ("Traceback (most recent call last)", "a bug of ours", "AssertionError")
READY_LINE = re.compile(r"^ready (?:namesrv|broker)=(?P<address>\S+)", re.MULTILINE)


class _KillableDaemon(ABC):
    """A daemon that is started on entry; later starts have the same port. `daemon` starts it by `_words`."""

    def __init__(self, directory: Path) -> None:
        self.address = FREE_PORT
        self._directory = directory
        self._process: ChildProcess | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    @abstractmethod
    def _words(self) -> tuple[str, ...]:
        """The command line."""

    def start(self) -> None:
        """Start it, and return when it serves."""
        self._process = daemon(*self._words(), directory=self._directory)
        self.address = ready_address(self._process)

    def kill(self) -> None:
        """`kill -9`, with its helper processes; of one that is dead already too."""
        if self._process is not None:
            self._process.kill()

    def stop(self) -> None:
        """Have it end by itself (SIGTERM); fail when that is no clean end."""
        assert self._process is not None
        assert self._process.stop() == 0, self._process.output()[-3_000:]


class KillableBroker(_KillableDaemon):
    """`thermocline broker` with a `file://` cold tier; later starts have the same store, too."""

    def __init__(
        self,
        directory: Path,
        namesrv: str,
        *,
        name: str = BROKER_NAME,
        settings: Mapping[str, str] | None = None,
        has_proxy: bool = False,
    ) -> None:
        """`settings`: by property name. All files are in `directory`. `has_proxy`: one runs in its process group."""
        super().__init__(directory)
        self.proxy_address = FREE_PORT if has_proxy else ""
        self.name = name
        self._namesrv = namesrv
        self._settings = dict(settings or {})

    def __enter__(self) -> Self:
        (self._directory / "cold").mkdir(parents=True)
        return super().__enter__()

    def _words(self) -> tuple[str, ...]:
        return (
            "broker",
            *("--name", self.name),
            *("--listen", self.address),
            *("--namesrv", self._namesrv),
            *("--data", str(self._directory / "store")),
            *("--cold", (self._directory / "cold").as_uri()),
            *assignments("--set", self._settings),
            *(merged_words(self.proxy_address.rpartition(":")[2]) if self.proxy_address else ()),
        )

    def start(self) -> None:
        """Start it, and return when it serves; later starts have the same ports."""
        super().start()
        if self.proxy_address:
            assert self._process is not None
            self.proxy_address = merged_endpoint(self._process)

    def first_local_offset(self) -> int:
        """Where the local log begins."""
        return min(int(path.name) for path in (self._directory / "store" / "commitlog").iterdir())

    @property
    def process_id(self) -> int:
        """Of the hot process, which serves."""
        assert self._process is not None
        return self._process.process_id

    def log_text(self) -> str:
        """Its log, over all runs of the broker."""
        return (self._directory / "broker.log").read_text(errors="replace")

    def check_log(self) -> None:
        """Fail on reports of internal bugs in its log."""
        log = self.log_text()
        for sign in SIGNS_OF_BUGS:
            assert sign not in log, log[max(0, log.index(sign) - 500) :][:4_000]


class KillableNameServer(_KillableDaemon):
    """`thermocline namesrv`. It keeps nothing."""

    def __init__(self, directory: Path, *, settings: Mapping[str, str] | None = None) -> None:
        """`settings`: by property name."""
        super().__init__(directory)
        self._settings = settings or {}

    def _words(self) -> tuple[str, ...]:
        return ("namesrv", "--listen", self.address, *assignments("--set", self._settings))


@contextlib.contextmanager
def name_server(directory: Path, **settings: str) -> Iterator[str]:
    """`thermocline namesrv`; where it serves. `settings`: by property name."""
    with KillableNameServer(directory, settings=settings) as server:
        yield server.address


def daemon(command: str, *arguments: str, directory: Path) -> ChildProcess:
    """Start a command that logs to `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    return ChildProcess(
        [sys.executable, "-m", "thermocline.cli", command, *arguments],
        log_path=directory / f"{command}.log",
        working_directory=directory,
    )


def ready_address(process: ChildProcess) -> str:
    """Where it serves, once it does."""
    process.wait_until(lambda: READY_LINE.search(process.output()) is not None, timeout_s=READY_TIMEOUT_S)
    ready = READY_LINE.search(process.output())
    assert ready is not None
    return ready["address"]
