"""The tables of a proxy's official settings against the classes of RocketMQ's proxy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.settings.official_classes import check_table, official_settings
from tests.fixtures_tools import have
from thermocline.proxy.settings import PROXY_AUTH_CONFIG, PROXY_CONFIG, load_proxy_config, secret_names
from thermocline.remoting.errors import SettingError
from thermocline.remoting.settings import PropertySource
from tooling.java_libraries import OFFICIAL_ROCKETMQ_PROXY, find_jars

PROXY_CLASS = "org.apache.rocketmq.proxy.config.ProxyConfig"
AUTH_CLASS = "org.apache.rocketmq.auth.config.AuthConfig"
IN_BOTH = {"userCacheMaxNum", "aclCacheMaxNum"}
"""Fields of both classes; the table of ProxyConfig has them."""


@pytest.mark.java
def test_names_and_defaults_are_those_of_the_official_classes(jdk_home: Path, tmp_path: Path) -> None:
    """A setting that a release adds, takes away or gives another default fails here."""
    jars = have(lambda: find_jars(OFFICIAL_ROCKETMQ_PROXY))
    official = official_settings(jdk_home, jars, tmp_path, [PROXY_CLASS, AUTH_CLASS])
    check_table(PROXY_CLASS, PROXY_CONFIG, official[PROXY_CLASS])
    of_auth = {name: default for name, default in official[AUTH_CLASS].items() if name not in IN_BOTH}
    check_table(AUTH_CLASS, PROXY_AUTH_CONFIG, of_auth)


def test_settings_that_others_carry() -> None:
    values = {"grpcMaxConcurrentCallsPerConnection": "7", "tlsKeyPassword": "hidden", "enableBatchAck": "true"}
    source = PropertySource(place="rmq-proxy.json", values=values)
    assert secret_names(source) == ["tlsKeyPassword"]
    loaded = load_proxy_config([source])
    assert (loaded.config.streams_max, loaded.config.tls.server_key_password) == (7, "hidden")
    assert loaded.ignored == ("enableBatchAck",)


def test_a_name_that_neither_has_is_an_error() -> None:
    with pytest.raises(SettingError, match="unknown setting"):
        load_proxy_config([PropertySource(place="rmq-proxy.json", values={"grpcServerProcesses": "2"})])
