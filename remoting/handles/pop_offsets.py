"""Pop offsets: which messages an answer to a POP holds, as its header says it.

    startOffsetInfo   "flag queueId startOffset;..."          where the check point of each queue starts
    msgOffsetInfo     "flag queueId offset,offset;..."        the messages of each queue, in the body's order
    orderCountInfo    "flag qo<queueId>%<offset> count;..."   ordered: how often a message was given out before,
                      "flag queueId count;..."                and the least of its queue, for old clients

`flag` tells a topic's own queues from those of its retry topic (RetryFlag). A queue stands in an answer once.
Source: ExtraInfoUtil.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.properties import KEY_SEPARATOR

QUEUE_SEPARATOR = ";"
OFFSET_SEPARATOR = ","
PIECES = 3
SHOWN_CHARS = 200


class PoppedOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an answer about one queue."""

    retry_flag: int
    queue_id: int
    start_offset: QueueOffset
    offsets: tuple[QueueOffset, ...]


def start_offset_info(queues: Iterable[PoppedOffsets]) -> str:
    """The header field startOffsetInfo."""
    return QUEUE_SEPARATOR.join(f"{each.retry_flag:d} {each.queue_id} {each.start_offset}" for each in queues)


def message_offset_info(queues: Iterable[PoppedOffsets]) -> str:
    """The header field msgOffsetInfo."""
    return QUEUE_SEPARATOR.join(
        f"{each.retry_flag:d} {each.queue_id} {OFFSET_SEPARATOR.join(map(str, each.offsets))}" for each in queues
    )


def order_count_info(retry_flag: int, queue_id: int, counts: Mapping[QueueOffset, int], *, least: int) -> str:
    """The header field orderCountInfo of one queue: `counts` of those offsets that were given out before."""
    pieces = [f"{retry_flag:d} qo{queue_id}%{offset} {count}" for offset, count in counts.items()]
    return QUEUE_SEPARATOR.join([*pieces, f"{retry_flag:d} {queue_id} {least}"])


def parse_popped_offsets(start_info: str | None, message_info: str | None) -> dict[tuple[int, int], PoppedOffsets]:
    """Both fields of an answer, by retry flag and queue id; empty when it says nothing.

    Raises:
        InvalidRequestError: They cannot be read, or contradict each other.
    """
    starts = {
        (_number(flag), _number(queue_id)): QueueOffset(_number(start))
        for flag, queue_id, start in _pieces(start_info or "", "startOffsetInfo")
    }
    queues: dict[tuple[int, int], PoppedOffsets] = {}
    for flag_text, queue_text, offsets_text in _pieces(message_info or "", "msgOffsetInfo"):
        key = flag, queue_id = _number(flag_text), _number(queue_text)
        if key not in starts or key in queues:
            raise InvalidRequestError("the offsets of a POP contradict each other", queue_id=queue_id)
        queues[key] = PoppedOffsets(
            retry_flag=flag,
            queue_id=queue_id,
            start_offset=starts[key],
            offsets=tuple(QueueOffset(_number(text)) for text in offsets_text.split(OFFSET_SEPARATOR)),
        )
    return queues


def parse_order_counts(text: str | None) -> dict[tuple[int, int, QueueOffset | None], int]:
    """orderCountInfo: by retry flag, queue id and offset; the offset is None where the whole queue is meant.

    Raises:
        InvalidRequestError: It cannot be read.
    """
    counts: dict[tuple[int, int, QueueOffset | None], int] = {}
    for flag, place, count in _pieces(text or "", "orderCountInfo"):
        offset: QueueOffset | None = None
        queue_text = place
        if place.startswith("qo"):
            queue_text, separator, offset_text = place[2:].partition("%")
            if not separator:
                raise InvalidRequestError("not the order counts of a POP", text=place[:SHOWN_CHARS])
            offset = QueueOffset(_number(offset_text))
        counts[_number(flag), _number(queue_text), offset] = _number(count)
    return counts


def _pieces(text: str, field: str) -> Iterable[tuple[str, str, str]]:
    for piece in text.split(QUEUE_SEPARATOR) if text else ():
        parts = piece.split(KEY_SEPARATOR)
        if len(parts) != PIECES:
            raise InvalidRequestError(f"{field} cannot be read", text=piece[:SHOWN_CHARS])
        yield parts[0], parts[1], parts[2]


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidRequestError("a number is needed", text=text[:SHOWN_CHARS]) from None
