"""Static offsets: offsets and times of a logic queue, and where groups go on in it, from its items' physical queues.

    end                   of the newest item that is decided
    minimum, first time   of the first item; in cleaned queues the first one may begin above 0
    by time, lower        items from the oldest on, until one holds a message that new
    by time, upper        items from the newest on, until one holds a message that old
    commit                at the item that has the offset, on its broker
    committed             items from the newest on, until one has an offset of the group

The official broker goes wrong by the physical queue's number in a few of these once a queue has moved (the end while
the new leader is undecided, the first time, the search behind a remote item): here the item's own queue is asked.
Owner: the hot process's event loop.
Source: broker/processor/AdminBrokerProcessor.java, ConsumerManageProcessor.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Callable

from thermocline.broker.cold import Boundary
from thermocline.broker.static_topics.physical_queues import PhysicalQueues
from thermocline.broker.tables import LedQueue
from thermocline.remoting.bodies import LogicQueueMappingItem
from thermocline.remoting.bodies.logic_queue import (
    find_item,
    is_decided,
    newest_decided,
    physical_queue_offset,
    static_offset,
    static_offset_if_decided,
)
from thermocline.remoting.errors import MQError
from thermocline.remoting.offsets import QUEUE_START, QueueOffset

QueuesOf = Callable[[LedQueue, LogicQueueMappingItem], PhysicalQueues]
"""The queues of the broker that an item is on."""


class StaticOffsets:
    """Answers for the logic queues that this broker leads. Every method may raise MQError: an item cannot be asked."""

    def __init__(self, queues_of: QueuesOf) -> None:
        self._queues_of = queues_of

    async def end(self, led: LedQueue) -> QueueOffset:
        """The offset behind the last message."""
        item = _decided(newest_decided(led.items))
        return static_offset(item, await self._queues_of(led, item).end(led.topic, item.queue_id))

    async def minimum(self, led: LedQueue) -> QueueOffset:
        """The first visible offset."""
        item = _decided(find_item(led.items, QUEUE_START))
        return static_offset_if_decided(item, await self._queues_of(led, item).minimum(led.topic, item.queue_id))

    async def earliest_time_ms(self, led: LedQueue) -> int | None:
        """When the first visible message was stored; None without one."""
        item = _decided(find_item(led.items, QUEUE_START))
        return await self._queues_of(led, item).earliest_time_ms(led.topic, item.queue_id)

    async def offset_at(self, led: LedQueue, timestamp_ms: int, boundary: Boundary) -> QueueOffset:
        """An offset by store time, as request 29 finds it in an ordinary queue."""
        decided = [item for item in led.items if is_decided(item)]
        _decided(next(iter(decided), None))
        item = await (
            self._first_with_newer(led, decided, timestamp_ms)
            if boundary is Boundary.LOWER
            else self._last_with_older(led, decided, timestamp_ms)
        )
        found = await self._queues_of(led, item).offset_at(led.topic, item.queue_id, timestamp_ms, boundary)
        return static_offset(item, found)

    async def commit(self, led: LedQueue, group: str, offset: QueueOffset) -> None:
        """Note where a group goes on."""
        item = _decided(find_item(led.items, offset))
        at = max(item.start_offset, physical_queue_offset(item, offset))
        await self._queues_of(led, item).commit(led.topic, item.queue_id, group, at)

    async def committed(self, led: LedQueue, group: str) -> QueueOffset | None:
        """The group's offset; None when it has none."""
        for item in reversed(led.items):
            offset = await self._queues_of(led, item).committed(led.topic, item.queue_id, group)
            if offset is not None and is_decided(item):
                return static_offset(item, offset)
        return None

    async def _first_with_newer(
        self, led: LedQueue, items: list[LogicQueueMappingItem], timestamp_ms: int
    ) -> LogicQueueMappingItem:
        for item in items[:-1]:
            queues = self._queues_of(led, item)
            found = await queues.offset_at(led.topic, item.queue_id, timestamp_ms, Boundary.LOWER)
            if found < await queues.end(led.topic, item.queue_id):
                return item
        return items[-1]

    async def _last_with_older(
        self, led: LedQueue, items: list[LogicQueueMappingItem], timestamp_ms: int
    ) -> LogicQueueMappingItem:
        first = items[0]
        for item in reversed(items):
            time_ms = await self._queues_of(led, item).earliest_time_ms(led.topic, item.queue_id)
            if time_ms is not None:
                if time_ms <= timestamp_ms:
                    return item
                first = item
        return first


def _decided(item: LogicQueueMappingItem | None) -> LogicQueueMappingItem:
    if item is None:
        raise MQError("it is not decided yet where the logic queue begins")
    return item
