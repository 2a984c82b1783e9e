"""A proxy in the test's own loop, in front of two clusters whose brokers have one name."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from tests.proxy.proxy_under_test import ProxyUnderTest, make_topics, proxy_before
from tests.waiting import until
from thermocline.client import AdminClient
from thermocline.client.testing import FakeBroker


def broker_with_topics() -> Iterator[FakeBroker]:
    """One of the clusters, for a fixture."""
    with FakeBroker(auto_create_topics=False) as running:
        make_topics(running)
        yield running


class TwoClusters:
    """The proxy, the clusters and the rules."""

    def __init__(self, proxy: ProxyUnderTest, rules_path: Path) -> None:
        self.proxy = proxy
        self._rules_path = rules_path

    async def rule(self, *rules: dict[str, Any]) -> None:
        """Put rules in place of those in force."""
        routing = self.proxy.server.routing
        before = routing.rules
        write_rules(self._rules_path, *rules)
        await until(lambda: routing.rules is not before, what="the rules are in force")


def write_rules(path: Path, *rules: dict[str, Any]) -> None:
    """Replace the file of rules."""
    part = path.with_suffix(".new")
    part.write_text(json.dumps({"rules": rules}))
    part.rename(path)


def bodies_in(broker: FakeBroker, topic: str = "Normal") -> list[bytes]:
    """What a cluster has of a topic."""
    return sorted(message.body for message in broker.messages(topic))


@contextlib.asynccontextmanager
async def two_clusters(
    default: FakeBroker, east: FakeBroker | str, folder: Path, *rules: dict[str, Any], **settings: Any
) -> AsyncIterator[TwoClusters]:
    """The proxy, with these rules at first. `east`: the cluster, or the address of a NameServer."""
    path = folder / "rules.json"
    write_rules(path, *rules)
    clusters = json.dumps([{"name": "east", "namesrvAddr": east if isinstance(east, str) else east.namesrv_address}])
    async with proxy_before(default, routing_clusters=clusters, routing_rules_path=str(path), **settings) as proxy:
        yield TwoClusters(proxy, path)


def make_topic(broker: FakeBroker, topic: str, message_type: str = "NORMAL") -> None:
    """Make a topic in one cluster alone."""
    with AdminClient(namesrv=broker.namesrv_address) as admin:
        admin.create_topic(topic, queue_nums=2, attributes={"message.type": message_type})
