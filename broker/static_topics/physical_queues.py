"""Physical queues: the interface of the queues that logic queues consist of, here or on another broker.

Both kinds answer alike: `LocalQueues` from this broker's tables, hot and cold, `RemoteQueues` by requests that say
`lo=false`, so that no broker takes a physical queue for a logic one.
Owner: the hot process's event loop.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from thermocline.broker.cluster import PeerBrokers
from thermocline.broker.cold import Boundary
from thermocline.broker.queues import QueueLookup
from thermocline.broker.tables import ConsumerOffsets, LedQueue
from thermocline.remoting.bodies import GroupList, LogicQueueMappingItem
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import ResponseError
from thermocline.remoting.header_codec import TopicHeader
from thermocline.remoting.headers.group import QueryTopicConsumeByWhoRequestHeader
from thermocline.remoting.headers.read import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode


class PhysicalQueues(Protocol):
    """The queues of one broker; offsets are theirs, not those of logic queues. Each may raise MQError."""

    async def end(self, topic: str, queue_id: int) -> QueueOffset:
        """The offset behind the last message."""

    async def minimum(self, topic: str, queue_id: int) -> QueueOffset:
        """The first visible offset."""

    async def offset_at(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary) -> QueueOffset:
        """An offset by store time, as request 29 finds it."""

    async def earliest_time_ms(self, topic: str, queue_id: int) -> int | None:
        """When the first visible message was stored; None without one."""

    async def committed(self, topic: str, queue_id: int, group: str) -> QueueOffset | None:
        """The group's offset; None when it has none."""

    async def commit(self, topic: str, queue_id: int, group: str, offset: QueueOffset) -> None:
        """Note where a group goes on."""

    async def groups(self, topic: str) -> Collection[str]:
        """The groups that have offsets in the topic, and perhaps others."""


class LocalQueues:
    """This broker's own."""

    def __init__(self, lookup: QueueLookup, offsets: ConsumerOffsets) -> None:
        self._lookup = lookup
        self._offsets = offsets

    async def end(self, topic: str, queue_id: int) -> QueueOffset:
        return self._lookup.end(topic, queue_id)

    async def minimum(self, topic: str, queue_id: int) -> QueueOffset:
        return await self._lookup.minimum(topic, queue_id)

    async def offset_at(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary) -> QueueOffset:
        if boundary is Boundary.LOWER:
            return await self._lookup.offset_at(topic, queue_id, timestamp_ms)
        return await self._lookup.last_until(topic, queue_id, timestamp_ms)

    async def earliest_time_ms(self, topic: str, queue_id: int) -> int | None:
        return await self._lookup.earliest_time_ms(topic, queue_id)

    async def committed(self, topic: str, queue_id: int, group: str) -> QueueOffset | None:
        return self._offsets.query(topic, group, queue_id)

    async def commit(self, topic: str, queue_id: int, group: str, offset: QueueOffset) -> None:
        self._offsets.commit(topic, group, queue_id, offset)

    async def groups(self, topic: str) -> Collection[str]:
        return self._offsets.groups_of(topic)


class RemoteQueues:
    """Another broker's."""

    def __init__(self, peers: PeerBrokers, broker_name: str) -> None:
        self._peers = peers
        self._broker_name = broker_name

    async def end(self, topic: str, queue_id: int) -> QueueOffset:
        header = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
        return await self._offset(RequestCode.GET_MAX_OFFSET, header)

    async def minimum(self, topic: str, queue_id: int) -> QueueOffset:
        header = GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id)
        return await self._offset(RequestCode.GET_MIN_OFFSET, header)

    async def offset_at(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary) -> QueueOffset:
        header = SearchOffsetRequestHeader(
            topic=topic, queue_id=queue_id, timestamp=timestamp_ms, boundary_type=boundary.value.upper()
        )
        return await self._offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def earliest_time_ms(self, topic: str, queue_id: int) -> int | None:
        header = GetEarliestMsgStoretimeRequestHeader(topic=topic, queue_id=queue_id)
        answer = await self._ask(RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        timestamp_ms = answer.header(GetEarliestMsgStoretimeResponseHeader).timestamp
        return None if timestamp_ms < 0 else timestamp_ms

    async def committed(self, topic: str, queue_id: int, group: str) -> QueueOffset | None:
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, set_zero_if_not_found=False
        )
        answer = await self._ask(
            RequestCode.QUERY_CONSUMER_OFFSET, header, expected=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return answer.header(OffsetResponseHeader).offset

    async def commit(self, topic: str, queue_id: int, group: str, offset: QueueOffset) -> None:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
        )
        await self._ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def groups(self, topic: str) -> Collection[str]:
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        answer = await self._ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
        return GroupList.decode(answer.body).group_list

    async def _offset(self, code: RequestCode, header: TopicHeader) -> QueueOffset:
        answer = await self._ask(code, header)
        return answer.header(OffsetResponseHeader).offset

    async def _ask(
        self,
        code: RequestCode,
        header: TopicHeader,
        *,
        expected: Collection[int] = (ResponseCode.SUCCESS,),
    ) -> RemotingCommand:
        header.logical, header.broker_name = False, self._broker_name
        answer = await self._peers.call(self._broker_name, RemotingCommand.request(code, header))
        if answer.code not in expected:
            raise ResponseError(
                code=ResponseCode.SYSTEM_ERROR,
                remark=f"broker {self._broker_name} answered {answer.code}: {answer.remark or ''}",
            )
        return answer


class MappedQueues:
    """Finds the physical queues that the items of a mapping name."""

    def __init__(self, *, lookup: QueueLookup, offsets: ConsumerOffsets, peers: PeerBrokers) -> None:
        self._peers = peers
        self._local = LocalQueues(lookup, offsets)

    def find(self, led: LedQueue, item: LogicQueueMappingItem) -> PhysicalQueues:
        """The queues of the broker that holds the item's physical queue."""
        return self._local if led.is_here(item) else RemoteQueues(self._peers, item.broker_name or "")
