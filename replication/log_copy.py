"""Log copy: makes a store's log the copy of a master's, byte by byte at the same offsets, and its queues with it.

    bytes of the master's log -> whole records -> log -> queue units -> pulls that wait
                                 the blank at a file's end -> log, next file

A transfer ends anywhere in a record. Its first part waits in memory until the rest is there, so the log always ends
with a whole record: recovery, flush, index and readers find what they find on a master. After a broken connection the
part is dropped, and the master sends it again.

Rules
  - A record goes into the log when it is sound: the size of its fields, its own offset, its checksum. Else
    CorruptDataError, and nothing of it is written.
  - An empty log begins where the master's first bytes do, which is a file's border.
  - Bound: RECORD_BYTES_MAX of one record or blank are kept in memory, and what came with it. Of a longer blank, which
    a take-over of the ledger leaves (broker/recovery/ledger_takeover.py), only the head is kept: the rest is zeros.
Belongs to the loop thread, or to a simulation.
Source: DefaultMessageStore.appendToCommitLog, ReputMessageService, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import logging

from thermocline.remoting.errors import CorruptDataError, DiskFullError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.remoting.records.message_record import BLANK, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN
from thermocline.store.dispatch import has_unit
from thermocline.store.log import RecordScan, ScannedRecord
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import ConsumeQueue
from thermocline.store.unit_placement import UnitPlacement

logger = logging.getLogger(__name__)

RECORD_BYTES_MAX = 64 << 20
COPY_REFUSAL = "a slave's log is the copy of its master's"
"""Why nothing else can be appended."""


class LogCopy:
    """One store's."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._log = store.commit_log
        self._placement = UnitPlacement(store.queues, store.config)
        self._part = bytearray()
        self._blank_bytes_left = 0
        """Of a long blank, whose head is all of `_part`."""
        self._whole_bytes = BLANK.size
        """With fewer bytes in `_part` nothing in it is whole."""
        self._log.refuse_all(COPY_REFUSAL)

    @property
    def end_offset(self) -> PhysicalOffset:
        """Where the log ends; its last record is whole."""
        return self._log.append_offset

    def restart(self) -> None:
        """A connection has ended: drop the part of a record that came last."""
        self._part = bytearray()  # the old one may still have a view in an error's traceback
        self._blank_bytes_left = 0
        self._whole_bytes = BLANK.size

    def end(self) -> None:
        """The log is no copy any more: others may append to it."""
        self.restart()
        self._log.refuse_no_more(COPY_REFUSAL)

    def receive(self, offset: PhysicalOffset, data: memoryview) -> None:
        """Take bytes of the master's log, which follow the last ones; whole records are in the log on return.

        Raises:
            CorruptDataError: They are no part of a log, or files have other lengths there.
            ServiceUnavailableError, DiskFullError: Not now; the same bytes may be sent again, after `restart`.
            StoreClosedError: A write failed, now or before.
        """
        if self._blank_bytes_left:
            data = data[self._skip_blank(len(data)) :]
            if not data:
                return
            offset = self._log.append_offset
        if not self._part and offset != self._log.append_offset:
            self._begin_at(offset)
        assert offset == self._log.append_offset + len(self._part)
        self._part += data
        while len(self._part) >= self._whole_bytes and self._take_records():
            pass

    def _begin_at(self, offset: PhysicalOffset) -> None:
        log = self._log
        if log.append_offset != LOG_START or offset % log.file_bytes:
            raise CorruptDataError(
                "the master's log does not begin at a file border here: is mappedFileSizeCommitLog the same there?",
                offset=offset,
                file_bytes=log.file_bytes,
            )
        with log.let_through(COPY_REFUSAL):
            log.start_copy_at(offset)
        self._store.queues.files.log_min_offset = log.min_offset
        self._store.sync_derived()
        logger.info("log begins at the master's first transfer offset=%d", offset)

    def _take_records(self) -> bool:
        """Take the whole records, or the blank, that the part begins with; False if more bytes are needed."""
        log = self._log
        start = log.append_offset
        scan = RecordScan(start)
        with memoryview(self._part) as view:
            records = list(scan.records(view, start))
            size_bytes = scan.end_offset - start
            if size_bytes:
                self._append(view[:size_bytes])
        if size_bytes:
            del self._part[:size_bytes]
            self._whole_bytes = BLANK.size
            self._dispatch(records)
            return True
        return self._take_blank()

    def _take_blank(self) -> bool:
        """The part begins with no whole record: with a blank, or with a record that is not whole or not sound."""
        log, part = self._log, self._part
        size_bytes, magic = BLANK.unpack_from(part)
        is_blank = magic == MAGIC_BLANK
        size_bytes_min = BLANK.size if is_blank else RECORD_BYTES_MIN
        size_bytes_max = log.file_bytes if is_blank else RECORD_BYTES_MAX
        if magic not in (MAGIC_BLANK, MAGIC_V1, MAGIC_V2) or not size_bytes_min <= size_bytes <= size_bytes_max:
            raise CorruptDataError("no record is there", physical_offset=log.append_offset, size_bytes=size_bytes)
        if len(part) < size_bytes:
            if size_bytes > RECORD_BYTES_MAX:
                self._begin_long_blank(size_bytes)
            self._whole_bytes = size_bytes
            return False
        if not is_blank:
            raise CorruptDataError("the record is not sound", physical_offset=log.append_offset, size_bytes=size_bytes)
        if size_bytes != log.file_bytes - log.append_offset % log.file_bytes:
            raise CorruptDataError("files of the log have other lengths there", physical_offset=log.append_offset)
        with memoryview(part) as view, log.let_through(COPY_REFUSAL):
            log.roll(view[:size_bytes])
        del part[:size_bytes]
        self._whole_bytes = BLANK.size
        return True

    def _begin_long_blank(self, size_bytes: int) -> None:
        log, part = self._log, self._part
        if size_bytes != log.file_bytes - log.append_offset % log.file_bytes:
            raise CorruptDataError("files of the log have other lengths there", physical_offset=log.append_offset)
        self._blank_bytes_left = size_bytes - len(part)
        del part[BLANK.size :]

    def _skip_blank(self, count: int) -> int:
        """Leave out up to `count` bytes of a long blank; how many of them it had. The last one ends the file."""
        skipped = min(count, self._blank_bytes_left)
        self._blank_bytes_left -= skipped
        if not self._blank_bytes_left:
            with self._log.let_through(COPY_REFUSAL):
                self._log.roll()
            self._part.clear()
            self._whole_bytes = BLANK.size
        return skipped

    def _append(self, data: memoryview) -> None:
        log = self._log
        if len(data) > log.room_bytes:
            raise CorruptDataError("files of the log have other lengths there", physical_offset=log.append_offset)
        with log.let_through(COPY_REFUSAL):
            log.append(data)

    def _dispatch(self, records: list[ScannedRecord]) -> None:
        """Give queues the units of records that are in the log now, and wake the pulls that wait for them."""
        store = self._store
        grown: dict[ConsumeQueue, None] = {}
        try:
            for record in records:
                store.clock.restore(record.store_timestamp_ms)
                if not has_unit(record.sys_flag):
                    continue
                if store.incarnations.is_live(record.topic, record.physical_offset):
                    queue = store.queues.find_or_create(record.topic, record.queue_id)
                    if self._placement.place(queue, record):
                        grown[queue] = None
                        continue
                store.queues.unplaced_count += 1
        except (OSError, DiskFullError) as error:
            self._log.fail(f"queue units not placed: {error}")
            raise
        for queue in grown:
            store.on_append(queue)
