"""`thermocline proxy rules`: the rules in force at a running proxy.

Covers `cli/brokers/proxy_rules.py` and `cli/brokers/proxy_port.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proxy.two_clusters import two_clusters, write_rules
from tests.waiting import until
from thermocline.cli.main import run
from thermocline.client.testing import FakeBroker

FIRST = {"topic": "orders*", "cluster": "east", "alsoRead": ["default"]}
SECOND = {"address": "10.0.0.0/8", "cluster": "east"}


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as running:
        yield running


async def test_the_rules_in_force_are_shown(
    broker: FakeBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with two_clusters(broker, broker, tmp_path, FIRST, SECOND, health_port=0) as both:

        async def shown(*words: str) -> tuple[str, str]:
            command = ["proxy", "rules", "--proxy", both.proxy.health_address, *words]
            assert await asyncio.to_thread(run, command) == 0
            captured = capsys.readouterr()
            return captured.out, captured.err

        table, _ = await shown()
        assert [line.split()[:3] for line in table.splitlines()[1:]] == [
            ["1", "orders*", "east"],
            ["2", "10.0.0.0/8", "east"],
        ]
        assert json.loads((await shown("--json"))[0]) == [
            {
                "number": 1,
                "topic": "orders*",
                "group": "",
                "user": "",
                "address": "",
                "cluster": "east",
                "also_read": "default",
            },
            {
                "number": 2,
                "topic": "",
                "group": "",
                "user": "",
                "address": "10.0.0.0/8",
                "cluster": "east",
                "also_read": "",
            },
        ]
        write_rules(tmp_path / "rules.json", {"topic": "orders", "cluster": "nowhere"})
        await until(lambda: both.proxy.server.routing.shown()["refusal"], what="the change is refused")
        table, notes = await shown()
        assert "orders*" in table
        assert "routing rule 1: there is no cluster nowhere in routingClusters" in notes
