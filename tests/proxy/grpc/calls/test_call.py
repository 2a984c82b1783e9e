"""RPCs over HTTP/2: messages, deadlines, statuses, bounds, and what a bug of ours looks like to a client.

Covers `proxy/grpc/calls/status.py` and `proxy/grpc/calls/health.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import tracemalloc
from collections.abc import AsyncIterator

import pytest

from tests.proxy.http2_peer import GrpcPeer
from tests.waiting import until
from thermocline.proxy.grpc.calls import (
    GrpcStatus,
    Method,
    MethodKind,
    ReceivedBytes,
    RpcCall,
    RpcError,
    RpcService,
    health_methods,
)
from thermocline.proxy.grpc.calls.call import COMMAND_BYTES_MAX, MESSAGES_UNREAD_MAX, PREFIX
from thermocline.proxy.http2 import Http2Limits, Http2Server
from thermocline.remoting.connections import LimitCounts


class Served:
    """RPCs for the tests."""

    def __init__(self) -> None:
        self.is_ready = True
        self.cancelled = 0
        self.started = 0
        self.deadlines_ms: list[int | None] = []
        self.received = ReceivedBytes(message_bytes_max=100_000, bytes_max=150_000)
        methods = [
            Method(name="Echo", kind=MethodKind.UNARY, handle=self.echo),
            Method(name="Wait", kind=MethodKind.UNARY, handle=self.wait),
            Method(name="Refuse", kind=MethodKind.UNARY, handle=self.refuse),
            Method(name="Break", kind=MethodKind.UNARY, handle=self.break_down),
            Method(name="Count", kind=MethodKind.SERVER_STREAM, handle=self.count),
            Method(name="Talk", kind=MethodKind.BIDIRECTIONAL, handle=self.talk),
            Method(name="Deaf", kind=MethodKind.BIDIRECTIONAL, handle=self.wait),
        ]
        by_path = {f"/test/{method.name}": method for method in methods}
        self.service = RpcService(by_path | health_methods("the.Service", self.ready), self.received)
        self.server = Http2Server(self.service.open, limits=Http2Limits(), counts=LimitCounts())
        self.address = ""

    async def ready(self) -> bool:
        return self.is_ready

    async def echo(self, call: RpcCall, request: bytes) -> bytes:
        self.deadlines_ms.append(call.remaining_ms())
        return request

    async def wait(self, call: RpcCall, request: bytes) -> None:
        self.started += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def refuse(self, call: RpcCall, request: bytes) -> bytes:
        raise RpcError(GrpcStatus.INVALID_ARGUMENT, "100 % «нет»\nno")

    async def break_down(self, call: RpcCall, request: bytes) -> bytes:
        raise KeyError("a secret")

    async def count(self, call: RpcCall, request: bytes) -> None:
        for number in range(int(request)):
            await call.drain()
            call.write(b"%d" % number * 10_000)

    async def talk(self, call: RpcCall, request: bytes) -> None:
        while (message := await call.read()) is not None:
            call.write(message.upper())


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    running = Served()
    running.address = f"127.0.0.1:{await running.server.start('127.0.0.1', 0)}"
    yield running
    running.service.cancel_all()
    await running.server.close()
    assert running.received.total_bytes == 0
    assert running.service.call_count == 0


@pytest.fixture
async def peer(served: Served) -> AsyncIterator[GrpcPeer]:
    async with GrpcPeer(served.address) as connected:
        yield connected


@pytest.mark.parametrize("size", [0, 1, 16_379, 16_380, 99_999])
async def test_a_request_of_any_size_is_answered(peer: GrpcPeer, size: int) -> None:
    _, answer = peer.open("/test/Echo", b"x" * size)
    await peer.done(answer)
    assert (answer.status, answer.payloads()) == (0, [b"x" * size])
    assert answer.headers == {":status": "200", "content-type": "application/grpc"}


DEADLINES = {"2S": 2_000, "500m": 500, "1M": 60_000, "1H": 3_600_000, "7000000u": 7_000, "nonsense": None, "": None}


@pytest.mark.parametrize("text", DEADLINES)
async def test_a_deadline_is_read(served: Served, peer: GrpcPeer, text: str) -> None:
    _, answer = peer.open("/test/Echo", b"", metadata={"grpc-timeout": text}, timeout_ms=None)
    await peer.done(answer)
    (remaining_ms,) = served.deadlines_ms
    wanted_ms = DEADLINES[text]
    if wanted_ms is None:
        assert remaining_ms is None
    else:
        assert remaining_ms is not None
        assert remaining_ms <= wanted_ms


async def test_refusals_before_a_handler(peer: GrpcPeer) -> None:
    _, answer = peer.open("/test/Unknown", b"")
    assert (await peer.done(answer)).status == GrpcStatus.UNIMPLEMENTED
    _, answer = peer.open("/test/Echo", b"", metadata={"content-type": "text/html"})
    assert (await peer.done(answer)).trailers[":status"] == "415"
    _, answer = peer.open("/test/Echo", b"zipped", is_compressed=True)
    assert (await peer.done(answer)).status == GrpcStatus.UNIMPLEMENTED
    _, answer = peer.open("/test/Echo", b"x" * 100_001)
    assert (await peer.done(answer)).status == GrpcStatus.RESOURCE_EXHAUSTED
    stream_id, answer = peer.open("/test/Echo", None)
    peer._peer.send(0, 1, stream_id, b"")  # the end, and no message
    assert (await peer.done(answer)).status == GrpcStatus.INVALID_ARGUMENT
    stream_id, answer = peer.open("/test/Echo", None)
    peer._peer.send(0, 1, stream_id, b"\0\0\0\0\x05abc")  # half a message
    assert (await peer.done(answer)).status == GrpcStatus.INVALID_ARGUMENT
    stream_id, answer = peer.open("/test/Echo", b"one", ends=False)
    peer.write(stream_id, b"two", ends=True)
    assert (await peer.done(answer)).status == GrpcStatus.RESOURCE_EXHAUSTED


async def test_errors_of_handlers_are_statuses_and_a_bug_says_nothing(
    peer: GrpcPeer, caplog: pytest.LogCaptureFixture
) -> None:
    _, answer = peer.open("/test/Refuse", b"")
    await peer.done(answer)
    assert answer.status == GrpcStatus.INVALID_ARGUMENT
    assert answer.message == "100 %25 %C2%AB%D0%BD%D0%B5%D1%82%C2%BB%0Ano"
    _, answer = peer.open("/test/Break", b"")
    await peer.done(answer)
    assert (answer.status, answer.message) == (GrpcStatus.INTERNAL, "internal error, see the proxy's log")
    assert "a bug of ours" in caplog.text


async def test_a_stream_of_answers_waits_for_its_reader(peer: GrpcPeer) -> None:
    _, answer = peer.open("/test/Count", b"200")
    await peer.done(answer)
    assert answer.payloads() == [b"%d" % number * 10_000 for number in range(200)]


async def test_both_directions_go_on_beside_each_other(peer: GrpcPeer) -> None:
    stream_id, answer = peer.open("/test/Talk", b"a", ends=False)
    assert await peer.answers(answer, 1) == [b"A"]
    peer.write(stream_id, b"b", ends=True)
    await peer.done(answer)
    assert (answer.payloads(), answer.status) == ([b"A", b"B"], 0)


async def test_a_client_that_cancels_or_goes_ends_its_handler(served: Served, peer: GrpcPeer) -> None:
    stream_id, _ = peer.open("/test/Wait", b"")
    await until(lambda: served.started == 1)
    peer.cancel(stream_id)
    await until(lambda: served.cancelled == 1)
    async with GrpcPeer(served.address) as second:
        second.open("/test/Wait", b"")
        await until(lambda: served.started == 2)
    await until(lambda: served.cancelled == 2)


async def test_requests_of_all_clients_together_are_bounded(served: Served, peer: GrpcPeer) -> None:
    peer.open("/test/Wait", b"x" * 90_000)
    await until(lambda: served.started == 1)
    _, answer = peer.open("/test/Echo", b"x" * 90_000)
    assert (await peer.done(answer)).status == GrpcStatus.RESOURCE_EXHAUSTED
    _, answer = peer.open("/test/Echo", b"x" * 1_000)
    assert (await peer.done(answer)).status == GrpcStatus.OK


async def test_a_request_in_tiny_frames_takes_no_more_than_its_size(served: Served, peer: GrpcPeer) -> None:
    body = PREFIX.pack(0, 99_995) + bytes(99_995)
    stream_id, answer = peer.open("/test/Echo", None, ends=False)
    await until(lambda: served.service.call_count == 1)
    tracemalloc.start()
    try:
        for start in range(0, 90_000, 2):
            peer.write_frame(stream_id, body[start : start + 2])
        await until(lambda: served.received.total_bytes == 90_000)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 1 << 20
    peer.write_frame(stream_id, body[90_000:], ends=True)
    await peer.done(answer)
    assert answer.payloads() == [bytes(99_995)]


async def test_commands_that_are_not_read_are_bounded(peer: GrpcPeer) -> None:
    stream_id, answer = peer.open("/test/Deaf", b"x", ends=False)
    for _ in range(MESSAGES_UNREAD_MAX):
        peer.write(stream_id, b"x")
    assert (await peer.done(answer)).status == GrpcStatus.RESOURCE_EXHAUSTED
    assert COMMAND_BYTES_MAX < 130 << 20


async def test_stopping_ends_rpcs_with_a_status_that_sends_clients_elsewhere(served: Served, peer: GrpcPeer) -> None:
    _, waiting = peer.open("/test/Wait", b"")
    _, talking = peer.open("/test/Talk", b"a", ends=False)
    await until(lambda: served.service.call_count == 2)
    await served.server.stop_accepting()
    served.service.cancel_all(frozenset({MethodKind.BIDIRECTIONAL}))
    assert (await peer.done(talking)).status == GrpcStatus.UNAVAILABLE
    await served.service.wait_done(timeout_ms=50)
    assert served.service.call_count == 1
    served.service.cancel_all()
    assert (await peer.done(waiting)).status == GrpcStatus.UNAVAILABLE
    with contextlib.suppress(TimeoutError):
        await served.service.wait_done(timeout_ms=1_000)


HEALTH = "/grpc.health.v1.Health/Check"


async def test_health(served: Served, peer: GrpcPeer) -> None:
    named = b"\x0a\x0bthe.Service"
    for request, is_ready, payload in (
        (b"", False, b"\x08\x01"),
        (named, True, b"\x08\x01"),
        (named, False, b"\x08\x02"),
    ):
        served.is_ready = is_ready
        _, answer = peer.open(HEALTH, request)
        assert (await peer.done(answer)).payloads() == [payload]
    _, answer = peer.open(HEALTH, b"\x0a\x05other")
    assert (await peer.done(answer)).status == GrpcStatus.NOT_FOUND
    _, answer = peer.open(HEALTH, b"\x12")
    assert (await peer.done(answer)).status == GrpcStatus.INVALID_ARGUMENT
