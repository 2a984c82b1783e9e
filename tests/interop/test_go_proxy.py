"""The official Go client with a proxy as its NameServer and broker: a part of its tests.

The others: test_go_proxy_full.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop import test_go_client, test_go_consumption, test_go_order
from tests.interop.go_driver import GoCluster, GoDriver
from tests.interop.proxy_daemons import remoting_address, running_proxy

pytestmark = [pytest.mark.go, pytest.mark.xdist_group("interop-go")]

PROXY_SETTINGS = {"enableTopicMessageTypeCheck": "false"}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def go_proxy(go_cluster: GoCluster, module_folder: Path) -> Iterator[GoCluster]:
    """The shared broker with a proxy in front: clients are given the proxy, tools the NameServer."""
    with running_proxy(module_folder, namesrv=go_cluster.namesrv, settings=PROXY_SETTINGS) as (_, process):
        yield replace(go_cluster, namesrv=remoting_address(process))


@pytest.fixture
def go(go_proxy: GoCluster, request: pytest.FixtureRequest) -> Iterator[GoDriver]:
    """The Go clients of this test, before the proxy."""
    driver = GoDriver(go_proxy, f"GoP{next(_numbers)}x{request.node.originalname[5:35]}")
    yield driver
    driver.close()


test_sends = test_go_client.test_every_kind_of_send_arrives_exactly_once
test_pulls = test_go_client.test_a_queue_is_pulled_from_an_offset
test_order = test_go_order.test_an_orderly_consumer_sees_each_shard_in_order
test_broadcast = test_go_consumption.test_each_broadcasting_consumer_gets_everything
