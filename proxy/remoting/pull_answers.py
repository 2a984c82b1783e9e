"""Answers to pulls from what POP brought: the records under the positions that the client counts by.

A record keeps its body, properties and physical offset, by which it is sent back. Its queue id is the pulled queue's,
its queue offset the position; what came back from a retry topic of POP has its own topic again.
Source: PullMessageResponseHeader.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from thermocline.proxy.messaging import HeldMessage
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.headers import PullMessageResponseHeader
from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.remoting.records.message_record import MessageRecord, encode_record
from thermocline.remoting.records.properties import PropertyName, without_property
from thermocline.remoting.response_code import ResponseCode

__all__ = ["encode_again", "found", "nothing"]

MASTER_ID = 0


def found(
    command: RemotingCommand,
    messages: Sequence[HeldMessage],
    positions: Sequence[int],
    *,
    topic: str,
    queue_id: int,
    next_position: int,
) -> RemotingCommand:
    """The answer with these messages of a queue."""
    records = [
        _encode(message, topic=topic, queue_id=queue_id, position=position)
        for message, position in zip(messages, positions, strict=True)
    ]
    return _answer(command, ResponseCode.SUCCESS, next_position, remark="FOUND", body=b"".join(records))


def nothing(command: RemotingCommand, *, position: int, code: int = ResponseCode.PULL_NOT_FOUND) -> RemotingCommand:
    """The answer that there is nothing now; the client pulls again from the position."""
    return _answer(command, code, position, remark="no new message")


def _answer(
    command: RemotingCommand, code: int, next_position: int, *, remark: str, body: bytes = b""
) -> RemotingCommand:
    header = PullMessageResponseHeader(
        suggest_which_broker_id=MASTER_ID,
        next_begin_offset=QueueOffset(next_position),
        min_offset=QUEUE_START,
        max_offset=QueueOffset(next_position),
    )
    return RemotingCommand.response(command, code, header=header, remark=remark, body=body)


def _encode(message: HeldMessage, *, topic: str, queue_id: int, position: int) -> bytes:
    record = message.record
    return encode_again(
        record,
        topic=topic if message.handle.receipt.retry_flag else record.topic,
        queue_id=queue_id,
        queue_offset=QueueOffset(position),
        properties_text=without_property(record.properties_text, PropertyName.POP_CHECKPOINT.encode()),
    )


def encode_again(
    record: MessageRecord,
    *,
    properties_text: bytes,
    topic: str | None = None,
    queue_id: int | None = None,
    queue_offset: QueueOffset | None = None,
) -> bytes:
    """A record with other properties; what is None stays as it is."""
    return encode_record(
        topic=record.topic if topic is None else topic,
        queue_id=record.queue_id if queue_id is None else queue_id,
        queue_offset=record.queue_offset if queue_offset is None else queue_offset,
        physical_offset=record.physical_offset,
        body=record.body,
        properties_text=properties_text,
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
        store_timestamp_ms=record.store_timestamp_ms,
        store_host=record.store_host,
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
    )
