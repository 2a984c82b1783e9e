"""`thermocline proxy clients`: clients of a running proxy, in plain text and over TLS; ports that are none of a proxy.

Covers `cli/brokers/proxy_clients.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.proxy.proxy_under_test import (
    consumer_settings,
    make_topics,
    producer_settings,
    proxy_before,
)
from thermocline.cli.main import run
from thermocline.client.testing import FakeBroker
from thermocline.remoting.settings import TlsConfig


@pytest.fixture(scope="module")
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(auto_create_topics=False) as running:
        make_topics(running)
        yield running


async def shown(capsys: pytest.CaptureFixture[str], address: str, *words: str, status: int = 0) -> tuple[str, str]:
    """Stdout and stderr of the command."""
    assert await asyncio.to_thread(run, ["proxy", "clients", "--proxy", address, *words]) == status
    captured = capsys.readouterr()
    return captured.out, captured.err


async def test_clients_are_shown_as_a_table_and_for_programs(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxy_before(broker, health_port=0) as proxy:
        address = proxy.health_address
        assert "nothing to show" in (await shown(capsys, address))[1]
        for client_id, settings in (
            ("c-1", consumer_settings("billing")),
            ("p-1", producer_settings("Normal", "Fifo")),
        ):
            _, answer = await proxy.connect(settings, metadata={"x-mq-client-id": client_id})
            await proxy.peer.answers(answer, 1)
        table, _ = await shown(capsys, address)
        assert "push consumer" in table
        assert "Normal,Fifo" in table
        (row,) = json.loads((await shown(capsys, address, "--group", "billing", "--json"))[0])
        assert (row["client_id"], row["group"], row["language"], row["has_stream"]) == (
            "c-1",
            "billing",
            "PYTHON",
            True,
        )
        assert row["settings"]["subscriptions"] == {"Normal": "*"}
        monkeypatch.setattr("thermocline.proxy.proxy_health.CLIENTS_SHOWN_MAX", 1)
        assert "2 clients in all, 1 are shown" in (await shown(capsys, address))[1]
        monkeypatch.setattr("thermocline.proxy.proxy_health.NAMES_SHOWN_MAX", 1)
        assert "Normal and 1 more" in (await shown(capsys, address, "--group", "Fifo"))[0]


async def test_the_command_speaks_tls(broker: FakeBroker, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("s.pem", "s.key", subject="proxy", addresses=["127.0.0.1"])
    tls = TlsConfig(server_mode="enforcing", server_certificate_path=str(certificate), server_key_path=str(key))
    async with proxy_before(broker, health_port=0, tls=tls) as proxy:
        address, trusting = proxy.health_address, ("--tls", "--tls-ca", str(authority.path))
        assert "nothing to show" in (await shown(capsys, address, *trusting))[1]
        assert "does not answer" in (await shown(capsys, address, "--tls", status=1))[1]
        assert "does not answer" in (await shown(capsys, address, status=1))[1]


async def test_a_port_that_is_none_of_a_proxy(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    async with proxy_before(broker) as proxy:  # its gRPC port
        assert "does not answer" in (await shown(capsys, proxy.address, status=1))[1]
    assert "does not answer" in (await shown(capsys, proxy.address, status=1))[1]
    assert "not an address" in (await shown(capsys, "nowhere", status=1))[1]
