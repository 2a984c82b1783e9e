"""Messages that wait when a broker ends: for their time, for the end of their transaction, for an acknowledgement.

Each life of a broker leaves some, and the next one has to deliver them: each once, none early.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.broker.popping import Popped, popped
from tests.clock import now_ms
from tests.crash import wire
from thermocline.remoting.bodies import HeartbeatData, ProducerData
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections.connection import Connection
from thermocline.remoting.handles.pop_topics import flagged_topic
from thermocline.remoting.headers.send import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
    encode_send_header,
)
from thermocline.remoting.records.message_id import decode_message_id
from thermocline.remoting.records.message_record import MessageRecord, decode_record
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

LATER, DECIDED, POPPED = "ReleaseLater", "ReleaseDecided", "ReleasePopped"
PRODUCERS, POPPERS = "release-producers", "release-poppers"
LATER_COUNT, POPPED_COUNT = 5, 6
WAIT_MS = 8_000
"""Longer than one broker takes to end and the next one to start, on a machine that is not busy."""
HOLD_MS = 600_000
DELAY_LEVEL, DELAY_MS = 3, 10_000
COMMIT, ROLL_BACK = 8, 12
NOTHING = (ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL)


@dataclass(slots=True)
class WaitingMessages:
    """What waits, over all starts of the broker."""

    due_ms: dict[bytes, int] = field(default_factory=dict)
    """Body of a delayed or timed message -> when it is due."""
    recalled: set[bytes] = field(default_factory=set)
    committed: set[bytes] = field(default_factory=set)
    open: set[bytes] = field(default_factory=set)
    """Bodies of transactions without a decision."""
    asked: Counter[bytes] = field(default_factory=Counter)
    """How often the present broker has asked about a transaction."""
    unacknowledged: set[bytes] = field(default_factory=set)

    async def prepare(self, connection: ClientConnection) -> None:
        """Make the topics, once."""
        for topic in (LATER, DECIDED, POPPED):
            await wire.make_topic(connection, topic, queues=1)

    async def leave(self, connection: ClientConnection, life: int) -> None:
        """Leave some of each kind to the next life."""
        await self._leave_transactions(connection, life)
        await self._leave_timers(connection, life)
        await self._leave_popped(connection, life)

    async def check(self, connection: ClientConnection) -> None:
        """Wait until every message of earlier starts has come; check that each came once and not early."""
        await self._check_transactions(connection.address)
        await self._check_popped(connection)
        await self._check_timers(connection)

    # -- delayed and timed ---------------------------------------------------------------------------------------------

    async def _leave_timers(self, connection: ClientConnection, life: int) -> None:
        for number in range(LATER_COUNT):
            body, due_ms = b"timed %d/%d" % (life, number), now_ms() + WAIT_MS + 300 * number
            properties = f"TIMER_DELIVER_MS\x01{due_ms}\x02"
            answer = await wire.send(connection, LATER, 0, body, properties=properties)
            if number == 1:
                assert answer.recall_handle is not None
                await wire.recall(connection, LATER, answer.recall_handle)
                self.recalled.add(body)
            else:
                self.due_ms[body] = due_ms
        body = b"delayed %d" % life
        self.due_ms[body] = now_ms() + DELAY_MS
        await wire.send(connection, LATER, 0, body, properties=f"DELAY\x01{DELAY_LEVEL}\x02")

    async def _check_timers(self, connection: ClientConnection) -> None:
        async def have_come() -> bool:
            return self.due_ms.keys() <= {record.body for record in await read_all(connection, LATER)}

        await wire.until_true(have_come)
        records = await read_all(connection, LATER)
        assert Counter(record.body for record in records) == Counter(self.due_ms.keys())
        for record in records:
            assert record.store_timestamp_ms >= self.due_ms[record.body], record.body

    # -- transactions --------------------------------------------------------------------------------------------------

    async def _leave_transactions(self, connection: ClientConnection, life: int) -> None:
        for number in range(6):
            body = b"transaction %d/%d" % (life, number)
            end = await self.send_half(connection, body)
            if number % 3 == 2:
                self.open.add(body)
                continue
            end.commit_or_rollback = COMMIT if number % 3 == 0 else ROLL_BACK
            await wire.ask(connection, RequestCode.END_TRANSACTION, end)
            if number % 3 == 0:
                self.committed.add(body)

    async def send_half(self, connection: ClientConnection, body: bytes) -> EndTransactionRequestHeader:
        """Send one; return what ends it."""
        key = body.decode().replace(" ", "-")
        header = SendMessageRequestHeader(
            producer_group=PRODUCERS,
            topic=DECIDED,
            queue_id=0,
            sys_flag=4,
            born_timestamp=now_ms(),
            properties=f"UNIQ_KEY\x01{key}\x02TRAN_MSG\x01true\x02PGROUP\x01{PRODUCERS}\x02",
        )
        code = RequestCode.SEND_MESSAGE_V2
        response = await wire.ask(connection, code, ext_fields=encode_send_header(code, header), body=body)
        answer = response.header(SendMessageResponseHeader)
        return EndTransactionRequestHeader(
            topic=DECIDED,
            producer_group=PRODUCERS,
            tran_state_table_offset=answer.queue_offset,
            commit_log_offset=decode_message_id(answer.msg_id).physical_offset,
            commit_or_rollback=0,
            msg_id=key,
            transaction_id=key,
        )

    async def _check_transactions(self, address: str) -> None:
        self.asked.clear()
        producer = await ClientConnection.open(address, handler=self)
        body = HeartbeatData(client_id="releases", producer_data_set=[ProducerData(group_name=PRODUCERS)]).encode()
        await wire.ask(producer, RequestCode.HEART_BEAT, body=body)
        expected = self.committed | self.open

        async def are_visible() -> bool:
            return expected <= {record.body for record in await read_all(producer, DECIDED)}

        await wire.until_true(are_visible)
        records = await read_all(producer, DECIDED)
        assert Counter(record.body for record in records) == Counter(expected)
        assert self.asked.keys() == self.open
        self.committed, self.open = expected, set()
        producer.close()

    def handle(self, connection: Connection, command: RemotingCommand) -> None:
        """Answer the broker's question about a transaction: it is committed."""
        assert command.code == RequestCode.CHECK_TRANSACTION_STATE
        question = command.header(CheckTransactionStateRequestHeader)
        self.asked[decode_record(command.body).body] += 1
        answer = EndTransactionRequestHeader(
            topic=question.topic,
            producer_group=PRODUCERS,
            tran_state_table_offset=question.tran_state_table_offset,
            commit_log_offset=question.commit_log_offset,
            commit_or_rollback=COMMIT,
            from_transaction_check=True,
            msg_id=question.msg_id,
            transaction_id=question.transaction_id,
        )
        connection.send(RemotingCommand.request(RequestCode.END_TRANSACTION, answer, oneway=True))

    def connection_opened(self, connection: Connection) -> None:
        """Nothing to note."""

    def connection_closed(self, connection: Connection) -> None:
        """Nothing to note."""

    # -- popped --------------------------------------------------------------------------------------------------------

    async def _leave_popped(self, connection: ClientConnection, life: int) -> None:
        for number in range(POPPED_COUNT):
            await wire.send(connection, POPPED, 0, b"popped %d/%d" % (life, number))
        taken: list[Popped] = []
        while len(taken) < POPPED_COUNT:
            taken += await pop(connection, invisible_ms=WAIT_MS)
        for message in taken[::2]:
            await acknowledge(connection, message)
        self.unacknowledged = {message.body for message in taken[1::2]}

    async def _check_popped(self, connection: ClientConnection) -> None:
        again: list[Popped] = []

        async def are_back() -> bool:
            again.extend(await pop(connection, invisible_ms=HOLD_MS))
            return len(again) >= len(self.unacknowledged)

        await wire.until_true(are_back)
        assert Counter(message.body for message in again) == Counter(self.unacknowledged)
        for message in again:
            await acknowledge(connection, message)
        assert await pop(connection, invisible_ms=HOLD_MS) == []
        self.unacknowledged = set()


async def pop(connection: ClientConnection, *, invisible_ms: int) -> list[Popped]:
    """One POP; nothing is an empty list."""
    fields = {
        "consumerGroup": POPPERS,
        "topic": POPPED,
        "queueId": "-1",
        "maxMsgNums": "32",
        "invisibleTime": str(invisible_ms),
        "pollTime": "300",
        "bornTime": str(now_ms()),
        "initMode": "0",
        "expType": "TAG",
        "exp": "*",
        "order": "false",
    }
    answer = await connection.call(
        RemotingCommand.request(RequestCode.POP_MESSAGE, ext_fields=fields), timeout_ms=wire.TIMEOUT_MS
    )
    assert answer.code == ResponseCode.SUCCESS or answer.code in (*NOTHING, *wire.TRY_AGAIN), answer
    return popped(answer) if answer.code == ResponseCode.SUCCESS else []


async def acknowledge(connection: ClientConnection, message: Popped) -> None:
    """Acknowledge a popped message; of a retry topic, too."""
    receipt = message.receipt
    fields = {
        "consumerGroup": POPPERS,
        "topic": flagged_topic(POPPED, POPPERS, receipt.retry_flag),
        "queueId": str(receipt.queue_id),
        "offset": str(receipt.queue_offset),
        "extraInfo": receipt.text(),
    }
    await wire.ask(connection, RequestCode.ACK_MESSAGE, ext_fields=fields)


async def read_all(connection: ClientConnection, topic: str) -> list[MessageRecord]:
    """Every message of the topic's queue."""
    end = await wire.max_offset(connection, topic, 0)
    return await wire.read_queue(connection, topic, 0, start=0, end=end)
