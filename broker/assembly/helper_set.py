"""Helpers: the index, tier and proxy roles of a broker, in processes of their own or, for debugging, in this one."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Protocol

from thermocline.broker.helpers import (
    INDEX_ROLE,
    PROXY_ROLE,
    TIER_ROLE,
    HelperOptions,
    HelperSpec,
    HelperStatus,
    Supervisor,
)

PROXY_NICE = 1
"""A proxy's clients wait for it: it gives way to the hot process, and to hardly anything else."""


ServeRole = Callable[[HelperOptions, asyncio.Event], Awaitable[None]]


class TierKind(Enum):
    """What a broker does with its cold tier; the module of the process that does it."""

    WRITER = "thermocline.broker.tier_process"
    READ_ONLY = "thermocline.broker.follower.follower_process"
    """It serves another broker's."""
    SLAVE = "thermocline.broker.follower.slave_process"
    """It serves its master's."""


class Helpers(Protocol):
    """The interface of a set of helpers; `Supervisor` is the one for processes."""

    def start(self) -> None:
        """Start them."""

    def statuses(self) -> list[HelperStatus]:
        """How they are."""

    async def stop_one(self, name: str, *, timeout_ms: int) -> None:
        """Stop one before the others; idempotent."""

    async def stop(self, *, timeout_ms: int) -> None:
        """Stop them; idempotent."""


class InProcessHelpers:
    """All roles as tasks of this process's loop, over the same socket and with the same code (`--single-process`)."""

    def __init__(self, roles: Sequence[str], *, socket_path: str, page_path: str, tier: TierKind) -> None:
        self._tier = tier
        self._options = HelperOptions(parent_pid=os.getpid(), socket_path=socket_path, page_path=Path(page_path))
        self._stops = {role: asyncio.Event() for role in roles}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Start the roles."""
        # Imported here: in a broker of several processes the hot one loads no object store client.
        from thermocline.broker.follower.follower_process import serve as serve_follower
        from thermocline.broker.follower.slave_process import serve as serve_slave
        from thermocline.broker.helpers.index_process import serve as serve_index
        from thermocline.broker.proxy_process.proxy_process import serve as serve_proxy
        from thermocline.broker.tier_process.tier_process import serve as serve_tier

        serve_of_tier: dict[TierKind, ServeRole] = {
            TierKind.WRITER: serve_tier,
            TierKind.READ_ONLY: serve_follower,
            TierKind.SLAVE: serve_slave,
        }
        serve: dict[str, ServeRole] = {
            INDEX_ROLE: serve_index,
            TIER_ROLE: serve_of_tier[self._tier],
            PROXY_ROLE: serve_proxy,
        }
        for role, stop in self._stops.items():
            self._tasks[role] = asyncio.create_task(_run(serve[role], self._options, stop), name=f"role-{role}")

    def statuses(self) -> list[HelperStatus]:
        """A role whose task has ended is stopped."""
        return [
            HelperStatus(
                name=role,
                pid=os.getpid(),
                restarts=0,
                last_exit_status=None,
                state="stopped" if task.done() else "running",
            )
            for role, task in self._tasks.items()
        ]

    async def stop_one(self, name: str, *, timeout_ms: int) -> None:
        """End a role, cancelling it when it takes longer."""
        self._stops[name].set()
        task = self._tasks.get(name)
        if task is None:
            return
        _, late = await asyncio.wait([task], timeout=timeout_ms / 1_000)
        for each in late:
            each.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def stop(self, *, timeout_ms: int) -> None:
        """End the roles."""
        await asyncio.gather(*(self.stop_one(role, timeout_ms=timeout_ms) for role in self._stops))
        self._tasks.clear()


def make_helpers(
    *,
    has_tier: bool,
    has_proxy: bool,
    tier: TierKind,
    in_process: bool,
    socket_path: str,
    page_path: str,
    nice: int,
    log_level: str,
    now_ms: Callable[[], int],
) -> Helpers:
    """Those that a broker has.

    `has_tier`: there is a cold tier; `tier`: what this broker does with it. `has_proxy`: gRPC clients are served.
    `nice`: how much a process of its own gives way.
    """
    roles = [INDEX_ROLE, *([TIER_ROLE] if has_tier else []), *([PROXY_ROLE] if has_proxy else [])]
    if in_process:
        return InProcessHelpers(roles, socket_path=socket_path, page_path=page_path, tier=tier)
    modules = {
        INDEX_ROLE: "thermocline.broker.helpers.index_process",
        TIER_ROLE: tier.value,
        PROXY_ROLE: "thermocline.broker.proxy_process",
    }
    arguments = (f"--socket={socket_path}", f"--page={page_path}", f"--log-level={log_level}")
    specs = [
        HelperSpec(
            name=role,
            module=modules[role],
            arguments=(*arguments, f"--nice={min(nice, PROXY_NICE) if role == PROXY_ROLE else nice}"),
        )
        for role in roles
    ]
    return Supervisor(specs, now_ms=now_ms)


async def _run(serve: ServeRole, options: HelperOptions, stop: asyncio.Event) -> None:
    await serve(options, stop)
