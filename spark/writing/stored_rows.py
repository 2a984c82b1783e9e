"""Stored rows: which rows of a task its earlier attempts have stored, read back from the queues.

Every queue is read from where it ended before the task's first attempt to where it ends now. This must run when no
earlier attempt has anything under way (AsyncSoleProducer); then what is found is all that was stored, acknowledged or
not. It reads all messages of all producers that were sent to the topics since the task began.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from thermocline.client.admin.async_admin_client import AsyncAdminClient
from thermocline.client.consumer.consumer_calls import PullStatus
from thermocline.client.message_queue import MessageQueue
from thermocline.remoting.errors import OffsetOutOfRangeError, UnavailableError
from thermocline.spark.writing.row_keys import RowKeys

PULL_COUNT_MAX = 1_024
WAIT_S = 0.1
WAITS_MAX = 100


class StoredRows:
    """The stored messages that no row of the present attempt has matched yet."""

    def __init__(self) -> None:
        self._counts: Counter[bytes] = Counter()
        self._keys: set[str] = set()

    def add(self, digest: bytes, unique_key: str) -> None:
        """This message is stored."""
        self._counts[digest] += 1
        self._keys.add(unique_key)

    @property
    def count(self) -> int:
        """How many were not matched."""
        return self._counts.total()

    def match(self, digest: bytes) -> bool:
        """Whether a row is stored; if so, its message is removed, so that it matches no other row."""
        if not self._counts[digest]:  # asking a Counter leaves nothing behind
            return False
        self._counts[digest] -= 1
        return True

    def is_taken(self, unique_key: str) -> bool:
        """Whether a stored message has this id: an equal row had the same number in an earlier attempt."""
        return unique_key in self._keys


async def read_stored_rows(admin: AsyncAdminClient, starts: Mapping[MessageQueue, int], keys: RowKeys) -> StoredRows:
    """Every message of the task that the queues hold from `starts` on.

    Raises:
        OffsetOutOfRangeError: A queue begins behind its start, or ends before it: its messages are lost.
        UnavailableError: A broker of the queues does not answer.
    """
    stored = StoredRows()
    for queue, start in starts.items():
        end = await admin.max_offset(queue)
        first = await admin.min_offset(queue)
        if end < start or (first > start and end > start):
            raise OffsetOutOfRangeError(
                "what an earlier attempt of this task sent cannot be read back: the queue begins or ends elsewhere now",
                queue=str(queue),
                queue_offset=start,
                min_offset=first,
                max_offset=end,
            )
        offset, waits = start, 0
        while offset < end:
            result = await admin.pull(queue, offset, count_max=PULL_COUNT_MAX)
            if result.status is PullStatus.OFFSET_ILLEGAL:
                raise OffsetOutOfRangeError(
                    "what an earlier attempt of this task sent expired while it was read back",
                    queue=str(queue),
                    queue_offset=offset,
                )
            for message in result.messages:
                digest = keys.digest_in(message.message_id)
                if digest is not None:
                    stored.add(digest, message.message_id)
            if result.next_begin_offset > offset:
                offset, waits = result.next_begin_offset, 0
                continue
            # The broker counts what it does not serve yet: it follows.
            waits += 1
            if waits > WAITS_MAX:
                raise UnavailableError("a queue is not served to its end", queue=str(queue), queue_offset=offset)
            await asyncio.sleep(WAIT_S)
    return stored
