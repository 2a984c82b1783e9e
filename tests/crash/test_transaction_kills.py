"""`kill -9` of a broker in the middle of transactions: committed is visible exactly once, rolled back never, unknown is
asked about again.

Producers of one group, each on a connection of its own, send half messages and decide them as their truth says: mostly
one-way, some waiting for the answer, some not at all, so that the broker has to ask. Any of them answers what it is
asked. Some never get an answer to their half message: such a transaction never ran, so it is rolled back when asked
about.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from enum import Enum
from functools import partial
from pathlib import Path

import pytest

from tests.crash import wire
from tests.crash.broker_process import GONE_AT_ONCE, KEPT, SMALL_FILES, BrokerProcess, cold_settings
from tests.crash.repeated_steps import repeat
from tests.waiting import until
from thermocline.remoting.bodies import HeartbeatData, ProducerData
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections.connection import Connection
from thermocline.remoting.headers.send import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
    encode_send_header,
)
from thermocline.remoting.records.message_id import decode_message_id
from thermocline.remoting.records.message_record import decode_record
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.topic_validation import TRANSACTION_GROUP, TRANSACTION_HALF_TOPIC
from thermocline.transactions.half_message import HALF_QUEUE_ID

SEED = 20_261_123
TOPIC, GROUP = "CrashTransactions", "crash-transactions"
QUEUES = 4
PRODUCERS = 24
FILLER_BYTES_MAX = 3_000
KILLS_MIN = 3
SETTINGS = {
    **SMALL_FILES,
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "500",
    "transactionCheckMax": "1000000",
    "transactionOpBatchInterval": "700",
    "transactionMetricFlushInterval": "100",
}


class Truth(Enum):
    """How a local transaction ended; the producer reports it at once, or when the broker checks."""

    COMMIT = 8
    ROLL_BACK = 12


class TransactionLoad:
    """Producers that reconnect for ever, until `stop`, and know how each transaction ended."""

    def __init__(self, broker: BrokerProcess, seed: str) -> None:
        self._broker = broker
        self._random = random.Random(seed)
        self._tasks: list[asyncio.Task[None]] = []
        self._under_way: set[bytes] = set()
        self.truths: dict[bytes, Truth] = {}
        """Of transactions whose half message was answered."""
        self.untold: set[bytes] = set()
        """Of those, the ones that no producer decided of its own accord."""
        self.asked: Counter[bytes] = Counter()
        self.begun = 0

    async def start(self) -> None:
        """Make the topic, then begin."""
        connection = await ClientConnection.open(self._broker.address)
        await wire.make_topic(connection, TOPIC, queues=QUEUES)
        connection.close()
        self._tasks = [asyncio.create_task(self._produce(number)) for number in range(PRODUCERS)]

    async def stop_sending(self) -> None:
        """Send no more, but answer. Raises what a task failed with."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                raise outcome
        self._under_way.clear()

    async def join(self, number: int) -> ClientConnection:
        """A producer's connection, known to the broker."""
        connection = await ClientConnection.open(self._broker.address, handler=self)
        body = HeartbeatData(client_id=f"p{number}", producer_data_set=[ProducerData(group_name=GROUP)]).encode()
        await wire.ask(connection, RequestCode.HEART_BEAT, body=body)
        return connection

    async def _produce(self, number: int) -> None:
        await repeat(self._broker, self._transact, pause_s=0.0, connect=lambda: self.join(number))

    async def _transact(self, connection: ClientConnection) -> None:
        chance = self._random
        self.begun += 1
        body = f"{self.begun}/".encode().ljust(chance.choice((20, 200, FILLER_BYTES_MAX)), b".")
        truth = chance.choice((Truth.COMMIT, Truth.COMMIT, Truth.ROLL_BACK))
        self._under_way.add(body)
        try:
            end = await self.send_half(connection, body)
            self.truths[body] = truth
        finally:
            self._under_way.discard(body)
        way = chance.random()
        if way < 0.15:
            self.untold.add(body)
            if way < 0.07:
                self._end_one_way(connection, end, commit_or_rollback=0)
        elif way < 0.25:
            end.commit_or_rollback = truth.value
            # Refused when a check came meanwhile, and its answer is further back in the log than the table reaches.
            with contextlib.suppress(wire.Refused):
                await wire.ask(connection, RequestCode.END_TRANSACTION, end)
        else:
            self._end_one_way(connection, end, commit_or_rollback=truth.value)

    async def send_half(self, connection: ClientConnection, body: bytes) -> EndTransactionRequestHeader:
        """Send one; what to end it by."""
        key = f"ID{self.begun}"
        header = SendMessageRequestHeader(
            producer_group=GROUP,
            topic=TOPIC,
            queue_id=self._random.randrange(QUEUES),
            sys_flag=4,
            born_timestamp=time.time_ns() // 1_000_000,
            properties=f"UNIQ_KEY\x01{key}\x02TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02",
        )
        code = RequestCode.SEND_MESSAGE_V2
        response = await wire.ask(connection, code, ext_fields=encode_send_header(code, header), body=body)
        answer = response.header(SendMessageResponseHeader)
        return EndTransactionRequestHeader(
            topic=TOPIC,
            producer_group=GROUP,
            tran_state_table_offset=answer.queue_offset,
            commit_log_offset=decode_message_id(answer.msg_id).physical_offset,
            commit_or_rollback=0,
            msg_id=key,
            transaction_id=key,
        )

    def _end_one_way(
        self, connection: Connection, header: EndTransactionRequestHeader, *, commit_or_rollback: int
    ) -> None:
        header.commit_or_rollback = commit_or_rollback
        connection.send(RemotingCommand.request(RequestCode.END_TRANSACTION, header, oneway=True))

    # -- what the broker asks ------------------------------------------------------------------------------------------

    def handle(self, connection: Connection, command: RemotingCommand) -> None:
        """Answer a check, or not yet."""
        assert command.code == RequestCode.CHECK_TRANSACTION_STATE
        question = command.header(CheckTransactionStateRequestHeader)
        body = decode_record(command.body).body
        self.asked[body] += 1
        if body in self._under_way or (body in self.truths and self._random.random() < 0.3):
            return
        answer = EndTransactionRequestHeader(
            topic=question.topic,
            producer_group=GROUP,
            tran_state_table_offset=question.tran_state_table_offset,
            commit_log_offset=question.commit_log_offset,
            commit_or_rollback=0,
            from_transaction_check=True,
            msg_id=question.msg_id,
            transaction_id=question.transaction_id,
        )
        truth = self.truths.get(body, Truth.ROLL_BACK)
        self._end_one_way(connection, answer, commit_or_rollback=truth.value)

    def connection_opened(self, connection: Connection) -> None:
        """Nothing to note."""

    def connection_closed(self, connection: Connection) -> None:
        """Nothing to note."""


def open_count(broker: BrokerProcess) -> int:
    """How many transactions are open, as the broker writes it down every now and then."""
    try:
        file = json.loads((broker.store / "config" / "transactionMetrics").read_bytes())
    except (FileNotFoundError, json.JSONDecodeError):
        return 1
    return int(file["transactionCount"].get(TOPIC, {"count": 0})["count"])


async def are_all_decided(connection: ClientConnection) -> bool:
    """Whether no half message is open: the group of the checks has come to the end of them."""
    progress = await wire.consumer_offset(connection, TRANSACTION_GROUP, TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID)
    return progress == await wire.max_offset(connection, TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID)


async def read_all(connection: ClientConnection) -> Counter[bytes]:
    """How often each body is visible."""
    visible: Counter[bytes] = Counter()
    for queue_id in range(QUEUES):
        end = await wire.max_offset(connection, TOPIC, queue_id)
        for record in await wire.read_queue(connection, TOPIC, queue_id, start=0, end=end):
            assert record.sys_flag & 0xC == 8
            visible[record.body] += 1
    return visible


@pytest.mark.crash
@pytest.mark.parametrize("files", [KEPT, pytest.param(GONE_AT_ONCE, marks=pytest.mark.full)])
async def test_kills_neither_lose_nor_repeat_a_decision(
    tmp_path: Path, case_count: Callable[..., int], files: str
) -> None:
    transactions = case_count(quick=600, soak=100_000)
    per_kill = case_count(quick=200, soak=1_000)
    chance = random.Random(f"{SEED}/{files}")
    broker = BrokerProcess(tmp_path / "broker", {**SETTINGS, **cold_settings(files, tmp_path)})
    await broker.start()
    load = TransactionLoad(broker, f"{SEED}/{files}")
    await load.start()
    kills = 0
    try:
        while len(load.truths) < transactions or kills < KILLS_MIN:
            wanted = len(load.truths) + chance.randrange(per_kill // 4, 2 * per_kill)
            async with asyncio.timeout(wire.PATIENCE_S):
                while len(load.truths) < wanted:  # noqa: ASYNC110 - what tasks beside this one do
                    await asyncio.sleep(0.01)
            await asyncio.sleep(chance.choice((0, 0, 0.3, 1.2)))  # before and after notes are written
            await broker.kill()
            kills += 1
            await broker.start()
        await load.stop_sending()
        producers = [await load.join(number) for number in range(2)]
        # The broker's own answer first: the file of counts may be of before the kill.
        await wire.until_true(partial(are_all_decided, producers[0]))
        await until(lambda: open_count(broker) == 0, what="the file counts no open transaction")
        if files == GONE_AT_ONCE:
            await wire.patiently(lambda: wire.seal(producers[0], TOPIC))
            async with asyncio.timeout(wire.PATIENCE_S):
                while not await wire.has_let_go(producers[0]):  # noqa: ASYNC110 - what another process does
                    await asyncio.sleep(0.1)
        visible = await read_all(producers[0])
        for producer in producers:
            producer.close()
        committed = {body for body, truth in load.truths.items() if truth is Truth.COMMIT}
        assert visible.keys() == committed
        repeated = {body: count for body, count in visible.items() if count > 1}
        assert not repeated
        assert all(load.asked[body] for body in load.untold)
        assert await broker.stop() == 0
        broker.check_log()
    finally:
        await load.stop_sending()
        if broker.is_running:
            await broker.kill()


@pytest.mark.crash
async def test_an_answered_decision_survives_a_kill_at_once(tmp_path: Path, case_count: Callable[..., int]) -> None:
    """A decision that was answered is final: the broker does not check it again, and no other decision is accepted."""
    broker = BrokerProcess(tmp_path / "broker", {**SETTINGS, "transactionOpBatchInterval": "60000"})
    await broker.start()
    load = TransactionLoad(broker, f"{SEED}/answered")
    later: set[bytes] = set()
    connection = await load.join(0)
    await wire.make_topic(connection, TOPIC, queues=QUEUES)
    try:
        for round_number in range(case_count(quick=3, soak=100)):
            ends = []
            for truth in (Truth.COMMIT, Truth.ROLL_BACK) * 10:
                load.begun += 1
                end = await load.send_half(connection, f"{round_number}/{load.begun}".encode())
                end.commit_or_rollback = truth.value
                await wire.ask(connection, RequestCode.END_TRANSACTION, end)
                ends.append(end)
            await broker.kill()
            await broker.start()
            connection = await load.join(0)
            # When the producers are asked about a later one, whatever is open before it was asked about.
            load.begun += 1
            later.add(f"{round_number}/later".encode())
            await load.send_half(connection, f"{round_number}/later".encode())
            await until(lambda: later <= load.asked.keys(), what="a round of checks")
            for end in ends:
                other = Truth.ROLL_BACK if end.commit_or_rollback == Truth.COMMIT.value else Truth.COMMIT
                end.commit_or_rollback = other.value
                with pytest.raises(wire.Refused) as refused:
                    await wire.ask(connection, RequestCode.END_TRANSACTION, end)
                assert refused.value.code in (ResponseCode.ILLEGAL_OPERATION, ResponseCode.SYSTEM_ERROR)
            visible = await read_all(connection)
            assert len(visible) == 10 * (round_number + 1)
            assert set(visible.values()) == {1}
        assert load.asked.keys() == later
        connection.close()
        assert await broker.stop() == 0
        broker.check_log()
    finally:
        if broker.is_running:
            await broker.kill()
