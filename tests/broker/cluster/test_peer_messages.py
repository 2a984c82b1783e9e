"""One message of another broker: found, gone, or unknown for now."""

from __future__ import annotations

from typing import Any

import pytest

from tests.store.store_parts import draft
from thermocline.broker.cluster import read_peer_message
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import MQError
from thermocline.remoting.headers.read import PullMessageRequestHeader, PullMessageResponseHeader
from thermocline.remoting.records.message_record import encode_record
from thermocline.remoting.response_code import ResponseCode

OFFSET = 7


def record(queue_offset: int) -> bytes:
    message = draft(topic="orders", body=b"body")
    return encode_record(
        topic=message.topic,
        queue_id=3,
        queue_offset=queue_offset,
        physical_offset=100,
        body=message.body,
        properties_text=b"",
        born_timestamp_ms=1,
        born_host=("10.0.0.2", 4000),
        store_timestamp_ms=2,
        store_host=("10.0.0.3", 10911),
        flag=0,
        sys_flag=0,
        reconsume_times=0,
        prepared_transaction_offset=0,
    )


class Peers:
    """Stands for another broker, with one answer."""

    def __init__(self, code: int, *, next_offset: int = OFFSET, body: bytes = b"") -> None:
        self._code = code
        self._header = PullMessageResponseHeader(
            suggest_which_broker_id=0, next_begin_offset=next_offset, min_offset=0, max_offset=99
        )
        self._body = body

    async def call(
        self, broker_name: str, command: RemotingCommand, *, timeout_ms: int, or_slave: bool
    ) -> RemotingCommand:
        header = command.header(PullMessageRequestHeader)
        assert (broker_name, or_slave) == ("broker-a", True)
        assert (header.topic, header.queue_id, header.queue_offset, header.max_msg_nums) == ("orders", 3, OFFSET, 1)
        assert (header.consumer_group, header.subscription) == ("group", "*")
        return RemotingCommand.response(command, self._code, header=self._header, body=self._body)


async def read(peers: Any) -> bytes | None:
    found = await read_peer_message(peers, "broker-a", "orders", 3, OFFSET, group="group")
    return None if found is None else found.body


async def test_the_message_at_the_offset() -> None:
    assert await read(Peers(ResponseCode.SUCCESS, body=record(OFFSET))) == b"body"


@pytest.mark.parametrize(
    "peers",
    [
        Peers(ResponseCode.SUCCESS, body=record(OFFSET + 1)),
        Peers(ResponseCode.PULL_OFFSET_MOVED, next_offset=OFFSET + 20),
        Peers(ResponseCode.PULL_RETRY_IMMEDIATELY, next_offset=OFFSET + 1),
        Peers(ResponseCode.TOPIC_NOT_EXIST),
    ],
)
async def test_one_that_is_gone(peers: Peers) -> None:
    assert await read(peers) is None


@pytest.mark.parametrize(
    "peers",
    [
        Peers(ResponseCode.SUCCESS),
        Peers(ResponseCode.SUCCESS, body=record(OFFSET - 1)),
        Peers(ResponseCode.PULL_OFFSET_MOVED, next_offset=2),
        Peers(ResponseCode.PULL_RETRY_IMMEDIATELY),
        Peers(ResponseCode.PULL_NOT_FOUND),
        Peers(ResponseCode.SYSTEM_BUSY),
    ],
)
async def test_one_that_the_broker_cannot_tell_now(peers: Peers) -> None:
    """It may have it later: a slave that lags, a master that starts."""
    with pytest.raises(MQError):
        await read(peers)
