"""A cold tier in memory: ColdReads over a plain list of records, with switches for errors."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from thermocline.broker.cold.cold_reads import (
    Boundary,
    ColdBounds,
    ColdKeyQuery,
    ColdPull,
    ColdPullResult,
    ColdRecord,
    ColdTimeSearch,
)
from thermocline.broker.cold.cold_state import ColdHealth, ColdState
from thermocline.filters import compile_expression
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.remoting.string_hash import tags_code
from thermocline.store.message_store import MessageStore


@dataclass(slots=True, kw_only=True)
class MemoryColdTier:
    """Holds copies of what it is given. `is_known` False: it has not been heard of yet. `is_away`: it gives no answer.

    `gate`: answers wait until it is set. `claimed`: what it says it holds, true or not.
    """

    records: dict[tuple[str, int], list[tuple[MessageRecord, bytes]]] = field(default_factory=dict)
    is_known: bool = True
    is_away: bool = False
    gate: asyncio.Event | None = None
    claimed: ColdBounds | None = None
    pulls: list[ColdPull] = field(default_factory=list)
    closed_readers: list[str] = field(default_factory=list)

    def copy_from(self, store: MessageStore, topic: str, queue_id: int, *, end: int, start: int = 0) -> None:
        """Copy queue offsets [start, end) out of a store."""
        queue = store.queues.find(topic, queue_id)
        assert queue is not None
        held = self.records.setdefault((topic, queue_id), [])
        for offset in range(start, end):
            unit = queue.unit(offset)
            data = bytes(store.commit_log.record_view(unit.physical_offset, unit.size_bytes))
            held.append((store.read_record(unit.physical_offset), data))

    def health(self) -> ColdHealth:
        return ColdHealth(state=ColdState.AWAY if self.is_away else ColdState.SERVING)

    def bounds(self, topic: str, queue_id: int) -> ColdBounds | None:
        if not self.is_known:
            return None
        if self.claimed is not None:
            return self.claimed
        held = self.records.get((topic, queue_id))
        if not held:
            return ColdBounds(min_offset=0, end_offset=0)
        return ColdBounds(min_offset=held[0][0].queue_offset, end_offset=held[-1][0].queue_offset + 1)

    def held(self, pull: ColdPull) -> ColdPullResult | None:
        return None

    async def pull(self, pull: ColdPull) -> ColdPullResult:
        self.pulls.append(pull)
        await self._answer()
        expression = compile_expression(pull.expression) if pull.expression else None

        def is_wanted(record: MessageRecord) -> bool:
            if expression is not None:
                return expression.matches(record.properties)
            return not pull.codes or tags_code(record.tags) in pull.codes

        records: list[bytes] = []
        next_offset = pull.offset
        size_bytes = 0
        for record, data in self.records[pull.topic, pull.queue_id]:
            if record.queue_offset < pull.offset:
                continue
            expired = record.store_timestamp_ms < pull.expired_before_ms
            if not expired and is_wanted(record):
                if records and (len(records) >= pull.count_max or size_bytes + len(data) > pull.bytes_max):
                    break
                records.append(data)
                size_bytes += len(data)
            next_offset = record.queue_offset + 1
        return ColdPullResult(
            records=[b"".join(records)] if records else [], message_count=len(records), next_offset=next_offset
        )

    def reader_left(self, reader: str) -> None:
        self.closed_readers.append(reader)

    async def min_offset(self, topic: str, queue_id: int, *, expired_before_ms: int) -> int | None:
        record = await self._first(topic, queue_id, expired_before_ms)
        return None if record is None else record.queue_offset

    async def earliest_time_ms(self, topic: str, queue_id: int, *, expired_before_ms: int) -> int | None:
        record = await self._first(topic, queue_id, expired_before_ms)
        return None if record is None else record.store_timestamp_ms

    async def offset_by_time(self, search: ColdTimeSearch) -> int | None:
        await self._answer()
        times = [
            (record.store_timestamp_ms, record.queue_offset)
            for record, _ in self.records.get((search.topic, search.queue_id), [])
            if record.store_timestamp_ms >= search.expired_before_ms
        ]
        if search.boundary is Boundary.LOWER:
            return next((offset for time_ms, offset in times if time_ms >= search.timestamp_ms), None)
        return next((offset for time_ms, offset in reversed(times) if time_ms <= search.timestamp_ms), None)

    async def query_keys(self, query: ColdKeyQuery) -> list[ColdRecord]:
        await self._answer()
        found = [
            self._cold_record(record, data)
            for held in self.records.values()
            for record, data in held
            if record.topic == query.topic
            and query.key in {record.unique_key, record.tags, *(record.keys or "").split(" ")}
            and query.begin_ms <= record.store_timestamp_ms <= query.end_ms
            and record.store_timestamp_ms >= query.expired_before_ms
        ]
        return sorted(found, key=lambda record: record.physical_offset, reverse=True)[: query.count_max]

    async def view(self, physical_offset: int) -> ColdRecord | None:
        await self._answer()
        for held in self.records.values():
            for record, data in held:
                if record.physical_offset == physical_offset:
                    return self._cold_record(record, data)
        return None

    async def _first(self, topic: str, queue_id: int, expired_before_ms: int) -> MessageRecord | None:
        await self._answer()
        held = self.records.get((topic, queue_id), [])
        return next((record for record, _ in held if record.store_timestamp_ms >= expired_before_ms), None)

    async def _answer(self) -> None:
        if self.is_away or not self.is_known:
            raise UnavailableError("the tier process is away")
        if self.gate is not None:
            await self.gate.wait()

    @staticmethod
    def _cold_record(record: MessageRecord, data: bytes) -> ColdRecord:
        return ColdRecord(
            physical_offset=record.physical_offset,
            topic=record.topic,
            store_timestamp_ms=record.store_timestamp_ms,
            record=data,
        )
