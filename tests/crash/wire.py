"""Requests of the crash and boundary tests, made from the codec alone: nothing of the SDK stands between a test and the
broker. Each call is one exchange; what a broker refuses is a `Refused`, so that a test says which refusals it expects.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from thermocline.broker.port.late_handler import STARTING
from thermocline.remoting.bodies import SubscriptionGroupConfig
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.header_codec import Header, encode_header
from thermocline.remoting.headers.broker import CreateTopicRequestHeader, DeleteTopicRequestHeader
from thermocline.remoting.headers.read import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryMessageRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from thermocline.remoting.headers.send import (
    RecallMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
    encode_send_header,
)
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.records.batch import BatchMessage, encode_batch
from thermocline.remoting.records.message_id import decode_message_id
from thermocline.remoting.records.message_record import MessageRecord, iterate_records
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

Result = TypeVar("Result")

PATIENCE_S = 240.0
"""How long something may be away: on a busy machine a niced helper process takes minutes to start."""
TIMEOUT_MS = 15_000
SEAL_TIMEOUT_MS = 240_000
SUSPEND_BIT = 0x2
SUBSCRIPTION_BIT = 0x4
END_OF_TIME_MS = 1 << 60

TRY_AGAIN = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
    }
)
"""Answers to a pull upon which official clients ask again at the same offset, or at the one in the answer."""


class Refused(Exception):  # noqa: N818 - an answer, not a failure of ours
    """The broker answered with a code other than success."""

    def __init__(self, code: int, remark: str | None) -> None:
        super().__init__(f"{code}: {remark}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What an answered send promised; the offset of the first message of a batch, one place in the log for each."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offsets: tuple[int, ...]
    recall_handle: str | None = None


@dataclass(frozen=True, slots=True)
class Pulled:
    """The answer to one pull."""

    code: int
    records: list[MessageRecord]
    next_offset: int
    remark: str = ""
    body: bytes = b""
    """The records, encoded."""


async def ask(
    connection: ClientConnection,
    code: int,
    header: Header | None = None,
    *,
    ext_fields: dict[str, str] | None = None,
    body: bytes = b"",
    timeout_ms: int = TIMEOUT_MS,
) -> RemotingCommand:
    """One exchange.

    Raises:
        Refused: The answer is no success.
        UnavailableError: The connection is lost, no answer came, or the broker is not there yet.
    """
    fields = {**(encode_header(header) if header is not None else {}), **(ext_fields or {})}
    command = RemotingCommand.request(code, ext_fields=fields, body=body)
    response = await connection.call(command, timeout_ms=timeout_ms)
    if STARTING in (response.remark or ""):
        raise UnavailableError(STARTING)
    if response.code != ResponseCode.SUCCESS:
        raise Refused(response.code, response.remark)
    return response


async def patiently(call: Callable[[], Awaitable[Result]], *, timeout_s: float = PATIENCE_S) -> Result:
    """Repeat a call while the broker answers busy: a helper process may not have the answer yet."""
    async with asyncio.timeout(timeout_s):
        while True:
            try:
                return await call()
            except Refused as refused:
                if refused.code not in TRY_AGAIN:
                    raise
            await asyncio.sleep(0.05)


async def until_true(is_true: Callable[[], Awaitable[bool]], *, timeout_s: float = PATIENCE_S) -> None:
    """Look again and again until it is so."""
    async with asyncio.timeout(timeout_s):
        while True:
            if await is_true():
                return
            await asyncio.sleep(0.03)


# -- sending -----------------------------------------------------------------------------------------------------------


async def send(
    connection: ClientConnection, topic: str, queue_id: int, body: bytes, *, properties: str = ""
) -> Acknowledged:
    """SEND_MESSAGE_V2 of one message, as the official producer writes it. Raises as `ask`."""
    return await _send(connection, RequestCode.SEND_MESSAGE_V2, topic, queue_id, body, properties, is_batch=False)


async def send_batch(
    connection: ClientConnection, topic: str, queue_id: int, messages: Sequence[tuple[bytes, str]]
) -> Acknowledged:
    """SEND_BATCH_MESSAGE of bodies with their properties. Raises as `ask`."""
    body = encode_batch([BatchMessage(body, properties.encode()) for body, properties in messages])
    return await _send(connection, RequestCode.SEND_BATCH_MESSAGE, topic, queue_id, body, "", is_batch=True)


async def _send(
    connection: ClientConnection,
    code: RequestCode,
    topic: str,
    queue_id: int,
    body: bytes,
    properties: str,
    *,
    is_batch: bool,
) -> Acknowledged:
    header = SendMessageRequestHeader(
        producer_group="crash",
        topic=topic,
        queue_id=queue_id,
        properties=properties,
        reconsume_times=0,
        unit_mode=False,
        batch=is_batch,
    )
    response = await ask(connection, code, ext_fields=encode_send_header(code, header), body=body)
    answer = response.header(SendMessageResponseHeader)
    places = tuple(decode_message_id(text).physical_offset for text in answer.msg_id.split(","))
    return Acknowledged(topic, answer.queue_id, answer.queue_offset, places, answer.recall_handle)


async def recall(connection: ClientConnection, topic: str, handle: str) -> None:
    """RECALL_MESSAGE. Raises as `ask`."""
    await ask(connection, RequestCode.RECALL_MESSAGE, RecallMessageRequestHeader(topic=topic, recall_handle=handle))


# -- topics and the cold tier ------------------------------------------------------------------------------------------


async def make_topic(connection: ClientConnection, topic: str, *, queues: int, ttl_ms: int | None = None) -> None:
    """Make a topic; durable on return. Raises as `ask`."""
    attributes = None if ttl_ms is None else f"+thermocline.ttl.ms={ttl_ms}"
    header = CreateTopicRequestHeader(
        topic=topic, read_queue_nums=queues, write_queue_nums=queues, attributes=attributes
    )
    await ask(connection, RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def make_group(connection: ClientConnection, group: str) -> None:
    """Set up a consumer group; durable on return."""
    body = SubscriptionGroupConfig(group_name=group).encode()
    await ask(connection, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


async def delete_topic(connection: ClientConnection, topic: str) -> None:
    """Delete a topic; durable on return. Raises as `ask`."""
    await ask(connection, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))


async def set_ttl(connection: ClientConnection, topic: str, ttl_ms: int) -> None:
    """Give a topic another time to live; 0 keeps messages for ever. Raises as `ask`."""
    await ask(connection, PrivateRequestCode.TTL_SET, ext_fields={"topic": topic, "ttlMs": str(ttl_ms)})


async def seal(connection: ClientConnection, topic: str | None = None) -> list[dict[str, Any]]:
    """Commit everything that is stored now to the cold tier; the segments that were. Raises as `ask`."""
    fields = {} if topic is None else {"topic": topic}
    response = await ask(connection, PrivateRequestCode.TIER_SEAL, ext_fields=fields, timeout_ms=SEAL_TIMEOUT_MS)
    segments: list[dict[str, Any]] = json.loads(bytes(response.body))["segments"]
    return segments


async def purge(connection: ClientConnection, topic: str) -> dict[str, Any]:
    """Delete from the bucket now what is hidden of a topic; what was done. Raises as `ask`."""
    fields = {"topic": topic}
    response = await ask(connection, PrivateRequestCode.TIER_PURGE, ext_fields=fields, timeout_ms=SEAL_TIMEOUT_MS)
    report: dict[str, Any] = json.loads(bytes(response.body))
    return report


async def tier_status(connection: ClientConnection) -> dict[str, Any]:
    """What the broker and its tier process know of each queue. Raises as `ask`."""
    response = await ask(connection, PrivateRequestCode.TIER_STATUS)
    status: dict[str, Any] = json.loads(bytes(response.body))
    return status


async def run_retention(connection: ClientConnection) -> None:
    """Have the broker delete the local files that it may delete now; returns after that round. Raises as `ask`."""
    await ask(connection, RequestCode.DELETE_EXPIRED_COMMITLOG)


async def has_let_go(connection: ClientConnection, topic: str | None = None) -> bool:
    """Whether messages (of one topic) lie in the cold tier alone, as their log files have gone. Raises as `ask`."""
    topics = (await tier_status(connection))["topics"]
    queues = [queue for each in topics if topic in (None, each["topic"]) for queue in each["queues"]]
    return any(queue["localMin"] > 0 for queue in queues)


# -- offsets and times -------------------------------------------------------------------------------------------------


async def max_offset(connection: ClientConnection, topic: str, queue_id: int) -> int:
    """The queue's end. Raises as `ask`."""
    response = await ask(
        connection, RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
    )
    return response.header(OffsetResponseHeader).offset


async def min_offset(connection: ClientConnection, topic: str, queue_id: int) -> int:
    """The queue's first offset. Raises as `ask`."""
    response = await ask(
        connection, RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id)
    )
    return response.header(OffsetResponseHeader).offset


async def earliest_time_ms(connection: ClientConnection, topic: str, queue_id: int) -> int:
    """The store time of the queue's first message, -1 without one. Raises as `ask`."""
    header = GetEarliestMsgStoretimeRequestHeader(topic=topic, queue_id=queue_id)
    response = await ask(connection, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
    return response.header(GetEarliestMsgStoretimeResponseHeader).timestamp


async def offset_by_time(
    connection: ClientConnection, topic: str, queue_id: int, timestamp_ms: int, boundary: str
) -> int:
    """An offset by store time; `boundary` is lower or upper. Raises as `ask`."""
    header = SearchOffsetRequestHeader(topic=topic, queue_id=queue_id, timestamp=timestamp_ms, boundary_type=boundary)
    response = await ask(connection, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
    return response.header(OffsetResponseHeader).offset


async def commit_offset(connection: ClientConnection, group: str, topic: str, queue_id: int, offset: int) -> None:
    """Store a group's offset. Raises as `ask`."""
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
    )
    await ask(connection, RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def consumer_offset(connection: ClientConnection, group: str, topic: str, queue_id: int) -> int | None:
    """A group's offset; None when it has none. Raises as `ask`."""
    header = QueryConsumerOffsetRequestHeader(consumer_group=group, topic=topic, queue_id=queue_id)
    try:
        response = await ask(connection, RequestCode.QUERY_CONSUMER_OFFSET, header)
    except Refused as refused:
        if refused.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        raise
    return response.header(OffsetResponseHeader).offset


# -- messages ----------------------------------------------------------------------------------------------------------


async def query_key(connection: ClientConnection, topic: str, key: str, *, count_max: int = 64) -> list[MessageRecord]:
    """Messages of a topic that have a key, newest first. Raises as `ask`, but for "none": that is an empty list."""
    return list(iterate_records(await query_key_body(connection, topic, key, count_max=count_max)))


async def query_key_body(connection: ClientConnection, topic: str, key: str, *, count_max: int = 64) -> bytes:
    """The same, as encoded records on end."""
    header = QueryMessageRequestHeader(
        topic=topic, key=key, max_num=count_max, begin_timestamp=0, end_timestamp=END_OF_TIME_MS, index_type="K"
    )
    try:
        response = await ask(connection, RequestCode.QUERY_MESSAGE, header)
    except Refused as refused:
        if refused.code == ResponseCode.QUERY_NOT_FOUND:
            return b""
        raise
    return bytes(response.body)


async def view(connection: ClientConnection, physical_offset: int) -> MessageRecord:
    """The message at a place in the log. Raises as `ask`."""
    return next(iter(iterate_records(await view_body(connection, physical_offset))))


async def view_body(connection: ClientConnection, physical_offset: int) -> bytes:
    """The same, as an encoded record."""
    response = await ask(connection, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=physical_offset))
    return bytes(response.body)


async def pull(
    connection: ClientConnection,
    topic: str,
    queue_id: int,
    offset: int,
    *,
    count: int = 32,
    subscription: str = "*",
    expression_type: str = "TAG",
    group: str = "crash-reader",
    suspend_ms: int = 0,
) -> Pulled:
    """One pull, which may wait at the queue's end. Without a next offset in the answer it is the requested one."""
    request = RemotingCommand.request(
        RequestCode.PULL_MESSAGE,
        PullMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=SUBSCRIPTION_BIT | (SUSPEND_BIT if suspend_ms else 0),
            suspend_timeout_millis=suspend_ms,
            subscription=subscription,
            expression_type=expression_type,
        ),
    )
    response = await connection.call(request, timeout_ms=TIMEOUT_MS)
    if response.code not in (
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    ):
        return Pulled(response.code, [], offset, response.remark or "")
    body = bytes(response.body) if response.code == ResponseCode.SUCCESS else b""
    next_offset = response.header(PullMessageResponseHeader).next_begin_offset
    return Pulled(response.code, list(iterate_records(body)), next_offset, body=body)


async def read_queue(
    connection: ClientConnection,
    topic: str,
    queue_id: int,
    *,
    start: int,
    end: int,
    deadline_s: float = PATIENCE_S,
) -> list[MessageRecord]:
    """Every record of [start, end), in the order served; asks again where official clients would.

    Fails on everything else, "offset moved" foremost, and when one offset is not served before the deadline.
    """
    records: list[MessageRecord] = []
    offset = start
    loop = asyncio.get_running_loop()
    deadline = loop.time() + deadline_s
    while offset < end:
        pulled = await pull(connection, topic, queue_id, offset)
        if pulled.code == ResponseCode.SUCCESS or (
            pulled.code == ResponseCode.PULL_RETRY_IMMEDIATELY and pulled.next_offset > offset
        ):
            records += pulled.records
            assert pulled.next_offset > offset
            offset = pulled.next_offset
            deadline = loop.time() + deadline_s
            continue
        assert pulled.code in TRY_AGAIN, (
            f"pull at {topic}/{queue_id}/{offset} of [{start}, {end}): code {pulled.code}, next {pulled.next_offset}"
        )
        assert loop.time() < deadline, f"{topic}/{queue_id}/{offset} was never served: code {pulled.code}"
        await asyncio.sleep(0.02)
    return records
