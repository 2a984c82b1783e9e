"""Hidden messages: a topic's expired messages that are still stored, found by the hot process, as proof evidence.

    local files     log files with expired messages of the topic in them, its queues' units, the index that files them
    samples         of each queue the oldest and the newest expired message that is stored, hot and cold, read past the
                    cut: the caller pulls these to check whether a reader can reach them

Nothing is read but samples and units: a log file's share is found by binary search in each queue. Belongs to the hot
process's loop, which others get between any two queues. At most `SAMPLES_MAX` samples and `FILES_MAX` log files.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import msgspec

from thermocline.broker.cold import ColdPull, ColdReads
from thermocline.broker.queues import LOOKUP_GROUP, QueueLookup, VisibleQueues
from thermocline.broker.tier.tier_explanation import why_file_stays
from thermocline.remoting.errors import CorruptDataError, OffsetOutOfRangeError
from thermocline.remoting.offsets import NO_PHYSICAL_OFFSET, PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_id import encode_message_id
from thermocline.remoting.records.message_record import MessageRecord, decode_record
from thermocline.store.files import Disk
from thermocline.store.index import IndexHeader
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import UNIT, ConsumeQueue
from thermocline.store.retention import FileVerdict, RetentionGate

SAMPLES_MAX = 64
FILES_MAX = 256
RELEASED_WITH_LOG = "with the log files that it points into"


class HiddenSample(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One expired message that is stored still."""

    queue_id: int
    offset: QueueOffset
    store_ms: int
    message_id: str
    unique_key: str | None
    keys: list[str]
    is_cold: bool


class HiddenFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A local file with so many expired messages of the topic, or what is known of them, in it. `bytes`: all of it."""

    path: str
    kind: str
    messages: int
    bytes: int
    due_ms: int | None
    why: str


class HiddenQueue(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One queue: what is visible, [minimum, end), and where the stored ones begin, hot and cold."""

    queue_id: int
    minimum: QueueOffset
    end: QueueOffset
    local_minimum: QueueOffset
    cold_minimum: QueueOffset | None
    oldest_visible_ms: int | None


class HiddenMessages:
    """See the module's header."""

    def __init__(
        self,
        *,
        disk: Disk,
        store: MessageStore,
        cold: ColdReads,
        visible: VisibleQueues,
        lookup: QueueLookup,
        store_host: tuple[str, int],
        gate: Callable[[], RetentionGate],
    ) -> None:
        """`gate`: what local deletion has to wait for."""
        self._disk = disk
        self._store = store
        self._cold = cold
        self._visible = visible
        self._lookup = lookup
        self._store_host = store_host
        self._gate = gate

    async def queues(self, topic: str) -> list[HiddenQueue]:
        """All queues of the topic.

        Raises:
            UnavailableError: The cold tier has the record and gives no answer now.
        """
        found: list[HiddenQueue] = []
        for queue in self._queues(topic):
            minimum, end = await self._visible.minimum(queue), self._visible.end(queue)
            bounds = self._cold.bounds(topic, queue.queue_id)
            has_cold = bounds is not None and bounds.min_offset < bounds.end_offset
            oldest_ms = None
            if minimum < end:
                oldest_ms = await self._lookup.message_time(topic, queue.queue_id, minimum)
            found.append(
                HiddenQueue(
                    queue_id=queue.queue_id,
                    minimum=minimum,
                    end=end,
                    local_minimum=queue.min_offset,
                    cold_minimum=bounds.min_offset if bounds is not None and has_cold else None,
                    oldest_visible_ms=oldest_ms,
                )
            )
        return found

    async def samples(self, topic: str, queues: list[HiddenQueue]) -> list[HiddenSample]:
        """The oldest and the newest expired message of each queue and tier, as long as there is room.

        Raises:
            UnavailableError: The cold tier cannot be asked now.
        """
        found: dict[tuple[int, QueueOffset], HiddenSample] = {}
        for each in queues:
            queue = self._store.queues.find(topic, each.queue_id)
            if queue is None:
                continue
            hot_end = self._visible.hot_start(queue)
            cold_end = min(each.minimum, queue.min_offset)
            offsets = [hot_end - 1, queue.min_offset] if queue.min_offset < hot_end else []
            if each.cold_minimum is not None and each.cold_minimum < cold_end:
                offsets += [cold_end - 1, each.cold_minimum]
            for offset in offsets:
                if len(found) >= SAMPLES_MAX or (each.queue_id, offset) in found:
                    continue
                record = await self._stored(queue, offset)
                if record is not None:
                    found[each.queue_id, offset] = self._sample(record, is_cold=offset < queue.min_offset)
        return list(found.values())

    async def local_files(self, topic: str, *, now_ms: int) -> list[HiddenFile]:
        """Local files with expired messages of the topic, or traces of them."""
        log = self._store.commit_log
        files = list(log.files)[:FILES_MAX]
        starts = [file.base_offset for file in files]
        counts = [0] * len(files)
        newest_offset = NO_PHYSICAL_OFFSET
        rows: list[HiddenFile] = []
        for queue in self._queues(topic):
            first, end = queue.min_offset, self._visible.hot_start(queue)
            if first >= end:
                continue
            newest_offset = max(newest_offset, queue.unit(end - 1).physical_offset)
            rows.append(
                HiddenFile(
                    path=f"{self._store.config.consume_queue_path}/{topic}/{queue.queue_id}",
                    kind="queue",
                    messages=end - first,
                    bytes=(end - first) * UNIT.size,
                    due_ms=None,
                    why=RELEASED_WITH_LOG,
                )
            )
            for number in range(len(files)):
                if first >= end:
                    break
                following = starts[number + 1] if number + 1 < len(starts) else PhysicalOffset(1 << 62)
                stop = min(end, queue.first_at_or_behind(following, start=first))
                counts[number] += stop - first
                first = stop
                await asyncio.sleep(0)
        held = {file.name: count for file, count in zip(files, counts, strict=True) if count}
        logs = self._log_files(held, now_ms=now_ms)
        return logs + rows + (self._index_files(newest_offset) if rows else [])

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _queues(self, topic: str) -> list[ConsumeQueue]:
        return sorted(self._store.queues.of_topic(topic).values(), key=lambda queue: queue.queue_id)

    async def _stored(self, queue: ConsumeQueue, offset: QueueOffset) -> MessageRecord | None:
        """The record, whether it may be seen or not; None when nothing is stored there any more."""
        if offset >= queue.min_offset:
            unit = queue.unit(offset)
            if unit.is_empty:
                return None
            try:
                return self._store.read_record(unit.physical_offset)
            except (OffsetOutOfRangeError, CorruptDataError):
                return None
        pull = ColdPull(
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=offset,
            count_max=1,
            bytes_max=1,
            codes=None,
            expired_before_ms=0,
            group=LOOKUP_GROUP,
        )
        result = await self._cold.pull(pull)
        if not result.records:
            return None
        record = decode_record(memoryview(result.records[0]), check_crc=False)
        return record if record.queue_offset == offset else None

    def _sample(self, record: MessageRecord, *, is_cold: bool) -> HiddenSample:
        return HiddenSample(
            queue_id=record.queue_id,
            offset=record.queue_offset,
            store_ms=record.store_timestamp_ms,
            message_id=encode_message_id(self._store_host, record.physical_offset),
            unique_key=record.unique_key,
            keys=(record.keys or "").split(),
            is_cold=is_cold,
        )

    def _log_files(self, held: Mapping[str, int], *, now_ms: int) -> list[HiddenFile]:
        """Log files, by name, with so many expired messages in them. One that stays holds up all behind it."""
        store = self._store
        base_offsets = {file.name: file.base_offset for file in store.commit_log.files}
        hour = time.localtime(now_ms / 1_000).tm_hour
        rows: list[HiddenFile] = []
        blocker: FileVerdict | None = None
        for own in store.retention.verdicts(self._gate(), now_ms=now_ms, hour=hour):
            if blocker is None and own.held_by:
                blocker = own
            verdict = own if blocker is None else blocker
            count = held.get(own.file_name)
            if count is not None:
                has_date = verdict.old_at_ms is not None and not verdict.held_by
                rows.append(
                    HiddenFile(
                        path=f"{store.commit_log.files.directory}/{own.file_name}",
                        kind="log",
                        messages=count,
                        bytes=own.end_offset - base_offsets[own.file_name],
                        due_ms=max(now_ms, verdict.old_at_ms or 0) if has_date else None,
                        why=why_file_stays(verdict, now_ms=now_ms),
                    )
                )
        return rows

    def _index_files(self, newest_offset: PhysicalOffset) -> list[HiddenFile]:
        """Index files that may file the expired messages: hashes of keys and places in the log, no texts."""
        folder = self._store.config.index_path
        rows: list[HiddenFile] = []
        if not self._disk.exists(folder):
            return rows
        for name in sorted(self._disk.list_directory(folder)):
            path = f"{folder}/{name}"
            try:
                header, size_bytes = self._index_header(path)
            except (FileNotFoundError, CorruptDataError):
                continue  # the index process has let it go, or has not written it yet
            is_of_log = header.last_physical_offset >= self._store.commit_log.min_offset
            if header.first_physical_offset <= newest_offset and is_of_log:
                rows.append(
                    HiddenFile(
                        path=path, kind="index", messages=0, bytes=size_bytes, due_ms=None, why=RELEASED_WITH_LOG
                    )
                )
        return rows

    def _index_header(self, path: str) -> tuple[IndexHeader, int]:
        file = self._disk.open(path)
        try:
            return IndexHeader.read(file), file.size_bytes
        finally:
            file.close()
