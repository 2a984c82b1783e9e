"""`kill -9` of a broker while messages are popped, acknowledged, kept longer and abandoned: none is lost, none that was
acknowledged in time comes again, none comes to a second consumer while the first may still have it.

What had no answer may have been done or not: such a message may come again or not, but it is never lost.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.popping import GROUP, TOPIC, Popped, batch_ack_body, changed_receipt, popped, receipt_fields
from tests.clock import now_ms
from tests.crash import wire
from tests.crash.broker_process import GONE_AT_ONCE, KEPT, SMALL_FILES, BrokerProcess, cold_settings
from tests.crash.repeated_steps import repeat
from tests.waiting import until
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

SEED = 20_261_122
FILLER = "CrashPopFiller"
FILLER_BYTES = 40_000
ORDERED_GROUP = "crash-ordered"
DUE_MS = 10_000
"""Longer than a busy machine takes to pop and acknowledge 40 messages."""
QUEUES = 4
INVISIBLE_MS = (700, 1_500, 4_000)
POLL_MS = 300
LATE_MS = 60
"""An acknowledgement that was answered this shortly before the message came back may have been the later of the two."""
NOTHING = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL})
SETTINGS = {
    **SMALL_FILES,
    "flushConsumerOffsetInterval": "300",
}


async def pop(
    connection: ClientConnection, group: str, *, count: int, invisible_ms: int, order: bool = False
) -> list[Popped]:
    """One POP of all queues; nothing, and what is not there just now, is an empty list."""
    fields = {
        "consumerGroup": group,
        "topic": TOPIC,
        "queueId": "-1",
        "maxMsgNums": str(count),
        "invisibleTime": str(invisible_ms),
        "pollTime": str(POLL_MS),
        "bornTime": str(now_ms()),
        "initMode": "0",
        "expType": "TAG",
        "exp": "*",
        "order": str(order).lower(),
    }
    command = RemotingCommand.request(RequestCode.POP_MESSAGE, ext_fields=fields)
    answer = await connection.call(command, timeout_ms=wire.TIMEOUT_MS)
    assert answer.code == ResponseCode.SUCCESS or answer.code in NOTHING | wire.TRY_AGAIN, answer
    return popped(answer) if answer.code == ResponseCode.SUCCESS else []


async def ack(connection: ClientConnection, group: str, *messages: Popped) -> None:
    """Acknowledge, by one request. Raises as `wire.ask`."""
    if len(messages) == 1:
        fields = {name: str(value) for name, value in receipt_fields(messages[0], group).items()}
        await wire.ask(connection, RequestCode.ACK_MESSAGE, ext_fields=fields)
    else:
        await wire.ask(connection, RequestCode.BATCH_ACK_MESSAGE, body=batch_ack_body(messages, group))


class PopLoad:
    """Tasks that reconnect for ever, until `stop`: producers, and consumers of a group that does what groups do."""

    def __init__(self, broker: BrokerProcess, seed: str) -> None:
        self._broker = broker
        self._random = random.Random(seed)
        self._tasks: list[asyncio.Task[None]] = []
        self._count = 0
        self.sent: set[bytes] = set()
        """Acknowledged to the producer."""
        self.done: set[bytes] = set()
        """Acknowledged by a consumer, in time, and answered."""
        self.pops = 0
        self._held_until_ms: dict[bytes, int] = {}
        """Until when no other consumer may get a message, as far as answers say."""
        self._ordered_tried: dict[int, set[int]] = defaultdict(set)
        """Of the ordered group, by queue: offsets whose acknowledgement was sent."""
        self.ordered_done: dict[int, set[int]] = defaultdict(set)

    async def start(self) -> None:
        """Make the topics, then begin."""
        connection = await ClientConnection.open(self._broker.address)
        for topic in (TOPIC, FILLER):
            await wire.make_topic(connection, topic, queues=QUEUES)
        connection.close()
        steps = (self._send, self._send_filler, self._consume, self._consume, self._consume, self._consume_in_order)
        self._tasks = [asyncio.create_task(repeat(self._broker, step, pause_s=0.005)) for step in steps]

    async def stop(self) -> None:
        """Stop them all. Raises what a task failed with."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                raise outcome

    def check_running(self) -> None:
        """Raise what a task failed with."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def until_enough(self, *, sent: int, pops: int) -> None:
        """Return when more messages than `sent` were acknowledged to producers, and more than `pops` POPs had some."""

        def is_enough() -> bool:
            self.check_running()
            return len(self.sent) > sent and self.pops > pops

        await until(is_enough, what=f"more than {sent} messages sent and {pops} times some popped")

    async def _send(self, connection: ClientConnection) -> None:
        self._count += 1
        body = b"%d" % self._count
        await wire.send(connection, TOPIC, self._random.randrange(QUEUES), body)
        self.sent.add(body)

    async def _send_filler(self, connection: ClientConnection) -> None:
        await wire.send(connection, FILLER, self._random.randrange(QUEUES), bytes(FILLER_BYTES))

    async def _consume(self, connection: ClientConnection) -> None:
        chance = self._random
        invisible_ms = chance.choice(INVISIBLE_MS)
        messages = await pop(connection, GROUP, count=chance.choice((1, 4, 16)), invisible_ms=invisible_ms)
        self.record_popped(messages)
        chance.shuffle(messages)
        kind = chance.random()
        if kind < 0.15:
            return  # all of them are abandoned
        if kind < 0.3 and messages:
            messages = [await self._keep(connection, messages[0]), *messages[1:]]
        kept = [message for message in messages if chance.random() < 0.9]
        if kind < 0.6:
            for message in kept:
                await self.acknowledge(connection, message)
        elif kept:
            await self.acknowledge(connection, *kept)

    def record_popped(self, messages: list[Popped]) -> None:
        """Record the messages of an answer, and check that each may be delivered now."""
        self.pops += bool(messages)
        for message in messages:
            body, receipt = message.body, message.receipt
            assert body not in self.done, f"{body!r} was acknowledged and came again: {receipt}"
            held_ms = self._held_until_ms.get(body, 0)
            assert receipt.pop_time_ms >= held_ms, (
                f"{body!r} came while another consumer held it: {receipt}, until {held_ms}"
            )
            self._held_until_ms[body] = receipt.revive_time_ms

    async def _keep(self, connection: ClientConnection, message: Popped) -> Popped:
        """Change the invisible time; the message as it is held from now on."""
        invisible_ms = self._random.choice(INVISIBLE_MS)
        body, old = message.body, message.receipt
        # Which of the two times holds is not known until the answer is here.
        self._held_until_ms[body] = min(old.revive_time_ms, now_ms() + invisible_ms)
        fields = {name: str(value) for name, value in receipt_fields(message).items()}
        fields["invisibleTime"] = str(invisible_ms)
        try:
            answer = await wire.ask(connection, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext_fields=fields)
        except wire.Refused:
            return message  # it had come back already
        receipt = changed_receipt(old, answer)
        if receipt.revive_time_ms > self._held_until_ms[body]:
            self._held_until_ms[body] = receipt.revive_time_ms
        return Popped(record=message.record, receipt=receipt)

    async def acknowledge(self, connection: ClientConnection, *messages: Popped) -> None:
        """Acknowledge, and note what was certainly in time."""
        for message in messages:
            self._held_until_ms[message.body] = 0  # without an answer the outcome is open
        await ack(connection, GROUP, *messages)
        answered_ms = now_ms()
        for message in messages:
            if answered_ms < message.receipt.revive_time_ms - LATE_MS:
                self.done.add(message.body)

    async def _consume_in_order(self, connection: ClientConnection) -> None:
        chance = self._random
        messages = await pop(
            connection,
            ORDERED_GROUP,
            count=chance.choice((1, 4, 16)),
            invisible_ms=chance.choice(INVISIBLE_MS),
            order=True,
        )
        self._take_in_order(messages)
        for message in messages:
            if chance.random() < 0.95:
                await self._acknowledge_in_order(connection, message)

    def _take_in_order(self, messages: list[Popped]) -> None:
        for message in messages:
            queue_id, offset = message.receipt.queue_id, message.receipt.queue_offset
            assert offset not in self.ordered_done[queue_id], f"{queue_id}/{offset} was acknowledged and came again"
            before = set(range(message.receipt.start_offset)) - self._ordered_tried[queue_id]
            assert not before, f"{queue_id}/{offset} came before {sorted(before)[:5]}"

    async def _acknowledge_in_order(self, connection: ClientConnection, message: Popped) -> None:
        queue_id, offset = message.receipt.queue_id, message.receipt.queue_offset
        self._ordered_tried[queue_id].add(offset)
        await ack(connection, ORDERED_GROUP, message)
        if now_ms() < message.receipt.revive_time_ms - LATE_MS:
            self.ordered_done[queue_id].add(offset)

    # -- afterwards ----------------------------------------------------------------------------------------------------

    async def finish(self, connection: ClientConnection) -> None:
        """Consume until everything that was sent is done. Fails when something never comes."""
        idle_since = time.monotonic()
        while not self.sent <= self.done:
            messages = await pop(connection, GROUP, count=32, invisible_ms=30_000)
            self.record_popped(messages)
            if messages:
                idle_since = time.monotonic()
                await self.acknowledge(connection, *messages)
            # Acknowledged without an answer, or too late for this test to be sure: done, or it comes again.
            unsure = {body for body in self.sent - self.done if self._held_until_ms.get(body, 1) == 0}
            lost = self.sent - self.done - unsure
            is_over = time.monotonic() - idle_since > (30 if lost else 6)
            assert not (is_over and lost), f"{len(lost)} lost: {sorted(lost)[:10]}"
            if is_over:
                return

    async def finish_in_order(self, connection: ClientConnection) -> None:
        """The same for the ordered group: every queue to its end."""
        async with asyncio.timeout(wire.PATIENCE_S):
            for queue_id in range(QUEUES):
                end = await wire.max_offset(connection, TOPIC, queue_id)
                while (await wire.consumer_offset(connection, ORDERED_GROUP, TOPIC, queue_id) or 0) < end:
                    messages = await pop(connection, ORDERED_GROUP, count=32, invisible_ms=30_000, order=True)
                    self._take_in_order(messages)
                    for message in messages:
                        await self._acknowledge_in_order(connection, message)
                assert set(range(end)) <= self._ordered_tried[queue_id]


async def until_local_files_go(connection: ClientConnection) -> None:
    """Wait until messages of the topic lie in the cold tier alone."""
    async with asyncio.timeout(wire.PATIENCE_S):
        while not await wire.has_let_go(connection, TOPIC):  # noqa: ASYNC110 - what another process does
            await asyncio.sleep(0.1)


@pytest.mark.crash
@pytest.mark.parametrize("files", [KEPT, pytest.param(GONE_AT_ONCE, marks=pytest.mark.full)])
async def test_kills_lose_nothing_that_is_popped(tmp_path: Path, case_count: Callable[..., int], files: str) -> None:
    kills = case_count(quick=2, full=4, soak=100)
    chance = random.Random(f"{SEED}/{files}")
    broker = BrokerProcess(tmp_path / "broker", {**SETTINGS, **cold_settings(files, tmp_path)})
    await broker.start()
    load = PopLoad(broker, f"{SEED}/{files}")
    await load.start()
    try:
        for _ in range(kills):
            await asyncio.sleep(chance.uniform(0.3, 2.5))
            load.check_running()
            await broker.kill()
            await broker.start()
        await load.until_enough(sent=20 * kills, pops=max(5 * kills, load.pops))
        await load.stop()
        connection = await ClientConnection.open(broker.address)
        if files == GONE_AT_ONCE:
            await until_local_files_go(connection)
        await load.finish(connection)
        await load.finish_in_order(connection)
        connection.close()
        assert len(load.done) > len(load.sent) // 2
        assert await broker.stop() == 0
        broker.check_log()
    finally:
        try:
            await load.stop()
        finally:
            if broker.is_running:
                await broker.kill()


@pytest.mark.full
@pytest.mark.crash
async def test_messages_due_while_the_broker_was_down_come_once(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker", SETTINGS)
    await broker.start()
    try:
        connection = await ClientConnection.open(broker.address)
        await wire.make_topic(connection, TOPIC, queues=1)
        for number in range(40):
            await wire.send(connection, TOPIC, 0, b"%d" % number)
        taken: list[Popped] = []
        while len(taken) < 40:
            taken += await pop(connection, GROUP, count=8, invisible_ms=DUE_MS)
        await ack(connection, GROUP, *taken[::2])
        assert now_ms() < taken[0].receipt.revive_time_ms, "nothing was due before the kill"
        connection.close()
        await broker.kill()
        await until(lambda: now_ms() >= taken[-1].receipt.revive_time_ms, what="all are due")
        await broker.start()
        connection = await ClientConnection.open(broker.address)
        again: list[Popped] = []
        async with asyncio.timeout(wire.PATIENCE_S):
            while len(again) < 20:
                again += await pop(connection, GROUP, count=8, invisible_ms=60_000)
        assert sorted(message.body for message in again) == sorted(message.body for message in taken[1::2])
        assert {message.record.reconsume_times for message in again} == {1}
        assert await pop(connection, GROUP, count=8, invisible_ms=60_000) == []
        connection.close()
        broker.check_log()
    finally:
        if broker.is_running:
            await broker.kill()
