"""Send answers: the replies to sends, read straight from received bytes.

A reply is decoded once, into the few members that matter, instead of into a command and then a header: a producer that
keeps many sends under way spends most of its time here.
"""

from __future__ import annotations

import msgspec

from thermocline.client.message_queue import MessageQueue
from thermocline.client.send_result import SendResult, SendStatus
from thermocline.remoting.response_code import ResponseCode

__all__ = ["STATUS_BY_CODE", "SendAnswer", "batch_results", "decode_answer", "says_where", "send_result"]

STATUS_BY_CODE = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
}
"""The codes that mean "stored"."""


class _Fields(msgspec.Struct, rename="camel", gc=False):
    queue_id: int = -1
    queue_offset: int | None = None
    msg_id: str = ""
    transaction_id: str | None = None
    recall_handle: str | None = None
    region: str = msgspec.field(default="", name="MSG_REGION")
    trace_on: bool = msgspec.field(default=True, name="TRACE_ON")


class SendAnswer(msgspec.Struct, rename="camel", gc=False):
    """What matters of a send's reply."""

    code: int
    opaque: int
    flag: int = 0
    remark: str | None = None
    ext_fields: _Fields | None = None


decode_answer = msgspec.json.Decoder(SendAnswer, strict=False).decode
"""The answer in a JSON header; `msgspec.MsgspecError` when it is none."""


def says_where(answer: SendAnswer) -> bool:
    """Whether the answer names the message's place, as one that means "stored" must.

    -1 stands for an offset that is not decided yet: the logic queue is on its way to another broker.
    """
    return answer.ext_fields is not None and answer.ext_fields.queue_offset is not None


def send_result(answer: SendAnswer, status: SendStatus, queue: MessageQueue, message_id: str) -> SendResult:
    """Return where the broker put the message; the answer must say it."""
    fields = answer.ext_fields
    assert fields is not None
    assert fields.queue_offset is not None
    if fields.queue_id != queue.queue_id:
        queue = MessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=fields.queue_id)
    return SendResult(
        status=status,
        message_id=message_id,
        offset_message_id=fields.msg_id,
        queue=queue,
        queue_offset=fields.queue_offset,
        transaction_id=fields.transaction_id,
        recall_handle=fields.recall_handle,
        region=fields.region,
        is_traced=fields.trace_on,
    )


def batch_results(
    answer: SendAnswer, status: SendStatus, queue: MessageQueue, message_ids: list[str]
) -> list[SendResult]:
    """Return where the broker put each message of a batch: one after another, from the offset that it names."""
    first = send_result(answer, status, queue, message_ids[0])
    offset_ids = first.offset_message_id.split(",")
    if len(offset_ids) != len(message_ids):  # a topic that stores a batch as one record has one id for all
        offset_ids = [offset_ids[0]] * len(message_ids)
    return [
        SendResult(
            status=status,
            message_id=message_id,
            offset_message_id=offset_ids[i],
            queue=first.queue,
            queue_offset=first.queue_offset + i if first.queue_offset >= 0 else first.queue_offset,
            transaction_id=message_id,
            region=first.region,
            is_traced=first.is_traced,
        )
        for i, message_id in enumerate(message_ids)
    ]
