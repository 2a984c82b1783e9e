"""Requests of the crash tests, made from the codec alone: nothing of the SDK stands between a test and the broker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from thermocline.remoting.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.headers.read import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from thermocline.remoting.headers.send import (
    SendMessageRequestHeader,
    SendMessageResponseHeader,
    encode_send_header,
)
from thermocline.remoting.message_record import MessageRecord, iterate_records
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

TIMEOUT_MS = 15_000
SUBSCRIPTION_BIT = 0x4


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What an answered send promised."""

    topic: str
    queue_id: int
    queue_offset: int


def send_request(topic: str, queue_id: int, body: bytes, *, properties: str) -> RemotingCommand:
    """SEND_MESSAGE_V2 as the official producer writes it."""
    header = SendMessageRequestHeader(
        producer_group="crash",
        topic=topic,
        queue_id=queue_id,
        properties=properties,
        reconsume_times=0,
        unit_mode=False,
        batch=False,
    )
    code = RequestCode.SEND_MESSAGE_V2
    return RemotingCommand.request(code, ext_fields=encode_send_header(code, header), body=body)


async def send(
    connection: ClientConnection, topic: str, queue_id: int, body: bytes, *, properties: str = ""
) -> Acknowledged | None:
    """Send one message; None when the broker refused it."""
    response = await connection.call(send_request(topic, queue_id, body, properties=properties), timeout_ms=TIMEOUT_MS)
    if response.code != ResponseCode.SUCCESS:
        return None
    header = response.header(SendMessageResponseHeader)
    return Acknowledged(topic, header.queue_id, header.queue_offset)


async def max_offset(connection: ClientConnection, topic: str, queue_id: int) -> int:
    """The queue's end."""
    request = RemotingCommand.request(
        RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
    )
    response = await connection.call(request, timeout_ms=TIMEOUT_MS)
    assert response.code == ResponseCode.SUCCESS, response.remark
    return response.header(OffsetResponseHeader).offset


async def min_offset(connection: ClientConnection, topic: str, queue_id: int) -> int | None:
    """The queue's first offset; None when the broker asks to try again."""
    request = RemotingCommand.request(
        RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id)
    )
    response = await connection.call(request, timeout_ms=TIMEOUT_MS)
    if response.code != ResponseCode.SUCCESS:
        return None
    return response.header(OffsetResponseHeader).offset


async def pull(
    connection: ClientConnection, topic: str, queue_id: int, offset: int, *, count: int = 32
) -> tuple[int, list[MessageRecord], int]:
    """One pull: response code, records, next offset (the asked one when the answer carries none)."""
    request = RemotingCommand.request(
        RequestCode.PULL_MESSAGE,
        PullMessageRequestHeader(
            consumer_group="crash-reader",
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=SUBSCRIPTION_BIT,
            subscription="*",
            expression_type="TAG",
        ),
    )
    response = await connection.call(request, timeout_ms=TIMEOUT_MS)
    if response.code not in (
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    ):
        return response.code, [], offset
    records = list(iterate_records(response.body)) if response.code == ResponseCode.SUCCESS else []
    return response.code, records, response.header(PullMessageResponseHeader).next_begin_offset


async def read_queue(
    connection: ClientConnection, topic: str, queue_id: int, *, start: int, end: int, retries_max: int = 2_000
) -> list[MessageRecord]:
    """Every record of [start, end), in the order served; retries what asks for it, fails on anything else."""
    records: list[MessageRecord] = []
    offset, retries = start, 0
    while offset < end:
        code, found, next_offset = await pull(connection, topic, queue_id, offset)
        if code == ResponseCode.SUCCESS:
            records += found
            assert next_offset > offset
            offset = next_offset
            retries = 0
            continue
        assert code in (ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR, ResponseCode.PULL_RETRY_IMMEDIATELY), (
            f"pull at {topic}/{queue_id}/{offset} of [{start}, {end}): code {code}, next {next_offset}"
        )
        retries += 1
        assert retries <= retries_max, f"{topic}/{queue_id}/{offset} was never served"
        await asyncio.sleep(0.02)
    return records
