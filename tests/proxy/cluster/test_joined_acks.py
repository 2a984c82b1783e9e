"""JoinedAcks: one request for those of one turn, one for each broker, topic and group; its answer is everyone's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from thermocline.proxy.cluster.joined_acks import ACKS_MAX, JoinedAcks
from thermocline.proxy.messaging import ProxyHandle
from thermocline.remoting.errors import PermissionDeniedError, UnavailableError
from thermocline.remoting.handles import ORDER_REVIVE_QUEUE_ID, ReceiptHandle, RetryFlag
from thermocline.remoting.offsets import QueueOffset


def handle_at(offset: int, *, broker_name: str = "b") -> ProxyHandle:
    receipt = ReceiptHandle(
        start_offset=QueueOffset(0),
        pop_time_ms=1,
        invisible_ms=60_000,
        revive_queue_id=0,
        retry_flag=RetryFlag.NORMAL,
        broker_name=broker_name,
        queue_id=0,
        queue_offset=QueueOffset(offset),
    )
    return ProxyHandle(receipt=receipt, physical_offset=0)


class Brokers:
    """Takes requests; the group `refused` is refused."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, list[int], int]] = []
        self.gate: asyncio.Event | None = None
        self.acks = JoinedAcks(self._send)

    async def _send(self, handles: Sequence[ProxyHandle], *, topic: str, group: str, timeout_ms: int) -> None:
        (broker_name,) = {each.receipt.broker_name for each in handles}
        offsets = [int(each.receipt.queue_offset) for each in handles]
        self.requests.append((broker_name, group, offsets, timeout_ms))
        if self.gate is not None:
            await self.gate.wait()
        if group == "refused":
            raise PermissionDeniedError("refused")

    async def ack(self, offset: int, *, broker_name: str = "b", group: str = "g", timeout_ms: int = 1_000) -> None:
        handle = handle_at(offset, broker_name=broker_name)
        await self.acks.add(handle, topic="T", group=group, timeout_ms=timeout_ms)


async def test_those_of_one_turn_are_one_request_a_broker() -> None:
    brokers = Brokers()
    await asyncio.gather(
        brokers.ack(1), brokers.ack(2, timeout_ms=3_000), brokers.ack(3, broker_name="c"), brokers.ack(4)
    )
    assert brokers.requests == [("b", "g", [1, 2, 4], 3_000), ("c", "g", [3], 1_000)]
    await brokers.ack(5)
    assert brokers.requests[2:] == [("b", "g", [5], 1_000)]


async def test_a_refusal_is_for_its_group_alone() -> None:
    brokers = Brokers()
    answers = await asyncio.gather(
        brokers.ack(1), brokers.ack(2, group="refused"), brokers.ack(3, group="refused"), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [type(None), PermissionDeniedError, PermissionDeniedError]


async def test_a_caller_that_leaves_takes_no_other_acknowledgement_with_it() -> None:
    brokers = Brokers()
    brokers.gate = asyncio.Event()
    leaving, staying = asyncio.create_task(brokers.ack(1)), asyncio.create_task(brokers.ack(2))
    while not brokers.requests:  # noqa: ASYNC110 - the loop's next turns
        await asyncio.sleep(0)
    leaving.cancel()
    brokers.gate.set()
    await staying
    assert brokers.requests == [("b", "g", [1, 2], 1_000)]


async def test_a_request_has_a_bound() -> None:
    brokers = Brokers()
    await asyncio.gather(*(brokers.ack(number) for number in range(ACKS_MAX + 1)))
    assert [len(offsets) for _, _, offsets, _ in brokers.requests] == [ACKS_MAX, 1]


async def test_a_stop_ends_what_is_under_way() -> None:
    brokers = Brokers()
    brokers.gate = asyncio.Event()
    waiting = asyncio.create_task(brokers.ack(1))
    while not brokers.requests:  # noqa: ASYNC110 - the loop's next turns
        await asyncio.sleep(0)
    await brokers.acks.close()
    with pytest.raises(UnavailableError):
        await waiting


async def test_messages_of_one_request_share_one_future_and_odd_ones_go_alone() -> None:
    """A forged handle and one of an ordered POP are answered each by itself."""
    brokers = Brokers()
    plain, more = handle_at(1), handle_at(2)
    forged = handle_at(1 << 40)
    receipt = msgspec.structs.replace(plain.receipt, revive_queue_id=ORDER_REVIVE_QUEUE_ID)
    ordered = ProxyHandle(receipt=receipt, physical_offset=0)
    answers = [
        brokers.acks.start(each, topic="T", group="g", timeout_ms=1_000) for each in (plain, forged, ordered, more)
    ]
    assert answers[0] is answers[3]
    await asyncio.wait(answers)
    assert [answer.result() for answer in answers] == [None] * 4
    assert sorted(offsets for _, _, offsets, _ in brokers.requests) == [[1], [1, 2], [1 << 40]]
