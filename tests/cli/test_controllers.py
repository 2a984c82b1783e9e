"""Commands about controllers: what programs read of their state, and users, of which each has its own.

Covers `cli/brokers/controller_administration.py`.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.controller.controller_under_test import Caller, config_for, running
from thermocline.cli.main import run
from thermocline.remoting.response_code import ResponseCode


async def test_its_json_counts_what_limits_have_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_for(tmp_path, replica_sets_max=1)
    async with running(config):
        caller = await Caller.connect(config)
        assert (await caller.apply_id(1)).code == ResponseCode.SUCCESS
        assert (await caller.apply_id(1, name="broker-b")).code == ResponseCode.SYSTEM_BUSY
        words = ["controller", "status", "-a", config.peers.address, "--json"]
        assert await asyncio.to_thread(run, words) == 0
        caller.connection.close()
    (node,) = json.loads(capsys.readouterr().out)["controllers"]
    assert (node["role"], node["refused"]) == ("leader", {"replicaSetsMax": 1})


async def test_the_users_of_a_controller_are_made_as_those_of_a_name_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THERMOCLINE_ACCESS_KEY", "root")
    monkeypatch.setenv("THERMOCLINE_SECRET_KEY", "the-key-of-root")
    root = json.dumps({"username": "root", "password": "the-key-of-root"})
    config = config_for(tmp_path, authentication_enabled=True, init_user=root)
    at = ("--name-servers", "--namesrv", config.peers.address)
    async with running(config):
        make = ["user", "create", "carol", "--password", "the-key-of-carol", *at]
        assert await asyncio.to_thread(run, make) == 0
        capsys.readouterr()
        assert await asyncio.to_thread(run, ["user", "list", "--json", *at]) == 0
    assert {row["user"] for row in json.loads(capsys.readouterr().out)} == {"root", "carol"}
