"""A broker that a benchmark drives: started, pinned to cores, paused while its peer is measured, its CPU time read.

Pausing (SIGSTOP to the whole process group) keeps a warm peer from using the cores while it waits for its turn; an idle
Java broker uses a tenth of a core.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thermocline.localstack import S3Server
from thermocline.localstack.child_process import ChildProcess
from thermocline.remoting.clients import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.request_code import RequestCode
from tooling.official_rocketmq import BENCHMARK_JVM_OPTIONS, OfficialSoftware, official_broker, official_namesrv

OFFICIAL = "official"
THERMOCLINE = "thermocline"
READY_LINE = re.compile(r"^ready namesrv=(?P<namesrv>\S+) broker=(?P<broker>\S+) cold=(?P<cold>\S+)", re.MULTILINE)
READY_TIMEOUT_S = 60.0
REQUEST_TIMEOUT_MS = 120_000  # a broker that makes 80 000 queue files answers nothing meanwhile
EVERY_HOUR = ";".join(f"{hour:02}" for hour in range(24))  # for deleteWhen
SETTLED_BYTES_MAX = 1 << 20
SETTLE_TIMEOUT_S = 300.0
CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerUnderTest:
    """A running broker. `processes` lead the process groups that belong to it."""

    kind: str
    address: str
    namesrv: str
    processes: tuple[ChildProcess, ...]

    def pause(self) -> None:
        """Take it off the cores."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run again."""
        self._signal(signal.SIGCONT)

    def cpu_s(self) -> float:
        """CPU time that all of its processes have used so far, those that live now."""
        return sum(cpu_seconds(process_id) for process_id in self.process_ids())

    def runtime_info(self) -> dict[str, str]:
        """What it tells of itself: log offsets, index lag, counters."""
        table: dict[str, str] = self.ask(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
        return table

    def ask(self, code: int, *, timeout_ms: int = REQUEST_TIMEOUT_MS) -> dict[str, Any]:
        """Its answer to a request without fields, over a connection of its own."""

        async def ask() -> RemotingCommand:
            connection = await ClientConnection.open(self.address)
            try:
                return await connection.request(RemotingCommand.request(code), timeout_ms=timeout_ms)
            finally:
                connection.close()

        answer: dict[str, Any] = json.loads(bytes(asyncio.run(ask()).body))
        return answer

    def wait_for_index(self) -> None:
        """Wait until its index has what was sent as fast as it could be."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while int(self.runtime_info()["dispatchBehindBytes"]) > SETTLED_BYTES_MAX:
            if time.monotonic() > deadline:
                raise SystemExit(f"the index of the {self.kind} broker does not catch up")
            time.sleep(0.2)

    def resident_mb(self, part: str = "Pss") -> float:
        """Proportional set size of all its processes, in MB: shared pages are counted once.

        `part`: "Pss" for all of it, "Pss_Anon" for what no file holds, "Pss_File" for pages of files that are mapped.
        """
        return sum(proportional_kb(process_id, part) for process_id in self.process_ids()) / 1000

    def process_ids(self) -> list[int]:
        """The broker's main process first, then all others."""
        return with_their_groups([process.process_id for process in self.processes])

    def helper_ids(self, module: str) -> list[int]:
        """The processes of the broker that run `module`; LookupError when none does."""
        helpers = [process_id for process_id in self.process_ids() if module in _command_line(process_id)]
        if not helpers:
            raise LookupError(f"no process of the broker runs {module}")
        return helpers

    @contextlib.contextmanager
    def without_helper(self, module: str) -> Iterator[None]:
        """Keep the helper that runs `module` off the cores while the block runs."""
        helpers = self.helper_ids(module)
        for process_id in helpers:
            os.kill(process_id, signal.SIGSTOP)
        try:
            yield
        finally:
            for process_id in helpers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process_id, signal.SIGCONT)

    def pin(self, *, hot_cpus: set[int], other_cpus: set[int]) -> None:
        """Put the loop of the main process on some cores, its helper processes on others, its helper threads on any.

        A thread that is made later inherits the core of the thread that makes it: call it again after the warm-up.
        """
        for number, process_id in enumerate(self.process_ids()):
            for thread_id in threads_of(process_id):
                cpus = other_cpus if number else hot_cpus if thread_id == process_id else hot_cpus | other_cpus
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(thread_id, cpus)

    def make_real_time(self) -> None:
        """Let nothing but the kernel run before our loop, or any thread of an official broker (SCHED_FIFO)."""
        process_id = self.processes[0].process_id
        real_time([process_id] if self.kind == THERMOCLINE else threads_of(process_id))

    def _signal(self, number: signal.Signals) -> None:
        for process in self.processes:
            os.killpg(process.process_id, number)


@contextlib.contextmanager
def start_official(
    software: OfficialSoftware, directory: Path, *, properties: Mapping[str, str]
) -> Iterator[BrokerUnderTest]:
    """The official broker with upstream's flags and a 4 GB heap."""
    with (
        official_namesrv(software, directory / "namesrv") as namesrv,
        official_broker(
            software,
            directory / "broker",
            namesrv_address=namesrv.address,
            store_directory=directory / "store",
            properties=properties,
            jvm_options=BENCHMARK_JVM_OPTIONS,
        ) as broker,
    ):
        under_test = BrokerUnderTest(
            kind=OFFICIAL,
            address=broker.address,
            namesrv=namesrv.address,
            processes=(broker.process, namesrv.process),
        )
        with awake_at_the_end(under_test):
            yield under_test


@contextlib.contextmanager
def start_thermocline(
    directory: Path,
    *,
    properties: Mapping[str, str],
    cold_url: str | None = None,
    tree: Path | None = None,
    words: Sequence[str] = (),
) -> Iterator[BrokerUnderTest]:
    """`thermocline dev`, by default with a `file://` cold tier; settings by property name. `tree`: its sources are
    those of another working tree. `words`: further options."""
    for name in ("data", "cold"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    process = ChildProcess(
        [
            str(Path(sys.executable).parent / "thermocline"),
            "dev",
            *("--data", str(directory / "data")),
            *("--namesrv", "127.0.0.1:0"),
            *("--listen", "127.0.0.1:0"),
            *("--cold", cold_url or (directory / "cold").as_uri()),
            *words,
        ],
        log_path=directory / "dev.log",
        working_directory=directory,
        environment={
            **{_environment_name(name): value for name, value in properties.items()},
            **({"PYTHONPATH": str(tree / "src")} if tree else {}),
        },
    )
    try:
        process.wait_until(lambda: READY_LINE.search(process.output()) is not None, timeout_s=READY_TIMEOUT_S)
        ready = READY_LINE.search(process.output())
        assert ready is not None
        under_test = BrokerUnderTest(
            kind=THERMOCLINE, address=ready["broker"], namesrv=ready["namesrv"], processes=(process,)
        )
        with awake_at_the_end(under_test):
            yield under_test
    finally:
        process.stop(timeout_s=30.0)


def make_cold_tier(server: S3Server) -> str:
    """The URL of a cold tier in a new bucket, its keys in the environment of what this process starts from now on."""
    server.make_bucket("cold")
    os.environ |= {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key}
    return f"s3://cold/bench?endpoint={server.endpoint}&region={server.region}"


def real_time(thread_ids: Iterable[int]) -> None:
    """Give threads the lowest real-time priority; those that they make do not inherit it.

    Raises:
        PermissionError: The system does not let this user.
    """
    for thread_id in thread_ids:
        with contextlib.suppress(ProcessLookupError):
            os.sched_setscheduler(thread_id, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))


def _environment_name(setting: str) -> str:
    return "THERMOCLINE_" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", setting).replace(".", "_").upper()


@contextlib.contextmanager
def awake_at_the_end(broker: BrokerUnderTest) -> Iterator[None]:
    """Wake it at the end: a stopped process does not see SIGTERM."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            broker.resume()


def _all_process_ids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _command_line(process_id: int) -> list[str]:
    try:
        return Path(f"/proc/{process_id}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def _group_of(process_id: int) -> int | None:
    try:
        return os.getpgid(process_id)
    except ProcessLookupError:
        return None


def with_their_groups(leaders: list[int]) -> list[int]:
    """These processes, then all others of their process groups."""
    groups = {os.getpgid(leader) for leader in leaders}
    others = [process_id for process_id in _all_process_ids() if _group_of(process_id) in groups]
    return leaders + sorted(set(others) - set(leaders))


def threads_of(process_id: int) -> list[int]:
    """The ids of its threads; none when it has ended."""
    try:
        return [int(entry.name) for entry in Path(f"/proc/{process_id}/task").iterdir()]
    except FileNotFoundError:
        return []


def cpu_seconds(process_id: int) -> float:
    """CPU time that a process has used so far; 0 when it has ended."""
    try:
        fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS_PER_S


def proportional_kb(process_id: int, part: str = "Pss") -> int:
    """A part of its proportional set size, see `BrokerUnderTest.resident_mb`; 0 when it has ended."""
    try:
        rollup = Path(f"/proc/{process_id}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    match = re.search(rf"^{part}:\s+(\d+) kB", rollup, re.MULTILINE)
    return int(match[1]) if match else 0
