"""Quotas in the configuration file of a proxy process are followed, by itself and beside a broker.

Covers `proxy/live_quotas.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.cluster import thermocline_daemons
from tests.interop.merged_broker import merged_endpoint, merged_words
from tests.interop.proxy_daemons import DEPLOYMENTS, SEPARATE, running_proxy
from tests.proxy.http2_peer import GrpcPeer
from tests.proxy.proxy_under_test import message, send_request
from tests.waiting import wait_until
from thermocline.client import AdminClient
from thermocline.proxy.grpc.messages import Code

pytestmark = pytest.mark.xdist_group("interop-grpc")

TOPIC = "Limited"


@contextmanager
def proxy_with(directory: Path, deployment: str, config: Path) -> Iterator[str]:
    """A proxy with this file in front of a broker with the topic; where it serves gRPC."""
    words = () if deployment == SEPARATE else (*merged_words(), "--proxy-config", str(config))
    with thermocline_daemons(directory, words=words) as daemons:
        with AdminClient(namesrv=daemons.namesrv) as admin:
            admin.create_topic(TOPIC, queue_nums=1, attributes={"message.type": "NORMAL"})
        if deployment == SEPARATE:
            with running_proxy(directory / "proxy", namesrv=daemons.namesrv, config=config) as (endpoint, _):
                yield endpoint
        else:
            yield merged_endpoint(daemons.process)


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_a_proxy_process_follows_its_file(tmp_path: Path, deployment: str) -> None:
    config = tmp_path / "rmq-proxy.json"
    config.write_text("{}")

    async def codes(endpoint: str) -> set[int]:
        async with GrpcPeer(endpoint) as peer:
            request = send_request(message(TOPIC))
            return {(await peer.call("SendMessage", request)).status.code for _ in range(3)}

    with proxy_with(tmp_path / "daemons", deployment, config) as endpoint:
        assert asyncio.run(codes(endpoint)) == {Code.OK}
        config.write_text(json.dumps({"quotas": f"topic {TOPIC} sendRequests=1"}))
        wait_until(lambda: Code.TOO_MANY_REQUESTS in asyncio.run(codes(endpoint)), what="the quota counts")
        config.write_text("{}")
        wait_until(lambda: asyncio.run(codes(endpoint)) == {Code.OK}, what="it counts no more")
