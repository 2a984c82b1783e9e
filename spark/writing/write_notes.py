"""WriteNotes: notes that the attempts of a task leave for each other, in the NameServers' key-value configuration.

    namespace THERMOCLINE_SPARK_WRITES
    {write id}              {"began": ms}                             the write goes on; its driver makes and removes it
    {write id}.{partition}  {"batch", "began": ms, "offsets": {...}}  a task has begun, and where its queues ended then

A batch write's notes are removed when it is committed or aborted, the write's own first: from then on a task that finds
no note of itself does not take itself for the first attempt. Of a streaming query (its id is the write id) one note for
each partition stays, from its last micro-batch, because a restart may repeat that one. Notes of writes whose driver was
killed are removed by later writes, `noteRetention` after they were made.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from thermocline.client.admin.async_admin_client import AsyncAdminClient
from thermocline.client.message_queue import MessageQueue
from thermocline.remoting.errors import CorruptDataError

NAMESPACE = "THERMOCLINE_SPARK_WRITES"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNote:
    """A task's first attempt: its micro-batch (0 in a batch write), when it began, and where every queue ended then."""

    batch_id: int
    began_ms: int
    offsets: Mapping[MessageQueue, int]

    def encode(self) -> str:
        """The note as it is stored."""
        offsets: dict[str, dict[str, dict[str, int]]] = {}
        for queue, offset in self.offsets.items():
            offsets.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
        return json.dumps({"batch": self.batch_id, "began": self.began_ms, "offsets": offsets})

    @classmethod
    def decode(cls, text: str) -> TaskNote:
        """The note; CorruptDataError when it is none."""
        try:
            fields: dict[str, Any] = json.loads(text)
            offsets = {
                MessageQueue(topic=topic, broker_name=broker_name, queue_id=int(queue_id)): int(offset)
                for topic, brokers in fields["offsets"].items()
                for broker_name, queues in brokers.items()
                for queue_id, offset in queues.items()
            }
            return cls(batch_id=int(fields["batch"]), began_ms=int(fields["began"]), offsets=offsets)
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise CorruptDataError("a note of a Spark write cannot be read", namespace=NAMESPACE) from error


class WriteNotes:
    """The notes of one write. Errors of all methods: UnavailableError, a NameServer does not answer."""

    def __init__(self, admin: AsyncAdminClient, write_id: str) -> None:
        self._admin = admin
        self._write_id = write_id

    async def begin(self, *, now_ms: int) -> None:
        """The write begins."""
        await self._admin.put_kv(NAMESPACE, self._write_id, json.dumps({"began": now_ms}))

    async def has_ended(self) -> bool:
        """Whether the write's own note is gone."""
        return await self._admin.get_kv(NAMESPACE, self._write_id) is None

    async def task(self, partition: int) -> TaskNote | None:
        """A task's note, None before its first attempt."""
        text = await self._admin.get_kv(NAMESPACE, self._task_key(partition))
        return None if text is None else TaskNote.decode(text)

    async def put_task(self, partition: int, note: TaskNote) -> None:
        """Note that a task begins; every NameServer has it on return."""
        await self._admin.put_kv(NAMESPACE, self._task_key(partition), note.encode())

    async def remove_task(self, partition: int) -> None:
        """Remove a task's note."""
        await self._admin.delete_kv(NAMESPACE, self._task_key(partition))

    async def end(self) -> None:
        """Remove all notes of the write, its own first."""
        await self._admin.delete_kv(NAMESPACE, self._write_id)
        for key in await self._admin.list_kv(NAMESPACE):
            if key.startswith(f"{self._write_id}."):
                await self._admin.delete_kv(NAMESPACE, key)

    async def remove_forgotten(self, *, before_ms: int) -> None:
        """Remove the notes of any write that were made before that time."""
        for key, text in (await self._admin.list_kv(NAMESPACE)).items():
            try:
                began_ms = int(json.loads(text)["began"])
            except (ValueError, KeyError, TypeError):
                continue  # another version made it, which removes its own
            if began_ms < before_ms:
                logger.warning("forgotten note of a Spark write removed key=%s", key)
                await self._admin.delete_kv(NAMESPACE, key)

    def _task_key(self, partition: int) -> str:
        return f"{self._write_id}.{partition}"
