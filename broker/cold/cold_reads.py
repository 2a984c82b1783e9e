"""Cold reads: the interface through which request processors read from the tier process.

A queue offset below the queue's local minimum, and a physical offset below the log's, may still be held by the cold
tier. Answers never use the hot process's own disk, may take a while, and may fail.

Rules
  - `bounds` returns the tier's last report, from memory. None: no tier has reported yet. Requests that depend on it
    then get a retryable answer, never the local minimum: an official client would skip history.
  - All other calls raise `UnavailableError` when there is no answer now. They may be cancelled when the client has
    disconnected.
  - Records are returned byte for byte as the log held them, whole, in order of their queue offset, without gaps within
    one answer (which may hold fewer records than requested).
  - A record stored before `expired_before_ms` has expired: it is not returned, and minimum offsets are above it.
  - The implementation bounds the bytes in flight, its callers the requests in flight.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

import msgspec

from thermocline.broker.cold.cold_state import ColdHealth, ColdState
from thermocline.remoting.offsets import QUEUE_START, PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import MessageRecord, decode_record
from thermocline.tiered.catalog import NO_GAPS, QueueGaps


class Boundary(Enum):
    """Which of several offsets a timestamp means."""

    LOWER = "lower"
    UPPER = "upper"


class ColdBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The queue offsets `[min_offset, end_offset)` that the tier serves; the TTL cut is not yet applied. `gaps`: the
    declared holes, offsets that hold no message; some may reach beyond the bounds."""

    min_offset: QueueOffset
    end_offset: QueueOffset
    gaps: QueueGaps = NO_GAPS


class ColdPull(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one queue from `offset` on, at most `count_max` and `bytes_max` (but at least one)."""

    topic: str
    queue_id: int
    offset: QueueOffset
    count_max: int
    bytes_max: int
    codes: frozenset[int] | None
    """Tag codes that match; None: all messages."""
    expression: str = ""
    """SQL92 expression that the properties have to fulfil; empty: all messages."""
    expired_before_ms: int
    group: str
    """The consumer group: limits and read-ahead are per group."""
    reader: str = ""
    """The client that waits for the answer (`reader_left`); empty: none that can disconnect."""


class ColdPullResult(msgspec.Struct, frozen=True, kw_only=True):
    """Records found, and how far the search went.

    `next_offset` is where the next pull goes on: behind the last record returned or filtered out, or the first offset
    that is there when `offset` lay below it. No records and `next_offset` above `offset`: everything up to there was
    filtered out, or does not exist.
    """

    records: Sequence[bytes | memoryview]
    """Runs of whole records, in order."""
    message_count: int
    next_offset: QueueOffset


class ColdTimeSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The offset whose record was stored at a time, within the cold part of a queue."""

    topic: str
    queue_id: int
    timestamp_ms: int
    boundary: Boundary
    expired_before_ms: int


class ColdKeyQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Records by key: `index_type` is `K` key, `U` unique id, `T` tag; newest first, at most `count_max`."""

    topic: str
    key: str
    index_type: str
    begin_ms: int
    end_ms: int
    count_max: int
    expired_before_ms: int


class ColdRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One whole record, found by key or by its physical offset."""

    physical_offset: PhysicalOffset
    topic: str
    store_timestamp_ms: int
    record: bytes | memoryview


class ColdReads(Protocol):
    """The interface of the tier process. Belongs to the hot process's event loop."""

    def health(self) -> ColdHealth:
        """The state of the cold tier."""

    def bounds(self, topic: str, queue_id: int) -> ColdBounds | None:
        """The tier's range of a queue; both bounds equal when it serves nothing. None: unknown."""

    def held(self, pull: ColdPull) -> ColdPullResult | None:
        """The answer to a pull if it is in memory: records that came with an earlier one; some may have expired."""

    async def pull(self, pull: ColdPull) -> ColdPullResult:
        """Messages of a queue.

        Raises:
            UnavailableError: No answer now; the same pull may be retried.
        """

    def reader_left(self, reader: str) -> None:
        """Drop the records kept or fetched for this reader alone; its pulls are cancelled by their caller."""

    async def min_offset(self, topic: str, queue_id: int, *, expired_before_ms: int) -> QueueOffset | None:
        """The first offset whose record is stored in the tier and has not expired; None when there is none.

        Raises:
            UnavailableError: No answer now.
        """

    async def earliest_time_ms(self, topic: str, queue_id: int, *, expired_before_ms: int) -> int | None:
        """The store time of the record at `min_offset`; None when there is none.

        Raises:
            UnavailableError: No answer now.
        """

    async def offset_by_time(self, search: ColdTimeSearch) -> QueueOffset | None:
        """LOWER: the first offset stored at or after the time, None when all are older. UPPER: the last offset stored
        at or before it, None when all are newer.

        Raises:
            UnavailableError: No answer now.
        """

    async def query_keys(self, query: ColdKeyQuery) -> list[ColdRecord]:
        """Records that have a key.

        Raises:
            UnavailableError: No answer now.
        """

    async def view(self, physical_offset: PhysicalOffset) -> ColdRecord | None:
        """The record at a physical offset; None when no record starts there.

        Raises:
            UnavailableError: No answer now.
        """


class NoColdTier:
    """A broker without a cold tier: messages below the local minimum are deleted. Every read returns at once."""

    def health(self) -> ColdHealth:
        """Return the state NONE."""
        return ColdHealth(state=ColdState.NONE)

    def bounds(self, topic: str, queue_id: int) -> ColdBounds:
        """Return an empty range: the cold tier has no message of the queue."""
        return ColdBounds(min_offset=QUEUE_START, end_offset=QUEUE_START)

    def held(self, pull: ColdPull) -> ColdPullResult | None:
        """Return None: no records are held in memory."""
        return None

    async def pull(self, pull: ColdPull) -> ColdPullResult:
        """Return no records; the next offset is that of the pull."""
        return ColdPullResult(records=(), message_count=0, next_offset=pull.offset)

    def reader_left(self, reader: str) -> None:
        """Do nothing: no state is kept for readers."""

    async def min_offset(self, topic: str, queue_id: int, *, expired_before_ms: int) -> QueueOffset | None:
        """Return None: the queue has no cold message."""
        return None

    async def earliest_time_ms(self, topic: str, queue_id: int, *, expired_before_ms: int) -> int | None:
        """Return None: the queue has no cold message."""
        return None

    async def offset_by_time(self, search: ColdTimeSearch) -> QueueOffset | None:
        """Return None: the queue has no cold message."""
        return None

    async def query_keys(self, query: ColdKeyQuery) -> list[ColdRecord]:
        """Return no records."""
        return []

    async def view(self, physical_offset: PhysicalOffset) -> ColdRecord | None:
        """Return None: no cold record starts there."""
        return None


async def pull_one(
    cold: ColdReads, topic: str, queue_id: int, offset: QueueOffset, *, expired_before_ms: int, group: str
) -> ColdPullResult:
    """Pull the message at one offset of a queue; `record_at` takes it out of the answer.

    Raises:
        UnavailableError: There is no answer now.
    """
    return await cold.pull(
        ColdPull(
            topic=topic,
            queue_id=queue_id,
            offset=offset,
            count_max=1,
            bytes_max=1,
            codes=None,
            expired_before_ms=expired_before_ms,
            group=group,
        )
    )


def record_at(result: ColdPullResult, offset: QueueOffset, *, check_crc: bool = True) -> MessageRecord | None:
    """Return the first record of an answer if it is that of a queue offset; None when it is another, or there is none.

    Raises:
        CorruptDataError: It is no sound record.
    """
    if not result.records:
        return None
    record = decode_record(memoryview(result.records[0]), check_crc=check_crc)
    return record if record.queue_offset == offset else None
