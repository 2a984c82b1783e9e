"""Where a consumer begins, beside a producer that sends the queue's first message meanwhile."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from thermocline.client.consumer.options import ConsumeFromWhere
from thermocline.client.consumer.start_offset import find_start_offset
from thermocline.client.message_queue import MessageQueue

QUEUE = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)


class OfficialBroker:
    """One queue, as an official broker answers: it has no offset until the queue has a message."""

    def __init__(self, *, end: int, has_first: bool = True) -> None:
        self._end = end
        self._has_first = has_first

    async def read(self, _queue: MessageQueue) -> int | None:
        return 0 if self._end and self._has_first else None

    async def persist(self, offsets: Mapping[MessageQueue, int], *, is_confirmed: bool) -> None:
        raise AssertionError("a start stores no offset")

    async def max_offset(self, _queue: MessageQueue) -> int:
        return self._end


class BusyBroker(OfficialBroker):
    """A message comes between the two questions."""

    async def max_offset(self, queue: MessageQueue) -> int:
        self._end += 1
        return await super().max_offset(queue)


@pytest.mark.parametrize(
    ("broker", "wanted"),
    [
        (OfficialBroker(end=0), 0),
        (OfficialBroker(end=7, has_first=False), 7),
        (OfficialBroker(end=7), 0),
        (BusyBroker(end=0), 0),
    ],
    ids=["empty", "old", "young", "written meanwhile"],
)
async def test_a_consumer_that_starts_at_the_end(broker: OfficialBroker, wanted: int) -> None:
    offset = await find_start_offset(
        QUEUE,
        store=broker,
        calls=broker,  # type: ignore[arg-type]
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        consume_timestamp_ms=0,
    )
    assert offset == wanted
