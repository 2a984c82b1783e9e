"""Index process: files the log's records under their keys, and answers where the records with a key are.

It follows the flush offset in the shared page, checkpoints what it built, and tells the hot process how far that is: a
local log file is deleted only when the index is durable past it. A query is answered after the index has reached the
offset sent with it, so a producer finds its own message. After `kill -9` it resumes from its own checkpoint.
"""

import asyncio
import contextlib
import logging
import time

import msgspec

from thermocline.broker.helpers.helper_process import HelperLink, HelperOptions, connect, main
from thermocline.broker.helpers.helper_protocol import (
    INDEX_ROLE,
    HelperRequestCode,
    IndexProgress,
    IndexQueryReply,
    IndexQueryRequest,
)
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.errors import DiskFullError, UnavailableError, UnsupportedRequestError
from thermocline.store.files import RealDisk
from thermocline.store.index import IndexService

logger = logging.getLogger(__name__)

IDLE_MS, LONG_IDLE_MS = 50, 500
LONG_IDLE_AFTER = 20
"""Polls of the log without news after which it is polled seldom, until a query needs records not indexed yet."""
CHECKPOINT_MS = 2_000
DISK_FULL_PAUSE_MS = 5_000


class IndexRole:
    """Builds, checkpoints and answers. Belongs to the process's loop; building goes on in slices between requests."""

    def __init__(self) -> None:
        self._service: IndexService | None = None
        self._built = asyncio.Condition()
        self._is_wanted = asyncio.Event()

    async def run(self, link: HelperLink, stop: asyncio.Event) -> None:
        """Work until `stop`.

        Raises:
            CorruptDataError: The log cannot be read.
        """
        marks = link.page.read()
        service = IndexService.open(
            RealDisk(),
            link.settings.store,
            log_end_offset=marks.append_offset,
            was_clean=link.settings.was_clean,
            clock=wall_clock_ms,
        )
        self._service = service
        async with self._built:
            self._built.notify_all()  # a query may wait for just these records
        stopping = asyncio.create_task(stop.wait(), name="index-stop")
        stopping.add_done_callback(lambda _: self._is_wanted.set())
        try:
            await self._follow(link, service, stop)
        finally:
            stopping.cancel()
            service.close()
            self._service = None

    async def _follow(self, link: HelperLink, service: IndexService, stop: asyncio.Event) -> None:
        self._tell(link, service)
        checkpoint_due = time.monotonic() + CHECKPOINT_MS / 1_000
        idle_count = 0
        while not stop.is_set():
            marks = link.page.read()
            idle_count += 1
            pause_ms = IDLE_MS if idle_count < LONG_IDLE_AFTER else LONG_IDLE_MS
            try:
                if service.build(marks.flush_offset):
                    pause_ms = idle_count = 0
                    async with self._built:
                        self._built.notify_all()
                if time.monotonic() >= checkpoint_due and service.durable_offset < service.next_offset:
                    service.checkpoint()
                    service.delete_before(marks.min_offset)
                    self._tell(link, service)
                    checkpoint_due = time.monotonic() + CHECKPOINT_MS / 1_000
            except DiskFullError as error:
                logger.error("index cannot grow: %s", error)
                pause_ms = DISK_FULL_PAUSE_MS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_ms / 1_000):
                    await self._is_wanted.wait()
                    self._is_wanted.clear()
                    idle_count = 0

    def _tell(self, link: HelperLink, service: IndexService) -> None:
        link.tell(
            HelperRequestCode.INDEX_PROGRESS,
            IndexProgress(durable_offset=service.durable_offset, store_timestamp_ms=service.slots_timestamp_ms),
        )

    # -- RequestHandler ------------------------------------------------------------------------------------------------

    async def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """INDEX_QUERY."""
        if command.code != HelperRequestCode.INDEX_QUERY:
            raise UnsupportedRequestError("not for the index process", code=command.code)
        request = msgspec.msgpack.decode(command.body, type=IndexQueryRequest)
        if self._service is not None and self._service.next_offset < request.up_to_offset:
            self._is_wanted.set()
        async with self._built:
            await self._built.wait_for(
                lambda: self._service is not None and self._service.next_offset >= request.up_to_offset
            )
        service = self._service
        if service is None:
            raise UnavailableError("the index is closing")
        query = request.query
        reply = IndexQueryReply(
            physical_offsets=service.query(
                query.topic,
                query.key,
                begin_ms=query.begin_ms,
                end_ms=query.end_ms,
                count_max=query.count_max,
                index_type=query.index_type,
            ),
            last_store_timestamp_ms=service.last_timestamp_ms,
            last_physical_offset=service.last_physical_offset,
        )
        return RemotingCommand.response(command, body=msgspec.msgpack.encode(reply))

    def connection_opened(self, connection: Connection) -> None:
        """The hot process's one."""

    def connection_closed(self, connection: Connection) -> None:
        """`connect` was given what happens then."""


async def serve(options: HelperOptions, stop: asyncio.Event) -> None:
    """Run the role until `stop`, or until the hot process goes away."""
    role = IndexRole()
    link = await connect(options, role=INDEX_ROLE, handler=role, on_closed=stop.set)
    try:
        await role.run(link, stop)
    finally:
        link.connection.close()
        link.page.close()


if __name__ == "__main__":
    main(INDEX_ROLE, serve)
