"""A real broker whose disk is full while its bucket is away: each topic's policy counts, as it was set on the topic.

How full the disk is counts by ratios that are changed while the broker runs: below what is used the disk is full, for
as long as the test wants. No server listens at the bucket's address.
"""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from tests.crash import wire
from tests.crash.broker_process import BrokerProcess
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.headers.broker import CreateTopicRequestHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

DROPPING, REFUSING = "telemetry", "orders"
BODY = b"." * 4_000
FILE_BYTES = 64 << 10
FILE_MESSAGES = 15
"""So many of these bodies are in a log file."""
FULL = {
    "diskMaxUsedSpaceRatio": "0.0001",
    "diskSpaceCleanForciblyRatio": "0.0001",
    "diskSpaceWarningLevelRatio": "0.0001",
}
ROOM = {"diskSpaceWarningLevelRatio": "99.9", "diskSpaceCleanForciblyRatio": "99.8", "diskMaxUsedSpaceRatio": "99.7"}


@pytest.fixture
def unreachable_address() -> Iterator[str]:
    """An address without a listener, reserved so that no other process binds it."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@asynccontextmanager
async def full_disk_broker(
    folder: Path, endpoint: str, **settings: str
) -> AsyncIterator[tuple[BrokerProcess, ClientConnection]]:
    """A broker with small log files, whose bucket is away, on a disk with room."""
    broker = BrokerProcess(
        folder,
        {
            "mappedFileSizeCommitLog": str(FILE_BYTES),
            "mappedFileSizeConsumeQueue": "6000",
            "coldUrl": f"s3://away/cold?endpoint={endpoint}&region=us-east-1&path_style=true&access_key=a&secret_key=b",
            **ROOM,
            **settings,
        },
    )
    await broker.start()
    try:
        connection = await ClientConnection.open(broker.address)
        with closing(connection):
            yield broker, connection
        assert await broker.stop() == 0
    finally:
        if broker.is_running:
            await broker.kill()


async def set_policy(connection: ClientConnection, topic: str, policy: str) -> None:
    """As RocketMQ's `updateTopic -a` does."""
    header = CreateTopicRequestHeader(
        topic=topic, read_queue_nums=1, write_queue_nums=1, attributes=f"+thermocline.full.policy={policy}"
    )
    await wire.ask(connection, RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def change(connection: ClientConnection, settings: dict[str, str]) -> None:
    """As RocketMQ's `updateBrokerConfig` does."""
    body = "".join(f"{name}={value}\n" for name, value in settings.items()).encode()
    await wire.ask(connection, RequestCode.UPDATE_BROKER_CONFIG, body=body)


async def fill(connection: ClientConnection, topic: str, count: int) -> list[int]:
    """Where they lie in the log."""
    return [(await wire.send(connection, topic, 0, BODY)).physical_offsets[0] for _ in range(count)]


async def is_refused(connection: ClientConnection, topic: str) -> bool:
    try:
        await wire.send(connection, topic, 0, BODY)
    except wire.Refused as refused:
        if refused.code != ResponseCode.SERVICE_NOT_AVAILABLE:
            raise
        return True
    return False


async def local_min(connection: ClientConnection, topic: str) -> int:
    """The first offset of a topic's one queue that the log holds."""
    (state,) = [each for each in (await wire.tier_status(connection))["topics"] if each["topic"] == topic]
    return min(queue["localMin"] for queue in state["queues"])


def dropped(broker: BrokerProcess, topic: str) -> int:
    """How many of a topic's messages the broker says that it has dropped."""
    pattern = rf"messages dropped, .* topic={topic} messages=(\d+)"
    return sum(int(count) for count in re.findall(pattern, broker.log))


@pytest.mark.crash
@pytest.mark.parametrize("said_by", ["topic", pytest.param("broker", marks=pytest.mark.full)])
async def test_a_topic_that_refuses_loses_nothing_beside_one_that_drops_its_oldest(
    tmp_path: Path, unreachable_address: str, said_by: str
) -> None:
    """The oldest files hold one topic alone, which drops them; then comes a message of the other, which holds the log
    and has sends refused, until it may be dropped, too. Whichever of both differs from the broker's default."""
    default = "drop-oldest" if said_by == "broker" else "refuse"
    async with full_disk_broker(tmp_path, unreachable_address, coldFullPolicy=default) as (broker, connection):
        for topic, policy in ((DROPPING, "drop-oldest"), (REFUSING, "refuse")):
            if policy == default:
                await wire.make_topic(connection, topic, queues=1)
            else:
                await set_policy(connection, topic, policy)
        places = await fill(connection, DROPPING, 2 * FILE_MESSAGES)
        (held_place,) = await fill(connection, REFUSING, 1)
        await fill(connection, DROPPING, 2 * FILE_MESSAGES)
        # Files before the one that holds the message that must not be lost.
        going = sum(place < held_place - held_place % FILE_BYTES for place in places)
        assert going >= FILE_MESSAGES

        await change(connection, FULL)
        await wire.until_true(lambda: _has_let_go(connection, DROPPING, going))
        await wire.until_true(lambda: is_refused(connection, REFUSING))
        assert await is_refused(connection, DROPPING), "one message that waits holds what comes after it"
        assert await local_min(connection, DROPPING) == dropped(broker, DROPPING) == going
        assert await local_min(connection, REFUSING) == dropped(broker, REFUSING) == 0
        (kept,) = (await wire.pull(connection, REFUSING, 0, 0)).records
        assert kept.body == BODY

        await set_policy(connection, REFUSING, "drop-oldest")  # in effect at once
        await wire.until_true(lambda: _has_let_go(connection, REFUSING, 1))
        assert dropped(broker, REFUSING) >= 1
        assert await local_min(connection, DROPPING) > going

        await change(connection, ROOM)
        await wire.until_true(lambda: _is_taken(connection, REFUSING))
        await wire.until_true(lambda: _is_taken(connection, DROPPING))


async def _has_let_go(connection: ClientConnection, topic: str, offset: int) -> bool:
    return await local_min(connection, topic) >= offset


async def _is_taken(connection: ClientConnection, topic: str) -> bool:
    return not await is_refused(connection, topic)
