"""Pull reply: the answer to a pull, and its bytes.

An answer's header is a template that is made once from the codec's own encoding of such an answer
(remoting/answer_template.py); answers from static topics go through the codec. Message bytes are slices of the log (or
of what the cold tier sent) and are never looked into: one or two runs are written as they are, more are joined, which
is cheaper than many small pieces.
Source: PullMessageResponseHeader.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from thermocline.remoting.answer_template import binary_head, binary_template, json_template, sized_number
from thermocline.remoting.command import FLAG_RESPONSE, RemotingCommand, SerializeType
from thermocline.remoting.connections import Connection
from thermocline.remoting.frames import LENGTH
from thermocline.remoting.header_codec import encode_header
from thermocline.remoting.headers.read import PullMessageResponseHeader
from thermocline.remoting.offsets import QueueOffset

RUNS_WRITTEN_MAX = 2
MASTER_ID = 0


class PullAnswer:
    """The result of a pull. `status` is the remark: the name of a get's status."""

    __slots__ = (
        "buffers",
        "code",
        "group_sys_flag",
        "max_offset",
        "message_count",
        "min_offset",
        "next_offset",
        "offset_delta",
        "size_bytes",
        "status",
        "suggested_broker_id",
        "topic_sys_flag",
    )

    def __init__(
        self,
        code: int,
        status: str,
        *,
        next_offset: QueueOffset,
        min_offset: QueueOffset,
        max_offset: QueueOffset,
        buffers: Sequence[bytes | memoryview] = (),
        message_count: int = 0,
        size_bytes: int = 0,
    ) -> None:
        self.code = code
        self.status = status
        self.next_offset = next_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.buffers = buffers
        self.message_count = message_count
        self.size_bytes = size_bytes
        self.topic_sys_flag = 0
        self.group_sys_flag = 0
        self.suggested_broker_id = MASTER_ID
        self.offset_delta: int | None = None
        """The number that clients add to each message's offset; only for logic queues."""


def write_answer(connection: Connection, answer: PullAnswer, *, opaque: int, serialize_type: SerializeType) -> None:
    """Send the answer to the request with this opaque, in its serialisation."""
    head = encode_head(answer, opaque=opaque, serialize_type=serialize_type)
    buffers = answer.buffers
    if not buffers:
        connection.write(head)
    elif len(buffers) <= RUNS_WRITTEN_MAX:
        connection.write((head, *buffers))
    else:
        connection.write(b"".join((head, *buffers)))


def encode_head(answer: PullAnswer, *, opaque: int, serialize_type: SerializeType) -> bytes:
    """Length word and header of the answer's frame."""
    if serialize_type is SerializeType.ROCKETMQ and answer.offset_delta is None:
        fields = _BINARY_TEMPLATE % (
            sized_number(answer.suggested_broker_id),
            sized_number(answer.next_offset),
            sized_number(answer.min_offset),
            sized_number(answer.max_offset),
            sized_number(answer.topic_sys_flag),
            sized_number(answer.group_sys_flag),
        )
        return binary_head(
            fields, code=answer.code, opaque=opaque, remark=answer.status.encode(), body_bytes=answer.size_bytes
        )
    if answer.offset_delta is not None:
        return _command(answer, opaque=opaque, serialize_type=serialize_type).encode_head(body_bytes=answer.size_bytes)
    header = _TEMPLATE % (
        answer.code,
        answer.suggested_broker_id,
        answer.next_offset,
        answer.min_offset,
        answer.max_offset,
        answer.topic_sys_flag,
        answer.group_sys_flag,
        opaque,
        answer.status.encode(),
    )
    header_bytes = len(header)
    return b"%b%b%b" % (
        LENGTH.pack(LENGTH.size + header_bytes + answer.size_bytes),
        LENGTH.pack(header_bytes),
        header,
    )


def _command(answer: PullAnswer, *, opaque: int, serialize_type: SerializeType) -> RemotingCommand:
    header = PullMessageResponseHeader(
        suggest_which_broker_id=answer.suggested_broker_id,
        next_begin_offset=answer.next_offset,
        min_offset=answer.min_offset,
        max_offset=answer.max_offset,
        offset_delta=answer.offset_delta,
        topic_sys_flag=answer.topic_sys_flag,
        group_sys_flag=answer.group_sys_flag,
    )
    return RemotingCommand(
        code=answer.code,
        opaque=opaque,
        flag=FLAG_RESPONSE,
        remark=answer.status,
        ext_fields=encode_header(header),
        serialize_type=serialize_type,
    )


def _sample() -> PullAnswer:
    """An answer with a sentinel wherever one differs from another."""
    answer = PullAnswer(
        2_000_000_001,
        "STATUS",
        next_offset=QueueOffset(2_000_000_002),
        min_offset=QueueOffset(2_000_000_003),
        max_offset=QueueOffset(2_000_000_004),
    )
    answer.topic_sys_flag, answer.group_sys_flag = 2_000_000_005, 2_000_000_006
    answer.suggested_broker_id = 2_000_000_008
    return answer


_FIELD_SENTINELS = [str(2_000_000_000 + number) for number in (8, 2, 3, 4, 5, 6)]
"""Suggested broker id; next, minimum and maximum offset; both system flags."""

_TEMPLATE = json_template(
    _command(_sample(), opaque=2_000_000_007, serialize_type=SerializeType.JSON),
    [
        *((sentinel, "%d") for sentinel in ("2000000001", *_FIELD_SENTINELS, "2000000007")),
        ("STATUS", "%b"),
    ],
)
"""The JSON header with places for code, suggested broker id, next, minimum and maximum offset, both system flags,
opaque and status."""

_BINARY_TEMPLATE = binary_template(
    _command(_sample(), opaque=0, serialize_type=SerializeType.ROCKETMQ), _FIELD_SENTINELS
)
"""The ext fields of a binary header."""
