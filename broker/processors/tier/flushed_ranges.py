"""Flushed ranges: the durable ranges of a topic's queues, for readers that cannot undo a read. Not in RocketMQ.

    90160 FLUSHED_RANGES    topic    of every readable queue: where it begins, and where it ends durably

A consumer may see a message that a power cut then takes back from the log (ASYNC_FLUSH), and sees another at the same
offset later. Spark's streams write down offsets that count as read for ever, so they end where the log is flushed.
The answer also says which store and which incarnation of the topic the offsets belong to. It takes a look at a few
units of each queue, nothing that grows with what they hold. Code: remoting/private_requests.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from thermocline.broker.queues import VisibleQueues
from thermocline.broker.tables import TopicTable
from thermocline.remoting.bodies import PERM_READ
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import TopicNotFoundError
from thermocline.remoting.private_requests import (
    FlushedRange,
    FlushedRangesAnswer,
    FlushedRangesHeader,
    PrivateRequestCode,
)
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import FILLER_SIZE_BYTES, UNIT, ConsumeQueue

UNITS_LOOKED_AT = 64
QUEUES_A_TURN = 256


class FlushedRangesProcessor:
    """Serves FLUSHED_RANGES."""

    def __init__(self, *, store: MessageStore, topics: TopicTable, visible: VisibleQueues) -> None:
        self._store = store
        self._topics = topics
        self._visible = visible

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {PrivateRequestCode.FLUSHED_RANGES: self.flushed_ranges}

    async def flushed_ranges(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """90160."""
        topic = command.header(FlushedRangesHeader).topic
        store = self._store
        config = self._topics.get(topic)
        if config is None:
            raise TopicNotFoundError("no such topic", topic=topic)
        is_readable = bool(config.perm & PERM_READ)
        # Before the queues: one of a later incarnation may then be sent with the earlier id, never the reverse.
        incarnation = store.incarnations.find(topic).id
        ranges: list[FlushedRange] = []
        for number, queue in enumerate(list(store.queues.of_topic(topic).values())):
            if is_readable and queue.queue_id < config.read_queue_nums:
                ranges.append(self._range(queue))
            if number % QUEUES_A_TURN == QUEUES_A_TURN - 1:
                await asyncio.sleep(0)
        answer = FlushedRangesAnswer(
            store_uuid=store.identity.store_id,
            incarnation=incarnation,
            queues=sorted(ranges, key=lambda each: each.queue_id),
        )
        return RemotingCommand.response(command, body=msgspec.json.encode(answer))

    def _range(self, queue: ConsumeQueue) -> FlushedRange:
        end = self._store.flushed_end(queue)
        start = min(queue.min_offset, end)
        first = max(start, end - UNITS_LOOKED_AT)
        units = UNIT.iter_unpack(queue.units(first, end - first))
        sizes = [size_bytes for _, size_bytes, _ in units if size_bytes != FILLER_SIZE_BYTES]
        return FlushedRange(
            queue_id=queue.queue_id,
            local_start=start,
            visible_start=min(self._visible.hot_start(queue), end),
            end=end,
            record_bytes=sum(sizes) // len(sizes) if sizes else 0,
        )
