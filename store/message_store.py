"""MessageStore: the hot tier as the broker sees it.

    put  -> record into the log -> unit into the queue's tail
    get  -> units of the queue -> slices of the log, adjacent records as one

One thread (the hot process's loop) puts, gets and ticks; helper threads flush and sync. What is acknowledged when:
a put has returned with the message in the page cache; it is durable when `commit_log.flush_offset` has reached its end,
which `flush.wait` reports. With SYNC_FLUSH only durable messages are read, so a power cut loses none that was consumed.

Order at a stop: flush the log, write and sync the queues, queue ends, checkpoint; the abort mark goes last.
Source: DefaultMessageStore.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack

from thermocline.remoting.errors import (
    MessageIllegalError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    PropertiesTooLargeError,
    StoreClosedError,
    TopicNotFoundError,
)
from thermocline.remoting.offsets import LOG_START, NO_QUEUE_OFFSET, QUEUE_START, PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import MessageRecord, encode_record, record_size
from thermocline.remoting.records.properties import PROPERTIES_BYTES_MAX
from thermocline.remoting.socket_address import Host
from thermocline.store.config import FlushDiskType, StoreClock, StoreConfig
from thermocline.store.derived_sync import QUEUES_PER_SLICE, DerivedRounds, DerivedSync
from thermocline.store.dispatch import has_unit, unit_tags_code
from thermocline.store.files import (
    Disk,
    FileAllocator,
    MappedFileQueue,
    SyncSite,
    make_allocator_executor,
    make_durable_directory,
    parent_of,
)
from thermocline.store.log import (
    CommitLog,
    FlushGate,
    GetResult,
    GetStatus,
    MessageDraft,
    PutResult,
    PutStatus,
    StoredGate,
    TimeBoundary,
    looks_torn,
)
from thermocline.store.queues import ConsumeQueue, ConsumeQueueFiles, ConsumeQueueTable, QueueFileMaker, read_runs
from thermocline.store.read_limit import ReadLimit
from thermocline.store.recovery import Recovery, RecoveryReport
from thermocline.store.retention import Retention
from thermocline.store.state import (
    BornTopic,
    StoreCheckpoint,
    StoreIdentity,
    StoreOrigin,
    TopicIncarnations,
    load_or_make_identity,
    load_origin,
    read_births,
    take_births,
)

logger = logging.getLogger(__name__)

RETRY_TOPIC_PREFIX = "%RETRY%"
DLQ_TOPIC_PREFIX = "%DLQ%"
UNITS_EXAMINED_MIN = 800
"""How many units a get with tags looks at before it answers that none matched, if it wants fewer messages."""
TICK_QUEUES_MAX = 24
NO_HOST: Host = ("127.0.0.1", 0)


def _nothing_to_settle(store: MessageStore) -> None:
    """What a store without users has to put after recovery."""


class MessageStore:
    """An open store. `open` and `close` frame its life."""

    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        *,
        commit_log: CommitLog,
        queues: ConsumeQueueTable,
        clock: StoreClock,
        incarnations: TopicIncarnations,
        born_topics: Mapping[str, BornTopic],
        identity: StoreIdentity,
        origin: StoreOrigin | None,
        recovery_report: RecoveryReport,
        resources: ExitStack,
    ) -> None:
        """Parts come from `open`."""
        self.config = config
        self.commit_log = commit_log
        self.queues = queues
        self.clock = clock
        self.incarnations = incarnations
        self.born_topics = born_topics
        """Topics that topics.json may lack; for the part that reads it."""
        self.identity = identity
        self.origin = origin
        self.recovery_report = recovery_report
        self.flush = FlushGate(commit_log)
        self._reads_flushed_only = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.stored = StoredGate(
            self.flush, waits_for_flush=self._reads_flushed_only, flush_timeout_ms=config.sync_flush_timeout_ms
        )
        self.read_limit: ReadLimit | None = None
        """Set while messages wait for other brokers before they may be read."""
        self.store_host: Host = NO_HOST
        self.on_append: Callable[[ConsumeQueue], None] = _nobody_waits
        """Called with each queue that `put` gave a unit, to wake the pulls that wait there. Must not put or get."""
        self.before_promise: Callable[[], None] = _nothing_to_write
        """Called before each promise of where recovery begins: puts what must not lie before that and be missing. What
        it raises keeps the promise from being made."""
        self.index_timestamp_ms = StoreCheckpoint.load(disk, config.checkpoint_path).index_timestamp_ms
        """Up to this store time the index is durable: as the index process says, for Apache RocketMQ's checkpoint."""
        self.derived_rounds = DerivedRounds(recovery_offset=recovery_report.scan_start_offset)
        self.queue_file_maker = QueueFileMaker(disk, queues)
        self.retention = Retention(disk, config, log=commit_log, queues=queues, rounds=self.derived_rounds)
        self._disk = disk
        self._resources = resources
        self._delay_levels_ms = config.delay_levels_ms
        self._is_closed = False

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        *,
        disk: Disk,
        clock: Callable[[], int],
        allocator_executor: Executor | None = None,
        make_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        process_id: int | None = None,
        settle: Callable[[MessageStore], None] = _nothing_to_settle,
    ) -> MessageStore:
        """Open a store, or make one, recovering whatever state it was left in.

        `clock`: milliseconds since 1970. `allocator_executor`: where log files are made ahead; own thread by default.
        `settle` puts what has to be in the log before recovery's outcome is promised, as the next recovery will not
        read again what this one has read; what it raises is raised here.

        Raises:
            UnavailableError: Another process has it open.
            CorruptDataError: It cannot be recovered without losing messages: a log file is missing, or has another
                length than `config` says.
            DiskFullError: There is no room for a log file.
        """
        with ExitStack() as resources:
            _make_folders(disk, config)
            resources.callback(disk.lock(config.lock_path))
            was_clean = not disk.exists(config.abort_path)
            # What is read from now on stays, also where a process died between a rename and its sync.
            disk.sync_directory(config.config_path, site=SyncSite.INCARNATION_DIRECTORY)
            disk.sync_directory(config.own_path, site=SyncSite.QUEUE_ENDS_DIRECTORY)
            identity = load_or_make_identity(disk, config.identity_path, make_id=make_id)
            log = _make_log(disk, config, allocator_executor, resources)
            queues = _make_queues(disk, config, log, resources)
            origin = load_origin(disk, config.origin_path)
            if origin is not None:
                queues.first_offset = origin.first_offset
            births = read_births(disk, config.topic_births_path)
            incarnations = TopicIncarnations.load(disk, config.incarnation_path)
            born_topics = take_births(births, incarnations)
            recovery = Recovery(
                disk, config, files=log.files, queues=queues, incarnations=incarnations, was_clean=was_clean
            )
            # Before anything is changed: a recovery that is cut off has not ended cleanly either.
            _mark_open(disk, config, process_id if process_id is not None else os.getpid())
            report = recovery.run()
            if incarnations.begin_at_latest(report.append_offset):
                incarnations.save(disk, config.incarnation_path)
            log.start(report.append_offset)
            queues.files.log_min_offset = log.min_offset
            store_clock = StoreClock(clock)
            store_clock.restore(report.store_timestamp_ms)
            store = cls(
                disk,
                config,
                commit_log=log,
                queues=queues,
                clock=store_clock,
                incarnations=incarnations,
                born_topics=born_topics,
                identity=identity,
                origin=origin,
                recovery_report=report,
                resources=resources,
            )
            settle(store)
            if not (report.was_clean and report.used_queue_ends and report.record_count == 0):
                # From here on recovery begins where this one ended, and never again by Apache RocketMQ's rules.
                store.sync_derived()
            store._resources = resources.pop_all()
            logger.info(
                "store open path=%s append_offset=%d queues=%d scanned_bytes=%d clean=%s",
                config.root_path,
                log.append_offset,
                len(queues),
                report.append_offset - report.scan_start_offset,
                was_clean,
            )
            return store

    def close(self) -> None:
        """Make everything durable and close. Idempotent. After a failed flush the abort mark stays.

        Raises:
            StoreClosedError: The log could not be flushed; it is closed all the same.
            OSError, DiskFullError: What is derived could not be synced; the abort mark stays.
        """
        if self._is_closed:
            return
        self._is_closed = True
        with self._resources:
            self.commit_log.flush()
            self.incarnations.settle_recorded(self._disk, self.config.incarnation_path)
            self.sync_derived()
            if self.commit_log.has_torn_end:
                logger.error("store closed, not cleanly: the next start looks for torn records")
                return
            self._disk.remove(self.config.abort_path)
            logger.info("store closed append_offset=%d", self.commit_log.append_offset)

    def check_place(self) -> None:
        """Refuse writes for good when the store directory has been removed, or another one stands in its place: what is
        written from then on would go with this process."""
        if self.commit_log.refusal is None and not self._disk.is_locked_here(self.config.lock_path):
            self.commit_log.fail(f"the store directory is gone: {self.config.root_path}")

    # -- put -------------------------------------------------------------------------------------------------------

    def put(self, message: MessageDraft, *, was_accepted: bool = False) -> PutResult:
        """Append one message. See the module's header for what is durable when.

        `was_accepted`: it is in the log already, and goes on; a limit that was lowered since does not hold for it.

        Raises:
            MessageTooLargeError, PropertiesTooLargeError, MessageIllegalError: It breaks a limit.
            TopicNotFoundError: The topic was deleted.
            StoreClosedError: The log is closed, or a write or flush failed.
            ServiceUnavailableError, DiskFullError: Not now; nothing was appended.
        """
        return self.put_batch((message,), was_accepted=was_accepted)[0]

    def put_batch(self, messages: Sequence[MessageDraft], *, was_accepted: bool = False) -> list[PutResult]:
        """Append several messages with one write, next to each other in one log file; all or none. Raises as `put`."""
        sizes = [self._check(message, was_accepted=was_accepted) for message in messages]
        log = self.commit_log
        start_offset = physical_offset = log.fit(sum(sizes))
        store_timestamp_ms = self.clock.now_ms()
        next_offsets: dict[tuple[str, int], QueueOffset] = {}
        records: list[bytes] = []
        results: list[PutResult] = []
        for message, size_bytes in zip(messages, sizes, strict=True):
            key = message.topic, message.queue_id
            queue_offset = QUEUE_START
            if has_unit(message.sys_flag):
                queue_offset = next_offsets.get(key, NO_QUEUE_OFFSET)
                if queue_offset < 0:
                    queue = self.queues.find(*key)
                    queue_offset = self.queues.first_offset(message.topic) if queue is None else queue.next_offset
                next_offsets[key] = queue_offset + 1
            record = encode_record(
                topic=message.topic,
                queue_id=message.queue_id,
                queue_offset=queue_offset,
                physical_offset=physical_offset,
                body=message.body,
                properties_text=message.properties_text,
                born_timestamp_ms=message.born_timestamp_ms,
                born_host=message.born_host,
                store_timestamp_ms=store_timestamp_ms,
                store_host=self.store_host,
                flag=message.flag,
                sys_flag=message.sys_flag,
                reconsume_times=message.reconsume_times,
                prepared_transaction_offset=message.prepared_transaction_offset,
            )
            assert len(record) == size_bytes
            records.append(record)
            results.append(
                PutResult(
                    status=PutStatus.PUT_OK,
                    physical_offset=physical_offset,
                    queue_offset=queue_offset,
                    size_bytes=size_bytes,
                    store_timestamp_ms=store_timestamp_ms,
                )
            )
            physical_offset += size_bytes
        written_offset = log.append(records[0] if len(records) == 1 else b"".join(records))
        assert written_offset == start_offset
        for message, result in zip(messages, results, strict=True):
            if has_unit(message.sys_flag):
                self._dispatch(message, result)
        return results

    def _dispatch(self, message: MessageDraft, result: PutResult) -> None:
        tags_code = message.tags_code
        if tags_code is None:
            tags_code = unit_tags_code(
                message.topic,
                message.properties_text,
                store_timestamp_ms=min(result.store_timestamp_ms, self.clock.wall_ms()),
                delay_levels_ms=self._delay_levels_ms,
            )
        queue = self.queues.find_or_create(message.topic, message.queue_id)
        assert queue.next_offset == result.queue_offset
        queue.append_unit(result.physical_offset, result.size_bytes, tags_code)
        self.on_append(queue)

    def _check(self, message: MessageDraft, *, was_accepted: bool) -> int:
        """The size of the message's record; an error when it breaks a limit."""
        config = self.config
        topic_bytes = len(message.topic.encode())
        is_system = message.topic.startswith((RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX))
        topic_bytes_max = config.system_topic_bytes_max if is_system else config.topic_bytes_max
        if not 0 < topic_bytes <= topic_bytes_max:
            raise MessageIllegalError("impossible topic length", size_bytes=topic_bytes, size_bytes_max=topic_bytes_max)
        if "/" in message.topic or "\0" in message.topic or message.topic in (".", ".."):
            raise MessageIllegalError("the topic cannot name a folder", topic=message.topic)
        if message.queue_id < 0:
            raise MessageIllegalError("impossible queue id", queue_id=message.queue_id)
        if len(message.body) > config.message_bytes_max and not was_accepted:
            raise MessageTooLargeError(size_bytes=len(message.body), size_bytes_max=config.message_bytes_max)
        if len(message.properties_text) > PROPERTIES_BYTES_MAX:
            raise PropertiesTooLargeError(size_bytes=len(message.properties_text), size_bytes_max=PROPERTIES_BYTES_MAX)
        if looks_torn(message.properties_text) and not was_accepted:
            raise MessageIllegalError("the properties end with a zero byte, or have too many in a row")
        if self.incarnations.is_deleted(message.topic):
            raise TopicNotFoundError("the topic was deleted", topic=message.topic)
        return record_size(
            body_bytes=len(message.body),
            topic_bytes=topic_bytes,
            properties_bytes=len(message.properties_text),
            born_host_v6=":" in message.born_host[0],
            store_host_v6=":" in self.store_host[0],
        )

    # -- get -------------------------------------------------------------------------------------------------------

    @property
    def confirm_offset(self) -> PhysicalOffset:
        """The physical offset up to which messages may be read: flushed ones with SYNC_FLUSH, else all; none that
        `read_limit` keeps back."""
        end_offset = self.commit_log.flush_offset if self._reads_flushed_only else self.commit_log.append_offset
        return end_offset if self.read_limit is None else min(end_offset, self.read_limit.confirm_offset)

    @property
    def seal_offset(self) -> PhysicalOffset:
        """The physical offset up to which the log may be in the bucket: it is durable, and on enough other brokers if
        puts wait for them; on every broker that could be elected, where `read_limit` names these."""
        seal_offset, replicas = self.commit_log.flush_offset, self.stored.replicas
        if replicas is not None:
            seal_offset = min(seal_offset, replicas.confirmed_offset)
        return seal_offset if self.read_limit is None else min(seal_offset, self.read_limit.confirm_offset)

    def topic_start_offset(self, topic: str) -> PhysicalOffset:
        """Where a topic begins that is made now and never was before: at the log's end. If messages of it may have been
        copied from another broker's log before it was made, at the log's start."""
        log = self.commit_log
        is_copied = log.lasting_refusal is not None or bool(self.queues.of_topic(topic))
        return LOG_START if is_copied else log.append_offset

    def max_offset(self, queue: ConsumeQueue) -> QueueOffset:
        """The queue's end, as far as it may be read."""
        if self._reads_flushed_only or self.read_limit is not None:
            return _end_below(queue, self.confirm_offset)
        return queue.next_offset

    def flushed_end(self, queue: ConsumeQueue) -> QueueOffset:
        """The queue's end as far as the log is durable: a power cut takes back nothing below it."""
        return _end_below(queue, self.commit_log.flush_offset)

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: QueueOffset,
        *,
        count_max: int,
        bytes_max: int,
        codes: frozenset[int] | None = None,
    ) -> GetResult:
        """Read messages from queue offset `offset` on: at most `count_max`, and `bytes_max` unless one alone is larger.

        `codes`: only messages whose unit has one of these tags codes; None or empty for all.
        """
        queue = self.queues.find(topic, queue_id)
        if queue is None:
            return _nothing(GetStatus.NO_MATCHED_LOGIC_QUEUE, QUEUE_START, QUEUE_START, QUEUE_START)
        min_offset, max_offset = queue.min_offset, self.max_offset(queue)
        if max_offset == 0:
            return _nothing(GetStatus.NO_MESSAGE_IN_QUEUE, QUEUE_START, min_offset, max_offset)
        if offset < min_offset:
            return _nothing(GetStatus.OFFSET_TOO_SMALL, min_offset, min_offset, max_offset)
        if offset == max_offset:
            return _nothing(GetStatus.OFFSET_OVERFLOW_ONE, offset, min_offset, max_offset)
        if offset > max_offset:
            return _nothing(GetStatus.OFFSET_OVERFLOW_BADLY, max_offset, min_offset, max_offset)
        return self._read(queue, offset, min_offset, max_offset, count_max=count_max, bytes_max=bytes_max, codes=codes)

    def _read(
        self,
        queue: ConsumeQueue,
        offset: QueueOffset,
        min_offset: QueueOffset,
        max_offset: QueueOffset,
        *,
        count_max: int,
        bytes_max: int,
        codes: frozenset[int] | None,
    ) -> GetResult:
        examined_max = max(count_max, UNITS_EXAMINED_MIN) if codes else count_max
        units = queue.units(offset, min(examined_max, max_offset - offset))
        try:
            runs = read_runs(self.commit_log, units, codes=codes, count_max=count_max, bytes_max=bytes_max)
        except OffsetOutOfRangeError:
            return _nothing(GetStatus.MESSAGE_WAS_REMOVING, offset, min_offset, max_offset)
        return GetResult(
            status=GetStatus.FOUND if runs.message_count else GetStatus.NO_MATCHED_MESSAGE,
            next_begin_offset=offset + runs.examined,
            min_offset=min_offset,
            max_offset=max_offset,
            buffers=runs.buffers,
            message_count=runs.message_count,
            size_bytes=runs.size_bytes,
        )

    def read_record(self, physical_offset: PhysicalOffset) -> MessageRecord:
        """One record by its place in the log.

        Raises:
            OffsetOutOfRangeError: The local log does not reach there.
            CorruptDataError: No sound record starts there.
        """
        return self.commit_log.read_record(physical_offset)

    def message_time(self, topic: str, queue_id: int, offset: QueueOffset) -> int:
        """The store time of the first message at or behind a queue offset, ms.

        Raises:
            OffsetOutOfRangeError: There is none, or the offset is below the local minimum.
        """
        queue = self.queues.find(topic, queue_id)
        if queue is not None and queue.min_offset <= offset:
            time_ms = self._time_at(queue, offset)
            if time_ms is not None:
                return time_ms
        raise OffsetOutOfRangeError("no message at this offset", topic=topic, queue_id=queue_id, offset=offset)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: TimeBoundary) -> QueueOffset:
        """Find a queue offset by store time, in the local queue; 0 when there is no such queue.

        LOWER: the first at or after the time, else the end. UPPER: the last at or before it, else the minimum.
        """
        queue = self.queues.find(topic, queue_id)
        if queue is None:
            return QUEUE_START
        min_offset, max_offset = queue.min_offset, self.max_offset(queue)
        # The first offset whose time is at or after (LOWER), or after (UPPER), the requested one.
        bound_ms = timestamp_ms if boundary is TimeBoundary.LOWER else timestamp_ms + 1
        low, high = min_offset, max_offset
        while low < high:
            middle = low + (high - low) // 2
            time_ms = self._time_at(queue, middle)
            if time_ms is not None and time_ms < bound_ms:
                low = middle + 1
            else:
                high = middle
        return low if boundary is TimeBoundary.LOWER else max(low - 1, min_offset)

    def _time_at(self, queue: ConsumeQueue, offset: QueueOffset) -> int | None:
        """The store time of the first message at or behind an offset; None when there is none."""
        offset = queue.skip_empty(offset)
        if offset >= queue.next_offset:
            return None
        return self.commit_log.store_timestamp_ms(queue.unit(offset).physical_offset)

    # -- rounds ----------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Write queue tails, and see that the next log file is there in time. Several times a second."""
        self.commit_log.prepare()
        self.queues.write_dirty(TICK_QUEUES_MAX)

    @property
    def recovery_offset(self) -> PhysicalOffset:
        """Where a recovery would begin: everything derived from records below it is durable."""
        return self.derived_rounds.recovery_offset

    def begin_derived_sync(self, *, queues_per_slice: int = QUEUES_PER_SLICE) -> DerivedSync:
        """A round that makes queues durable: `advance` it on the loop, `commit` it in a helper thread, then
        `end_derived_sync`. One at a time. Raises as `before_promise`, and StoreClosedError once queue files could not
        be synced."""
        if self.derived_rounds.is_over:
            raise StoreClosedError("queue files were not synced; nothing is promised until the store is opened again")
        self.before_promise()
        self.derived_rounds.begun += 1
        return DerivedSync(
            self._disk,
            self.config,
            log=self.commit_log,
            queues=self.queues,
            incarnations=self.incarnations,
            store_timestamp_ms=self.clock.last_ms,
            index_timestamp_ms=self.index_timestamp_ms,
            number=self.derived_rounds.begun,
            confirm_offset=LOG_START if self.read_limit is None else self.read_limit.confirm_offset,
            queues_per_slice=queues_per_slice,
        )

    def end_derived_sync(self, sync: DerivedSync, *, committed: bool) -> None:
        """Take notice of a round's end."""
        if committed:
            assert sync.recovery_offset >= self.derived_rounds.recovery_offset, "a promise is not taken back"
            self.derived_rounds.recovery_offset = sync.recovery_offset
            self.derived_rounds.committed = sync.number
        else:
            self.derived_rounds.is_over = sync.has_doubts
            sync.abandon()

    def sync_derived(self) -> None:
        """A whole round in the calling thread. Raises as `DerivedSync.commit`."""
        sync = self.begin_derived_sync()
        while not sync.advance():
            continue
        committed = False
        try:
            sync.commit()
            committed = True
        finally:
            self.end_derived_sync(sync, committed=committed)


def _end_below(queue: ConsumeQueue, physical_offset: PhysicalOffset) -> QueueOffset:
    """The end of a queue as if the log ended here, perhaps in a record."""
    end, start = queue.next_offset, queue.min_offset
    if end > start and queue.unit(end - 1).end_offset > physical_offset:
        end = queue.first_at_or_behind(physical_offset, start=start)
        if end > start and queue.unit(end - 1).end_offset > physical_offset:
            end -= 1
    return end


def _make_folders(disk: Disk, config: StoreConfig) -> None:
    """Make what folders are missing, the store's own durably."""
    if not disk.exists(config.identity_path):
        # Also when the folder exists: a start before this one may have died between making and syncing it.
        make_durable_directory(disk, config.root_path, site=SyncSite.ROOT_DIRECTORY)
        disk.sync_directory(parent_of(config.root_path), site=SyncSite.ROOT_DIRECTORY)
    for path in (config.commit_log_path, config.consume_queue_path, config.config_path, config.staging_path):
        disk.make_directory(path)


def _make_queues(disk: Disk, config: StoreConfig, log: CommitLog, resources: ExitStack) -> ConsumeQueueTable:
    """Make an empty table of queues; `resources` closes its files."""
    files = ConsumeQueueFiles(
        disk,
        config.consume_queue_path,
        file_bytes=config.queue_file_bytes,
        open_files_max=config.open_queue_files_max,
    )
    resources.callback(files.close)
    return ConsumeQueueTable(files, log)


def _make_log(disk: Disk, config: StoreConfig, allocator_executor: Executor | None, resources: ExitStack) -> CommitLog:
    """Make the log, not started; `resources` closes it. Its allocator has a thread of its own when none is given."""
    if allocator_executor is None:
        allocator_executor = make_allocator_executor()
        resources.callback(allocator_executor.shutdown)
    files = MappedFileQueue(disk, config.commit_log_path, file_bytes=config.log_file_bytes)
    resources.callback(files.close)
    allocator = FileAllocator(
        disk,
        directory=config.commit_log_path,
        staging=config.staging_path,
        file_bytes=config.log_file_bytes,
        executor=allocator_executor,
    )
    allocator.clear_staging()
    log = CommitLog(disk, files, allocator)
    resources.callback(log.close)
    return log


def _nobody_waits(queue: ConsumeQueue) -> None:
    """What a store without readers does with the news."""


def _nothing_to_write() -> None:
    """What stands before a promise by itself."""


def _nothing(
    status: GetStatus, next_begin_offset: QueueOffset, min_offset: QueueOffset, max_offset: QueueOffset
) -> GetResult:
    return GetResult(status=status, next_begin_offset=next_begin_offset, min_offset=min_offset, max_offset=max_offset)


def _mark_open(disk: Disk, config: StoreConfig, process_id: int) -> None:
    """Write the abort mark, which says at the next start that this one did not end well; durable on return."""
    file = disk.open(config.abort_path, create=True)
    try:
        file.truncate(0)
        file.write_at(str(process_id).encode(), 0)
    finally:
        file.close()
    disk.sync_directory(config.root_path, site=SyncSite.ABORT_DIRECTORY)
