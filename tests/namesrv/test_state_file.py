"""What a NameServer keeps over a restart: changed settings and the KV configuration.

Covers `namesrv/kv_config.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from thermocline.namesrv.kv_config import KVConfig
from thermocline.namesrv.main import load_config, state_paths
from thermocline.namesrv.processor import NameServerProcessor
from thermocline.namesrv.route_registry import RouteRegistry
from thermocline.namesrv.state_file import StateFile
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import CorruptDataError, UnavailableError


def test_kv_configuration_outlives_a_restart(tmp_path: Path) -> None:
    file = StateFile(str(tmp_path / "state" / "kvConfig.json"))
    kv = KVConfig(file)
    kv.put("ORDER_TOPIC_CONFIG", "orders", "broker-a:4")
    kv.put("OTHER", "k", "v")
    kv.delete("OTHER", "k")
    again = KVConfig(file)
    assert again.get("ORDER_TOPIC_CONFIG", "orders") == "broker-a:4"
    assert again.namespace("OTHER") == {}
    assert again.namespace("NONE") is None
    assert json.loads((tmp_path / "state" / "kvConfig.json").read_text()) == {
        "configTable": {"ORDER_TOPIC_CONFIG": {"orders": "broker-a:4"}, "OTHER": {}}
    }


def test_a_change_that_cannot_be_written_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kv = KVConfig(StateFile(str(tmp_path / "file" / "kvConfig.json")))
    with pytest.raises(UnavailableError):
        kv.put("N", "k", "v")
    assert kv.get("N", "k") is None


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text("no json")
    with pytest.raises(CorruptDataError):
        KVConfig(StateFile(str(path)))


def test_without_a_path_nothing_is_kept() -> None:
    file = StateFile("")
    file.save(b"data")
    assert file.load() is None


def test_changed_settings_stand_above_the_file_and_below_the_flags(tmp_path: Path) -> None:
    (tmp_path / "namesrv.conf").write_text("orderMessageEnable=false\nwaitSecondsForService=10\n")
    flags = state_paths(tmp_path / "state")

    caller: Any = SimpleNamespace(remote_address="127.0.0.1:5000")
    config = load_config(config_path=tmp_path / "namesrv.conf", environment={}, flags=flags)
    registry = RouteRegistry(clock=lambda: 0, config=lambda: config)
    processor = NameServerProcessor(
        registry, KVConfig(), config, clock=lambda: 0, changes=StateFile(config.config_store_path)
    )
    for text in (b"orderMessageEnable=true\nlistenPort=9876\n", b"waitSecondsForService=20\n"):
        processor.update_config(caller, RemotingCommand.request(318, body=text))
    restarted = load_config(config_path=tmp_path / "namesrv.conf", environment={}, flags=flags)
    assert restarted.order_message
    assert restarted.wait_for_service_seconds == 20
    overruled = load_config(
        config_path=tmp_path / "namesrv.conf", environment={}, flags={**flags, "waitSecondsForService": "30"}
    )
    assert overruled.wait_for_service_seconds == 30
