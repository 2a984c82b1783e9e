"""Revive log: the revive topic as POP writes and reads it.

    rmq_sys_REVIVE_LOG_<cluster>, reviveQueueNum queues:   ck ... ack ... bAck ... ck ... order ...

Everything that POP must not forget is a record here, in the order in which it happened, so a restart reads it from the
first check point on that was not finished. RocketMQ's records come through its timer and lie in the order of their due
times; the records themselves are the same, and either broker reads what the other has left.
Belongs to the loop thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import msgspec

from thermocline.pop import ack_record, check_point, order_record
from thermocline.pop.ack_record import AckRecord
from thermocline.pop.check_point import UNREADABLE, CheckPoint
from thermocline.pop.order_record import OrderRecord
from thermocline.remoting.errors import CorruptDataError, OffsetOutOfRangeError
from thermocline.remoting.handles import normal_topic
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.remoting.records.properties import PropertyName
from thermocline.remoting.string_hash import tags_code
from thermocline.store.log import MessageDraft
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import FILLER_SIZE_BYTES, UNIT, ConsumeQueue

logger = logging.getLogger(__name__)

UNITS_READ = 512

CHECK_POINT_CODE = tags_code(check_point.TAG)
ACK_CODE = tags_code(ack_record.TAG)
BATCH_ACK_CODE = tags_code(ack_record.BATCH_TAG)
ORDER_CODE = tags_code(order_record.TAG)

ReviveEntry = CheckPoint | AckRecord | OrderRecord


class ReviveRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record of the revive topic. `entry` is None when nothing can be made of it."""

    revive_queue_id: int
    revive_offset: QueueOffset
    physical_offset: PhysicalOffset
    entry: ReviveEntry | None
    is_timed: bool
    """Whether a timer has put it here when it was due, as RocketMQ's are: its acknowledgements may still be there."""


class _Subject(msgspec.Struct):
    """Of which topic and group a record is."""

    t: str = ""
    c: str = ""


def topic_of_record(body: bytes | memoryview) -> str:
    """The topic whose messages a check point or an acknowledgement is about, without its retry topics; "": none."""
    try:
        subject = _decode_subject(body)
    except UNREADABLE:
        return ""
    return normal_topic(subject.t, subject.c)


_decode_subject = msgspec.json.Decoder(_Subject).decode


class ReviveLog:
    """Makes drafts of records, and reads records."""

    def __init__(
        self, store: MessageStore, *, topic: str, queue_count: int, broker_name: str, clock: Callable[[], int]
    ) -> None:
        assert queue_count > 0
        self.topic = topic
        self.broker_name = broker_name
        self._store = store
        self._clock = clock
        self.queue_count = queue_count
        self._turn = 0

    def next_queue_id(self) -> int:
        """The revive queue whose turn it is."""
        self._turn += 1
        return self._turn % self.queue_count

    def order_queue_id(self, queue_id: int) -> int:
        """The revive queue for the order records of a queue: always the same, so that they stay in order."""
        return queue_id % self.queue_count

    def queues(self) -> list[ConsumeQueue]:
        """The revive queues that hold something."""
        return list(self._store.queues.of_topic(self.topic).values())

    # -- drafts --------------------------------------------------------------------------------------------------------

    def check_point_draft(self, record: CheckPoint, revive_queue_id: int) -> MessageDraft:
        """A check point that is to be put."""
        return self._draft(revive_queue_id, record.body(), record.properties_text(), code=CHECK_POINT_CODE)

    def ack_draft(self, record: AckRecord, revive_queue_id: int, *, revive_time_ms: int) -> MessageDraft:
        """An acknowledgement that is to be put."""
        code = ACK_CODE if record.tag == ack_record.TAG else BATCH_ACK_CODE
        properties_text = record.properties_text(revive_time_ms=revive_time_ms)
        return self._draft(revive_queue_id, record.body(), properties_text, code=code)

    def order_draft(self, record: OrderRecord) -> MessageDraft:
        """An order record that is to be put."""
        return self._draft(
            self.order_queue_id(record.queue_id), record.body(), order_record.PROPERTIES_TEXT, code=ORDER_CODE
        )

    def _draft(self, revive_queue_id: int, body: bytes, properties_text: bytes, *, code: int) -> MessageDraft:
        return MessageDraft(
            topic=self.topic,
            queue_id=revive_queue_id,
            body=body,
            properties_text=properties_text,
            born_timestamp_ms=self._clock(),
            born_host=self._store.store_host,
            tags_code=code,
        )

    # -- reading -------------------------------------------------------------------------------------------------------

    def records(self, queue: ConsumeQueue, start: QueueOffset, end: QueueOffset) -> Iterator[ReviveRecord]:
        """The records at revive offsets [start, end) of a queue, as far as the local log still has them."""
        offset = max(start, queue.min_offset)
        while offset < end:
            units = queue.units(offset, min(UNITS_READ, end - offset))
            for physical_offset, size_bytes, code in UNIT.iter_unpack(units):
                if size_bytes != FILLER_SIZE_BYTES:
                    yield self._record(queue, offset, physical_offset, code)
                offset += 1

    def _record(
        self, queue: ConsumeQueue, offset: QueueOffset, physical_offset: PhysicalOffset, code: int
    ) -> ReviveRecord:
        entry: ReviveEntry | None = None
        is_timed = False
        try:
            record = self._store.read_record(physical_offset)
            entry = self._entry(record, code)
            is_timed = record.property_text(PropertyName.REAL_TOPIC) is not None
        except (CorruptDataError, OffsetOutOfRangeError) as error:
            logger.error(
                "revive record passed over revive_queue_id=%d revive_offset=%d error=%s", queue.queue_id, offset, error
            )
        return ReviveRecord(
            revive_queue_id=queue.queue_id,
            revive_offset=offset,
            physical_offset=physical_offset,
            entry=entry,
            is_timed=is_timed,
        )

    def _entry(self, record: MessageRecord, code: int) -> ReviveEntry | None:
        if code == CHECK_POINT_CODE:
            return CheckPoint.parse(record.body, broker_name=self.broker_name)
        if code in (ACK_CODE, BATCH_ACK_CODE):
            return AckRecord.parse(record.body, broker_name=self.broker_name)
        if code == ORDER_CODE:
            return OrderRecord.parse(record.body)
        return None
