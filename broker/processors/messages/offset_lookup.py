"""Offset lookup: where queues begin and end, and what was stored when; hot and cold together.

    29 SEARCH_OFFSET_BY_TIMESTAMP    lower (default): the first visible offset stored at or after a time, the end when
                                     all are older; upper: the last stored at or before it, the minimum when all are
                                     newer
    30 GET_MAX_OFFSET                the offset behind the last visible message
    31 GET_MIN_OFFSET                the first visible offset
    32 GET_EARLIEST_MSG_STORETIME    the store time of the message there, -1 without one

A queue that does not exist has all offsets 0. While the cold tier holds messages in front of the local ones and
cannot be asked, 29, 31 and 32 are answered with a retryable error. Logic queues of static topics have offsets of their
own (static_topics/static_offsets.py). Source: AdminBrokerProcessor.java,
ConsumeQueue.java (getOffsetInQueueByTime), Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from thermocline.broker.cold import Boundary
from thermocline.broker.queues import QueueLookup
from thermocline.broker.static_topics import MappedQueues, StaticOffsets
from thermocline.broker.tables import LedQueue, StaticTopicTable
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.headers.read import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    OffsetResponseHeader,
    SearchOffsetRequestHeader,
)
from thermocline.remoting.request_code import RequestCode

NO_TIME = -1


class OffsetLookupProcessor:
    """Serves the offset lookups."""

    def __init__(self, *, static_topics: StaticTopicTable, lookup: QueueLookup, mapped_queues: MappedQueues) -> None:
        self._static_topics = static_topics
        self._lookup = lookup
        self._static = StaticOffsets(mapped_queues.find)

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_time,
        }

    def max_offset(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """30: the offset behind the last visible message."""
        header = command.header(GetMaxOffsetRequestHeader)
        led = self._led(header.topic, header.queue_id, header.logical)
        if led is not None:
            return self._static_max_offset(command, led)
        offset = self._lookup.end(header.topic, header.queue_id)
        return RemotingCommand.response(command, header=OffsetResponseHeader(offset=offset))

    async def _static_max_offset(self, command: RemotingCommand, led: LedQueue) -> RemotingCommand:
        return RemotingCommand.response(command, header=OffsetResponseHeader(offset=await self._static.end(led)))

    async def min_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """31: the first visible offset. RocketMQ leaves an empty remark in the answer."""
        header = command.header(GetMinOffsetRequestHeader)
        led = self._led(header.topic, header.queue_id, header.logical)
        offset = await (
            self._lookup.minimum(header.topic, header.queue_id) if led is None else self._static.minimum(led)
        )
        return RemotingCommand.response(command, header=OffsetResponseHeader(offset=offset), remark="")

    async def search_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """29: an offset by store time."""
        header = command.header(SearchOffsetRequestHeader)
        boundary = _boundary(header.boundary_type)
        lookup = self._lookup
        led = self._led(header.topic, header.queue_id, header.logical)
        if led is not None:
            offset = await self._static.offset_at(led, header.timestamp, boundary)
        elif boundary is Boundary.LOWER:
            offset = await lookup.offset_at(header.topic, header.queue_id, header.timestamp)
        else:
            offset = await lookup.last_until(header.topic, header.queue_id, header.timestamp)
        return RemotingCommand.response(command, header=OffsetResponseHeader(offset=offset))

    async def earliest_time(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """32: the store time of the first visible message."""
        header = command.header(GetEarliestMsgStoretimeRequestHeader)
        led = self._led(header.topic, header.queue_id, header.logical)
        time_ms = await (
            self._lookup.earliest_time_ms(header.topic, header.queue_id)
            if led is None
            else self._static.earliest_time_ms(led)
        )
        answer = GetEarliestMsgStoretimeResponseHeader(timestamp=NO_TIME if time_ms is None else time_ms)
        return RemotingCommand.response(command, header=answer)

    def _led(self, topic: str, queue_id: int, is_logical: bool | None) -> LedQueue | None:
        return self._static_topics.led(topic, queue_id, is_logical=is_logical)


def _boundary(text: str | None) -> Boundary:
    try:
        return Boundary((text or Boundary.LOWER.value).lower())
    except ValueError as error:
        raise InvalidRequestError("a boundary is lower or upper", boundary_type=text) from error
