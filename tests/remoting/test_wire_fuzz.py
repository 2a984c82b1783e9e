"""The codec and a bare server under `wire_fuzz`'s cases: typed errors only, honest clients unaffected, memory flat."""

import asyncio
import contextlib
import gc
import logging
from collections.abc import Awaitable, Callable

import pytest

from tests.remoting.wire_fuzz import FuzzCases, Outcome, throw
from thermocline.remoting import bodies, headers
from thermocline.remoting.clients.client import RemotingClient
from thermocline.remoting.command import RemotingCommand, decode_command
from thermocline.remoting.connections.connection import Connection
from thermocline.remoting.connections.server import RemotingServer
from thermocline.remoting.errors import MQError
from thermocline.remoting.frames import INCOMPLETE_FRAME, LENGTH, frame_end
from thermocline.remoting.header_codec import Header
from thermocline.remoting.headers import SEND_V2_CODES, decode_send_header
from thermocline.remoting.json_dialect import loads
from thermocline.remoting.records.batch import decode_batch

PROBE_CODE = 99_999

HEADER_TYPES = [
    value
    for value in (getattr(headers, name) for name in headers.__all__)
    if isinstance(value, type) and issubclass(value, Header)
]
BODY_TYPES = [
    value
    for value in (getattr(bodies, name) for name in bodies.__all__)
    if isinstance(value, type) and issubclass(value, bodies.Body)
]


def read_all_of(command: RemotingCommand) -> None:
    """Read a command in every way that some processor would; MQError is the only error that may come of it."""
    body = bytes(command.body)
    index = abs(command.code)
    attempts: list[Callable[[], object]] = [
        lambda: command.header(HEADER_TYPES[index % len(HEADER_TYPES)]),
        lambda: decode_send_header(command.code, command.ext_fields),
        lambda: decode_send_header(min(SEND_V2_CODES), command.ext_fields),
        lambda: decode_batch(body),
        lambda: loads(body),
        lambda: BODY_TYPES[index % len(BODY_TYPES)].decode(body),
        lambda: bodies.RegisterBrokerBody.decode_compressed(body),
    ]
    for attempt in attempts:
        with contextlib.suppress(MQError):
            attempt()


@pytest.mark.parametrize("seed", range(4))
def test_codec_raises_typed_errors_only(seed: int, case_count: Callable[..., int]) -> None:
    """Bytes in, values or an MQError out; whatever could be decoded can be encoded and means the same again."""
    for case in FuzzCases(seed=seed).generate(case_count(quick=400, soak=25_000)):
        frames, position = [], 0
        with contextlib.suppress(MQError):
            while (end := frame_end(case.data, position)) != INCOMPLETE_FRAME:
                frames.append(case.data[position + LENGTH.size : end])
                position = end
        for frame in frames:
            try:
                command = decode_command(frame)
            except MQError:
                assert case.outcome is not Outcome.ANSWER, case
                continue
            assert decode_command(command.encode()[4:]) == command
            read_all_of(command)


class ReadEverything:
    """A server that reads all it gets and answers with nothing in it."""

    def handle(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """Some requests at once, some later, some with an error."""
        if command.code == PROBE_CODE:
            return RemotingCommand.response(command, body=bytes(command.body))
        if command.code % 3 == 0:
            return self._later(command)
        read_all_of(command)
        command.header(HEADER_TYPES[abs(command.code) % len(HEADER_TYPES)])
        return RemotingCommand.response(command)

    async def _later(self, command: RemotingCommand) -> RemotingCommand:
        await asyncio.sleep(0)
        read_all_of(command)
        return RemotingCommand.response(command)

    def __init__(self) -> None:
        self.connections = 0
        self.nearly_alone = asyncio.Event()

    def connection_opened(self, connection: Connection) -> None:
        """Count it."""
        self.connections += 1
        self.nearly_alone.clear()

    def connection_closed(self, connection: Connection) -> None:
        """Count it."""
        self.connections -= 1
        if self.connections <= 1:
            self.nearly_alone.set()


async def test_server_survives(case_count: Callable[..., int], caplog: pytest.LogCaptureFixture) -> None:
    """Every hostile peer gets an answer or a close; honest ones are served meanwhile; nothing is left behind."""
    caplog.set_level(logging.ERROR)
    handler = ReadEverything()
    server = RemotingServer(handler)
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    async with RemotingClient() as honest:

        async def probe() -> None:
            request = RemotingCommand.request(PROBE_CODE, body=b"honest")
            answer = await honest.request(address, request, timeout_ms=10_000)
            assert answer.body == b"honest"

        await probe()
        gc.collect()
        objects_before = len(gc.get_objects())
        report = await throw(
            address, FuzzCases(seed=20), count=case_count(quick=1_200, soak=100_000), probe=probe, probe_every=100
        )
        assert not report.violations, report.violations[:5]
        assert report.answered
        assert report.closed
        assert not caplog.records, "a hostile peer caused what we take for a bug of ours"
        async with asyncio.timeout(10):
            await handler.nearly_alone.wait()  # resets are on their way
        gc.collect()
        assert len(gc.get_objects()) < objects_before + 5_000
    await server.close()
    assert server.connection_count == 0


def test_cases_repeat() -> None:
    """A seed replays a failure."""
    assert list(FuzzCases(seed=3).generate(50)) == list(FuzzCases(seed=3).generate(50))
    assert list(FuzzCases(seed=3).generate(50)) != list(FuzzCases(seed=4).generate(50))
