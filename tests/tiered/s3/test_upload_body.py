"""Uploads to a store that accepts connections and takes nothing: it is frozen, or gone behind its load balancer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from thermocline.remoting.errors import ObjectStoreUnavailableError
from thermocline.tiered.s3 import S3ObjectStore, S3Options
from thermocline.tiered.s3.upload_body import unless_stalled

LARGE = bytes(300 * 1024)
"""Sent in pieces, behind 100 Continue."""
HUGE = bytes(32 * 1024 * 1024)
"""More than the buffers of both sockets hold."""
MULTIPART = b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>"


@asynccontextmanager
async def frozen(*, sent: bytes, put_bytes_max: int = len(HUGE)) -> AsyncIterator[S3ObjectStore]:
    """A store whose server answers a request for a multipart upload, sends `sent` for any other, and reads no more."""
    is_over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while (await reader.readuntil(b"\r\n\r\n")).startswith(b"POST /bucket/k?uploads "):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(MULTIPART), MULTIPART))
            writer.write(sent)
            await is_over.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    options = S3Options(
        bucket="bucket",
        endpoint=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}",
        access_key="key",
        secret_key="secret",
        read_timeout_s=0.1,
        put_bytes_max=put_bytes_max,
    )
    store = await S3ObjectStore.open(options)
    try:
        yield store
    finally:
        is_over.set()
        await store.close()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    ("data", "sent"), [(LARGE, b""), (HUGE, b"HTTP/1.1 100 Continue\r\n\r\n")], ids=["before", "within"]
)
async def test_an_upload_ends_before_or_within_its_body(data: bytes, sent: bytes) -> None:
    async with asyncio.timeout(60), frozen(sent=sent) as store:
        with pytest.raises(ObjectStoreUnavailableError, match="taken nothing of an upload"):
            await store.put("k", data)


async def test_a_part_of_an_upload_ends_too() -> None:
    async with asyncio.timeout(60), frozen(sent=b"", put_bytes_max=1) as store:
        with pytest.raises(ObjectStoreUnavailableError, match="taken nothing of an upload"):
            await store.put("k", LARGE)


async def test_an_upload_that_goes_on_may_take_long() -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    async with unless_stalled(0.5) as goes_on:
        while loop.time() < began_s + 0.8:
            await asyncio.to_thread(goes_on)
    goes_on()


async def test_a_time_limit_of_another_part_stays_its_own() -> None:
    with pytest.raises(TimeoutError, match="another"):
        async with unless_stalled(60):
            raise TimeoutError("another")
