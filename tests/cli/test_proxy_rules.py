"""`thermocline proxy rules`: the rules in force at a running proxy; those with which none starts.

Covers `cli/brokers/proxy_rules.py` and `cli/brokers/proxy_port.py`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.address_server import address_server
from tests.proxy.two_clusters import two_clusters, write_rules
from tests.waiting import until
from thermocline.cli.main import run
from thermocline.client.testing import FakeBroker

FIRST = {"topic": "orders*", "cluster": "east", "alsoRead": ["default"]}
EAST = '[{"name": "east", "namesrvAddr": "127.0.0.1:9876"}]'
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


@pytest.mark.parametrize(
    ("clusters", "rules", "sentence"),
    [
        (
            "[]",
            '{"rules": [{"topic": "T", "cluster": "east"}]}',
            "routingClusters and routingRulesPath need each other",
        ),
        (EAST, '{"rules": [{"topic": "T", "cluster": "west"}]}', "routing rule 1: there is no cluster west"),
        (EAST, '{"rules": [{"user": "alice", "cluster": "east"}]}', "a user needs authenticationEnabled"),
        ("east", '{"rules": []}', "routingClusters is no JSON list of clusters"),
    ],
)
def test_a_proxy_does_not_start_with_rules_that_cannot_be_used(
    clusters: str, rules: str, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "rules.json"
    path.write_text(rules)
    settings = {"routingClusters": clusters, "routingRulesPath": str(path), "remotingListenPort": "0"}
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "thermocline.cli", "proxy", "--listen", "127.0.0.1:0", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (ended.returncode, sentence in ended.stderr) == (2, True), ended.stderr


@pytest.mark.parametrize("command", ["rules", "clients"])
@pytest.mark.parametrize("text", ["<html></html>", "[]", '{"status": "ok"}'])
def test_the_port_of_another_server(command: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A page of another server ended in a traceback."""
    with address_server() as server:
        server.text = text
        assert run(["proxy", command, "--proxy", server.domain]) == 1
    assert "the port is none of a proxy" in capsys.readouterr().err


def test_a_host_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["proxy", "rules", "--proxy", "a..b:8082"]) == 1
    assert "the proxy does not answer" in capsys.readouterr().err
