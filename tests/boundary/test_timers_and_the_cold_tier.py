"""Messages that wait for their time, while all around them goes to the cold tier, leaves the disk, and expires."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.boundary.whole_broker import WholeBroker
from tests.crash import wire

TOPIC = "Steam"
TTL_MS = 10_000
DELAY_MS = 3_600_000
ORDINARY_COUNT = 40
BODY = bytes(300)
"""Of ordinary messages: a log file holds nine of them."""


@pytest.fixture
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WholeBroker]:
    """A broker with a topic whose messages expire soon."""
    folder: Path = tmp_path_factory.mktemp("b")
    broker = WholeBroker(folder)
    await broker.start()
    await wire.make_topic(broker.connection, TOPIC, queues=1, ttl_ms=TTL_MS)
    yield broker
    await broker.stop(is_crash=False)
    await broker.remove_objects()


async def send_timed(broker: WholeBroker, body: bytes) -> int:
    """Send a timed message; returns the physical offset of its record."""
    answer = await wire.send(broker.connection, TOPIC, 0, body, properties=f"TIMER_DELAY_MS\x01{DELAY_MS}\x02")
    return answer.physical_offsets[0]


async def send_ordinary(broker: WholeBroker) -> None:
    """Fill a few log files."""
    for _ in range(ORDINARY_COUNT):
        await wire.send(broker.connection, TOPIC, 0, BODY)


async def move_to_cold(broker: WholeBroker) -> None:
    """Commit everything, and let go of every local file that may go: all that are older than a moment."""
    broker.clock.now_ms += 1
    await broker.report()
    await wire.seal(broker.connection)
    await broker.delete_local_files()


async def read_last(broker: WholeBroker) -> bytes:
    """The body of the topic's last message."""
    end = await wire.max_offset(broker.connection, TOPIC, 0)
    (record,) = await wire.read_queue(broker.connection, TOPIC, 0, start=end - 1, end=end)
    return bytes(record.body)


@pytest.mark.parametrize("is_crash", [False, True])
async def test_one_that_waits_outlives_its_file_and_its_neighbours(broker: WholeBroker, is_crash: bool) -> None:
    place = await send_timed(broker, b"waits")
    await broker.deliver_timed()
    await send_ordinary(broker)
    await move_to_cold(broker)
    # Everything else is committed: only this message holds the file.
    assert broker.store.commit_log.min_offset <= place
    await broker.deliver_timed()
    await broker.delete_local_files()
    assert broker.store.commit_log.min_offset > place

    broker.clock.now_ms += TTL_MS + 1
    await move_to_cold(broker)
    assert await wire.min_offset(broker.connection, TOPIC, 0) == ORDINARY_COUNT
    await broker.stop(is_crash=is_crash)
    await broker.start()
    assert await wire.max_offset(broker.connection, TOPIC, 0) == ORDINARY_COUNT

    broker.clock.now_ms += DELAY_MS
    await broker.deliver_timed()
    assert await wire.max_offset(broker.connection, TOPIC, 0) == ORDINARY_COUNT + 1
    assert await read_last(broker) == b"waits"


async def test_one_that_was_delivered_is_a_message_like_any_other(broker: WholeBroker) -> None:
    await send_timed(broker, b"came late")
    broker.clock.now_ms += DELAY_MS + 20
    await broker.deliver_timed()
    assert await wire.max_offset(broker.connection, TOPIC, 0) == 1
    await wire.make_topic(broker.connection, "Filler", queues=1)
    for _ in range(ORDINARY_COUNT):
        await wire.send(broker.connection, "Filler", 0, BODY)
    await move_to_cold(broker)
    queue = broker.store.queues.find(TOPIC, 0)
    assert queue is not None
    assert queue.min_offset == 1
    assert await read_last(broker) == b"came late"  # from the cold tier
    broker.clock.now_ms += TTL_MS + 1  # counted from its delivery
    assert await wire.min_offset(broker.connection, TOPIC, 0) == 1
