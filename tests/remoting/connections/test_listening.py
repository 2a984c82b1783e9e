"""Where a server listens."""

from __future__ import annotations

import asyncio

import pytest

from thermocline.remoting.connections import listen


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "a\0b"])
async def test_a_host_that_is_none_cannot_be_listened_at(host: str) -> None:
    """Python refuses these before any look-up, with a ValueError: a daemon ended with a traceback."""
    with pytest.raises(OSError, match="no host to listen at"):
        await listen(asyncio.Protocol, host, 0)


async def test_a_port_that_is_taken() -> None:
    listener = await listen(asyncio.Protocol, "127.0.0.1", 0)
    with pytest.raises(OSError, match="address already in use"):
        await listen(asyncio.Protocol, "127.0.0.1", listener.sockets[0].getsockname()[1])
    listener.close()
    await listener.wait_closed()
