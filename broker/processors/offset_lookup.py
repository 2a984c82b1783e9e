"""Offset lookup: where queues begin and end, and what was stored when; hot and cold together.

    29 SEARCH_OFFSET_BY_TIMESTAMP    lower (default): the first visible offset stored at or after a time, the end when
                                     all are older; upper: the last stored at or before it, the minimum when all are
                                     newer
    30 GET_MAX_OFFSET                the offset behind the last visible message
    31 GET_MIN_OFFSET                the first visible offset
    32 GET_EARLIEST_MSG_STORETIME    the store time of the message there, -1 without one

A queue that does not exist has all offsets 0. While the cold tier holds messages in front of the local ones and
cannot be asked, 29, 31 and 32 are answered with a retryable error. Source: AdminBrokerProcessor.java,
ConsumeQueue.java (getOffsetInQueueByTime), Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping

from thermocline.broker.cold_reads import Boundary, ColdTimeSearch
from thermocline.broker.context import BrokerContext
from thermocline.broker.processors.dispatcher import Handler
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connection import Connection
from thermocline.remoting.errors import InvalidRequestError, UnavailableError
from thermocline.remoting.headers.read import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    OffsetResponseHeader,
    SearchOffsetRequestHeader,
)
from thermocline.remoting.request_code import RequestCode
from thermocline.store.consume_queue import ConsumeQueue
from thermocline.store.message_draft import TimeBoundary

NO_TIME = -1


class OffsetLookupProcessor:
    """Serves the offset lookups."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_time,
        }

    def max_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """30: the offset behind the last visible message."""
        header = command.header(GetMaxOffsetRequestHeader)
        offset = self._context.lookup.end(header.topic, header.queue_id)
        return RemotingCommand.response(command, header=OffsetResponseHeader(offset=offset))

    async def min_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """31: the first visible offset. RocketMQ leaves an empty remark in the answer."""
        header = command.header(GetMinOffsetRequestHeader)
        offset = await self._context.lookup.minimum(header.topic, header.queue_id)
        return RemotingCommand.response(command, header=OffsetResponseHeader(offset=offset), remark="")

    async def search_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """29: an offset by store time."""
        header = command.header(SearchOffsetRequestHeader)
        boundary = _boundary(header.boundary_type)
        if boundary is Boundary.LOWER:
            offset = await self._context.lookup.offset_at(header.topic, header.queue_id, header.timestamp)
        else:
            offset = await self._last_until(header.topic, header.queue_id, header.timestamp)
        return RemotingCommand.response(command, header=OffsetResponseHeader(offset=offset))

    async def earliest_time(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """32: the store time of the first visible message."""
        header = command.header(GetEarliestMsgStoretimeRequestHeader)
        timestamp_ms = await self._earliest_time_ms(header.topic, header.queue_id)
        return RemotingCommand.response(command, header=GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp_ms))

    async def _last_until(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The last visible offset stored at or before a time; the minimum when all are newer."""
        context = self._context
        visible = context.visible
        queue = context.store.queues.find(topic, queue_id)
        if queue is None:
            return 0
        start = visible.hot_start(queue)
        if start < visible.end(queue) and context.store.message_time(topic, queue_id, start) <= timestamp_ms:
            return max(start, context.store.offset_by_time(topic, queue_id, timestamp_ms, TimeBoundary.UPPER))
        if self._may_be_cold(queue, start):
            found = await context.cold.offset_by_time(
                ColdTimeSearch(
                    topic=topic,
                    queue_id=queue_id,
                    timestamp_ms=timestamp_ms,
                    boundary=Boundary.UPPER,
                    expired_before_ms=visible.expired_before_ms(topic),
                )
            )
            if found is not None:
                return found
        return await visible.minimum(queue)

    async def _earliest_time_ms(self, topic: str, queue_id: int) -> int:
        context = self._context
        visible = context.visible
        queue = context.store.queues.find(topic, queue_id)
        if queue is None:
            return NO_TIME
        start = visible.hot_start(queue)
        if self._may_be_cold(queue, start):
            found = await context.cold.earliest_time_ms(
                topic, queue_id, expired_before_ms=visible.expired_before_ms(topic)
            )
            if found is not None:
                return found
        return context.store.message_time(topic, queue_id, start) if start < visible.end(queue) else NO_TIME

    def _may_be_cold(self, queue: ConsumeQueue, start: int) -> bool:
        """Whether the cold tier may hold visible messages in front of the local ones.

        Raises:
            UnavailableError: That is not known.
        """
        if start > queue.min_offset:
            return False  # even a local message has expired, and with it whatever is older
        cold_start = self._context.visible.cold_start(queue)
        if cold_start is None:
            raise UnavailableError(
                "the cold tier has not been heard of yet", topic=queue.topic, queue_id=queue.queue_id
            )
        return cold_start < queue.min_offset


def _boundary(text: str | None) -> Boundary:
    try:
        return Boundary((text or Boundary.LOWER.value).lower())
    except ValueError as error:
        raise InvalidRequestError("a boundary is lower or upper", boundary_type=text) from error
