"""A proxy with access control before RocketMQ's own broker, whose users and policies it reads by the same requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.cluster import OFFICIAL_PROPERTIES, Daemons, official_daemons
from tests.interop.fixtures_access_pair import SETTINGS
from tests.interop.grpc_access import make_user, signed
from tests.interop.secured import ROOT
from tests.proxy.proxy_under_test import ProxyUnderTest, message, proxy_before, send_request
from tests.waiting import wait_until
from thermocline.client import AdminClient
from thermocline.proxy.grpc.messages import Code
from thermocline.remoting.errors import MQError
from tooling.official_rocketmq import OfficialSoftware

pytestmark = [pytest.mark.java, pytest.mark.full, pytest.mark.xdist_group("interop-grpc-access-official")]

TOPIC = "Official"


@pytest.fixture(scope="module")
def official(official_software: OfficialSoftware, new_module_folder: Callable[[str], Path]) -> Iterator[Daemons]:
    folder = new_module_folder("official-access")
    with official_daemons(official_software, folder, properties={**OFFICIAL_PROPERTIES, **SETTINGS}) as running:
        yield running


@pytest.fixture(scope="module")
def admin(official: Daemons) -> Iterator[AdminClient]:
    with AdminClient(namesrv=official.namesrv, credentials=ROOT) as running:

        def made() -> bool:
            try:
                running.create_topic(TOPIC, queue_nums=1)
            except MQError:
                return False  # the broker has not registered yet
            return True

        wait_until(made, what="the topic is there")
        yield running


async def test_users_and_policies_are_the_official_brokers(official: Daemons, admin: AdminClient) -> None:
    user = await asyncio.to_thread(make_user, admin, (f"Topic:{TOPIC}", ["Pub"]))
    other = await asyncio.to_thread(make_user, admin, ("Topic:Other", ["Pub"]))
    async with proxy_before(
        official.namesrv,
        authentication_enabled=True,
        authorization_enabled=True,
        inner_credentials=SETTINGS["innerClientAuthenticationCredentials"],
    ) as proxy:

        async def code(metadata: dict[str, str]) -> int:
            return await sent_code(proxy, metadata)

        assert await code(signed(user)) == Code.OK
        assert await code(signed(ROOT.access_key, ROOT.secret_key)) == Code.OK
        for refused in (signed(other), signed(user, "wrong"), signed("stranger"), {}):
            assert await code(refused) == Code.UNAUTHORIZED
        await asyncio.to_thread(admin.delete_acl, f"User:{user}")
        loop = asyncio.get_running_loop()
        changed = asked = last_allowed = loop.time()
        while await code(signed(user)) != Code.UNAUTHORIZED:
            last_allowed, asked = asked, loop.time()
        assert last_allowed - changed <= 1.0
        await asyncio.to_thread(admin.delete_user, other)
        while await code(signed(other)) != Code.UNAUTHORIZED:
            pass


async def sent_code(proxy: ProxyUnderTest, metadata: dict[str, str]) -> int:
    return int((await proxy.call("SendMessage", send_request(message(TOPIC)), metadata=metadata)).status.code)
