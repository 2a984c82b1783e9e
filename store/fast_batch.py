"""Fast batch: the messages inside a SEND_BATCH_MESSAGE made into records, queue units and message ids.

Two ways, the same bytes. Messages that are all equally long (fixed-size bodies and keys are common in batches) go
through one `struct` call in and one out, whatever their number, in a third of the time. All others go one by one.

    batch body   messages in the layout of remoting/batch.py, one behind the other
    record       see remoting/message_record.py; the fields behind the born timestamp are given, see fast_path.py

None means: ordinary code shall look at it, nothing was made.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat

from thermocline.remoting.batch import HEAD as BATCH_HEAD
from thermocline.remoting.crc32 import crc32
from thermocline.remoting.message_record import (
    CHECKSUM_MASK,
    MAGIC_V1,
    POSITION_BODY_CHECKSUM,
    POSITION_QUEUE_ID,
    POSITION_QUEUE_OFFSET,
    POSITION_SYS_FLAG,
)
from thermocline.remoting.properties import NAME_END, PROPERTIES_BYTES_MAX, VALUE_END
from thermocline.remoting.string_hash import tags_code
from thermocline.store.consume_queue import UNIT
from thermocline.store.record_head import RECORD_HEAD
from thermocline.store.send_properties import TAGS_MARK, is_plain, property_of

RUN_COUNT_MAX = 64
"""The most messages of a batch that are packed in one step."""

BATCH_HEAD_BYTES = BATCH_HEAD.size
PROPERTIES_SIZE_BYTES = 2
MESSAGE_FIELD_COUNT = 4  # of `_messages_struct`

UNITS = tuple(struct.Struct(">" + "qiq" * count) for count in range(RUN_COUNT_MAX + 1))
assert UNITS[1].size == UNIT.size, "the same fields as consume_queue.UNIT"

# The pieces of a record's head: what differs between the records of a batch lies between them.
HEAD_START = slice(POSITION_BODY_CHECKSUM)
HEAD_MIDDLE = slice(POSITION_QUEUE_ID, POSITION_QUEUE_OFFSET)
HEAD_END = slice(POSITION_SYS_FLAG, RECORD_HEAD.size)
HEAD_FORMAT = (
    f"{HEAD_START.stop}s"
    "i"  # body checksum
    f"{HEAD_MIDDLE.stop - HEAD_MIDDLE.start}s"
    "q"  # queue offset
    "q"  # physical offset
    f"{HEAD_END.stop - HEAD_END.start}s"
)
assert struct.calcsize(">" + HEAD_FORMAT) == RECORD_HEAD.size

_TAGS_START = f"{VALUE_END}{TAGS_MARK}".encode()
_TAGS_END = VALUE_END.encode()
_NAME_END = NAME_END.encode()

_unpack_batch_head = BATCH_HEAD.unpack_from
_pack_record_head = RECORD_HEAD.pack


@dataclass(slots=True)
class BatchPlace:
    """Where a batch goes, and what all of its records have in common."""

    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp_ms: int
    chunk_fields: bytes
    topic_field: bytes
    record_bytes: int  # of a record without body and properties


@dataclass(slots=True)
class BatchRecords:
    """What a batch becomes: the pieces of its records, its queue units' fields and its records' offsets."""

    parts: list[bytes]
    units: list[int]
    physical_offsets: Sequence[int]
    append_end: int


def make_records(data: bytes, start: int, end: int, place: BatchPlace) -> BatchRecords | None:
    """The records of the batch body `data[start:end]`."""
    if start + BATCH_HEAD_BYTES > end:
        return None
    message_bytes, _magic, _checksum, _flag, body_bytes = _unpack_batch_head(data, start)
    properties_bytes = message_bytes - BATCH_HEAD_BYTES - body_bytes - PROPERTIES_SIZE_BYTES
    if body_bytes >= 0 and 0 <= properties_bytes <= PROPERTIES_BYTES_MAX:
        count, rest = divmod(end - start, message_bytes)
        if 1 < count <= RUN_COUNT_MAX and not rest:
            records = _from_equal(data, start, place, count, body_bytes, properties_bytes)
            if records is not None:
                return records
    return _one_by_one(data, start, end, place)


def pack_units(fields: list[int]) -> bytes:
    """Consume queue units, from their fields one behind the other."""
    runs = [fields[at : at + 3 * RUN_COUNT_MAX] for at in range(0, len(fields), 3 * RUN_COUNT_MAX)]
    return b"".join([UNITS[len(run) // 3].pack(*run) for run in runs])


def _from_equal(
    data: bytes, start: int, place: BatchPlace, count: int, body_bytes: int, properties_bytes: int
) -> BatchRecords | None:
    """All messages at once; None unless their heads are the same and each has a text as long as the first's."""
    fields = _messages_struct(count, body_bytes, properties_bytes).unpack_from(data, start)
    head, properties_size = fields[0], properties_bytes.to_bytes(PROPERTIES_SIZE_BYTES, "big")
    if (
        fields[0::MESSAGE_FIELD_COUNT].count(head) != count
        or fields[2::MESSAGE_FIELD_COUNT].count(properties_size) != count
    ):
        return None
    bodies, properties = fields[1::MESSAGE_FIELD_COUNT], fields[3::MESSAGE_FIELD_COUNT]
    joined = b"".join(properties)
    # Text that names nothing special when joined names nothing special in its pieces.
    if not joined.isascii() or not is_plain(joined.decode(), False):
        return None
    tags_codes = _equal_tags_codes(joined, properties_bytes, count)
    if tags_codes is None:
        return None
    _message_bytes, _magic, _checksum, flag, _body_bytes = BATCH_HEAD.unpack(head)
    record_bytes = place.record_bytes + body_bytes + properties_bytes
    append_end = place.physical_offset + count * record_bytes
    physical_offsets = range(place.physical_offset, append_end, record_bytes)
    # What is the same in all of them is packed once, from the same struct as any record's head.
    record_head = _pack_record_head(
        record_bytes,
        MAGIC_V1,
        0,
        place.queue_id,
        flag,
        0,
        0,
        place.sys_flag,
        place.born_timestamp_ms,
        place.chunk_fields,
        body_bytes,
    )
    records = _records_struct(count, body_bytes, len(place.topic_field), properties_bytes).pack(
        *chain.from_iterable(
            zip(
                repeat(record_head[HEAD_START], count),
                [crc32(body) & CHECKSUM_MASK for body in bodies],
                repeat(record_head[HEAD_MIDDLE]),
                range(place.queue_offset, place.queue_offset + count),
                physical_offsets,
                repeat(record_head[HEAD_END]),
                bodies,
                repeat(place.topic_field + properties_size),
                properties,
                strict=False,
            )
        )
    )
    units = list(chain.from_iterable(zip(physical_offsets, repeat(record_bytes), tags_codes, strict=False)))
    return BatchRecords([records], units, physical_offsets, append_end)


def _equal_tags_codes(joined: bytes, text_bytes: int, count: int) -> Sequence[int] | None:
    """The tags code of each text, when all have their one tag at the same place, or none has one.

    `joined`: `count` texts of `text_bytes` each.
    """
    tag_count = joined.count(_TAGS_START[1:])
    if not tag_count:
        return (0,) * count
    start = joined.find(_TAGS_START, 0, text_bytes)
    end = joined.find(_TAGS_END, start + len(_TAGS_START), text_bytes) + 1
    if tag_count != count or start < 0 or not end:
        return None
    tags = [joined[at : at + end - start] for at in range(start, len(joined), text_bytes)]
    first = tags[0]
    if tags.count(first) == count:
        code = _code_of_tag(first)
        return None if code is None else (code,) * count
    codes = {tag: _code_of_tag(tag) for tag in set(tags)}
    return None if None in codes.values() else [codes[tag] or 0 for tag in tags]


def _code_of_tag(text: bytes) -> int | None:
    r"""The code of the tag in `\x02TAGS\x01tag\x02`; None when this is not what the text is."""
    tag = text[len(_TAGS_START) : -1]
    if not tag or not text.startswith(_TAGS_START) or not text.endswith(_TAGS_END):
        return None
    return None if _TAGS_END in tag or _NAME_END in tag else tags_code(tag.decode())


def _one_by_one(data: bytes, start: int, end: int, place: BatchPlace) -> BatchRecords | None:
    """Messages of any length."""
    queue_id, sys_flag, born_timestamp_ms = place.queue_id, place.sys_flag, place.born_timestamp_ms
    chunk_fields, topic_field, fixed_bytes = place.chunk_fields, place.topic_field, place.record_bytes
    queue_offset, physical_offset = place.queue_offset, place.physical_offset
    parts: list[bytes] = []
    units: list[int] = []
    physical_offsets: list[int] = []
    position = start
    while position < end:
        if position + BATCH_HEAD_BYTES > end:
            return None
        message_bytes, _magic, _checksum, flag, body_bytes = _unpack_batch_head(data, position)
        body_start = position + BATCH_HEAD_BYTES
        body_end = body_start + body_bytes
        position += message_bytes
        properties_bytes = position - body_end - PROPERTIES_SIZE_BYTES
        if body_bytes < 0 or position > end or not 0 <= properties_bytes <= PROPERTIES_BYTES_MAX:
            return None
        properties = data[body_end:position]  # behind their size
        if properties[0] << 8 | properties[1] != properties_bytes:
            return None
        try:
            text = properties[PROPERTIES_SIZE_BYTES:].decode()
        except UnicodeDecodeError:
            return None
        if not is_plain(text, False):
            return None
        body = data[body_start:body_end]
        record_bytes = fixed_bytes + body_bytes + properties_bytes
        parts += (
            _pack_record_head(
                record_bytes,
                MAGIC_V1,
                crc32(body) & CHECKSUM_MASK,
                queue_id,
                flag,
                queue_offset,
                physical_offset,
                sys_flag,
                born_timestamp_ms,
                chunk_fields,
                body_bytes,
            ),
            body,
            topic_field,
            properties,
        )
        physical_offsets.append(physical_offset)
        units += (physical_offset, record_bytes, tags_code(property_of(text, TAGS_MARK)))
        queue_offset += 1
        physical_offset += record_bytes
    return BatchRecords(parts, units, physical_offsets, physical_offset)


@lru_cache(maxsize=256)
def _messages_struct(count: int, body_bytes: int, properties_bytes: int) -> struct.Struct:
    """So many messages of a batch: head, body, properties size, properties."""
    return struct.Struct(">" + f"{BATCH_HEAD_BYTES}s{body_bytes}s{PROPERTIES_SIZE_BYTES}s{properties_bytes}s" * count)


@lru_cache(maxsize=256)
def _records_struct(count: int, body_bytes: int, topic_bytes: int, properties_bytes: int) -> struct.Struct:
    """So many records: head, with checksum and offsets by themselves; body; topic and properties, with their sizes."""
    after_head = f"{body_bytes}s{topic_bytes + PROPERTIES_SIZE_BYTES}s{properties_bytes}s"
    return struct.Struct(">" + f"{HEAD_FORMAT}{after_head}" * count)
