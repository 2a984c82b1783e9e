"""Dropped ranges: messages that were given up because the disk was full and the bucket did not take them.

Under `drop-oldest` (drop_oldest.py) the oldest local files go although what waits in them was not committed. Which
offsets that were stands here, durably, before the first file goes; the tier process declares them as holes in the
ledger, less what it had committed after all, so that readers step over them and Spark names them.

File: thermocline/droppedRanges.json
    {"ranges": [{"topic": "...", "incarnation": 3, "queueId": 0, "startOffset": 10, "endOffset": 25, "droppedMs": ...}]}

Ranges of one queue that touch are one: an outage leaves one a queue. Those of a topic's earlier lives go with it. After
a crash in between, what is still on the disk was not dropped (`clip`).
Belongs to the hot process's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from thermocline.remoting.errors import CorruptDataError
from thermocline.store.consume_queue_table import ConsumeQueueTable

FILE_NAME = "droppedRanges"


class DroppedRange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Offsets [start_offset, end_offset) of a queue in one life of its topic; the last of them went at `dropped_ms`."""

    topic: str
    incarnation: int
    queue_id: int
    start_offset: int
    end_offset: int
    dropped_ms: int

    @property
    def message_count(self) -> int:
        """How many offsets."""
        return self.end_offset - self.start_offset


class _File(msgspec.Struct):
    ranges: list[DroppedRange]


class DroppedRanges:
    """All that is known to have been dropped."""

    def __init__(self, *, incarnation_of: Callable[[str], int]) -> None:
        """`incarnation_of(topic)`: the topic's life now."""
        self._incarnation_of = incarnation_of
        self._ranges: dict[tuple[str, int, int], list[DroppedRange]] = {}

    def __iter__(self) -> Iterator[DroppedRange]:
        return (each for ranges in self._ranges.values() for each in ranges)

    def __len__(self) -> int:
        return sum(map(len, self._ranges.values()))

    def live(self) -> list[DroppedRange]:
        """Those of topics' present lives, by topic, queue and offset."""
        found = [each for each in self if each.incarnation >= self._incarnation_of(each.topic)]
        return sorted(found, key=lambda each: (each.topic, each.queue_id, each.start_offset))

    def add(self, ranges: Iterable[DroppedRange]) -> None:
        """Note more of them; those that touch known ones become one with them."""
        for new in ranges:
            key = new.topic, new.incarnation, new.queue_id
            kept: list[DroppedRange] = []
            for known in self._ranges.get(key, ()):
                if known.end_offset < new.start_offset or new.end_offset < known.start_offset:
                    kept.append(known)
                    continue
                new = msgspec.structs.replace(
                    new,
                    start_offset=min(known.start_offset, new.start_offset),
                    end_offset=max(known.end_offset, new.end_offset),
                    dropped_ms=max(known.dropped_ms, new.dropped_ms),
                )
            self._ranges[key] = [*kept, new]

    def remove(self, ranges: Iterable[DroppedRange]) -> None:
        """These were not dropped after all: what was added last."""
        for each in ranges:
            key = each.topic, each.incarnation, each.queue_id
            self._ranges[key] = [
                part for known in self._ranges.get(key, ()) for part in _without(known, each) if part.message_count > 0
            ]

    def clip(self, queues: ConsumeQueueTable) -> None:
        """Forget what is there after all: offsets that local queues hold."""
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
        """Take over the file's content.

        Raises:
            CorruptDataError: It is none.
        """
        if data is None:
            return
        try:
            self.add(msgspec.json.decode(data, type=_File).ranges)
        except msgspec.DecodeError as error:
            raise CorruptDataError("the list of dropped messages cannot be read", file=FILE_NAME) from error

    def encode(self) -> bytes:
        """The file's content: what still means something."""
        return msgspec.json.encode(_File(ranges=self.live()))


def _without(known: DroppedRange, gone: DroppedRange) -> tuple[DroppedRange, DroppedRange]:
    """What of a range lies in front of another one, and behind it; ranges of no offsets where nothing does."""
    return (
        msgspec.structs.replace(known, end_offset=min(known.end_offset, gone.start_offset)),
        msgspec.structs.replace(known, start_offset=max(known.start_offset, gone.end_offset)),
    )
