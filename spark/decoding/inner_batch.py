"""Inner batches: one stored record that stands for many messages, rewritten as the plain records of those messages.

A record with sysFlag 0x40 and 0x80 holds a producer's batch body, possibly compressed as a whole. As the official
clients take it apart, message i has the record's queue offset plus i, its own flag, body and properties, reconsume
times zero, and everything else of the record. Rewriting the records, not the rows, leaves one decoder for both kinds.
Source: MessageDecoder.decodeMessage, PullAPIWrapper.processPullResult, Apache RocketMQ 5.
"""

from __future__ import annotations

from thermocline.remoting.errors import CorruptDataError, MessageIllegalError
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records import sys_flag as flags
from thermocline.remoting.records.batch import BatchMessage, decode_batch
from thermocline.remoting.records.compression import decompress
from thermocline.remoting.records.message_record import (
    INT,
    LONG,
    POSITION_BODY_CHECKSUM,
    POSITION_BODY_SIZE,
    POSITION_FLAG,
    POSITION_QUEUE_OFFSET,
    POSITION_RECONSUME_TIMES,
    POSITION_SIZE,
    POSITION_SYS_FLAG,
    SHORT,
)
from thermocline.remoting.records.record_heads import Mask, RecordHeads

UNWRAP_MASK = flags.NEED_UNWRAP | flags.INNER_BATCH

RECONSUME_FROM_BODY_LENGTH = POSITION_RECONSUME_TIMES - POSITION_BODY_SIZE  # whatever the hosts


def inner_batches(heads: RecordHeads) -> Mask:
    """Which of the records are inner batches."""
    batches: Mask = (heads.sys_flags & UNWRAP_MASK) == UNWRAP_MASK
    return batches


def unwrap_records(heads: RecordHeads) -> bytes:
    """All records of `heads`, each inner batch replaced by one record per message, in order.

    The rewritten records keep both batch flags, as the official clients show them, and lose the compressed one.

    Raises:
        CorruptDataError: A batch body is not a chain of whole messages, or does not decompress.
    """
    view = heads.data.data
    parts: list[bytes | memoryview] = []
    sizes = heads.head["size_bytes"].tolist()
    for row, (start, is_batch) in enumerate(zip(heads.starts.tolist(), inner_batches(heads).tolist(), strict=True)):
        if is_batch:
            parts.extend(_unwrap_record(heads, row))
        else:
            parts.append(view[start : start + sizes[row]])
    return b"".join(parts)


def _unwrap_record(heads: RecordHeads, row: int) -> list[bytes]:
    view = heads.data.data
    start, body_start = int(heads.starts[row]), int(heads.body_starts[row])
    body_end = body_start + int(heads.head["body_bytes"][row])
    sys_flag = int(heads.head["sys_flag"][row])
    queue_offset = QueueOffset(heads.head["queue_offset"][row])
    body = bytes(view[body_start:body_end])
    try:
        if flags.is_compressed(sys_flag) and body:
            body = decompress(body, flags.compression_type(sys_flag))
        messages = decode_batch(body)
    except (CorruptDataError, MessageIllegalError) as error:
        raise CorruptDataError("an inner batch cannot be taken apart", queue_offset=queue_offset) from error
    fixed = bytearray(view[start : body_start - INT.size])
    topic = bytes(view[body_end : int(heads.topic_starts[row] + heads.topic_bytes[row])])
    INT.pack_into(fixed, POSITION_BODY_CHECKSUM, 0)
    INT.pack_into(fixed, POSITION_SYS_FLAG, sys_flag & ~flags.COMPRESSED)
    INT.pack_into(fixed, len(fixed) + RECONSUME_FROM_BODY_LENGTH, 0)
    return [_message_record(fixed, topic, message, queue_offset + index) for index, message in enumerate(messages)]


def _message_record(fixed: bytearray, topic: bytes, message: BatchMessage, queue_offset: QueueOffset) -> bytes:
    """One message as a record; `fixed` is the batch's head up to its body length, patched in place."""
    tail = topic + SHORT.pack(len(message.properties_text)) + message.properties_text
    INT.pack_into(fixed, POSITION_SIZE, len(fixed) + INT.size + len(message.body) + len(tail))
    INT.pack_into(fixed, POSITION_FLAG, message.flag)
    LONG.pack_into(fixed, POSITION_QUEUE_OFFSET, queue_offset)
    return b"".join((fixed, INT.pack(len(message.body)), message.body, tail))
