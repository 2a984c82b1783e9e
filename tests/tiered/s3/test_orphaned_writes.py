"""A connection that is lost before the body's writer has begun: the request fails, and no other error is reported."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import aiohttp
import pytest
from aiohttp.connector import Connection

from thermocline.tiered.s3.orphaned_writes import pass_over_orphaned_writes


class LosingConnector(aiohttp.TCPConnector):
    """Each connection is lost some turns of the loop after it was given out."""

    def __init__(self, turns: int) -> None:
        super().__init__()
        self._turns = turns

    async def connect(self, *arguments: Any, **options: Any) -> Connection:
        connection = await super().connect(*arguments, **options)
        self._lose(connection, self._turns)
        return connection

    def _lose(self, connection: Connection, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._lose, connection, turns - 1)
        elif connection.transport is not None:
            connection.transport.abort()


async def fail_to_put(port: int, *, turns: int) -> None:
    """A request that waits for `100 Continue` before its body, as those of S3 clients do."""
    async with aiohttp.ClientSession(connector=LosingConnector(turns)) as session:
        with pytest.raises(aiohttp.ClientError):
            await session.put(f"http://127.0.0.1:{port}/key", data=b"body", expect100=True)


async def fail_otherwise() -> None:
    raise aiohttp.ClientConnectionError("no result was read")


async def test_only_the_request_fails() -> None:
    loop, reported = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _loop, context: reported.append(context))
    for _ in range(2):
        pass_over_orphaned_writes(loop)

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as server:
        for turns in range(6):
            await fail_to_put(server.sockets[0].getsockname()[1], turns=turns)
    gc.collect()
    assert reported == []

    task = asyncio.create_task(fail_otherwise())
    await asyncio.wait([task])
    del task
    gc.collect()
    assert [str(context["exception"]) for context in reported] == ["no result was read"]
