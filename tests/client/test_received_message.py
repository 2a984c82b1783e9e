"""Received messages: lazy parts, retried topics, inner batches, tags compared by text."""

from __future__ import annotations

import copy
import pickle

import pytest

from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage, decode_messages, restore_topic
from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.records.batch import BatchMessage, encode_batch
from thermocline.remoting.records.compression import compress
from thermocline.remoting.records.message_record import decode_record, encode_record
from thermocline.remoting.records.properties import encode_properties
from thermocline.remoting.records.sys_flag import INNER_BATCH, NEED_UNWRAP, CompressionType, with_compression

QUEUE = MessageQueue(topic="orders", broker_name="broker-a", queue_id=3)


def record(body: bytes = b"x", *, topic: str = "orders", sys_flag: int = 0, **properties: str) -> bytes:
    return encode_record(
        topic=topic,
        queue_id=3,
        queue_offset=7,
        physical_offset=1234,
        body=body,
        properties_text=encode_properties(properties),
        born_timestamp_ms=1_000,
        born_host=("10.0.0.1", 4711),
        store_timestamp_ms=2_000,
        store_host=("127.0.0.1", 10911),
        flag=5,
        sys_flag=sys_flag,
        reconsume_times=2,
    )


def received(data: bytes) -> ReceivedMessage:
    return ReceivedMessage(decode_record(data), queue=QUEUE)


def test_every_field_of_the_record_is_there() -> None:
    message = received(record(b"body", TAGS="paid", KEYS="a b", UNIQ_KEY="id", own="value", __SHARDINGKEY="s"))
    assert (message.body, message.tags, message.keys, message.message_id) == (b"body", "paid", "a b", "id")
    assert (message.queue_offset, message.physical_offset, message.flag, message.reconsume_times) == (7, 1234, 5, 2)
    assert (message.born_timestamp_ms, message.store_timestamp_ms) == (1_000, 2_000)
    assert (message.born_host, message.store_host) == (("10.0.0.1", 4711), ("127.0.0.1", 10911))
    assert message.properties["own"] == "value"
    assert message.sharding_key == "s"
    assert message.offset_message_id == "7F00000100002A9F00000000000004D2"
    assert "orders@broker-a:3" in repr(message)


def test_without_a_unique_id_the_brokers_counts() -> None:
    message = received(record())
    assert message.message_id == message.offset_message_id
    assert (message.tags, message.keys) == ("", "")


@pytest.mark.parametrize("compression", list(CompressionType))
def test_a_compressed_body_is_inflated(compression: CompressionType) -> None:
    data = record(compress(b"long " * 999, compression), sys_flag=with_compression(0, compression))
    assert received(data).body == b"long " * 999


def test_a_body_that_cannot_be_inflated_is_an_error() -> None:
    with pytest.raises(CorruptDataError):
        _ = received(record(b"garbage", sys_flag=with_compression(0, CompressionType.ZLIB))).body


def test_a_retried_message_gets_its_topic_back() -> None:
    message = received(record(topic="%RETRY%billing", RETRY_TOPIC="orders"))
    restore_topic(message, retry_topic="%RETRY%billing")
    assert message.topic == "orders"
    other = received(record(topic="%RETRY%audit", RETRY_TOPIC="orders"))
    restore_topic(other, retry_topic="%RETRY%billing")
    assert other.topic == "%RETRY%audit"


def test_an_inner_batch_is_taken_apart() -> None:
    inner = encode_batch([BatchMessage(b"1", b"TAGS\x01a\x02", 1), BatchMessage(b"2", b"TAGS\x01b\x02", 2)])
    data = record(b"0") + record(inner, sys_flag=INNER_BATCH | NEED_UNWRAP)
    messages = decode_messages(data, queue=QUEUE)
    assert [(m.body, m.queue_offset, m.flag) for m in messages] == [(b"0", 7, 5), (b"1", 7, 1), (b"2", 8, 2)]
    assert [m.body for m in decode_messages(data, queue=QUEUE, tags={"b"})] == [b"2"]


def test_a_damaged_pull_gives_nothing() -> None:
    data = bytearray(record(b"good") + record(b"bad"))
    data[-20] ^= 0xFF
    with pytest.raises(CorruptDataError):
        decode_messages(bytes(data[:-1]), queue=QUEUE)


def test_a_message_can_be_pickled_after_its_properties_were_read() -> None:
    """As for a pool of processes; it could before `tags` was read, and not afterwards."""
    message = received(record(b"x", TAGS="paid"))
    message.topic = "orders before the retry"
    assert message.tags == "paid"
    for other in (pickle.loads(pickle.dumps(message)), copy.copy(message)):
        assert (other.tags, other.body, other.topic) == ("paid", b"x", message.topic)
        assert (other.queue, other.record) == (message.queue, message.record)
