"""Offset stores: read and save the queue offsets of one consumer group.

RemoteOffsetStore (clustering) keeps the offset of each queue at the queue's broker. LocalOffsetStore (broadcasting)
keeps the offsets of all queues in one file on this machine:

    {directory}/{client id}/{group}/offsets.json        {"offsetTable":{{"brokerName":..,"queueId":0,"topic":..}:7}}

Path and content are those of the official clients: a program that changes its SDK continues at its saved offsets.
A thread writes a temporary file, syncs it and renames it to offsets.json. The rename is not synced: after a power cut
the file may hold older offsets. Then messages are consumed again, and none is skipped.
Source: client/consumer/store/RemoteBrokerOffsetStore.java, LocalFileOffsetStore.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from thermocline.client.consumer.consumer_calls import ConsumerCalls
from thermocline.client.message_queue import MessageQueue, from_wire, to_wire
from thermocline.remoting.bodies import ResetOffsetBody
from thermocline.remoting.errors import InvalidRequestError, MQError
from thermocline.remoting.offsets import QueueOffset

__all__ = ["LocalOffsetStore", "OffsetStore", "RemoteOffsetStore"]

logger = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """Reads and saves the offsets of one group: of each queue, the offset of the next message to consume."""

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the saved offset; None when the group has none.

        Raises:
            UnavailableError: The queue's broker does not answer. A local store has no broker and raises nothing.
            MQError: The broker refused.
        """

    async def persist(self, offsets: Mapping[MessageQueue, int], *, is_confirmed: bool) -> None:
        """Save these offsets. A failure is logged, not raised: the caller's next round saves newer offsets.

        With `is_confirmed` return only after each offset is saved or has failed; without it a broker's answer is not
        awaited.
        """


class RemoteOffsetStore:
    """Keeps the offset of each queue at the queue's broker."""

    def __init__(self, calls: ConsumerCalls) -> None:
        self._calls = calls

    async def read(self, queue: MessageQueue) -> int | None:
        """Ask the queue's broker; see `OffsetStore`."""
        return await self._calls.consumer_offset(queue)

    async def persist(self, offsets: Mapping[MessageQueue, int], *, is_confirmed: bool) -> None:
        """Send each offset to its queue's broker; see `OffsetStore`."""
        await asyncio.gather(*(self._persist(queue, offset, is_confirmed) for queue, offset in offsets.items()))

    async def _persist(self, queue: MessageQueue, offset: int, is_confirmed: bool) -> None:
        try:
            await self._calls.commit_offset(queue, offset, is_confirmed=is_confirmed)
        except MQError as error:
            logger.warning("offset not committed queue=%s offset=%d error=%s", queue, offset, error)


class LocalOffsetStore:
    """Keeps the offsets of all queues in one file. The constructor reads it.

    Raises:
        InvalidRequestError: The file cannot be read or decoded, or `directory` is None and there is no home directory.
    """

    def __init__(self, *, directory: Path | None, client_id: str, group: str) -> None:
        self._path = (_default_directory() if directory is None else directory) / client_id / group / "offsets.json"
        self._offsets = self._load()
        self._write_lock = asyncio.Lock()
        self._writes: set[asyncio.Task[None]] = set()

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the offset that was loaded or saved last; see `OffsetStore`."""
        return self._offsets.get(queue)

    async def persist(self, offsets: Mapping[MessageQueue, int], *, is_confirmed: bool) -> None:
        """Write the file if an offset changed; always confirmed. See `OffsetStore`. Cancelling stops only the waiting.

        A write is a task of its own: its thread goes on when a caller is cancelled, and the next write waits for it.
        """
        write = asyncio.get_running_loop().create_task(self._persist_in_turn(offsets))
        self._writes.add(write)
        write.add_done_callback(self._writes.discard)
        await asyncio.shield(write)

    async def _persist_in_turn(self, offsets: Mapping[MessageQueue, int]) -> None:
        async with self._write_lock:
            await self._persist(offsets)

    async def _persist(self, offsets: Mapping[MessageQueue, int]) -> None:
        changed = {queue: offset for queue, offset in offsets.items() if self._offsets.get(queue) != offset}
        if not changed:
            return
        merged = self._offsets | changed
        body = ResetOffsetBody(offset_table={to_wire(queue): QueueOffset(offset) for queue, offset in merged.items()})
        try:
            await asyncio.to_thread(_replace_file, self._path, body.encode())
        except OSError as error:
            logger.warning("offsets not written path=%s error=%s", self._path, error)
            return
        self._offsets = merged

    def _load(self) -> dict[MessageQueue, int]:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise InvalidRequestError("the file of broadcast offsets cannot be read", path=self._path) from error
        try:
            table = ResetOffsetBody.decode(data).offset_table
        except InvalidRequestError as error:
            raise InvalidRequestError("the file of broadcast offsets is damaged", path=self._path) from error
        return {from_wire(queue): offset for queue, offset in table.items()}


def _replace_file(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())  # before the rename: otherwise a power cut may leave an empty file of the new name
    os.replace(temporary, path)


def _default_directory() -> Path:
    try:
        return Path.home() / ".rocketmq_offsets"
    except RuntimeError as error:  # in a container: the user has no passwd entry, and HOME is not set
        raise InvalidRequestError(
            "broadcast offsets are saved in the home directory, and this user has none: set local_offset_directory"
        ) from error
