"""Listening: a server's sockets at the addresses of a host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

BACKLOG = 1024


async def listen(accept: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> asyncio.Server:
    """Accept connections at every address of a host; at a free port for port 0.

    Raises:
        OSError: It cannot be listened on, or the host is none.
    """
    try:
        return await asyncio.get_running_loop().create_server(accept, host, port, backlog=BACKLOG)
    except ValueError as error:  # such as a UnicodeError for a label that is too long
        raise OSError(f"no host to listen at: {host!r}, {error}") from error
