"""Who reaches a port: the warning at a start, and peers of a unix socket."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from tests.remoting.connections.test_held_bytes import ECHO, Handler
from tests.waiting import until
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import RemotingServer, is_loopback, warn_if_exposed
from thermocline.remoting.errors import ConnectionLostError

EXPOSED = "0.0.0.0:10911", "10.0.0.5:1", "[::]:9876", "[2001:db8::1]:1", "broker.example.com:1"
LOCAL = "127.0.0.1:10911", "127.0.0.2:1", "[::1]:9876", "localhost:1"


@pytest.mark.parametrize(("host", "expected"), [("127.1.2.3", True), ("::1", True), ("0.0.0.0", False), ("::", False)])
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_one_warning_names_the_ports(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    warn_if_exposed(LOCAL, authentication_enabled=False)
    warn_if_exposed(EXPOSED, authentication_enabled=True)
    assert not caplog.records
    warn_if_exposed((*LOCAL, *EXPOSED), authentication_enabled=False)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert " and ".join(EXPOSED) in record.getMessage()
    assert "authentication is off" in record.getMessage()
    assert LOCAL[0] not in record.getMessage()


async def test_a_unix_socket_serves_this_user_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A server that runs as another user refuses the peer, though the file mode admits it."""
    user = os.geteuid()
    server = RemotingServer(Handler(), user=lambda: user)
    path = str(tmp_path / "s")
    await server.start_unix(path)
    client = await ClientConnection.open(path)
    assert (await client.call(RemotingCommand.request(ECHO, body=b"x"), timeout_ms=10_000)).body == b"x"
    user += 1
    stranger = await ClientConnection.open(path)
    with pytest.raises(ConnectionLostError):
        await stranger.call(RemotingCommand.request(ECHO, body=b"x"), timeout_ms=10_000)
    await until(lambda: server.connection_count == 1)
    assert f"its process is another user's user={user - 1}" in caplog.text
    assert (await client.call(RemotingCommand.request(ECHO, body=b"y"), timeout_ms=10_000)).body == b"y"
    client.close()
    await server.close()
