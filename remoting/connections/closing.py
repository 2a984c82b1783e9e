"""Closing many connections together, within one time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thermocline.remoting.connections.connection import Connection


async def close_all(connections: Sequence[Connection], *, timeout_ms: int) -> None:
    """Close these connections, and abort those that have not sent all within `timeout_ms`."""
    for connection in connections:
        connection.close()
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            for connection in connections:
                await connection.wait_closed()
    except TimeoutError:
        for connection in connections:
            connection.abort()
        for connection in connections:
            await connection.wait_closed()
