"""Receipt handles that no broker gave out: they are answered one by one, whatever else is acknowledged with them.

Covers `proxy/cluster/joined_acks.py` and `proxy/grpc/service/acknowledging.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from tests.proxy.proxy_under_test import GROUP, make_topics, message, proxy_before, resource, send_request
from thermocline.client.testing import FakeBroker
from thermocline.proxy.cluster.joined_acks import DISTANCE_MAX, is_joinable
from thermocline.proxy.grpc.messages import Code, messages
from thermocline.proxy.messaging import ProxyHandle
from thermocline.remoting.handles import ReceiptHandle
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(auto_create_topics=False) as running:
        make_topics(running)
        yield running


def forged(**fields: int) -> str:
    """A handle whose time is not over."""
    values = {
        "start_offset": 0,
        "pop_time_ms": int(time.time() * 1_000),
        "invisible_ms": 60_000,
        "revive_queue_id": 0,
        "retry_flag": 0,
        "queue_id": 0,
        "queue_offset": 0,
        **fields,
    }
    return ProxyHandle(receipt=ReceiptHandle(broker_name="broker-a", **values), physical_offset=0).text()


FORGED = {
    "a bit set of a terabyte": forged(queue_offset=10**13),
    "a message before its check point": forged(start_offset=7, queue_offset=3),
    "an offset that is no long": forged(start_offset=10**30, queue_offset=10**30),
    "a time that is no long": forged(pop_time_ms=10**30),
    "a queue id that is no int": forged(queue_id=10**10),
    "a revive queue id that is no int": forged(revive_queue_id=10**10),
    "an unknown retry flag": forged(retry_flag=7),
}


@pytest.mark.parametrize("name", FORGED)
async def test_a_forged_handle_keeps_no_other_from_being_acknowledged(broker: FakeBroker, name: str) -> None:
    async with proxy_before(broker) as proxy:
        for number in range(3):
            await proxy.call("SendMessage", send_request(message(message_id=f"{number:034}")))
        frames = await proxy.receive()
        held = [each.message.system_properties for each in frames if each.WhichOneof("content") == "message"]
        entries = [
            messages.AckMessageEntry(message_id=each.message_id, receipt_handle=each.receipt_handle) for each in held
        ]
        entries.insert(1, messages.AckMessageEntry(message_id="x", receipt_handle=FORGED[name]))
        request = messages.AckMessageRequest(group=resource(GROUP), topic=resource("Normal"), entries=entries)
        answer = await proxy.call("AckMessage", request)
        codes = [each.status.code for each in answer.entries]
        assert [codes[0], *codes[2:]] == [Code.OK] * 3
        assert "bug of ours" not in answer.entries[1].status.message
        assert len(broker.requests(RequestCode.BATCH_ACK_MESSAGE)) == 1


def test_handles_of_brokers_are_joined() -> None:
    for distance in (0, 31, DISTANCE_MAX - 1):
        receipt = ProxyHandle.parse(forged(start_offset=5, queue_offset=5 + distance)).receipt
        assert is_joinable(receipt)
        assert receipt.start_offset == QueueOffset(5)
    assert not is_joinable(ProxyHandle.parse(forged(queue_offset=DISTANCE_MAX)).receipt)


async def test_no_other_message_goes_to_the_dead_letters(broker: FakeBroker) -> None:
    async with proxy_before(broker) as proxy:
        await proxy.call("SendMessage", send_request(message("Fifo", body=b"secret", message_group="g")))
        await proxy.call("SendMessage", send_request(message("Normal")))
        (secret,) = broker.messages("Fifo")
        frames = await proxy.receive()
        (own,) = [each.message.system_properties for each in frames if each.WhichOneof("content") == "message"]
        *handle, _ = own.receipt_handle.split(" ")
        forward = messages.ForwardMessageToDeadLetterQueueRequest(
            group=resource(GROUP), topic=resource("Normal"), message_id=own.message_id
        )
        there = int(secret.physical_offset)
        codes = {
            there: Code.INVALID_RECEIPT_HANDLE,
            **dict.fromkeys((there + 1, 1 << 40, 1 << 66), Code.INTERNAL_SERVER_ERROR),
        }
        for offset, code in codes.items():
            forward.receipt_handle = " ".join([*handle, str(offset)])
            answer = await proxy.call("ForwardMessageToDeadLetterQueue", forward)
            assert answer.status.code == code, offset
            assert "bug of ours" not in answer.status.message
        assert broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK) == []
        forward.receipt_handle = own.receipt_handle
        assert (await proxy.call("ForwardMessageToDeadLetterQueue", forward)).status.code == Code.OK
        assert [each.body for each in broker.messages(f"%DLQ%{GROUP}")] == [b"body"]


async def test_a_proxy_that_may_not_look_forwards_all_the_same(broker: FakeBroker) -> None:
    async with proxy_before(broker) as proxy:
        await proxy.call("SendMessage", send_request(message("Normal")))
        frames = await proxy.receive()
        (own,) = [each.message.system_properties for each in frames if each.WhichOneof("content") == "message"]
        code, refused = RequestCode.VIEW_MESSAGE_BY_ID, ResponseCode.NO_PERMISSION
        await asyncio.to_thread(broker.refuse, code, response_code=refused)
        forward = messages.ForwardMessageToDeadLetterQueueRequest(
            group=resource(GROUP),
            topic=resource("Normal"),
            message_id=own.message_id,
            receipt_handle=own.receipt_handle,
        )
        assert (await proxy.call("ForwardMessageToDeadLetterQueue", forward)).status.code == Code.OK
        assert len(broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)) == 1
