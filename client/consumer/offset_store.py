"""Offset stores: where a group's progress is kept.

Clustering keeps it at each queue's broker, broadcasting in a file on this machine:

    {directory}/{client id}/{group}/offsets.json        {"offsetTable":{{"brokerName":..,"queueId":0,"topic":..}:7}}

the official clients' place and form, so that a program may change its SDK and go on where it was. The file is replaced
as a whole, and synced before, in a thread; after a power cut an older state may be there, so messages come again, none
is left out.
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
    """Reads and keeps offsets of one group."""

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the offset to go on at, None when the group has none; UnavailableError when no broker can answer."""

    async def persist(self, offsets: Mapping[MessageQueue, int], *, is_confirmed: bool) -> None:
        """Keep these offsets. Failures are logged: the next round keeps newer ones.

        `is_confirmed` returns only when they are kept, or cannot be.
        """


class RemoteOffsetStore:
    """Offsets at the brokers."""

    def __init__(self, calls: ConsumerCalls) -> None:
        self._calls = calls

    async def read(self, queue: MessageQueue) -> int | None:
        """Ask the queue's broker; see `OffsetStore`."""
        return await self._calls.consumer_offset(queue)

    async def persist(self, offsets: Mapping[MessageQueue, int], *, is_confirmed: bool) -> None:
        """Tell each queue's broker; see `OffsetStore`."""
        await asyncio.gather(*(self._persist(queue, offset, is_confirmed) for queue, offset in offsets.items()))

    async def _persist(self, queue: MessageQueue, offset: int, is_confirmed: bool) -> None:
        try:
            await self._calls.commit_offset(queue, offset, is_confirmed=is_confirmed)
        except MQError as error:
            logger.warning("offset not committed queue=%s offset=%d error=%s", queue, offset, error)


class LocalOffsetStore:
    """Offsets in a file."""

    def __init__(self, *, directory: Path | None, client_id: str, group: str) -> None:
        self._path = (_offsets_at_home() if directory is None else directory) / client_id / group / "offsets.json"
        self._offsets = self._load()
        self._writing = asyncio.Lock()
        self._writes: set[asyncio.Task[None]] = set()

    async def read(self, queue: MessageQueue) -> int | None:
        """Look it up; see `OffsetStore`."""
        return self._offsets.get(queue)

    async def persist(self, offsets: Mapping[MessageQueue, int], *, is_confirmed: bool) -> None:
        """Write the file, if anything changed; see `OffsetStore`. Cancelling stops only the waiting.

        A write is a task of its own: its thread goes on whoever is cancelled, and the next write has to wait for it.
        """
        write = asyncio.get_running_loop().create_task(self._in_turn(offsets))
        self._writes.add(write)
        write.add_done_callback(self._writes.discard)
        await asyncio.shield(write)

    async def _in_turn(self, offsets: Mapping[MessageQueue, int]) -> None:
        async with self._writing:
            await self._persist(offsets)

    async def _persist(self, offsets: Mapping[MessageQueue, int]) -> None:
        changed = {queue: offset for queue, offset in offsets.items() if self._offsets.get(queue) != offset}
        if not changed:
            return
        merged = self._offsets | changed
        body = ResetOffsetBody(offset_table={to_wire(queue): QueueOffset(offset) for queue, offset in merged.items()})
        try:
            await asyncio.to_thread(_replace, self._path, body.encode())
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


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())  # before the rename: a file system may else keep the new name, and no byte of it
    os.replace(temporary, path)


def _offsets_at_home() -> Path:
    try:
        return Path.home() / ".rocketmq_offsets"
    except RuntimeError as error:  # a container's user without a name, and without HOME
        raise InvalidRequestError(
            "broadcasting keeps offsets in the home directory, and there is none: set local_offset_directory"
        ) from error
