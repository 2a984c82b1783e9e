"""Delay service: delivers messages of the delay levels when their time has come.

A message with level n is stored in SCHEDULE_TOPIC_XXXX, queue n - 1, with its real topic and queue in the properties
REAL_TOPIC and REAL_QID; the tags code of its queue unit is the time of delivery. Messages of one level come due in
the order in which they were stored, so each level needs one offset: messages below it have been delivered.

File: config/delayOffset.json, Apache RocketMQ's: {"dataVersion":{...},"offsetTable":{1:64,2:20}}, integer keys
unquoted.

Rules
  - Delivery appends the message to its real queue, with the property text as it was stored (RocketMQ leaves
    REAL_TOPIC and DELAY in it) and a new store time. At least once: messages delivered since the file was written
    last are delivered again after a crash; a clean stop repeats nothing. The file is written once the log has durably
    what was delivered.
  - Work is done in slices: at most `SLICE_MESSAGES_MAX` messages, then the loop serves others first.
  - A time of delivery further away than the level's delay (the clock was set back) counts as due now.
  - A level that `messageDelayLevel` has no longer goes on until its queue is empty: what it holds was accepted. Its
    messages come at their time of delivery; RocketMQ leaves them where they are.
  - A level that fails (an append, a damaged queue) rests for 10 s; the others go on. A message whose topic was deleted
    is dropped, also when the name was made again since: it belongs to the topic's earlier incarnation.
  - Progress behind a queue's end counts as its end from the start on, durably, before anything is put: else the next
    messages there would count as delivered. A power cut has taken messages back, or this store was that of a slave that
    had none of the queue's.
  - Records of undelivered messages must stay in the local log: retention reads `earliest_undelivered_offset`. While the
    log is paused for a full disk, due messages pass whose log files are wanted back (`release_below`): the files cannot
    go before they are delivered.
Owner: the hot process's event loop.
Source: broker/schedule/ScheduleMessageService.java, Apache RocketMQ 5.3.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

import msgspec

from thermocline.broker.sends import MessageAppender
from thermocline.broker.state_files import ConfigPersister, VersionCounter
from thermocline.broker.stats import BrokerStats
from thermocline.remoting import json_dialect
from thermocline.remoting.bodies import DataVersion
from thermocline.remoting.errors import CorruptDataError, InvalidRequestError, MQError, OffsetOutOfRangeError
from thermocline.remoting.offsets import LOG_START, QUEUE_START, PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.remoting.records.properties import PropertyName, encode_properties
from thermocline.remoting.topic_validation import SCHEDULE_TOPIC, TRANSACTION_HALF_TOPIC
from thermocline.store.log import MessageDraft
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import ConsumeQueue
from thermocline.store.retention import DISK_NEARLY_FULL
from thermocline.store.state import TableChanges

logger = logging.getLogger(__name__)

FILE_NAME = "delayOffset.json"

FIRST_PAUSE_MS = 1_000
PAUSE_MS = 100
IDLE_PAUSE_MS = 500
"""While no level has a message: less than the shortest delay, but for one of 0."""
FAILURE_PAUSE_MS = 10_000
SLICE_MESSAGES_MAX = 64


class _DelayOffsetFile(msgspec.Struct, rename="camel"):
    offset_table: dict[int, QueueOffset] = {}
    data_version: DataVersion | None = None


class FurthestProgress(msgspec.Struct, frozen=True):
    """The file's content with the further progress of two, and how many levels the other one has further."""

    text: bytes
    levels_count: int


def furthest(
    own: bytes | None, other: bytes, *, had: Callable[[str, int, QueueOffset], bool], clock: Callable[[], int]
) -> FurthestProgress | None:
    """The progress of two brokers that have delivered from one log, level by level; None where `own` has it already.

    `own`, `other`: files' contents. `had(topic, queue id, offset)`: whether the other broker had the messages from that
    offset on; where not, `own` counts. `clock`: wall clock in ms.

    Raises:
        CorruptDataError: `own` is none.
        InvalidRequestError: `other` is none.
    """
    present, theirs = _read_file(own), json_dialect.loads_as(other, _DelayOffsetFile)
    further = {
        level: offset
        for level, offset in theirs.offset_table.items()
        if offset > (reached := present.offset_table.get(level, QUEUE_START))
        and had(SCHEDULE_TOPIC, level - 1, reached)
    }
    if not further:
        return None
    version = VersionCounter(clock, present.data_version)
    version.bump()
    return FurthestProgress(_encode_file(version.text(), present.offset_table | further), len(further))


def schedule(draft: MessageDraft, properties: Mapping[str, str], level: int, *, level_count: int) -> MessageDraft:
    """The draft as it is to be stored for delivery after a level's delay; one above the highest counts as that.

    `properties` are the draft's own, decoded.
    """
    assert level > 0
    level = min(level, level_count)
    return msgspec.structs.replace(
        draft,
        topic=SCHEDULE_TOPIC,
        queue_id=level - 1,
        properties_text=encode_properties(
            {
                **properties,
                PropertyName.DELAY_LEVEL: str(level),
                PropertyName.REAL_TOPIC: draft.topic,
                PropertyName.REAL_QUEUE_ID: str(draft.queue_id),
            }
        ),
        tags_code=None,
    )


class DelayService:
    """Delivers delayed messages. `run` is its task; `deliver_slice` is what the task does."""

    def __init__(
        self,
        store: MessageStore,
        appender: MessageAppender,
        persister: ConfigPersister,
        *,
        clock: Callable[[], int],
        stats: BrokerStats,
        flush_interval_ms: Callable[[], int] = lambda: 10_000,
        version_step: int = 200,
    ) -> None:
        self._store = store
        self._appender = appender
        self._persister = persister
        self._clock = clock
        self._stats = stats
        self._flush_interval_ms = flush_interval_ms
        self._delays_ms = store.config.delay_levels_ms
        self._idle_pause_ms = max(PAUSE_MS, min(IDLE_PAUSE_MS, min(self._delays_ms) // 2))
        self._offsets: dict[int, QueueOffset] = {}
        self._resting_until_ms: dict[int, int] = {}
        self._version = VersionCounter(clock)
        self._version_step = version_step
        self._updates_until_version = version_step
        self._is_waiting = False
        self._awaited_offset = LOG_START
        self.changes = TableChanges()

    @property
    def level_count(self) -> int:
        """The highest level."""
        return len(self._delays_ms)

    @property
    def levels(self) -> list[int]:
        """The levels that are set, and those that were and have a queue."""
        with_queue = {queue_id + 1 for queue_id in self._store.queues.of_topic(SCHEDULE_TOPIC)}
        return sorted(with_queue.union(range(1, self.level_count + 1)))

    def progress(self) -> dict[int, tuple[QueueOffset, QueueOffset]]:
        """Level -> (offset reached, end of its queue), for levels that ever had a message."""
        return {
            level: (offset, QUEUE_START if (queue := self._queue(level)) is None else queue.next_offset)
            for level, offset in sorted(self._offsets.items())
        }

    def earliest_undelivered_offset(self) -> PhysicalOffset | None:
        """The lowest physical offset of an undelivered message; None when there is none."""
        waiting = []
        for level in self.levels:
            queue = self._queue(level)
            offset = self._offset(level, queue)
            if queue is not None and offset < queue.next_offset:
                waiting.append(queue.unit(offset).physical_offset)
        return min(waiting, default=None)

    def release_below(self, physical_offset: PhysicalOffset) -> None:
        """Set the offset below which retention would delete the log now, except for messages that wait in it. Call this
        in every round of retention."""
        self._awaited_offset = physical_offset

    async def settle(self) -> None:
        """Correct progress that is behind its queue's end; to be called once, before anything is put.

        Raises:
            UnavailableError: The file could not be written.
        """
        too_far: dict[int, QueueOffset] = {}
        for level, offset in self._offsets.items():
            queue = self._queue(level)
            end = QUEUE_START if queue is None else queue.next_offset
            if offset > end:
                logger.warning("delay offset behind its queue's end level=%d from=%d to=%d", level, offset, end)
                too_far[level] = end
        if too_far:
            self._offsets |= too_far
            self._updated(len(too_far))
            await self._persister.save(FILE_NAME)

    # -- delivery ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Deliver until cancelled, and write the progress down now and then."""
        await asyncio.sleep(FIRST_PAUSE_MS / 1000)
        saved_ms = self._clock()
        while True:
            try:
                has_more = self.deliver_slice()
            except Exception:
                # A bug must not stop every delay level for good.
                logger.exception("delivery of delayed messages failed")
                has_more = False
                await asyncio.sleep(FAILURE_PAUSE_MS / 1000)
            if not 0 <= self._clock() - saved_ms < self._flush_interval_ms():  # below 0: the clock was set back
                saved_ms = self._clock()
                if self.changes.is_unsaved:
                    self._persister.request(FILE_NAME)
            pause_ms = PAUSE_MS if self._is_waiting else self._idle_pause_ms
            await asyncio.sleep(0 if has_more else pause_ms / 1000)

    def deliver_slice(self) -> bool:
        """Deliver what is due, up to a slice; True when more is due."""
        remaining = SLICE_MESSAGES_MAX
        self._is_waiting = False
        for level in self.levels:
            try:
                remaining -= self._deliver_level(level, remaining)
            except Exception as error:  # one level must not hold up the others
                is_known = isinstance(error, MQError)
                logger.error("delay level fails level=%d error=%s", level, error, exc_info=None if is_known else error)
                self._resting_until_ms[level] = self._clock() + FAILURE_PAUSE_MS
            if remaining == 0:
                return True
        return False

    def _deliver_level(self, level: int, count_max: int) -> int:
        """Deliver what is due of one level, at most `count_max`; how many were looked at."""
        queue = self._queue(level)
        offset = self._offset(level, queue)
        if queue is None or offset >= queue.next_offset:
            return 0
        self._is_waiting = True
        now = self._clock()
        if now < self._resting_until_ms.get(level, 0) <= now + FAILURE_PAUSE_MS:  # beyond: the clock was set back
            return 0
        done = 0
        try:
            while done < count_max and offset < queue.next_offset:
                unit = queue.unit(offset)
                if not unit.is_empty:
                    if self._waits(level, unit.tags_code, now):
                        break
                    if not self._deliver(level, unit.physical_offset):
                        break
                offset += 1
                done += 1
        finally:  # what was delivered does not come again, whatever is wrong with the next message
            if self._offsets.get(level) != offset:
                self._offsets[level] = offset
                self._updated(done)
        return done

    def due(self, level: int, count_max: int) -> list[tuple[QueueOffset, MessageDraft | None]]:
        """What is due of one level, at most `count_max`, for a caller that delivers it elsewhere. None: a message that
        is to be passed over."""
        queue = self._queue(level)
        offset, now = self._offset(level, queue), self._clock()
        found: list[tuple[QueueOffset, MessageDraft | None]] = []
        while queue is not None and len(found) < count_max and offset < queue.next_offset:
            unit = queue.unit(offset)
            if not unit.is_empty and self._waits(level, unit.tags_code, now):
                break
            found.append((offset, None if unit.is_empty else self._read(level, unit.physical_offset)))
            offset = QueueOffset(offset + 1)
        return found

    def delivered_up_to(self, level: int, offset: QueueOffset, *, count: int) -> None:
        """The caller has delivered `count` messages that `due` gave: all before this offset."""
        self._offsets[level] = offset
        self._updated(count)

    def _waits(self, level: int, due_ms: int, now_ms: int) -> bool:
        """Whether a message is due later. Without a delay of its level nothing tells that the clock was set back."""
        is_set = level <= self.level_count
        return now_ms < due_ms and (not is_set or due_ms <= now_ms + self._delays_ms[level - 1])

    def _read(self, level: int, physical_offset: PhysicalOffset) -> MessageDraft | None:
        """The message for its real queue; None when it is to be passed over."""
        try:
            record = self._store.read_record(physical_offset)
        except (OffsetOutOfRangeError, CorruptDataError) as error:
            logger.error(
                "delayed message cannot be read level=%d physical_offset=%d error=%s", level, physical_offset, error
            )
            return None
        draft = _due_draft(record)
        if draft is not None and not self._store.incarnations.is_live(draft.topic, physical_offset):
            logger.info("delayed message of a deleted topic dropped topic=%s", draft.topic)
            return None
        return draft

    def _deliver(self, level: int, physical_offset: PhysicalOffset) -> bool:
        """Deliver one message; False when it is to be tried again later."""
        draft = self._read(level, physical_offset)
        if draft is None:
            return True
        try:
            with self._passing(physical_offset):
                self._stats.add_scheduled(self._appender.append(draft).size_bytes)
        except InvalidRequestError as error:
            logger.warning(
                "delayed message dropped topic=%s physical_offset=%d error=%s", draft.topic, physical_offset, error
            )
        except MQError as error:
            logger.error("delayed message not delivered yet level=%d topic=%s error=%s", level, draft.topic, error)
            self._resting_until_ms[level] = self._clock() + FAILURE_PAUSE_MS
            return False
        return True

    def _passing(self, physical_offset: PhysicalOffset) -> contextlib.AbstractContextManager[None]:
        """Allow the put of the message at this offset although the log is paused for a full disk, if its log file is
        wanted back."""
        if physical_offset < self._awaited_offset:
            return self._store.commit_log.let_through(DISK_NEARLY_FULL)
        return contextlib.nullcontext()

    def _queue(self, level: int) -> ConsumeQueue | None:
        return self._store.queues.find(SCHEDULE_TOPIC, level - 1)

    def _offset(self, level: int, queue: ConsumeQueue | None) -> QueueOffset:
        """Where the level goes on, corrected to what its queue holds."""
        offset = self._offsets.get(level, QUEUE_START)
        if queue is None:
            return offset
        corrected = min(max(offset, queue.min_offset), queue.next_offset)
        if corrected != offset and offset != 0:
            logger.error("delay offset corrected level=%d from=%d to=%d", level, offset, corrected)
            self._offsets[level] = corrected
        return corrected

    def _updated(self, count: int) -> None:
        self.changes.add()
        self._updates_until_version -= count
        if self._updates_until_version <= 0:
            self._updates_until_version = self._version_step
            self._version.bump()

    # -- file ----------------------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """The file's content."""
        return _encode_file(self._version.text(), self._offsets)

    async def follow(self, data: bytes) -> bool:
        """Take over a master's progress, as its file has it; durable on return. False when it is so already.

        Raises:
            InvalidRequestError: It is no such file.
            UnavailableError: The file could not be written; the progress is as before.
        """
        file = json_dialect.loads_as(data, _DelayOffsetFile)
        before = self._offsets, self._version.current
        self._offsets, self._version.current = dict(file.offset_table), file.data_version or self._version.current
        if before == (self._offsets, self._version.current):
            return False
        try:
            await self._persister.save(FILE_NAME)
        except Exception:
            self._offsets, self._version.current = before
            raise
        return True

    def load(self, data: bytes | None) -> None:
        """Load the file's content.

        Raises:
            CorruptDataError: It is not what RocketMQ or we write.
        """
        file = _read_file(data)
        self._offsets = dict(file.offset_table)
        if file.data_version is not None:
            self._version.current = file.data_version


def _read_file(data: bytes | None) -> _DelayOffsetFile:
    if data is None:
        return _DelayOffsetFile()
    try:
        return json_dialect.loads_as(data, _DelayOffsetFile)
    except InvalidRequestError as error:
        raise CorruptDataError("delay offsets cannot be read", file=FILE_NAME, reason=str(error)) from error


def _encode_file(version: bytes, offsets: Mapping[int, QueueOffset]) -> bytes:
    pairs = ",".join(f"{level}:{offset}" for level, offset in sorted(offsets.items()))
    return b'{"dataVersion":%s,\n"offsetTable":{%s}}' % (version, pairs.encode())


def _due_draft(record: MessageRecord) -> MessageDraft | None:
    """The message for its real queue; None when the record does not say where that is."""
    topic = record.property_text(PropertyName.REAL_TOPIC)
    queue_id = record.property_text(PropertyName.REAL_QUEUE_ID)
    if not topic or queue_id is None or not queue_id.isdecimal() or topic == TRANSACTION_HALF_TOPIC:
        logger.error("delayed message without a place to go physical_offset=%d topic=%s", record.physical_offset, topic)
        return None
    return MessageDraft(
        topic=topic,
        queue_id=int(queue_id),
        body=record.body,
        properties_text=record.properties_text,
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times,
    )
