"""The SDK's list of NameServers while it runs: what an address server and a name say; real NameServers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.address_server import address_server, name_zone
from tests.broker.cluster.test_name_server_list import running_broker
from tests.broker.cluster.test_registration import name_server
from tests.cli.shell import Shell
from tests.waiting import until
from thermocline.client import AsyncAdminClient, Message, Producer, UnavailableError
from thermocline.client.testing import FakeBroker

SOON_MS = 20


async def until_asked(admin: AsyncAdminClient, address: str) -> None:
    """Until the client has these NameServers; every call on the way succeeds."""
    async with asyncio.timeout(10):
        while tuple(await admin.namesrv_config()) != (address,):
            assert await admin.list_topics(include_system=True)
            await asyncio.sleep(0.005)


async def test_an_address_server_is_followed(tmp_path: Path) -> None:
    """One NameServer after another; no call fails, though the one before is gone."""
    async with name_server() as (_, second_address):
        with address_server() as server:
            async with (
                name_server() as (first, first_address),
                running_broker(tmp_path, name_server_addresses=f"{first_address};{second_address}") as broker,
            ):
                await broker.parts.cluster.registration.wait_registered()
                server.text = first_address
                async with AsyncAdminClient(namesrv=server.url, poll_name_server_interval_ms=SOON_MS) as admin:
                    await until_asked(admin, first_address)
                    server.text = second_address
                    await until_asked(admin, second_address)
                    await first.close()
                    assert await admin.list_topics(include_system=True)
                    server.status = 500
                    asked = len(server.paths)
                    await until(lambda: len(server.paths) >= asked + 3)
                    assert await admin.list_topics(include_system=True)  # no answer changes nothing


async def test_a_name_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zone = {"namesrv.test": ["127.0.0.3"]}
    name_zone(monkeypatch, zone)
    async with name_server() as (_, address), running_broker(tmp_path, name_server_addresses=address) as broker:
        await broker.parts.cluster.registration.wait_registered()
        name = f"dns://namesrv.test:{address.rpartition(':')[2]}"
        async with AsyncAdminClient(namesrv=name, poll_name_server_interval_ms=SOON_MS) as admin:
            with pytest.raises(UnavailableError):
                await admin.list_topics()
            zone["namesrv.test"] = ["127.0.0.1"]
            async with asyncio.timeout(10):
                while True:
                    try:
                        assert await admin.list_topics(include_system=True)
                        break
                    except UnavailableError:
                        await asyncio.sleep(0.005)


async def test_a_client_that_finds_no_name_server_does_not_start() -> None:
    with address_server() as server, pytest.raises(UnavailableError, match="names no NameServer"):
        await AsyncAdminClient(namesrv=server.url).start()


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.create_topic("orders", queue_nums=1)
        yield broker


def test_commands_ask_the_address_server_of_the_environment(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = Shell(capsys, "")
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with address_server(broker.namesrv_address) as server:
        monkeypatch.setenv("ROCKETMQ_NAMESRV_DOMAIN", server.domain)
        assert shell.json("topic", "list") == [{"topic": "orders"}]
        monkeypatch.setenv("ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP", "blue")
        assert shell.json("message", "send", "orders", "--body", "x")[0]["status"] == "SEND_OK"
        assert shell.json("topic", "list", "--namesrv", server.url) == [{"topic": "orders"}]
        assert server.paths == ["/rocketmq/nsaddr", "/rocketmq/blue", "/rocketmq/nsaddr"]
        monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
        shell("topic", "list", status=1)


def test_a_producer_takes_a_url(broker: FakeBroker) -> None:
    with address_server(broker.namesrv_address) as server, Producer(namesrv=server.url) as producer:
        producer.send(Message("orders", b"x"))
    assert [message.body for message in broker.messages("orders")] == [b"x"]
