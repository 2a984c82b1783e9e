"""Timer record: a record of the timer topic, as enqueueing and delivery see it.

    enqueue   when it is due, which topic it counts for, whether it is a recall marker      (`read_timer_record`)
    deliver   for its real topic and queue, with TIMER_ENQUEUE_MS and TIMER_DEQUEUE_MS added  (`due_draft`)
    roll      for the timer topic again, those two likewise and one more in TIMER_ROLL_TIMES  (`rolled_draft`)

The rest of the property text stays as it was stored, REAL_TOPIC and TIMER_OUT_MS included: the latter keeps a delivered
message from being timed again. Where what is added would make the text too long, it stays away: it only tells of the
way that the message took. Records are read through the file's descriptor: mapped, a million of them would count as
this process's memory.

The exact time of delivery comes from the sender's own properties: absolute, or relative to the store time (the moment
after the one that the sender's delay was added to). It counts only if it is in the tick that TIMER_OUT_MS names; a
record that was rolled has another store time, so a relative one is not known any more.
Source: TimerMessageStore.java (convert, convertMessage), Apache RocketMQ 5.3.
"""

from __future__ import annotations

import re

import msgspec

from thermocline.remoting.errors import CorruptDataError, RecordMagicError, RecordSizeError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.remoting.records.message_record import (
    BLANK,
    HEAD,
    INT,
    LONG,
    MAGIC_V1,
    MAGIC_V2,
    POSITION_BODY_SIZE,
    POSITION_PHYSICAL_OFFSET,
    POSITION_STORE_TIMESTAMP,
    POSITION_SYS_FLAG,
    RECORD_BYTES_MIN,
    SHORT,
    TOPIC_BYTES_MAX_V2,
    MessageRecord,
    decode_record,
)
from thermocline.remoting.records.properties import PROPERTIES_BYTES_MAX, PropertyName, find_property, without_property
from thermocline.remoting.records.record_layout import HOST_V6_MORE_BYTES
from thermocline.remoting.records.sys_flag import BORN_HOST_V6, STORE_HOST_V6
from thermocline.remoting.topic_validation import SEND_FORBIDDEN_TOPICS, TIMER_TOPIC
from thermocline.store.log import CommitLog, MessageDraft

WHOLE_BYTES_MAX = 64 * 1024
"""A record up to this size is read at once; of a larger one, the body is left out when it is not needed."""
NAMES_BYTES_MAX = SHORT.size + TOPIC_BYTES_MAX_V2 + SHORT.size + PROPERTIES_BYTES_MAX

_OUT = PropertyName.TIMER_OUT_MS.encode()
_REAL_TOPIC = PropertyName.REAL_TOPIC.encode()
_DELETE_KEY = PropertyName.TIMER_DELETE_UNIQUE_KEY.encode()
_ROLL_TIMES = PropertyName.TIMER_ROLL_TIMES.encode()
_ENQUEUE = PropertyName.TIMER_ENQUEUE_MS.encode()
_DEQUEUE = PropertyName.TIMER_DEQUEUE_MS.encode()
_DELIVER = PropertyName.TIMER_DELIVER_MS.encode()
_DELAYS = ((PropertyName.TIMER_DELAY_S.encode(), 1_000), (PropertyName.TIMER_DELAY_MS.encode(), 1))
_NUMBER = re.compile(rb"[0-9]{1,18}")
_QUEUE_ID = re.compile(r"[0-9]{1,9}")


class TimerRecord(msgspec.Struct, frozen=True, gc=False):
    """The fields that enqueueing needs."""

    out_ms: int
    """TIMER_OUT_MS."""
    deliver_ms: int
    """The exact time, in (out_ms, out_ms + precision]; 0 when it is not known."""
    real_topic: str
    is_marker: bool


def read_bytes(log: CommitLog, physical_offset: PhysicalOffset, size_bytes: int) -> bytes:
    """Bytes of one record.

    Raises:
        OffsetOutOfRangeError: The offset is below the oldest file or behind the newest.
    """
    file = log.files.find(physical_offset)
    return file.file.read_at(size_bytes, physical_offset - file.base_offset)


def read_record(log: CommitLog, physical_offset: PhysicalOffset, size_bytes: int) -> MessageRecord:
    """The whole record.

    Raises:
        OffsetOutOfRangeError: See `read_bytes`.
        CorruptDataError: There is no sound record of the timer topic.
    """
    record = decode_record(read_bytes(log, physical_offset, size_bytes))
    if record.topic != TIMER_TOPIC or record.physical_offset != physical_offset:
        raise RecordMagicError("not the timed message that was here", physical_offset=physical_offset)
    return record


def read_timer_record(
    log: CommitLog, physical_offset: PhysicalOffset, size_bytes: int, *, precision_ms: int
) -> TimerRecord:
    """The fields of a record that enqueueing needs; a large body is not read.

    Raises:
        OffsetOutOfRangeError: See `read_bytes`.
        CorruptDataError: No record is there, or it does not say when it is due or for which topic.
    """
    text, store_timestamp_ms = _properties_of(log, physical_offset, size_bytes)
    out = find_property(text, _OUT)
    topic = find_property(text, _REAL_TOPIC)
    if out is None or topic is None or not _NUMBER.fullmatch(out):
        raise CorruptDataError("the message does not say when it is due, or where", physical_offset=physical_offset)
    out_ms = int(out)
    deliver_ms = _deliver_ms(text, store_timestamp_ms)
    return TimerRecord(
        out_ms,
        deliver_ms if out_ms < deliver_ms <= out_ms + precision_ms else 0,
        topic.decode("utf-8", "replace"),
        _DELETE_KEY in text and find_property(text, _DELETE_KEY) is not None,
    )


def marker_key(record: MessageRecord) -> tuple[str, str] | None:
    """Topic and unique id of the message that a marker recalls; None when it names none."""
    topic = record.property_text(PropertyName.REAL_TOPIC)
    key = record.property_text(PropertyName.TIMER_DELETE_UNIQUE_KEY)
    if topic is None or key is None:
        return None
    # Before RocketMQ 5.4 the topic stands before the id. A marker recalls messages of its own topic only, either way.
    return topic, key.removeprefix(f"{topic}+")


def due_draft(record: MessageRecord, *, enqueued_ms: int, now_ms: int) -> MessageDraft:
    """The message for its real queue.

    Raises:
        CorruptDataError: It does not say which that is, or names one that takes none.
    """
    topic = record.property_text(PropertyName.REAL_TOPIC)
    queue_id = record.property_text(PropertyName.REAL_QUEUE_ID)
    if topic is None or topic in SEND_FORBIDDEN_TOPICS or queue_id is None or not _QUEUE_ID.fullmatch(queue_id):
        raise CorruptDataError("timed message without a place to go", topic=topic, queue_id=queue_id)
    text = _stamped(record.properties_text, enqueued_ms=enqueued_ms, now_ms=now_ms)
    return _draft(record, topic=topic, queue_id=int(queue_id), properties_text=text)


def rolled_draft(record: MessageRecord, *, enqueued_ms: int, now_ms: int) -> MessageDraft:
    """The message for the timer topic once more."""
    times = find_property(record.properties_text, _ROLL_TIMES)
    number = int(times) + 1 if times is not None and _NUMBER.fullmatch(times) else 1
    text = _stamped(without_property(record.properties_text, _ROLL_TIMES), enqueued_ms=enqueued_ms, now_ms=now_ms)
    text += b"%b\x01%d\x02" % (_ROLL_TIMES, number)
    return _draft(record, topic=record.topic, queue_id=record.queue_id, properties_text=text)


def _draft(record: MessageRecord, *, topic: str, queue_id: int, properties_text: bytes) -> MessageDraft:
    return MessageDraft(
        topic=topic,
        queue_id=queue_id,
        body=record.body,
        properties_text=properties_text if len(properties_text) <= PROPERTIES_BYTES_MAX else record.properties_text,
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times,
    )


def _stamped(text: bytes, *, enqueued_ms: int, now_ms: int) -> bytes:
    if _ENQUEUE in text or _DEQUEUE in text:
        text = without_property(without_property(text, _ENQUEUE), _DEQUEUE)
    if text and not text.endswith(b"\x02"):
        text += b"\x02"
    return text + b"%b\x01%d\x02%b\x01%d\x02" % (_ENQUEUE, enqueued_ms, _DEQUEUE, now_ms)


def _deliver_ms(text: bytes, store_timestamp_ms: int) -> int:
    for name, unit_ms in _DELAYS:
        value = find_property(text, name) if name in text else None
        if value is not None:
            if not _NUMBER.fullmatch(value) or _ROLL_TIMES in text:
                return 0
            return store_timestamp_ms + int(value) * unit_ms
    value = find_property(text, _DELIVER)
    return int(value) if value is not None and _NUMBER.fullmatch(value) else 0


def _properties_of(log: CommitLog, physical_offset: PhysicalOffset, size_bytes: int) -> tuple[bytes, int]:
    """The record's property text and its store time."""
    if size_bytes < RECORD_BYTES_MIN:
        raise RecordSizeError("impossible record size", physical_offset=physical_offset, size_bytes=size_bytes)
    is_whole = size_bytes <= WHOLE_BYTES_MAX
    bytes_wanted = size_bytes if is_whole else HEAD.size + 2 * HOST_V6_MORE_BYTES
    data = read_bytes(log, physical_offset, bytes_wanted)
    if len(data) < bytes_wanted:
        raise RecordSizeError("the record is cut short", physical_offset=physical_offset, size_bytes=size_bytes)
    size_found, magic = BLANK.unpack_from(data)
    if (
        magic not in (MAGIC_V1, MAGIC_V2)
        or size_found != size_bytes
        or LONG.unpack_from(data, POSITION_PHYSICAL_OFFSET)[0] != physical_offset
    ):
        raise RecordMagicError("no message record starts here", physical_offset=physical_offset)
    (sys_flag,) = INT.unpack_from(data, POSITION_SYS_FLAG)
    born_more = HOST_V6_MORE_BYTES if sys_flag & BORN_HOST_V6 else 0
    more = born_more + (HOST_V6_MORE_BYTES if sys_flag & STORE_HOST_V6 else 0)
    (store_timestamp_ms,) = LONG.unpack_from(data, POSITION_STORE_TIMESTAMP + born_more)
    (body_bytes,) = INT.unpack_from(data, POSITION_BODY_SIZE + more)
    names = HEAD.size + more + body_bytes
    names_bytes = size_bytes - names
    if body_bytes < 0 or not 1 + SHORT.size <= names_bytes <= NAMES_BYTES_MAX:
        raise RecordSizeError("impossible body size", physical_offset=physical_offset, size_bytes=body_bytes)
    if not is_whole:
        data, names = read_bytes(log, physical_offset + names, names_bytes), 0
    topic_bytes = 1 + data[names] if magic == MAGIC_V1 else SHORT.size + SHORT.unpack_from(data, names)[0]
    properties = names + topic_bytes + SHORT.size
    if properties > len(data) or topic_bytes <= 0:
        raise RecordSizeError("impossible topic size", physical_offset=physical_offset)
    return data[properties:], store_timestamp_ms
