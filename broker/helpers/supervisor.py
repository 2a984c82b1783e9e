"""Supervisor: starts the helper processes of a broker and starts them again when they stop.

Rules
  - Helpers are executed, never forked: `python -m MODULE ARGUMENTS`, no inherited descriptors but the standard ones.
  - Variables of the broker's settings, among which may be keys, are not in a helper's environment: it receives what it
    needs over its socket.
  - A helper dies with its parent: it binds itself with `bind_to_parent` before anything else, so that `kill -9` of
    the hot process leaves no process behind that writes to the store. (Doing it between fork and exec would make Python
    fork the hot process, page tables and all, instead of using vfork.)
  - SIGUSR1 asks a helper to stop. SIGTERM and SIGINT do not, since systemd and a terminal send them to all processes of
    the broker: the hot process stops its helpers in its own order, after it has served what is under way.
  - A helper that stops is started again after a delay that doubles from `restart_delay_ms` to `restart_delay_ms_max`
    while it keeps stopping early; one that ran for `healthy_ms` starts at the short delay again. One that the system
    cannot start (no memory, no process id) is tried again likewise.
  - Exit status 78 (EX_CONFIG) means "I will never work with this broker": it is held down and shown, not restarted.

Everything here runs on the hot process's loop, outside the message path.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

import msgspec

logger = logging.getLogger(__name__)

EXIT_REFUSED = 78
HELPER_STOP = signal.SIGUSR1
SETTING_PREFIX = "THERMOCLINE_"
PR_SET_PDEATHSIG = 1
KILLED_S_MAX = 10.0
"""How long a stop waits for a helper that is killed: one in a system call of a disk that hangs ends when that does."""


def helper_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What of the broker's environment its helpers get."""
    return {name: value for name, value in environment.items() if not name.startswith(SETTING_PREFIX)}


def bind_to_parent(parent_pid: int) -> None:
    """Called first in a helper: die with the parent. Exits when the parent is gone already."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        sys.exit(1)  # it died before the line above could bind us to it


class HelperSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to execute: a name for logs and status, a module and its arguments."""

    name: str
    module: str
    arguments: tuple[str, ...]


class HelperStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One helper as `tier status` and the health endpoint show it."""

    name: str
    pid: int | None
    restarts: int
    last_exit_status: int | None
    state: str  # running, waiting, refused, stopped


class SupervisedHelper:
    """One helper and the task that keeps it running."""

    def __init__(
        self,
        spec: HelperSpec,
        *,
        now_ms: Callable[[], int],
        restart_delay_ms: int = 200,
        restart_delay_ms_max: int = 10_000,
        healthy_ms: int = 10_000,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._spec = spec
        self._now_ms = now_ms
        self._restart_delay_ms = restart_delay_ms
        self._restart_delay_ms_max = restart_delay_ms_max
        self._healthy_ms = healthy_ms
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None
        self._restarts = 0
        self._last_exit_status: int | None = None
        self._state = "stopped"
        self._is_stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the helper and keep it running until `stop`."""
        assert self._task is None
        self._task = asyncio.create_task(self._keep_running(), name=f"helper-{self._spec.name}")

    def status(self) -> HelperStatus:
        """Return how the helper is doing now."""
        return HelperStatus(
            name=self._spec.name,
            pid=self._process.pid if self._process and self._state == "running" else None,
            restarts=self._restarts,
            last_exit_status=self._last_exit_status,
            state=self._state,
        )

    async def stop(self, *, timeout_ms: int) -> None:
        """Ask the helper to stop, wait, then kill it; on return it writes to the store no more. Idempotent."""
        self._is_stopping.set()
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(HELPER_STOP)
            try:
                async with asyncio.timeout(timeout_ms / 1_000):
                    await self._process.wait()
            except TimeoutError:
                logger.warning("helper did not stop in time name=%s timeout_ms=%d", self._spec.name, timeout_ms)
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
                await self._wait_killed(self._process)
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        self._state = "stopped"

    async def _wait_killed(self, process: asyncio.subprocess.Process) -> None:
        """The killed helper finishes the system call that it is in, and may write to the store by it."""
        try:
            async with asyncio.timeout(KILLED_S_MAX):
                await process.wait()
        except TimeoutError:
            logger.error("killed helper is still there name=%s pid=%d", self._spec.name, process.pid)

    async def _keep_running(self) -> None:
        delay_ms = self._restart_delay_ms
        while not self._is_stopping.is_set():
            started_ms = self._now_ms()
            try:
                self._process = await self._execute()
            except OSError as error:
                self._state = "waiting"
                logger.error("helper not started name=%s retry_ms=%d error=%s", self._spec.name, delay_ms, error)
                await asyncio.sleep(delay_ms / 1_000)
                delay_ms = min(delay_ms * 2, self._restart_delay_ms_max)
                continue
            self._state = "running"
            logger.info("helper started name=%s pid=%d", self._spec.name, self._process.pid)
            self._last_exit_status = await self._process.wait()
            if self._is_stopping.is_set():
                return
            if self._last_exit_status == EXIT_REFUSED:
                self._state = "refused"
                logger.error("helper refused to work name=%s; restart the broker", self._spec.name)
                return
            self._state = "waiting"
            self._restarts += 1
            lived_ms = self._now_ms() - started_ms
            delay_ms = self._restart_delay_ms if lived_ms >= self._healthy_ms else delay_ms
            logger.warning(
                "helper stopped name=%s exit_status=%d lived_ms=%d restart_delay_ms=%d",
                self._spec.name,
                self._last_exit_status,
                lived_ms,
                delay_ms,
            )
            await asyncio.sleep(delay_ms / 1_000)
            delay_ms = min(delay_ms * 2, self._restart_delay_ms_max)

    async def _execute(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self._spec.module,
            f"--parent-pid={os.getpid()}",
            *self._spec.arguments,
            stdin=asyncio.subprocess.DEVNULL,
            env=helper_environment(os.environ) if self._environment is None else self._environment,
        )


class Supervisor:
    """All helpers of one broker."""

    def __init__(self, specs: Sequence[HelperSpec], *, now_ms: Callable[[], int]) -> None:
        self._helpers = [SupervisedHelper(spec, now_ms=now_ms) for spec in specs]

    def start(self) -> None:
        """Start every helper."""
        for helper in self._helpers:
            helper.start()

    def statuses(self) -> list[HelperStatus]:
        """Return the state of every helper, in the order of their specs."""
        return [helper.status() for helper in self._helpers]

    async def stop_one(self, name: str, *, timeout_ms: int) -> None:
        """Stop a helper before the others."""
        await asyncio.gather(
            *(helper.stop(timeout_ms=timeout_ms) for helper in self._helpers if helper.status().name == name)
        )

    async def stop(self, *, timeout_ms: int) -> None:
        """Stop every helper, all at the same time."""
        await asyncio.gather(*(helper.stop(timeout_ms=timeout_ms) for helper in self._helpers))
