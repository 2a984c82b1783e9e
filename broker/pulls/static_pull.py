"""Static pull: turns a pull of a logic queue into one of the item that has its offset, and its answer back.

    found                             the offset behind the last message; `offsetDelta` is what clients add to each
                                      message's own offset
    the item is read to its end       not the leader's: on at the next item's start, at once (code 20); while that is
                                      undecided, nothing is there yet (19)
    in front of what is stored        in the first item: moved to the minimum (21), as in an ordinary queue; in a later
                                      one on at the item's minimum, at once (20)
    otherwise                         as in an ordinary queue

RocketMQ answers 19 to an offset behind the end of a queue that never moved, and holds the pull there; here it is
corrected at once (21), as in an ordinary queue. Pure but for what it is given.
Source: broker/processor/PullMessageProcessor.java (rewrite*ForStaticTopic), Apache RocketMQ 5.3.
"""

from __future__ import annotations

from thermocline.broker.pulls.pull_reply import PullAnswer
from thermocline.broker.tables import LedQueue
from thermocline.remoting.bodies import LogicQueueMappingItem
from thermocline.remoting.bodies.logic_queue import (
    find_item,
    item_after,
    physical_queue_offset,
    static_end,
    static_offset,
)
from thermocline.remoting.errors import MQError
from thermocline.remoting.headers.read import PullMessageRequestHeader
from thermocline.remoting.offsets import NO_QUEUE_OFFSET, QueueOffset
from thermocline.remoting.response_code import ResponseCode


class StaticPull:
    """One pull of a logic queue: the item that it reads, and the physical offset that it asks for."""

    __slots__ = ("item", "led", "offset")

    def __init__(self, led: LedQueue, offset: QueueOffset) -> None:
        """`offset`: of the logic queue.

        Raises:
            MQError: It is not decided yet where the queue begins.
        """
        item = find_item(led.items, offset)
        if item is None:
            raise MQError("it is not decided yet where the logic queue begins")
        self.led = led
        self.item: LogicQueueMappingItem = item
        self.offset = physical_queue_offset(item, offset)

    @property
    def is_here(self) -> bool:
        """Whether this broker has the item."""
        return self.led.is_here(self.item)

    @property
    def broker_name(self) -> str:
        """The broker that has it."""
        return self.item.broker_name or ""

    def rewrite(self, header: PullMessageRequestHeader) -> None:
        """Make the request one for the item's physical queue. An offset that it commits counts only in this item."""
        committed = find_item(self.led.items, header.commit_offset)
        if committed is self.item:
            header.commit_offset = max(self.item.start_offset, physical_queue_offset(self.item, header.commit_offset))
        else:
            # The offset belongs to a queue on another broker: members commit there themselves (15), every few seconds.
            header.commit_offset = NO_QUEUE_OFFSET
        header.queue_id = self.item.queue_id
        header.queue_offset = self.offset

    def logical(self, answer: PullAnswer) -> PullAnswer:
        """The answer in offsets of the logic queue; the one given stays as it is."""
        items = self.led.items
        item, code = self.item, answer.code
        next_offset, least, end = answer.next_offset, answer.min_offset, answer.max_offset
        is_first, is_leader = item.gen == items[0].gen, item.gen == items[-1].gen
        if code == ResponseCode.PULL_OFFSET_MOVED and self.offset < least and not is_first:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
        elif code != ResponseCode.SUCCESS and not is_leader and self.offset >= end and next_offset >= end:
            following = item_after(items, item)
            if following is None:
                code = ResponseCode.PULL_NOT_FOUND
            else:
                item = following
                next_offset = least = end = item.start_offset
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
        shown = PullAnswer(
            code,
            answer.status,
            next_offset=static_offset(item, next_offset),
            min_offset=static_offset(item, least),
            max_offset=max(static_offset(item, end), static_end(items[-1])),
            buffers=answer.buffers,
            message_count=answer.message_count,
            size_bytes=answer.size_bytes,
        )
        shown.topic_sys_flag, shown.group_sys_flag = answer.topic_sys_flag, answer.group_sys_flag
        shown.offset_delta = item.logic_offset - item.start_offset
        return shown
