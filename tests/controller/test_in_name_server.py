"""A controller inside a NameServer: one file of settings, two ports, users apart.

Covers `controller/in_name_server.py`, `cli/brokers/namesrv.py`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from thermocline.broker.settings import SETTINGS
from thermocline.broker.settings.official_settings import BROKER_SETTINGS
from thermocline.broker.settings.setting_sources import environment_variable
from thermocline.client.admin.admin_client import AdminClient
from thermocline.controller.controller_config import BROKER_NAMES, ENVIRONMENT_PREFIX
from thermocline.controller.in_name_server import load_configs
from thermocline.localstack.child_process import ChildProcess
from thermocline.localstack.loopback_port import free_port
from thermocline.remoting.errors import SettingError

CONFIGURATION = """
listenPort=0
enableControllerInNamesrv=true
controllerDLegerGroup=group1
controllerDLegerPeers=n0-127.0.0.1:{port}
controllerDLegerSelfId=n0
controllerStorePath={store}
newLeaderElectionWaitMs=1000
orderMessageEnable=true
"""
READY = re.compile(r"^ready namesrv=(\S+) controller=(\S+)$", re.MULTILINE)


def write(directory: Path, *more: str) -> Path:
    path = directory / "namesrv.conf"
    text = CONFIGURATION.format(port=free_port(), store=directory / "store")
    path.write_text("\n".join([text, *more]))
    return path


def test_each_reads_its_own_settings_of_one_file(tmp_path: Path) -> None:
    path = write(tmp_path, "authFilePath=/a/auth.json")
    name_server, controller = load_configs(config_path=path, environment={}, flags={})
    assert controller is not None
    assert (name_server.order_message, name_server.listen_port) == (True, 0)
    assert (controller.group, controller.new_leader_wait_ms) == ("group1", 1_000)
    assert (name_server.auth_file_path, controller.auth_file_path) == ("/a/auth.json", "/a/auth.json.controller")
    path.write_text(path.read_text().replace("enableControllerInNamesrv=true", ""))
    assert load_configs(config_path=path, environment={}, flags={})[1] is None


def test_a_name_of_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="unknown setting controllerDLegerPears"):
        load_configs(config_path=write(tmp_path, "controllerDLegerPears=x"), environment={}, flags={})


def test_the_variables_of_the_brokers_of_a_machine_are_no_settings_of_its_controller(tmp_path: Path) -> None:
    """`controllerAddr` of a broker is THERMOCLINE_CONTROLLER_ADDR, which begins as a controller's variables do."""
    variables = {environment_variable(name) for name in BROKER_NAMES}
    of_brokers = {environment_variable(name) for name in (*SETTINGS, *BROKER_SETTINGS)}
    assert {variable for variable in of_brokers if variable.startswith(ENVIRONMENT_PREFIX)} == variables
    environment = {**dict.fromkeys(variables, "10.0.0.1:9878"), f"{ENVIRONMENT_PREFIX}REPLICA_SETS_MAX": "7"}
    _, controller = load_configs(config_path=write(tmp_path), environment=environment, flags={})
    assert controller is not None
    assert controller.replica_sets_max == 7
    with pytest.raises(SettingError, match="did you mean THERMOCLINE_CONTROLLER_REPLICA_SETS_MAX"):
        load_configs(config_path=write(tmp_path), environment={f"{ENVIRONMENT_PREFIX}REPLICA_SET_MAX": "7"}, flags={})


def test_one_process_serves_both_and_keeps_changes_of_both_in_one_file(tmp_path: Path) -> None:
    path = write(tmp_path, f"configStorePath={tmp_path}/changed.properties")

    def start() -> tuple[ChildProcess, str, str]:
        process = ChildProcess(
            [str(Path(sys.executable).parent / "thermocline"), "namesrv", "--config", str(path)],
            log_path=tmp_path / "namesrv.log",
            working_directory=tmp_path,
        )
        process.wait_until(lambda: READY.search(process.output()) is not None, timeout_s=60)
        found = READY.search(process.output())
        assert found is not None
        return process, found[1], found[2]

    process, name_server, controller = start()
    with AdminClient(namesrv=name_server) as admin:
        assert admin.controller_metadata(controller)[controller].group == "group1"
        admin.update_controller_config(controller, {"notifyBrokerRoleChanged": "false"})
        admin.update_namesrv_config({"returnOrderTopicConfigToBroker": "false"})
    assert process.stop() == 0
    process, name_server, controller = start()
    with AdminClient(namesrv=name_server) as admin:
        assert admin.controller_config(controller)[controller]["notifyBrokerRoleChanged"] == "false"
        assert admin.namesrv_config()[name_server]["returnOrderTopicConfigToBroker"] == "false"
    assert process.stop() == 0
