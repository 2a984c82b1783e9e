"""`kill -9` of a broker while messages wait for their time: each comes, none early, none that was recalled.

Twice may come what RocketMQ may repeat: what was delivered since timers were last made durable before a kill, which is
what their checkpoint says that the kill has left; and what was being stored anew, because its log file was to go, when
the process died.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from tests.clock import now_ms
from tests.crash import wire
from tests.crash.broker_process import GONE_AT_ONCE, KEPT, SMALL_FILES, BrokerProcess, cold_settings
from tests.crash.repeated_steps import repeat
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.remoting.records.properties import PropertyName
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.files.disk import RealDisk
from thermocline.timers.timer_checkpoint import TimerCheckpoint

SEED = 20_261_121
TIMED, FILLER = "CrashTimed", "CrashFiller"
QUEUES = 4
ROUND_MS = 500
DELAYS_MS = (100, 700, 1_500, 4_000, 8_000, 15_000)
RECALLED_DELAY_MS = 12_000
FILLER_BYTES = 40_000
SETTINGS = {
    **SMALL_FILES,
    "mappedFileSizeTimerLog": "4096",
    "timerFlushIntervalMs": str(ROUND_MS),
    "recallMessageEnable": "true",
}


@dataclass(frozen=True, slots=True)
class Kill:
    """When it was over, and when the round began that had made the last checkpoint."""

    time_ms: int
    durable_ms: int


def may_repeat(delivered_ms: int, kills: list[Kill]) -> bool:
    """Whether no checkpoint knew of a delivery when the process died that had made it."""
    following = [kill for kill in kills if kill.time_ms >= delivered_ms]
    return bool(following) and following[0].durable_ms <= delivered_ms


class TimedLoad:
    """Tasks that reconnect for ever, until `stop`. What was not answered may have been stored or not."""

    def __init__(self, broker: BrokerProcess, seed: str) -> None:
        self._broker = broker
        self._random = random.Random(seed)
        self._tasks: list[asyncio.Task[None]] = []
        self._count = 0
        self.times_ms: dict[bytes, int] = {}
        """Acknowledged and not recalled: body -> requested delivery time."""
        self.asked_ms: dict[bytes, int] = {}
        """The same for everything that was sent, acknowledged or not."""
        self.recalled: set[bytes] = set()
        self._handles: list[tuple[bytes, str]] = []

    async def start(self) -> None:
        """Make the topics, then begin."""
        connection = await ClientConnection.open(self._broker.address)
        for topic in (TIMED, FILLER):
            await wire.make_topic(connection, topic, queues=QUEUES)
        connection.close()
        steps = (self._send_timed, self._send_timed, self._send_filler, self._recall)
        self._tasks = [asyncio.create_task(repeat(self._broker, step, pause_s=0.01)) for step in steps]

    async def stop(self) -> None:
        """Stop them all. Raises what a task failed with."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                raise outcome

    async def _send_timed(self, connection: ClientConnection) -> None:
        self._count += 1
        body = f"{self._count}".encode()
        is_to_be_recalled = self._random.random() < 0.2
        delay_ms = RECALLED_DELAY_MS if is_to_be_recalled else self._random.choice(DELAYS_MS)
        deliver_ms = self.asked_ms[body] = now_ms() + delay_ms + self._random.randrange(1_000)
        answer = await wire.send(
            connection,
            TIMED,
            self._random.randrange(QUEUES),
            body,
            properties=f"TIMER_DELIVER_MS\x01{deliver_ms}\x02",
        )
        self.times_ms[body] = deliver_ms
        if is_to_be_recalled and answer.recall_handle is not None:
            self._handles.append((body, answer.recall_handle))

    async def _send_filler(self, connection: ClientConnection) -> None:
        await wire.send(connection, FILLER, self._random.randrange(QUEUES), bytes(FILLER_BYTES))

    async def _recall(self, connection: ClientConnection) -> None:
        if len(self._handles) < 5:
            return
        body, handle = self._handles.pop(0)
        del self.times_ms[body]  # from here on it may come or not
        try:
            await wire.recall(connection, TIMED, handle)
        except wire.Refused as refused:
            if refused.code != ResponseCode.ILLEGAL_OPERATION:  # that its time has come
                raise
        else:
            self.recalled.add(body)


async def read_all(
    connection: ClientConnection, expected: set[bytes], *, last_ms: int
) -> dict[bytes, list[MessageRecord]]:
    """Everything that was delivered, once all that is expected is there and every time has come."""
    read: dict[bytes, list[MessageRecord]] = defaultdict(list)
    read_to = dict.fromkeys(range(QUEUES), 0)
    async with asyncio.timeout(wire.PATIENCE_S):
        while True:
            is_over = now_ms() > last_ms + 3_000
            for queue_id, start in read_to.items():
                end = await wire.max_offset(connection, TIMED, queue_id)
                for record in await wire.read_queue(connection, TIMED, queue_id, start=start, end=end):
                    read[bytes(record.body)].append(record)
                    read_to[queue_id] = record.queue_offset + 1  # a pull may give more than was there before
            if is_over and expected <= read.keys():
                return read
            await asyncio.sleep(0.1)


@pytest.mark.crash
@pytest.mark.parametrize("files", [KEPT, pytest.param(GONE_AT_ONCE, marks=pytest.mark.full)])
async def test_kills_lose_and_bring_forward_nothing_that_waits(
    tmp_path: Path, case_count: Callable[..., int], files: str
) -> None:
    kill_count = case_count(quick=1, full=4, soak=60)
    chance = random.Random(f"{SEED}/{files}")
    broker = BrokerProcess(tmp_path / "broker", {**SETTINGS, **cold_settings(files, tmp_path)})
    await broker.start()
    load = TimedLoad(broker, f"{SEED}/{files}")
    await load.start()
    kills: list[Kill] = []
    try:
        for _ in range(kill_count):
            await asyncio.sleep(chance.uniform(0.3, 3.0))
            await broker.kill()
            checkpoint = TimerCheckpoint.load(RealDisk(), f"{broker.store}/config/timercheck")
            assert checkpoint is not None
            kills.append(Kill(now_ms(), checkpoint.timestamp_ms))
            await broker.start()
        await load.stop()
        connection = await ClientConnection.open(broker.address)
        read = await read_all(connection, set(load.times_ms), last_ms=max(load.asked_ms.values()))
        if files == GONE_AT_ONCE:
            assert await wire.has_let_go(connection)
        connection.close()
        assert len(load.times_ms) > 20 * kill_count
        assert len(load.recalled) >= kill_count
        assert read.keys() <= load.asked_ms.keys()
        assert not load.recalled & read.keys()
        for body, records in read.items():
            *earlier_ms, last_ms = sorted(record.store_timestamp_ms for record in records)
            assert (earlier_ms or [last_ms])[0] >= load.asked_ms[body], f"{body!r} is early"
            is_anew = any(record.property_text(PropertyName.TIMER_ROLL_TIMES) for record in records)
            for delivered_ms in earlier_ms:
                assert is_anew or may_repeat(delivered_ms, kills), (body, earlier_ms, last_ms, kills)
        assert await broker.stop() == 0
        broker.check_log()
    finally:
        await load.stop()
        if broker.is_running:
            await broker.kill()


@pytest.mark.crash
async def test_messages_due_while_the_broker_was_down_come_once_and_in_order(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker", SETTINGS)
    await broker.start()
    try:
        connection = await ClientConnection.open(broker.address)
        await wire.make_topic(connection, TIMED, queues=QUEUES)
        start_ms = now_ms()
        times_ms: dict[bytes, int] = {}
        for number in range(300):
            deliver_ms = start_ms + 3_000 + 37 * number % 6_000
            times_ms[b"%d" % number] = deliver_ms
            properties = f"TIMER_DELIVER_MS\x01{deliver_ms}\x02"
            await wire.send(connection, TIMED, 0, b"%d" % number, properties=properties)
        while not await wire.max_offset(connection, TIMED, 0):  # noqa: ASYNC110 - until the first have come
            await asyncio.sleep(0.02)
        connection.close()
        assert await broker.stop() == 0
        while now_ms() < max(times_ms.values()):  # noqa: ASYNC110 - until the last is due
            await asyncio.sleep(0.05)
        restarted_ms = now_ms()
        await broker.start()
        connection = await ClientConnection.open(broker.address)
        read = await read_all(connection, set(times_ms), last_ms=max(times_ms.values()))
        connection.close()
        assert {body: len(records) for body, records in read.items()} == dict.fromkeys(times_ms, 1)
        # Before, one that was sent when its time was over already may have come behind others.
        late = {body: records[0] for body, records in read.items() if records[0].store_timestamp_ms >= restarted_ms}
        bodies = sorted(late, key=lambda body: late[body].queue_offset)
        assert bodies
        steps_ms = [times_ms[body] - times_ms[earlier] for earlier, body in pairwise(bodies)]
        assert min(steps_ms) > -20  # a stretch of the wheel's ticks
        broker.check_log()
    finally:
        if broker.is_running:
            await broker.kill()
