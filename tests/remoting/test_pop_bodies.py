"""Bodies of POP consumption, as the Java classes write and read them."""

import pytest

from thermocline.remoting.bodies import (
    BatchAck,
    BatchAckMessageRequestBody,
    MessageRequestModes,
    SetMessageRequestModeRequestBody,
)
from thermocline.remoting.errors import InvalidRequestError

JAVA_BATCH = (
    b'{"acks":[{"b":"AQIAAAAAAABA","c":"g","it":60000,"pt":1000,"q":2,"r":"1","rq":3,"so":5,"t":"t"}],'
    b'"brokerName":"broker-a"}'
)
BATCH = BatchAckMessageRequestBody(
    acks=[
        BatchAck(
            bits="AQIAAAAAAABA",
            consumer_group="g",
            invisible_ms=60_000,
            pop_time_ms=1_000,
            queue_id=2,
            retry="1",
            revive_queue_id=3,
            start_offset=5,
            topic="t",
        )
    ],
    broker_name="broker-a",
)


def test_batch_acknowledgements() -> None:
    assert BATCH.encode() == JAVA_BATCH
    assert BatchAckMessageRequestBody.decode(JAVA_BATCH) == BATCH


def test_long_names_are_read_too() -> None:
    text = (
        b'{"acks":[{"bitSet":"AQIAAAAAAABA","consumerGroup":"g","invisibleTime":60000,"popTime":1000,"queueId":2,'
        b'"retry":"1","reviveQueueId":3,"startOffset":5,"topic":"t"}],"brokerName":"broker-a"}'
    )
    assert BatchAckMessageRequestBody.decode(text) == BATCH


@pytest.mark.parametrize("text", [b"[]", b'{"acks":[7]}', b'{"acks":[{"q":"x"}]}'])
def test_invalid_bodies_are_refused(text: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        BatchAckMessageRequestBody.decode(text)


def test_nothing_to_acknowledge() -> None:
    assert BatchAckMessageRequestBody.decode(b'{"brokerName":"broker-a"}').acks == []


def test_request_modes() -> None:
    mode = SetMessageRequestModeRequestBody(consumer_group="g", topic="t", pop_share_queue_num=8)
    assert mode.encode() == b'{"consumerGroup":"g","mode":"PULL","popShareQueueNum":8,"topic":"t"}'
    modes = MessageRequestModes(message_request_mode_map={"t": {"g": mode}})
    assert modes.encode() == b'{"messageRequestModeMap":{"t":{"g":%s}}}' % mode.encode()
    assert MessageRequestModes.decode(modes.encode()) == modes
