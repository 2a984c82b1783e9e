"""Acknowledgements as records of the revive topic."""

import dataclasses

import pytest

from thermocline.pop.ack_record import AckRecord
from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.records.properties import decode_properties

JAVA_ACK = b'{"ao":7,"bn":"broker-a","c":"g","pt":1000,"q":1,"so":5,"t":"t"}'
JAVA_BATCH = b'{"ao":-1,"aol":[5,8],"bn":"broker-a","c":"g","pt":1000,"q":1,"so":5,"t":"t"}'
ACK = AckRecord(
    topic="t", group="g", queue_id=1, start_offset=5, pop_time_ms=1_000, broker_name="broker-a", offsets=(7,)
)
BATCH = dataclasses.replace(ACK, offsets=(5, 8))


@pytest.mark.parametrize(("record", "java"), [(ACK, JAVA_ACK), (BATCH, JAVA_BATCH)])
def test_body_as_rocketmq_writes_it(record: AckRecord, java: bytes) -> None:
    assert record.body() == java
    assert AckRecord.parse(java, broker_name="other") == record


def test_properties_as_rocketmq_writes_them() -> None:
    assert decode_properties(ACK.properties_text(revive_time_ms=61_000)) == {
        "UNIQ_KEY": "t@1@7@g@1000@broker-a@ack",
        "TAGS": "ack",
        "TIMER_DELIVER_MS": "61000",
    }
    assert BATCH.unique_key() == "t@1@[5, 8]@g@1000@bAck"
    assert BATCH.tag == "bAck"


def test_long_names_and_an_empty_broker_name() -> None:
    text = (
        b'{"ackOffset":7,"startOffset":5,"consumerGroup":"g","topic":"t","queueId":1,"popTime":1000,"brokerName":" "}'
    )
    assert AckRecord.parse(text, broker_name="broker-a") == ACK


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"c":"g","t":"t"}',
        b'{"c":"g","t":"t","ao":"x"}',
        b'{"c":"g","t":"t","ao":1,"x\xff":1}',
        b'{"c":"g","t":"t","ao":1,"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    ],
    ids=lambda body: repr(body[:64]),
)
def test_invalid_records_are_corrupt(body: bytes) -> None:
    with pytest.raises(CorruptDataError):
        AckRecord.parse(body, broker_name="b")
