"""Delivered messages: the bytes are those of protobuf's own encoder, whatever the message holds."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage
from thermocline.proxy.grpc.messages import enums, messages
from thermocline.proxy.grpc.service.delivered_message import TIME_MS_MAX, TIME_MS_MIN, encode_received, to_message
from thermocline.proxy.grpc.service.validation import RESERVED_PROPERTIES
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import RECONSUME_TIMES_MAX, MessageRecord
from thermocline.remoting.records.properties import encode_properties
from thermocline.remoting.records.sys_flag import COMPRESSED
from thermocline.remoting.socket_address import format_address

INTS = st.one_of(st.sampled_from([0, 1, -1, 127, 128]), st.integers(-(1 << 31), (1 << 31) - 1))
LONGS = st.one_of(st.sampled_from([0, 1, -1, 1_795_811_867_000]), st.integers(-(1 << 63), (1 << 63) - 1))
TEXTS = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=200)
HOSTS = st.tuples(st.sampled_from(["127.0.0.1", "::1"]), st.integers(0, 65_535))
NAMES = st.sampled_from(
    [
        "TAGS",
        "KEYS",
        "UNIQ_KEY",
        "__SHARDINGKEY",
        "TRACE_CONTEXT",
        "TRAN_MSG",
        "DELAY",
        "TIMER_DELAY_SEC",
        "TIMER_DELAY_MS",
        "__BORNHOST",
        "DLQ_ORIGIN_TOPIC",
        "DLQ_ORIGIN_MESSAGE_ID",
        "PGROUP",
        "TRACE_ON",
        "user",
    ]
)
PROPERTIES = st.dictionaries(NAMES, st.one_of(TEXTS, st.sampled_from(["true", "a b", " a  b "])), max_size=8)
RECORDS = st.builds(
    MessageRecord,
    queue_id=INTS,
    flag=INTS,
    queue_offset=LONGS.map(QueueOffset),
    physical_offset=st.integers(0, 1 << 60).map(PhysicalOffset),
    sys_flag=st.sampled_from([0, COMPRESSED]),
    born_timestamp_ms=LONGS,
    born_host=HOSTS,
    store_timestamp_ms=LONGS,
    store_host=HOSTS,
    reconsume_times=INTS,
    prepared_transaction_offset=st.just(PhysicalOffset(0)),
    body=st.binary(max_size=300),
    topic=st.just("T"),
    properties_text=st.just(b""),
    body_crc=st.just(0),
    size_bytes=st.just(0),
)


def plain(message: ReceivedMessage, *, topic: str, receipt_handle: str) -> Any:
    """The same message, built by protobuf's classes."""
    record, properties = message.record, message.properties
    system = messages.SystemProperties(
        message_id=message.message_id,
        body_encoding=enums.Encoding.GZIP if record.sys_flag else enums.Encoding.IDENTITY,
        message_type=plain_type(properties),
        born_host=properties.get("__BORNHOST") or record.born_host[0],
        store_host=format_address(*record.store_host),
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        delivery_attempt=min(message.reconsume_times + 1, RECONSUME_TIMES_MAX),
    )
    system.body_digest.type = enums.DigestType.MD5
    system.body_digest.checksum = hashlib.md5(record.body).hexdigest().upper()
    set_time(system.born_timestamp, record.born_timestamp_ms)
    set_time(system.store_timestamp, record.store_timestamp_ms)
    if message.tags:
        system.tag = message.tags
    if message.keys:
        system.keys.extend(message.keys.split(" "))
    if message.sharding_key:
        system.message_group = message.sharding_key
    if receipt_handle:
        system.receipt_handle = receipt_handle
    delivery_text = properties.get("TIMER_DELIVER_MS", "")
    if delivery_text:
        set_time(system.delivery_timestamp, int(delivery_text))
    if "TRACE_CONTEXT" in properties:
        system.trace_context = properties["TRACE_CONTEXT"]
    if "DLQ_ORIGIN_TOPIC" in properties and "DLQ_ORIGIN_MESSAGE_ID" in properties:
        system.dead_letter_queue.topic = properties["DLQ_ORIGIN_TOPIC"]
        system.dead_letter_queue.message_id = properties["DLQ_ORIGIN_MESSAGE_ID"]
    answer = messages.Message(system_properties=system, body=record.body)
    answer.topic.name = topic
    for name, value in properties.items():
        if name not in RESERVED_PROPERTIES:
            answer.user_properties[name] = value
    return answer


def plain_type(properties: Any) -> Any:
    if properties.get("TRAN_MSG") == "true":
        return enums.MessageType.TRANSACTION
    if {"DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"} & set(properties):
        return enums.MessageType.DELAY
    return enums.MessageType.FIFO if "__SHARDINGKEY" in properties else enums.MessageType.NORMAL


def set_time(field: Any, time_ms: int) -> None:
    time_ms = max(TIME_MS_MIN, min(time_ms, TIME_MS_MAX))
    field.seconds, field.nanos = time_ms // 1000, time_ms % 1000 * 1_000_000


@given(
    record=RECORDS,
    properties=PROPERTIES,
    delivery_ms=st.one_of(st.none(), st.integers(-(10**14) + 1, 10**15 - 1)),
    topic=st.sampled_from(["", "T", "t" * 200]),
    receipt_handle=st.one_of(st.just(""), TEXTS),
)
def test_a_message_has_the_bytes_that_protobuf_gives_it(
    record: MessageRecord, properties: dict[str, str], delivery_ms: int | None, topic: str, receipt_handle: str
) -> None:
    """With more than one user property the order of a map is protobuf's own, so there values are compared."""
    if delivery_ms is not None:
        properties = properties | {"TIMER_DELIVER_MS": str(delivery_ms)}
    record = msgspec.structs.replace(record, properties_text=encode_properties(properties))
    message = ReceivedMessage(record, queue=MessageQueue(topic="T", broker_name="b", queue_id=0))
    expected = plain(message, topic=topic, receipt_handle=receipt_handle)
    encoded = encode_received(message, topic=topic, receipt_handle=receipt_handle)
    decoded = messages.ReceiveMessageResponse.FromString(encoded)
    assert decoded == messages.ReceiveMessageResponse(message=expected)
    assert len(encoded) == decoded.ByteSize()
    if len(expected.user_properties) <= 1:
        assert encoded == messages.ReceiveMessageResponse(message=expected).SerializeToString()
    if not receipt_handle:
        assert to_message(message, topic=topic) == expected
