"""RowKeys: unique ids by which the rows of one task are found again among a queue's messages.

A key has the form of RocketMQ's unique ids of clients with an IPv6 address (56 hexadecimal digits), so that every tool
takes it for one. What stands where:

    6 bytes   the task: digest of (write id, micro-batch, partition)
    12 bytes  the row: digest of its content, or of the column `id`
    4 bytes   high half of the row's number in its attempt
    4 bytes   ms since the first of the month at the time the task was first begun, as in all unique ids
    2 bytes   low half of the row's number

The first two say which row it is, whatever the order in which an attempt sees its rows. The number keeps the ids of
equal rows apart; of those only the count matters, so an attempt that finds a number taken takes another.
"""

from __future__ import annotations

import hashlib

from thermocline.remoting.records.message_id import month_bounds_ms
from thermocline.spark.writing.write_columns import DIGEST_BYTES

TASK_BYTES = 6
ROW_NUMBER_BITS = 48
KEY_CHARACTERS = 56


class RowKeys:
    """The keys of one task; equal in all of its attempts but for the rows' numbers."""

    def __init__(self, *, write_id: str, batch_id: int, partition: int, begun_ms: int) -> None:
        """`begun_ms`: when the first attempt began."""
        task = hashlib.blake2b(f"{write_id}/{batch_id}/{partition}".encode(), digest_size=TASK_BYTES)
        self._task = task.hexdigest().upper()
        elapsed_ms = begun_ms - month_bounds_ms(begun_ms)[0]
        self._time = f"{elapsed_ms & 0xFFFF_FFFF:08X}"

    def key(self, digest: bytes, number: int) -> str:
        """The unique id of a row; `number` counts the rows of the attempt."""
        assert len(digest) == DIGEST_BYTES
        high = number >> 16 & 0xFFFF_FFFF
        return f"{self._task}{digest.hex().upper()}{high:08X}{self._time}{number & 0xFFFF:04X}"

    def digest_in(self, unique_key: str) -> bytes | None:
        """The row's digest when a unique id is one of this task, else None."""
        if len(unique_key) != KEY_CHARACTERS or not unique_key.startswith(self._task):
            return None
        start = len(self._task)
        return bytes.fromhex(unique_key[start : start + 2 * DIGEST_BYTES])
