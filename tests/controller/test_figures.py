"""The figures of a controller at GET /metrics, and its state at GET /health, over HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path

import pytest

from tests.controller.controller_under_test import CLUSTER, NAME, Caller, config_for, running
from tests.waiting import until
from thermocline.controller.figures import FAMILIES
from thermocline.remoting.errors import InvalidParameterError
from thermocline.remoting.headers.controller import ElectMasterRequestHeader
from thermocline.remoting.health import MetricType
from thermocline.remoting.request_code import RequestCode

ROOT, ROOT_KEY = "root", "root-secret"


async def page(port: int, path: str, keys: str = "") -> tuple[int, str]:
    """Status and text of a resource."""

    def read() -> tuple[int, str]:
        headers = {"Authorization": f"Basic {b64encode(keys.encode()).decode()}"} if keys else {}
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(read)


async def test_figures_have_rocketmqs_names_and_labels(tmp_path: Path) -> None:
    config = config_for(tmp_path, health_port=0)
    async with running(config) as server:
        caller = await Caller.connect(config)
        await caller.make_pair()
        await caller.ask(
            RequestCode.CONTROLLER_ELECT_MASTER,
            ElectMasterRequestHeader(cluster_name=CLUSTER, broker_name=NAME, broker_id=1),
        )
        await caller.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO)  # without a name: it fails
        status, text = await page(server.health_port, "/metrics")
    assert status == 200
    own = f'address="{config.peers.address}",group="default",peer_id="n0"'
    of_set = f'cluster="{CLUSTER}",broker_set="{NAME}"'
    lines = text.splitlines()
    assert f"role{{{own}}} 3" in lines
    assert f"active_broker_num{{{own},{of_set}}} 2" in lines
    assert f'election_total{{{own},{of_set},election_result="new_master_elected"}} 1' in lines
    assert f'election_total{{{own},{of_set},election_result="keep_current_master"}} 1' in lines
    counted = f'request_total{{{own},request_type="%s",request_handle_status="%s"}}'
    assert counted % ("CONTROLLER_ALTER_SYNC_STATE_SET", "success") + " 1" in lines
    assert counted % ("CONTROLLER_ELECT_MASTER", "failed") + " 1" in lines, "a master that stays is no success"
    assert counted % ("CONTROLLER_GET_REPLICA_INFO", "failed") + " 1" in lines
    assert f"thermocline_controller_master_alive{{{of_set}}} 1" in lines
    assert f"thermocline_controller_in_sync{{{of_set}}} 2" in lines
    assert f"thermocline_controller_replicas{{{of_set}}} 2" in lines
    assert re.search(rf"^dledger_disk_usage_bytes{{{re.escape(own)}}} [1-9]", text, re.MULTILINE)
    for name, (kind, description) in FAMILIES.items():
        assert name.endswith("_total") == (kind is MetricType.COUNTER)
        assert description.endswith(".")


async def test_a_set_without_a_living_broker_has_no_master(tmp_path: Path) -> None:
    config = config_for(tmp_path, health_port=0)
    async with running(config) as server:
        caller = await Caller.connect(config)
        await caller.make_pair()
        caller.connection.close()
        await until(lambda: not len(server.coordinator.live), what="both brokers are gone")
        _, text = await page(server.health_port, "/metrics")
    of_set = f'cluster="{CLUSTER}",broker_set="{NAME}"'
    assert f"thermocline_controller_master_alive{{{of_set}}} 0" in text.splitlines()
    assert f"thermocline_controller_in_sync{{{of_set}}} 0" in text.splitlines()


async def test_health_tells_whether_the_node_takes_part(tmp_path: Path) -> None:
    async with running(config_for(tmp_path / "leads", health_port=0)) as server:
        status, text = await page(server.health_port, "/health")
        assert status == 200
        assert json.loads(text) == {"status": "ok", "node": "n0", "leader": "n0", "isLeader": True, "failure": ""}
        server.node._failure = OSError("a broken disk")
        status, text = await page(server.health_port, "/health")
        assert status == 503
        assert "a broken disk" in text


async def test_with_access_control_the_pages_are_for_users_alone(tmp_path: Path) -> None:
    config = config_for(
        tmp_path,
        health_port=0,
        authentication_enabled=True,
        authorization_enabled=True,
        init_user=json.dumps({"username": ROOT, "password": ROOT_KEY}),
        inner_credentials=json.dumps({"accessKey": "inner", "secretKey": "inner-secret"}),
    )
    async with running(config) as server:
        assert (await page(server.health_port, "/metrics"))[0] == 401
        assert (await page(server.health_port, "/metrics", f"{ROOT}:wrong"))[0] == 401
        status, text = await page(server.health_port, "/metrics", f"{ROOT}:{ROOT_KEY}")
        assert status == 200
        assert 'thermocline_access_denied_total{stage="authentication"}' in text


def test_settings_of_the_port_are_checked(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError):
        config_for(tmp_path, health_port=70_000)
    with pytest.raises(InvalidParameterError):
        config_for(tmp_path, health_host="no address")
