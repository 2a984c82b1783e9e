"""Recovery: bring log, queues and time back to one sound state, however the store was left.

With queue ends (queue_ends.py), the rule after every stop of ours, clean or not:
  1. Queues start from their recorded ends. A queue of an incarnation that is over is not taken; folders of queues that
     are not recorded are stale (their records, if any live, come behind the recovery offset) and go.
  2. A recorded queue whose files are missing, or of another length, is rebuilt from the oldest log file on. Before that
     what was promised of all files is taken back durably, our promise and Apache RocketMQ's, so that a half rebuilt
     queue is not taken for a whole one should the power fail meanwhile.
  3. The log is scanned from the recovery offset. Each sound, live record puts its unit at its queue offset; the first
     of a queue takes the queue back to where it was at the recovery offset. The first unsound record ends the log,
     unless whole files that were durable follow: that is damage, and an error.
Without them, for a store that Apache RocketMQ wrote (or whose queue ends are lost), its rules:
  1. A queue ends at its first impossible unit; D is the end of the last record that any queue has. One whose units have
     places in extension files for tags codes is made anew from the log: no reader who wants a tag would find them.
  2. The scan begins in the newest file whose first record is at or below D (clean stop), or was stored at or before
     the checkpoint's time (abort file present). Clean: only records from D on are dispatched (RocketMQ has "behind D",
     and would miss a record that starts there). Unclean: all, but none that its queue has. When it begins at the log's
     start, the checkpoint's times are taken back durably, for the same reason as above.
Then, in both: units of records behind the log's end are taken back; later log files go, newest first; what follows the
end in the tail file becomes zero, so that no torn record is ever met behind a newer one; and after an unclean stop what
was scanned is written again and synced, since pages whose write-back failed once count as clean to the kernel.
Names are doubted likewise: a process that died may have made a file whose name no power cut would leave, and this one
builds on it. So the folders of all that was read are synced before anything is promised.

No helper process runs meanwhile, and nothing is mapped but by this module.
Source: DefaultMessageStore.recover, CommitLog.recoverNormally and recoverAbnormally, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.offsets import LOG_START, NO_PHYSICAL_OFFSET, QUEUE_START, PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import RECORD_BYTES_MIN
from thermocline.remoting.records.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK
from thermocline.store.config import StoreConfig
from thermocline.store.dispatch import has_unit
from thermocline.store.files import Disk, MappedFileQueue, SyncSite, file_name
from thermocline.store.log import LogScan, ScannedRecord
from thermocline.store.queues import UNIT, ConsumeQueue, ConsumeQueueTable, QueueEnds, TopicEnds, save_queue_ends
from thermocline.store.state import StoreCheckpoint, TopicIncarnations
from thermocline.store.unit_placement import UnitPlacement

logger = logging.getLogger(__name__)

EXTENSION_ADDRESS_MAX = -(1 << 31) - 1
"""From here down RocketMQ's tags code is a place in its extension file (enableConsumeQueueExt), and no hash."""
QUEUE_FILES_SCANNED = 3
"""How many of a queue's newest files are looked through for its end, as Apache RocketMQ does."""
REWRITE_BYTES = 1 << 20
UNITS_READ = 1024
TAILS_BYTES_MAX = 16 << 20
"""Units kept in memory during the scan before they are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """The result of a recovery."""

    was_clean: bool
    used_queue_ends: bool
    scan_start_offset: PhysicalOffset
    append_offset: PhysicalOffset
    store_timestamp_ms: int
    record_count: int
    rebuilt_queue_count: int
    committed_offsets: Sequence[int] = ()
    """Physical offsets of the records in what was scanned that say: committed by a transaction."""


@dataclass(slots=True, kw_only=True)
class _Outcome:
    scan_start_offset: PhysicalOffset
    end_offset: PhysicalOffset
    store_timestamp_ms: int = 0
    record_count: int = 0
    rebuilt_queue_count: int = 0
    committed_offsets: array[int] = field(default_factory=lambda: array("q"))
    may_be_ahead: bool = True
    """Whether a queue may have units of records behind the log's end."""

    def count(self, record: ScannedRecord) -> None:
        """Take notice of a record that the scan met."""
        self.record_count += 1
        self.store_timestamp_ms = max(self.store_timestamp_ms, record.store_timestamp_ms)
        if record.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT:
            self.committed_offsets.append(record.physical_offset)


class Recovery:
    """One recovery of one store. `run` once, before anything else touches the store's files."""

    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        *,
        files: MappedFileQueue,
        queues: ConsumeQueueTable,
        incarnations: TopicIncarnations,
        was_clean: bool,
    ) -> None:
        self._disk = disk
        self._config = config
        self._files = files
        self._queues = queues
        self._incarnations = incarnations
        self._was_clean = was_clean
        self._placement = UnitPlacement(queues, config)
        self._tail_bytes = 0
        self._placed: set[ConsumeQueue] = set()
        """Queues that the scan gave units."""
        self._unfiled: set[ConsumeQueue] = set()
        """Queues whose files were removed: all their units come from the scan."""
        self._positions: dict[ConsumeQueue, list[int]] = {}
        """Where the files of queues start that were looked at, so that 50 000 folders are listed once."""

    def run(self) -> RecoveryReport:
        """Recover; the log's files are loaded and end at the report's append offset.

        Raises:
            CorruptDataError: A log file is missing in the middle, of another length than configured, or damaged in
                front of others that were durable; or the table of incarnations is older than the queue ends.
        """
        self._files.load()
        self._queues.files.log_min_offset = self._files.start_offset
        ends = QueueEnds.load(self._disk, self._config.queue_ends_path)
        usable = ends is not None and self._files.start_offset <= ends.recovery_offset <= self._files.end_offset
        if ends is not None and usable:
            outcome = self._recover_from_queue_ends(ends)
        else:
            outcome = self._recover_as_rocketmq_does(ends)
        # Only a clean stop of this broker guarantees that no record follows the ends.
        is_as_we_left_it = self._was_clean and usable and outcome.record_count == 0
        self._finish(outcome, must_cut=not is_as_we_left_it)
        if not usable:
            # What was found and not written anew is now promised, too, so it must be durable.
            self._disk.sync_tree(self._config.consume_queue_path, site=SyncSite.QUEUE_TREE)
        return RecoveryReport(
            was_clean=self._was_clean,
            used_queue_ends=usable,
            scan_start_offset=outcome.scan_start_offset,
            append_offset=outcome.end_offset,
            store_timestamp_ms=outcome.store_timestamp_ms,
            record_count=outcome.record_count,
            rebuilt_queue_count=outcome.rebuilt_queue_count,
            committed_offsets=outcome.committed_offsets,
        )

    # -- with queue ends -------------------------------------------------------------------------------------------

    def _recover_from_queue_ends(self, ends: QueueEnds) -> _Outcome:
        missing = self._take_recorded_queues(ends)
        if missing:
            self._begin_rebuild(missing, ends)
        self._remove_stale_folders()
        rebuild = {(queue.topic, queue.queue_id) for queue in missing}
        start_offset = self._files.start_offset if rebuild else ends.recovery_offset
        tears_from = None if self._was_clean else ends.capture_offset
        scan = LogScan(self._files, start_offset, tears_from=tears_from)
        outcome = _Outcome(
            scan_start_offset=start_offset,
            end_offset=start_offset,
            store_timestamp_ms=ends.store_timestamp_ms,
            rebuilt_queue_count=len(rebuild),
        )
        met: set[ConsumeQueue] = set()
        for record in scan:
            outcome.count(record)
            is_new = record.physical_offset >= ends.recovery_offset
            if not is_new and (record.topic, record.queue_id) not in rebuild:
                continue
            if not self._has_live_unit(record):
                continue
            queue = self._queues.find_or_create(record.topic, record.queue_id)
            if queue not in met:
                met.add(queue)
                was_counted = record.physical_offset < ends.capture_offset
                self._begin(queue, record, was_counted=was_counted)
            self._place(queue, record)
        self._check_durable_files(scan.end_offset, ends.capture_offset)
        outcome.end_offset = scan.end_offset
        outcome.may_be_ahead = scan.end_offset < ends.capture_offset
        return outcome

    def _check_durable_files(self, end_offset: PhysicalOffset, durable_offset: PhysicalOffset) -> None:
        """Pass an end of the log behind which no file follows that was durable. One before is no torn end but damage:
        with it messages of hours or days would go that are whole, and were acknowledged.

        Raises:
            CorruptDataError: There is such a file.
        """
        if end_offset < self._files.end_offset and self._files.find(end_offset).end_offset < durable_offset:
            raise CorruptDataError(
                "a log file is damaged, others follow; bring it back, or remove the queue ends to end the log there",
                path=self._files.directory,
                damaged_offset=end_offset,
                durable_offset=durable_offset,
                queue_ends=self._config.queue_ends_path,
            )

    def _take_recorded_queues(self, ends: QueueEnds) -> dict[ConsumeQueue, None]:
        """Make the recorded queues of live incarnations; those whose files are missing are returned."""
        missing: dict[ConsumeQueue, None] = {}
        for topic_ends in ends.topics.values():
            if not self._is_present(topic_ends):
                continue
            self._incarnations.found_recorded(topic_ends.topic, topic_ends.incarnation_id)
            for queue_id, next_offset, filed_end, min_offset in topic_ends.queues:
                queue = self._queues.create(topic_ends.topic, queue_id, next_offset=next_offset, min_offset=min_offset)
                if filed_end == 0:
                    self._start_empty(queue)
                elif not self._has_units(queue, min_offset, filed_end):
                    missing[queue] = None
        return missing

    def _is_present(self, topic_ends: TopicEnds) -> bool:
        """Whether recorded queues belong to the topic as it is now.

        Raises:
            CorruptDataError: Their incarnation has not begun yet: the table of incarnations is lost, or an old one.
        """
        if topic_ends.incarnation_id > self._incarnations.last_id:
            raise CorruptDataError(
                "the incarnation table is older than the queue ends; bring it back, or remove the queue ends",
                table=self._config.incarnation_path,
                queue_ends=self._config.queue_ends_path,
            )
        return self._incarnations.is_recorded_as(topic_ends.topic, topic_ends.incarnation_id)

    def _begin_rebuild(self, missing: Collection[ConsumeQueue], ends: QueueEnds) -> None:
        """Save queue ends that promise no filed units, then remove the remaining files of the `missing` queues."""
        nothing_filed = {
            topic: replace(
                topic_ends,
                queues=tuple((number, end, QUEUE_START, low) for number, end, _, low in topic_ends.queues),
            )
            for topic, topic_ends in ends.topics.items()
        }
        promise = replace(ends, recovery_offset=self._files.start_offset, topics=nothing_filed)
        save_queue_ends(self._disk, self._config.queue_ends_path, promise.encode())
        StoreCheckpoint().save(self._disk, self._config.checkpoint_path)
        for queue in missing:
            self._start_empty(queue)

    def _start_empty(self, queue: ConsumeQueue) -> None:
        """Remove the files of a queue none of whose units was promised: what is in them may be half written."""
        self._queues.files.forget(queue)
        self._disk.remove_tree(self._queues.files.path_of(queue))
        self._positions[queue] = []
        self._unfiled.add(queue)
        queue.restart_at(queue.next_offset, min_offset=queue.next_offset)

    def _has_units(self, queue: ConsumeQueue, min_offset: QueueOffset, filed_end: QueueOffset) -> bool:
        """Whether the files hold every unit below `filed_end` that is of use. Removes files in front of a gap.

        Old files are deleted without a sync, so after a power cut some of them may be back. Files of another length
        than configured hold nothing: each unit's place in them follows from the length.
        """
        if min_offset >= filed_end:
            return True
        file_bytes = self._config.queue_file_bytes
        positions = self._queues.files.base_positions(queue.topic, queue.queue_id)
        first = (filed_end - 1) * UNIT.size // file_bytes * file_bytes
        path = self._queues.files.path_of(queue)
        if first not in positions or self._disk.size_bytes(f"{path}/{file_name(first)}") != file_bytes:
            return False
        while first - file_bytes in positions:
            first -= file_bytes
        while positions[0] < first:
            self._disk.remove(f"{path}/{file_name(positions.pop(0))}")
        self._positions[queue] = positions
        return first <= min_offset * UNIT.size

    def _remove_stale_folders(self) -> None:
        """Remove folders of topics and queues that are not in the table."""
        root = self._config.consume_queue_path
        recorded = set(self._queues.topics)
        for topic in self._disk.list_directory(root):
            if not self._disk.is_directory(f"{root}/{topic}"):
                continue
            if topic not in recorded:
                self._disk.remove_tree(f"{root}/{topic}")
                continue
            queues = self._queues.of_topic(topic)
            for name in self._disk.list_directory(f"{root}/{topic}"):
                if name.isdecimal() and int(name) not in queues:
                    self._disk.remove_tree(f"{root}/{topic}/{name}")

    def _begin(self, queue: ConsumeQueue, record: ScannedRecord, *, was_counted: bool) -> None:
        """Take a queue back to the first of its records in the scan."""
        if record.queue_offset >= queue.next_offset:
            return
        if not was_counted and queue not in self._unfiled:
            # Not ours: between two runs another broker deleted the topic and made it again.
            logger.warning("queue starts anew topic=%s queue_id=%d", queue.topic, queue.queue_id)
            self._start_empty(queue)
        is_empty = queue in self._unfiled
        queue.restart_at(record.queue_offset, min_offset=record.queue_offset if is_empty else None)

    # -- as Apache RocketMQ does -----------------------------------------------------------------------------------

    def _recover_as_rocketmq_does(self, ends: QueueEnds | None) -> _Outcome:
        known_ends, extended = self._load_queues()
        dispatch_offset = max(known_ends.values(), default=NO_PHYSICAL_OFFSET)
        checkpoint = StoreCheckpoint.load(self._disk, self._config.checkpoint_path)
        start_offset = self._files.start_offset if extended else self._find_scan_start(dispatch_offset, checkpoint)
        if start_offset == self._files.start_offset:
            # Perhaps to make queues anew: if this is cut off, the next start must not take half of one for the whole.
            nothing_durable = msgspec.structs.replace(checkpoint, log_timestamp_ms=0, queue_timestamp_ms=0)
            nothing_durable.save(self._disk, self._config.checkpoint_path)
        for queue in extended:
            logger.warning("queue with extension is made anew topic=%s queue_id=%d", queue.topic, queue.queue_id)
            self._queues.remove_queue(queue)
            self._disk.remove_tree(self._queues.files.path_of(queue))
        anew = {(queue.topic, queue.queue_id) for queue in extended}
        scan = LogScan(self._files, start_offset, tears_from=None if self._was_clean else LOG_START)
        outcome = _Outcome(
            scan_start_offset=start_offset,
            end_offset=start_offset,
            store_timestamp_ms=checkpoint.log_timestamp_ms,
        )
        for record in scan:
            outcome.count(record)
            is_dispatched = self._was_clean and record.physical_offset < dispatch_offset
            if is_dispatched and (record.topic, record.queue_id) not in anew:
                continue
            if self._has_live_unit(record):
                queue = self._queues.find_or_create(record.topic, record.queue_id)
                if record.physical_offset >= known_ends.get(queue, 0):
                    self._place(queue, record)
        outcome.end_offset = self._at_or_behind_recorded_end(scan.end_offset, ends)
        if ends is not None:
            self._keep_recorded_ends(ends)
            outcome.store_timestamp_ms = max(outcome.store_timestamp_ms, ends.store_timestamp_ms)
        return outcome

    def _load_queues(self) -> tuple[dict[ConsumeQueue, PhysicalOffset], list[ConsumeQueue]]:
        """Make a queue for each folder, with the end of the last record that it has; and those with extensions."""
        root = self._config.consume_queue_path
        ends: dict[ConsumeQueue, PhysicalOffset] = {}
        extended: list[ConsumeQueue] = []
        for topic in self._disk.list_directory(root):
            if not self._disk.is_directory(f"{root}/{topic}"):
                continue
            for name in filter(str.isdecimal, self._disk.list_directory(f"{root}/{topic}")):
                positions = self._whole_files(topic, int(name))
                if not positions:
                    self._disk.remove_tree(f"{root}/{topic}/{name}")
                    continue
                queue, has_extension = self._load_queue(topic, int(name), positions)
                end_offset = self._end_of_last_record(queue)
                if end_offset and not self._incarnations.is_live(topic, end_offset - 1):
                    # Its newest record belongs to an incarnation that is over, so all of it does.
                    self._queues.remove_queue(queue)
                    self._disk.remove_tree(f"{root}/{topic}/{name}")
                elif has_extension:
                    extended.append(queue)
                else:
                    ends[queue] = end_offset
        return ends, extended

    def _whole_files(self, topic: str, queue_id: int) -> list[int]:
        """The queue's newest files without a gap between them; what does not belong to them is removed."""
        path = f"{self._config.consume_queue_path}/{topic}/{queue_id}"
        file_bytes = self._config.queue_file_bytes
        kept: list[int] = []
        for position in reversed(self._queues.files.base_positions(topic, queue_id)):
            is_whole = self._disk.size_bytes(f"{path}/{file_name(position)}") == file_bytes
            if is_whole and (not kept or position + file_bytes == kept[0]):
                kept.insert(0, position)
            else:
                self._disk.remove(f"{path}/{file_name(position)}")
        return kept

    def _load_queue(self, topic: str, queue_id: int, positions: list[int]) -> tuple[ConsumeQueue, bool]:
        """Make a queue from its files: it ends at the first impossible unit of the last few; and whether a unit of
        these has a place in an extension file."""
        offset = QueueOffset(positions[-QUEUE_FILES_SCANNED:][0] // UNIT.size)
        end = QueueOffset((positions[-1] + self._config.queue_file_bytes) // UNIT.size)
        min_offset = QueueOffset(positions[0] // UNIT.size)
        queue = self._queues.create(topic, queue_id, next_offset=end, min_offset=min_offset)
        has_extension = False
        while offset < end:
            units = self._queues.files.read(queue, offset, min(offset + UNITS_READ, end))
            for physical_offset, size_bytes, tags_code in UNIT.iter_unpack(units):
                if physical_offset < 0 or size_bytes <= 0:
                    end = offset
                    break
                if tags_code <= EXTENSION_ADDRESS_MAX:
                    has_extension = True
                offset += 1
        queue.restart_at(offset)
        return queue, has_extension

    def _end_of_last_record(self, queue: ConsumeQueue) -> PhysicalOffset:
        """The physical offset behind the last record of a queue; 0 when it has none."""
        if queue.next_offset == self._queues.files.first_offset(queue):
            return LOG_START
        return queue.unit(queue.next_offset - 1).end_offset

    def _find_scan_start(self, dispatch_offset: PhysicalOffset, checkpoint: StoreCheckpoint) -> PhysicalOffset:
        """Where the scan begins: the start of the newest file that fits the rule; the oldest file's when none does."""
        for file in reversed(list(self._files)):
            first = next(iter(LogScan(self._files, file.base_offset)), None)
            if first is None or first.store_timestamp_ms == 0:
                continue
            if self._was_clean and first.physical_offset <= dispatch_offset:
                return file.base_offset
            # Without any queue there is nothing that the checkpoint could speak of: all are made anew.
            is_covered = first.store_timestamp_ms <= checkpoint.recovery_timestamp_ms and dispatch_offset >= 0
            if not self._was_clean and is_covered:
                return file.base_offset
        return self._files.start_offset

    def _at_or_behind_recorded_end(self, end_offset: PhysicalOffset, ends: QueueEnds | None) -> PhysicalOffset:
        """The log's end; when all its files are gone, the file border behind the end that was recorded."""
        if ends is None or len(self._files):
            return end_offset
        logger.error("log files are gone recorded_end=%d", ends.capture_offset)
        return PhysicalOffset(-(-ends.capture_offset // self._files.file_bytes) * self._files.file_bytes)

    def _keep_recorded_ends(self, ends: QueueEnds) -> None:
        """Give queues that left no trace on the disk the end that was recorded for them."""
        for topic_ends in ends.topics.values():
            if not self._is_present(topic_ends):
                continue
            for queue_id, next_offset, _filed_end, _min_offset in topic_ends.queues:
                if self._queues.find(topic_ends.topic, queue_id) is None:
                    self._queues.create(topic_ends.topic, queue_id, next_offset=next_offset, min_offset=next_offset)

    # -- both ------------------------------------------------------------------------------------------------------

    def _has_live_unit(self, record: ScannedRecord) -> bool:
        return has_unit(record.sys_flag) and self._incarnations.is_live(record.topic, record.physical_offset)

    def _place(self, queue: ConsumeQueue, record: ScannedRecord) -> None:
        """Put the record's unit at its queue offset."""
        if not self._placement.place(queue, record):
            return
        self._placed.add(queue)
        self._tail_bytes += UNIT.size
        if self._tail_bytes >= TAILS_BYTES_MAX:
            dirty = self._queues.dirty
            for each in dirty.firsts(len(dirty)):  # not `write_dirty`: the log is not started
                self._placement.write_tail(each)
            self._tail_bytes = 0

    def _finish(self, outcome: _Outcome, *, must_cut: bool) -> None:
        """Make log and queues end where the scan ended."""
        end_offset = outcome.end_offset
        assert outcome.scan_start_offset <= end_offset
        self._remove_later_files(end_offset)
        assert not len(self._files) or self._files.start_offset <= end_offset <= self._files.end_offset
        if outcome.may_be_ahead:
            self._take_back_units(end_offset)
        for queue in self._queues:
            self._placement.write_tail(queue)
            if must_cut:
                if queue in self._placed:
                    self._queues.files.doubt_names(queue)
                positions = self._positions.get(queue)
                if positions is None:
                    positions = self._queues.files.base_positions(queue.topic, queue.queue_id)
                self._queues.files.cut(queue, queue.next_offset, positions)
        if must_cut:
            self._settle_log(outcome.scan_start_offset, end_offset)

    def _remove_later_files(self, end_offset: PhysicalOffset) -> None:
        """Remove log files that start behind the end, newest first; one that starts at it stays as the tail."""
        for file in self._files.take_after(end_offset + 1):
            file.close()
            self._disk.remove(f"{self._files.directory}/{file.name}")
            self._disk.sync_directory(self._files.directory, site=SyncSite.LOG_TRUNCATE)
            logger.warning("log file removed behind the log's end name=%s", file.name)

    def _take_back_units(self, end_offset: PhysicalOffset) -> None:
        """Drop units that point behind the log's end."""
        for queue in self._queues:
            if queue.next_offset > queue.min_offset:
                last = queue.unit(queue.next_offset - 1)
                if last.is_empty or last.physical_offset + RECORD_BYTES_MIN > end_offset:
                    queue.restart_at(queue.first_at_or_behind(end_offset, start=queue.min_offset))
            assert queue.min_offset <= queue.next_offset

    def _settle_log(self, start_offset: PhysicalOffset, end_offset: PhysicalOffset) -> None:
        """Make the tail file zero from the end on, write what was scanned once more, and sync both."""
        # The tail file counts even when it holds nothing yet: records behind an end at its start must go too.
        for file in self._files.between(start_offset, end_offset + 1):
            if end_offset < file.end_offset:
                file.file.zero_from(end_offset - file.base_offset)
            position = max(start_offset, file.base_offset)
            while not self._was_clean and position < min(end_offset, file.end_offset):
                stop = min(position + REWRITE_BYTES, end_offset, file.end_offset)
                file.write(bytes(file.view[position - file.base_offset : stop - file.base_offset]), position)
                position = stop
            file.file.sync(site=SyncSite.LOG_RECOVER)
        # The tail's name may be known to the page cache only.
        self._disk.sync_directory(self._files.directory, site=SyncSite.LOG_DIRECTORY)
