"""Fast batch: the messages inside a SEND_BATCH_MESSAGE made into records, queue units and message ids.

Two ways, the same bytes. Messages that are all equally long (fixed-size bodies and keys are common in batches) are rows
of one table: what the records have in common is laid down once, bodies, texts, checksums and offsets are columns of it.
All others go one by one.

    batch body   messages in the layout of remoting/records/batch.py, one behind the other
    record       see remoting/records/message_record.py; fast_path.py gives the fields behind the born timestamp

None means: ordinary code shall look at it, nothing was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np

from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.records.batch import HEAD as BATCH_HEAD
from thermocline.remoting.records.crc32 import crc32
from thermocline.remoting.records.message_record import (
    CHECKSUM_MASK,
    MAGIC_V1,
    POSITION_BODY_CHECKSUM,
    POSITION_PHYSICAL_OFFSET,
    POSITION_QUEUE_OFFSET,
)
from thermocline.remoting.records.properties import NAME_END, PROPERTIES_BYTES_MAX, VALUE_END
from thermocline.remoting.string_hash import tags_code
from thermocline.store.queues import UNIT
from thermocline.store.sends.record_head import RECORD_HEAD
from thermocline.store.sends.send_properties import TAGS_MARK, is_plain, property_of

ROW_COUNT_MIN = 4
"""With fewer messages a table is more work than they are."""

BATCH_HEAD_BYTES = BATCH_HEAD.size
PROPERTIES_SIZE_BYTES = 2

UNIT_FIELDS = np.dtype([("physical_offset", ">i8"), ("size_bytes", ">i4"), ("tags_code", ">i8")])
assert UNIT_FIELDS.itemsize == UNIT.size, "the same fields as consume_queue.UNIT"

_TAGS_START = f"{VALUE_END}{TAGS_MARK}".encode()
_TAGS_END = VALUE_END.encode()
_NAME_END = NAME_END.encode()

_unpack_batch_head = BATCH_HEAD.unpack_from
_pack_record_head = RECORD_HEAD.pack
_pack_unit = UNIT.pack


class BatchPlace(msgspec.Struct):
    """Where a batch goes, and what all of its records have in common."""

    queue_id: int
    queue_offset: QueueOffset
    physical_offset: PhysicalOffset
    sys_flag: int
    born_timestamp_ms: int
    chunk_fields: bytes
    topic_field: bytes
    record_bytes: int  # of a record without body and properties


class BatchRecords(msgspec.Struct):
    """The result of a batch: the pieces of its records, its queue units and its records' offsets."""

    parts: list[bytes]
    units: bytes
    physical_offsets: Sequence[int]
    append_end: PhysicalOffset


def make_records(data: bytes, start: int, end: int, place: BatchPlace) -> BatchRecords | None:
    """The records of the batch body `data[start:end]`."""
    if start + BATCH_HEAD_BYTES > end:
        return None
    message_bytes, _magic, _checksum, _flag, body_bytes = _unpack_batch_head(data, start)
    properties_bytes = message_bytes - BATCH_HEAD_BYTES - body_bytes - PROPERTIES_SIZE_BYTES
    if body_bytes >= 0 and 0 <= properties_bytes <= PROPERTIES_BYTES_MAX:
        count, rest = divmod(end - start, message_bytes)
        if count >= ROW_COUNT_MIN and not rest:
            records = _from_rows(data, start, place, count, body_bytes, properties_bytes)
            if records is not None:
                return records
    return _one_by_one(data, start, end, place)


def _from_rows(
    data: bytes, start: int, place: BatchPlace, count: int, body_bytes: int, properties_bytes: int
) -> BatchRecords | None:
    """All messages at once; None unless their heads are the same and each has a text as long as the first's."""
    message_bytes = BATCH_HEAD_BYTES + body_bytes + PROPERTIES_SIZE_BYTES + properties_bytes
    body_start, text_start = BATCH_HEAD_BYTES, message_bytes - properties_bytes
    messages = np.frombuffer(data, np.uint8, count * message_bytes, start).reshape(count, message_bytes)
    head = data[start : start + BATCH_HEAD_BYTES]
    properties_size = properties_bytes.to_bytes(PROPERTIES_SIZE_BYTES, "big")
    if (
        messages[:, :body_start].tobytes() != head * count
        or messages[:, text_start - PROPERTIES_SIZE_BYTES : text_start].tobytes() != properties_size * count
    ):
        return None
    texts = messages[:, text_start:]
    joined = texts.tobytes()
    # Text that names nothing special when joined names nothing special in its pieces.
    if not joined.isascii() or not is_plain(joined.decode(), False):
        return None
    tags_codes = _equal_tags_codes(texts, joined)
    if tags_codes is None:
        return None
    _message_bytes, _magic, _checksum, flag, _body_bytes = BATCH_HEAD.unpack(head)
    record_bytes = place.record_bytes + body_bytes + properties_bytes
    append_end = place.physical_offset + count * record_bytes
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
    after_body = place.topic_field + properties_size
    body_end = RECORD_HEAD.size + body_bytes
    records = np.empty((count, record_bytes), np.uint8)
    records[:, : RECORD_HEAD.size] = np.frombuffer(record_head, np.uint8)
    records[:, RECORD_HEAD.size : body_end] = messages[:, body_start : body_start + body_bytes]
    records[:, body_end : body_end + len(after_body)] = np.frombuffer(after_body, np.uint8)
    records[:, record_bytes - properties_bytes :] = texts
    physical_offsets = range(place.physical_offset, append_end, record_bytes)
    offsets = np.arange(place.physical_offset, append_end, record_bytes)
    first_body = start + body_start
    fields = np.ndarray(count, _own_fields(record_bytes), records)
    fields["body_checksum"] = [
        crc32(data[at : at + body_bytes]) & CHECKSUM_MASK
        for at in range(first_body, first_body + count * message_bytes, message_bytes)
    ]
    fields["queue_offset"] = np.arange(place.queue_offset, place.queue_offset + count)
    fields["physical_offset"] = offsets
    units = np.empty(count, UNIT_FIELDS)
    units["physical_offset"] = offsets
    units["size_bytes"] = record_bytes
    units["tags_code"] = tags_codes
    return BatchRecords([records.tobytes()], units.tobytes(), physical_offsets, append_end)


@lru_cache(maxsize=256)
def _own_fields(record_bytes: int) -> np.dtype[np.void]:
    """What differs between the records of a batch, beside body and text, in records so long."""
    return np.dtype(
        {
            "names": ["body_checksum", "queue_offset", "physical_offset"],
            "formats": [">u4", ">i8", ">i8"],
            "offsets": [POSITION_BODY_CHECKSUM, POSITION_QUEUE_OFFSET, POSITION_PHYSICAL_OFFSET],
            "itemsize": record_bytes,
        }
    )


def _equal_tags_codes(texts: np.ndarray[tuple[int, int], np.dtype[np.uint8]], joined: bytes) -> int | list[int] | None:
    """The tags code of each text, or the one of all, when all have their one tag at the same place, or none has one.

    `texts`: a row each; `joined`: their bytes.
    """
    count, text_bytes = texts.shape
    tag_count = joined.count(_TAGS_START[1:])
    if not tag_count:
        return 0
    start = joined.find(_TAGS_START, 0, text_bytes)
    end = joined.find(_TAGS_END, start + len(_TAGS_START), text_bytes) + 1
    if tag_count != count or start < 0 or not end:
        return None
    first = joined[start:end]
    if texts[:, start:end].tobytes() == first * count:
        return _code_of_tag(first)
    tags = [joined[at : at + end - start] for at in range(start, len(joined), text_bytes)]
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
    units: list[bytes] = []
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
        units.append(_pack_unit(physical_offset, record_bytes, tags_code(property_of(text, TAGS_MARK))))
        queue_offset += 1
        physical_offset += record_bytes
    return BatchRecords(parts, b"".join(units), physical_offsets, physical_offset)
