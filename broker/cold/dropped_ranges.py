"""Dropped ranges: messages that were deleted uncommitted because the disk was full and the bucket failed.

Under `drop-oldest` (drop_oldest.py) the oldest local files are deleted although some of their messages were not
committed. The offsets of these messages are durable here before the first file is deleted. The tier process declares
them as holes in the ledger, except those that it had committed after all: readers step over holes, Spark names them.

File: thermocline/droppedRanges.json
    {"ranges": [{"topic": "...", "incarnation": 3, "queueId": 0, "startOffset": 10, "endOffset": 25, "droppedMs": ...}]}

Adjacent ranges of one queue are merged: an outage adds one range a queue. Ranges of a topic's earlier incarnations are
deleted with it. After a crash before the files were deleted, `clip` removes offsets that are still on the disk.
Belongs to the hot process's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.offsets import QueueOffset
from thermocline.store.queues import ConsumeQueueTable

FILE_NAME = "droppedRanges"


class DroppedRange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Offsets [start_offset, end_offset) of a queue in one incarnation of its topic. `dropped_ms`: of the last one."""

    topic: str
    incarnation: int
    queue_id: int
    start_offset: QueueOffset
    end_offset: QueueOffset
    dropped_ms: int

    @property
    def message_count(self) -> int:
        """How many offsets."""
        return self.end_offset - self.start_offset


class _File(msgspec.Struct):
    ranges: list[DroppedRange]


class DroppedRanges:
    """All dropped ranges."""

    def __init__(self, *, incarnation_of: Callable[[str], int]) -> None:
        """`incarnation_of(topic)`: the topic's current incarnation."""
        self._incarnation_of = incarnation_of
        self._ranges: dict[tuple[str, int, int], list[DroppedRange]] = {}

    def __iter__(self) -> Iterator[DroppedRange]:
        return (each for ranges in self._ranges.values() for each in ranges)

    def __len__(self) -> int:
        return sum(map(len, self._ranges.values()))

    def live(self) -> list[DroppedRange]:
        """The ranges of topics' current incarnations, by topic, queue and offset."""
        found = [each for each in self if each.incarnation >= self._incarnation_of(each.topic)]
        return sorted(found, key=lambda each: (each.topic, each.queue_id, each.start_offset))

    def add(self, ranges: Iterable[DroppedRange]) -> None:
        """Add ranges; those adjacent to recorded ones are merged with them."""
        for new in ranges:
            key = new.topic, new.incarnation, new.queue_id
            kept: list[DroppedRange] = []
            for recorded in self._ranges.get(key, ()):
                if recorded.end_offset < new.start_offset or new.end_offset < recorded.start_offset:
                    kept.append(recorded)
                    continue
                new = msgspec.structs.replace(
                    new,
                    start_offset=min(recorded.start_offset, new.start_offset),
                    end_offset=max(recorded.end_offset, new.end_offset),
                    dropped_ms=max(recorded.dropped_ms, new.dropped_ms),
                )
            self._ranges[key] = [*kept, new]

    def remove(self, ranges: Iterable[DroppedRange]) -> None:
        """Remove ranges that were added last and were not dropped after all."""
        for each in ranges:
            key = each.topic, each.incarnation, each.queue_id
            self._ranges[key] = [
                part
                for recorded in self._ranges.get(key, ())
                for part in _without(recorded, each)
                if part.message_count > 0
            ]

    def clip(self, queues: ConsumeQueueTable) -> None:
        """Remove the offsets that local queues still hold."""
        for key, ranges in self._ranges.items():
            topic, incarnation, queue_id = key
            if incarnation != self._incarnation_of(topic):
                continue
            queue = queues.find(topic, queue_id)
            if queue is None:
                continue
            minimum = queue.min_offset
            self._ranges[key] = [
                msgspec.structs.replace(each, end_offset=min(each.end_offset, minimum))
                for each in ranges
                if each.start_offset < minimum
            ]

    def load(self, data: bytes | None) -> None:
        """Load the file's content.

        Raises:
            CorruptDataError: The content is not valid.
        """
        if data is None:
            return
        try:
            self.add(msgspec.json.decode(data, type=_File).ranges)
        except msgspec.DecodeError as error:
            raise CorruptDataError("the list of dropped messages cannot be read", file=FILE_NAME) from error

    def encode(self) -> bytes:
        """The file's content: the ranges of current incarnations."""
        return msgspec.json.encode(_File(ranges=self.live()))


def _without(recorded: DroppedRange, gone: DroppedRange) -> tuple[DroppedRange, DroppedRange]:
    """The parts of a range before and after `gone`; a part without offsets is an empty range."""
    return (
        msgspec.structs.replace(recorded, end_offset=min(recorded.end_offset, gone.start_offset)),
        msgspec.structs.replace(recorded, start_offset=max(recorded.start_offset, gone.end_offset)),
    )
