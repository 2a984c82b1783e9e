"""Traces of a proxy: kinds of messages, batches, failures, and brokers that want none."""

from __future__ import annotations

import pytest

from tests.proxy.fake_messaging import handle_at
from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage
from thermocline.client.send_result import SendStatus
from thermocline.client.trace.trace_records import (
    ConsumeOutcome,
    MessageKind,
    PublishTrace,
    SubscribeAfterTrace,
    SubscribeBeforeTrace,
    TraceRecord,
)
from thermocline.proxy.flow import Traces
from thermocline.proxy.messaging import HeldMessage, OutgoingMessage, ProxyHandle, SendOutcome, TopicType
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_id import encode_message_id
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.remoting.records.properties import encode_properties

NOW_MS = 5_000
IDS = [encode_message_id(("10.0.0.1", 10_911), PhysicalOffset(offset)) for offset in (8, 9)]


class Sink:
    def __init__(self) -> None:
        self.records: list[TraceRecord] = []
        self.traces = Traces(self, clock_ms=lambda: NOW_MS)

    def append(self, record: TraceRecord) -> None:
        self.records.append(record)


def outgoing(key: str) -> OutgoingMessage:
    text = f"UNIQ_KEY\x01{key}\x02TAGS\x01TagA\x02KEYS\x01k1 k2\x02"
    return OutgoingMessage(
        topic="T", body=b"body", properties_text=text, unique_key=key, sys_flag=0, born_timestamp_ms=0
    )


def outcome(ids: str = IDS[0], *, status: SendStatus = SendStatus.SEND_OK, is_traced: bool = True) -> SendOutcome:
    return SendOutcome(
        status=status,
        queue=MessageQueue(topic="T", broker_name="broker-a", queue_id=0),
        queue_offset=QueueOffset(0),
        transaction_id="",
        recall_handle="",
        offset_message_id=ids,
        region="r",
        is_traced=is_traced,
    )


def held(handle: ProxyHandle, **properties: str) -> HeldMessage:
    record = MessageRecord(
        topic="T",
        queue_id=1,
        flag=0,
        queue_offset=QueueOffset(7),
        physical_offset=PhysicalOffset(99),
        sys_flag=0,
        born_timestamp_ms=1,
        born_host=("10.0.0.2", 1),
        store_timestamp_ms=2,
        store_host=("10.0.0.1", 10_911),
        reconsume_times=2,
        prepared_transaction_offset=PhysicalOffset(0),
        body=b"body",
        properties_text=encode_properties({"UNIQ_KEY": "id-1", "KEYS": "k1", "MSG_REGION": "r", **properties}),
        body_crc=0,
        size_bytes=0,
    )
    queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=1)
    return HeldMessage(ReceivedMessage(record, queue=queue), handle)


@pytest.mark.parametrize(
    ("message_type", "kind"),
    [
        (TopicType.NORMAL, MessageKind.NORMAL),
        (TopicType.FIFO, MessageKind.ORDERED),
        (TopicType.DELAY, MessageKind.DELAYED),
        (TopicType.TRANSACTION, MessageKind.HALF),
    ],
)
def test_a_message_that_was_stored(message_type: TopicType, kind: MessageKind) -> None:
    sink = Sink()
    sink.traces.sent([outgoing("id-1")], outcome(), message_type=message_type, started_ms=4_990)
    assert sink.records == [
        PublishTrace(
            timestamp_ms=4_990,
            region="r",
            group="T",
            topic="T",
            message_id="id-1",
            tags="TagA",
            keys="k1 k2",
            store_host="10.0.0.1:10911",
            body_bytes=4,
            cost_ms=10,
            kind=kind,
            offset_message_id=IDS[0],
            succeeded=True,
        )
    ]


def test_a_batch_is_one_record_with_the_ids_of_its_messages() -> None:
    sink = Sink()
    stored = outcome(",".join(IDS), status=SendStatus.FLUSH_DISK_TIMEOUT)
    sink.traces.sent([outgoing("id-1"), outgoing("id-2")], stored, message_type=TopicType.NORMAL, started_ms=NOW_MS)
    (record,) = sink.records
    assert isinstance(record, PublishTrace)
    assert (record.message_id, record.tags, record.keys, record.body_bytes) == ("id-1,id-2", "", "", 8)
    assert (record.offset_message_id, record.succeeded) == (IDS[0], False)


def test_a_delivery_has_two_halves_and_each_one_its_own_request_id() -> None:
    sink = Sink()
    for pop_time_ms, ending in ((4_000, ConsumeOutcome.FAILED), (4_900, ConsumeOutcome.SUCCESS)):
        handle = handle_at(pop_time_ms)
        sink.traces.delivered([held(handle)], group="g")
        sink.traces.ended(handle, message_id="id-1", group="g", outcome=ending)
    first, failed, second, done = sink.records
    assert isinstance(first, SubscribeBeforeTrace)
    assert isinstance(failed, SubscribeAfterTrace)
    assert isinstance(second, SubscribeBeforeTrace)
    assert isinstance(done, SubscribeAfterTrace)
    assert (first.region, first.group, first.message_id, first.retry_times, first.keys) == ("r", "g", "id-1", 2, "k1")
    assert first.request_id == failed.request_id != second.request_id == done.request_id
    assert (failed.succeeded, failed.cost_ms, failed.timestamp_ms) == (False, 1_000, 4_000)
    assert (done.succeeded, done.cost_ms) == (True, 100)


def test_messages_of_a_broker_that_wants_none_have_no_traces() -> None:
    sink = Sink()
    sink.traces.sent([outgoing("id-1")], outcome(is_traced=False), message_type=TopicType.NORMAL, started_ms=NOW_MS)
    handle = handle_at(4_000)
    sink.traces.delivered([held(handle, TRACE_ON="false")], group="g")
    sink.traces.ended(handle, message_id="id-1", group="g", outcome=ConsumeOutcome.SUCCESS)
    assert sink.records == []
    sink.traces.delivered([held(handle, TRACE_ON="true")], group="g")
    sink.traces.ended(handle, message_id="id-1", group="g", outcome=ConsumeOutcome.SUCCESS)
    assert len(sink.records) == 2
