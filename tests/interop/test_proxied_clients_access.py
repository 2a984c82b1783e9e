"""Reports of a proxy's clients to a broker with access control: of super users alone, over TLS or not.

Covers `broker/processors/proxied_client.py`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.interop.cluster import Daemons, thermocline_daemons
from tests.interop.grpc_access import BROKER_ACCESS, INNER_TEXT, make_user, secret_of, signed
from tests.interop.secured import ROOT
from tests.proxy.proxy_under_test import ProxyUnderTest, consumer_settings, proxy_before
from tests.waiting import until
from thermocline.client import AdminClient, Credentials
from thermocline.remoting.bodies.proxied_client import ProxiedClientsReport
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.response_code import ResponseCode

pytestmark = pytest.mark.xdist_group("interop-grpc-access")

GROUP, TOPIC = "reported-group", "Normal"


@pytest.fixture(scope="module")
def daemons(new_module_folder: Callable[[str], Path]) -> Iterator[Daemons]:
    """A NameServer and a broker with access control."""
    with thermocline_daemons(new_module_folder("reports"), settings=BROKER_ACCESS) as running:
        yield running


@pytest.fixture(scope="module")
def admin(daemons: Daemons) -> Iterator[AdminClient]:
    with AdminClient(namesrv=daemons.namesrv, credentials=ROOT) as running:
        running.create_topic(TOPIC, queue_nums=1, attributes={"message.type": "NORMAL"})
        yield running


async def join(proxy: ProxyUnderTest, username: str) -> None:
    _, answer = await proxy.connect(consumer_settings(GROUP), metadata=signed(username))
    await proxy.peer.answers(answer, 1)


async def test_a_super_users_report_is_taken_with_the_clients_user(daemons: Daemons, admin: AdminClient) -> None:
    username = make_user(admin, (f"Topic:{TOPIC}", ["Sub"]), (f"Group:{GROUP}", ["Sub"]))
    async with proxy_before(
        daemons.namesrv,
        report_interval_ms=50,
        authentication_enabled=True,
        authorization_enabled=True,
        inner_credentials=INNER_TEXT,
    ) as proxy:
        await join(proxy, username)
        await until(lambda: admin.proxied_clients(group=GROUP).total == 1)
        (listed,) = admin.proxied_clients(group=GROUP).clients
        assert (listed.client.user, listed.client.kind) == (username, "push consumer")
        (shown,) = admin.consumer_connections(GROUP).connection_set
        assert shown.client_id == listed.client.client_id
        # The proxy, which is asked, runs in this loop.
        info = await asyncio.to_thread(admin.consumer_running_info, GROUP, shown.client_id)
        assert [each.topic for each in info.subscription_set] == [TOPIC]
    await until(lambda: admin.proxied_clients(group=GROUP).total == 0)


async def test_another_users_report_is_refused(
    daemons: Daemons, admin: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Also of one that may change the cluster: only super users are trusted with the names of others."""
    username = make_user(
        admin, ("Cluster:*", ["Update", "Get"]), ("Topic:*", ["Sub", "Get"]), ("Group:*", ["Sub", "Get"])
    )
    body = msgspec.json.encode(ProxiedClientsReport(proxy="p", instance="i", is_first=True))
    keys = Credentials(access_key=username, secret_key=secret_of(username))
    for credentials in (keys, None):
        async with RemotingClient(credentials=credentials) as connections:
            command = RemotingCommand.request(PrivateRequestCode.PROXIED_CLIENTS_REPORT, body=body)
            answer = await connections.call(daemons.broker_address, command, timeout_ms=5_000)
            assert answer.code == ResponseCode.NO_PERMISSION
            if credentials is not None:
                assert answer.remark == "Only a super user may do that."
    audit = Path(admin.broker_config("broker-a")["storePathRootDir"]) / "thermocline" / "audit.log"

    def denied_requests() -> list[str]:
        denials = [json.loads(line) for line in audit.read_text().splitlines()]
        return [each["request"] for each in denials if each.get("user") == username]

    await until(lambda: denied_requests() == ["PROXIED_CLIENTS_REPORT"])
    # A proxy with such a user serves its clients on, and its log says why brokers do not know them.
    inner = json.dumps({"accessKey": username, "secretKey": secret_of(username)})
    with caplog.at_level(logging.WARNING):
        async with proxy_before(daemons.namesrv, report_interval_ms=5, inner_credentials=inner) as proxy:
            await join(proxy, username)
            await until(lambda: "clients are not reported" in caplog.text)
            assert admin.proxied_clients(group=GROUP).total == 0
            await join(proxy, username)
    assert caplog.text.count("clients are not reported") == 1
