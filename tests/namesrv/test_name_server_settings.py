"""Settings of a NameServer: from file, environment and flags, refused with clear errors.

Covers `remoting/settings/setting_names.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from thermocline.namesrv.main import load_config
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.name_server_settings import (
    environment_properties,
    environment_variable,
    file_properties,
    load_name_server_config,
)
from thermocline.remoting.errors import SettingError
from thermocline.remoting.settings import PropertySource

NAMESRV_CONF = b"""
# as Apache RocketMQ reads it
listenPort = 9877
bindAddress=127.0.0.1
orderMessageEnable = true
serverWorkerThreads = 8
serverChannelMaxIdleTimeSeconds = 30
clientWorkerThreads = 4
enableControllerInNamesrv = false
"""


def test_a_namesrv_conf_of_rocketmq_is_understood() -> None:
    loaded = load_name_server_config([file_properties("namesrv.conf", NAMESRV_CONF)])
    assert loaded.config == NameServerConfig(
        listen_host="127.0.0.1", listen_port=9877, order_message=True, server_idle_ms=30_000
    )
    assert loaded.ignored == ("serverWorkerThreads", "clientWorkerThreads")


def test_toml_has_property_names() -> None:
    source = file_properties("namesrv.toml", b"listenPort = 9877\nenableTopicList = false\n")
    assert load_name_server_config([source]).config == NameServerConfig(listen_port=9877, topic_list=False)
    with pytest.raises(SettingError, match="unknown table"):
        file_properties("namesrv.toml", b"[broker]\nname = 1\n")
    with pytest.raises(SettingError, match="cannot be read"):
        file_properties("namesrv.toml", b"listenPort 9877")


def test_the_later_source_wins(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_bytes(b"listenPort=1\nbrokerExpiryMs=200\nscanNotActiveBrokerInterval=100\n")
    variable = environment_variable("brokerExpiryMs")
    assert variable == "THERMOCLINE_NAME_SERVER_BROKER_EXPIRY_MS"
    config = load_config(
        config_path=path, environment={variable: "300", "listenPort": "7", "PATH": "x"}, flags={"listenPort": "3"}
    )
    assert (config.listen_port, config.broker_expiry_ms, config.scan_interval_ms) == (3, 300, 100)


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("listenport", "1", "did you mean listenPort"),
        ("listenPort", "many", "a whole number"),
        ("orderMessageEnable", "perhaps", "true or false"),
        ("brokerExpiryMs", "1", "brokerExpiryMs must be at least 100 .*source=flag"),
        ("brokerExpiryMs", str(1 << 70), "brokerExpiryMs"),
        ("listenPort", "65536", "listenPort must be at most 65535"),
        ("scanNotActiveBrokerInterval", "1" * 400, "scanNotActiveBrokerInterval"),
        ("tls.server.mode", "sometimes", "source=flag"),
    ],
)
def test_mistakes_are_named(name: str, text: str, error: str) -> None:
    with pytest.raises(SettingError, match=error):
        load_name_server_config([PropertySource(place="flag", values={name: text})])


def test_a_file_of_an_editor_that_marks_utf_8() -> None:
    """Its first name was unknown."""
    source = file_properties("namesrv.conf", "listenPort=3\n".encode("utf-8-sig"))
    assert load_name_server_config([source]).config.listen_port == 3


def test_mistakes_in_the_environment_are_named() -> None:
    source = environment_properties({"THERMOCLINE_NAME_SERVER_LISTEN_PROT": "1"})
    with pytest.raises(SettingError, match="did you mean THERMOCLINE_NAME_SERVER_LISTEN_PORT"):
        load_name_server_config([source])


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot be read"):
        load_config(config_path=tmp_path / "none.conf", environment={}, flags={})
