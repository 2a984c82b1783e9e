"""Daemon: the life of a process that serves a port until it is asked to stop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from thermocline.remoting.connections.stop_signals import stop_signals, unless_stopped
from thermocline.remoting.socket_address import format_address

logger = logging.getLogger(__name__)


class Daemon(Protocol):
    """What is served."""

    async def start(self) -> int:
        """Listen; the port."""

    async def close(self) -> None:
        """Stop; also after a start that failed or was cancelled."""


async def serve_until_stopped(
    make: Callable[[], Daemon], *, name: str, host: str, on_ready: Callable[[str], None] | None
) -> None:
    """Make a daemon, serve until SIGTERM or SIGINT, and stop it cleanly: the last thing that the process does.

    `name` is for the log; `on_ready` receives `host:port` once requests are served. Raises what its start raises.
    """
    if not __debug__:
        raise SystemExit("assertions are part of this program: do not run it with -O")
    with stop_signals() as stop:
        daemon = make()
        try:
            port = await unless_stopped(daemon.start(), stop)
            if port is not None and on_ready is not None:
                on_ready(format_address(host, port))
            await stop.wait()
            logger.info("%s stops", name)
        finally:
            await daemon.close()
