"""Delivered messages: one object is filled in for all of them; the values are in test_conversion.py."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage
from thermocline.proxy.grpc.messages import messages
from thermocline.proxy.grpc.service.delivered_message import encode_received, to_message
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.remoting.records.properties import encode_properties
from thermocline.remoting.records.sys_flag import COMPRESSED

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
    reconsume_times=st.integers(0, (1 << 31) - 1),
    prepared_transaction_offset=st.just(PhysicalOffset(0)),
    body=st.binary(max_size=300),
    topic=st.just("T"),
    properties_text=st.just(b""),
    body_crc=st.just(0),
    size_bytes=st.just(0),
)


@given(
    records=st.lists(RECORDS, min_size=2, max_size=4),
    properties=st.lists(PROPERTIES, min_size=4, max_size=4),
    delivery_ms=st.one_of(st.none(), st.integers(-(10**14) + 1, 10**15 - 1)),
    topic=st.sampled_from(["", "T", "t" * 200]),
    receipt_handle=st.one_of(st.just(""), TEXTS),
)
def test_nothing_of_a_message_is_left_in_the_next_one(
    records: list[MessageRecord],
    properties: list[dict[str, str]],
    delivery_ms: int | None,
    topic: str,
    receipt_handle: str,
) -> None:
    for record, own in zip(records, properties, strict=False):
        if delivery_ms is not None:
            own = own | {"TIMER_DELIVER_MS": str(delivery_ms)}
            delivery_ms = None
        record = msgspec.structs.replace(record, properties_text=encode_properties(own))
        message = ReceivedMessage(record, queue=MessageQueue(topic="T", broker_name="b", queue_id=0))
        expected = messages.ReceiveMessageResponse(message=to_message(message, topic=topic))
        expected.message.system_properties.receipt_handle = receipt_handle
        encoded = encode_received(message, topic=topic, receipt_handle=receipt_handle)
        assert messages.ReceiveMessageResponse.FromString(encoded) == expected
