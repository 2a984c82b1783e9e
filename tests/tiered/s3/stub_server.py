"""An S3 server that gives prepared answers, and keeps the heads of its requests."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from thermocline.tiered.s3 import S3ObjectStore, S3Options


class StubServer:
    """Answers requests with what was queued, in order; keeps their heads."""

    def __init__(self) -> None:
        self.answers: list[bytes | None] = []
        self.requests: list[str] = []

    def answer(self, status: int, *, code: str = "", body: bytes = b"", headers: str = "") -> None:
        """Queue an answer; `code` makes an XML error of it."""
        if code:
            body = f"<Error><Code>{code}</Code><Message>m</Message></Error>".encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
        self.answers.append(head.encode() + body)

    def stored(self) -> None:
        """Queue the answer to a PUT that was carried out."""
        self.answer(200, headers='ETag: "e"\r\n')

    def found(self, data: bytes) -> None:
        """Queue the answer to a GET of a whole object."""
        self.answer(200, body=data, headers='ETag: "e"\r\n')

    def hang_up(self, sent: bytes = b"") -> None:
        """Queue an answer that is cut off."""
        self.answers.append(sent or None)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.requests.append(head)
                sizes = [
                    line.split(":")[1] for line in head.split("\r\n") if line.lower().startswith("content-length:")
                ]
                if "100-continue" in head.lower():
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                await reader.readexactly(int(sizes[0]) if sizes else 0)
                answer = self.answers.pop(0)
                if answer is None or not answer.startswith(b"HTTP/1.1 ") or b"cut off" in answer:
                    writer.write(answer or b"")
                    return
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):  # who asked has gone
                await writer.wait_closed()


@asynccontextmanager
async def stubbed(
    chosen: S3Options | None = None, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[StubServer, S3ObjectStore]]:
    """A stub and a store on it, with these options; `tls`: what the stub shows who it is with."""
    stub = StubServer()
    server = await asyncio.start_server(stub.serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    options = replace(
        chosen or S3Options(bucket="bucket"),
        endpoint=f"{'http' if tls is None else 'https'}://127.0.0.1:{port}",
        access_key="key",
        secret_key="secret",
        read_timeout_s=5,
        connect_timeout_s=5,
    )
    store = await S3ObjectStore.open(options)
    try:
        yield stub, store
    finally:
        await store.close()
        server.close()
        await server.wait_closed()
