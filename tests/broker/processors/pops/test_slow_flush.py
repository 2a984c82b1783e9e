"""What POPs and acknowledgements hold while the flush is slow is bounded: beyond it they are refused.

Covers `broker/sends/flushed_answer.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.auth.broker_with_users import BrokerWithUsers, broker_with_users
from tests.auth.test_effects import SEND, pop_fields
from tests.waiting import until
from thermocline.auth.auth_config import AuthConfig
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.config.store_config import FlushDiskType, StoreConfig
from thermocline.store.log import PutStatus

Flushed = Callable[[PutStatus], None]

BODY_BYTES = 300_000
LIMIT = "popAnswersUnflushedBytesMax"


def pop() -> RemotingCommand:
    return RemotingCommand.request(RequestCode.POP_MESSAGE, ext_fields=pop_fields())


async def call(connection: ClientConnection, command: RemotingCommand) -> RemotingCommand:
    return await connection.call(command, timeout_ms=60_000)


async def fill(broker: BrokerWithUsers, connection: ClientConnection, count: int) -> None:
    await broker.process._parts.tables.topics.ensure("TopicA", queue_count=1)
    for _ in range(count):
        send = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, ext_fields=dict(SEND), body=b"x" * BODY_BYTES)
        assert (await call(connection, send)).code == ResponseCode.SUCCESS


def answers_in(held: list[Flushed]) -> list[Flushed]:
    """Those that an answer waits with; others show messages to pulls."""
    return [callback for callback in held if "FlushedAnswers" in callback.__qualname__]


async def test_answers_that_wait_for_the_flush_are_bounded(tmp_path: Path) -> None:
    store = StoreConfig(
        root_path=str(tmp_path / "store"),
        log_file_bytes=8 << 20,
        queue_file_bytes=20_000,
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
    )
    settings = {"pop_answers_unflushed_bytes_max": 1 << 20}
    async with broker_with_users(tmp_path, auth=AuthConfig(), store=store, **settings) as broker:
        connection = await broker.connect()
        await fill(broker, connection, 8)
        assert (await call(connection, pop())).code == ResponseCode.SUCCESS
        gate = broker.process._parts.base.store.flush
        wait, held = gate.wait, list[Flushed]()
        gate.wait = lambda _offset, callback, deadline_ms=0: held.append(callback)  # type: ignore[method-assign]
        waiting = [connection.start_call(pop(), timeout_ms=60_000) for _ in range(4)]  # more than 2**20 bytes
        await until(lambda: len(answers_in(held)) == 4, what="four answers wait for the flush")
        in_flight = broker.process._parts.pops.store.in_flight
        claimed = len(in_flight)
        refused = await call(connection, pop())
        assert refused.code == ResponseCode.POLLING_FULL
        acknowledgement = {
            "consumerGroup": "GroupA",
            "topic": "TopicA",
            "queueId": "0",
            "offset": "0",
            "extraInfo": "0 0 60000 0 0 broker-a 0 0",
        }
        for code in (RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME):
            command = RemotingCommand.request(code, ext_fields={**acknowledgement, "invisibleTime": "1"})
            assert (await call(connection, command)).code == ResponseCode.SYSTEM_BUSY
        assert len(answers_in(held)) == 4
        assert dict(broker.process._parts.base.limits.totals) == {LIMIT: 4}
        assert len(in_flight) == claimed == 5
        gate.wait = wait  # type: ignore[method-assign]
        for flushed in held:
            flushed(PutStatus.PUT_OK)
        for answer in waiting:
            assert len((await answer).body) > BODY_BYTES
        assert len((await call(connection, pop())).body) > BODY_BYTES
