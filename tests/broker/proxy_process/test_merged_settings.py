"""Settings of a proxy beside a broker: the broker's own below, then the proxy's file, environment and flags.

Covers `broker/proxy_process/merged_settings.py` and `proxy/configuration.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from thermocline.broker.main import BrokerArguments, load_broker_settings
from thermocline.broker.proxy_process import merged_config
from thermocline.broker.settings import BrokerSettings
from thermocline.proxy.settings import ProxyConfig
from thermocline.remoting.errors import SettingError
from thermocline.remoting.settings import TlsConfig

NAMESRV = "192.0.2.1:9876;192.0.2.2:9876"


def broker(tmp_path: Path, **flags: str) -> BrokerSettings:
    values = {"storePathRootDir": str(tmp_path / "store"), "namesrvAddr": NAMESRV, **flags}
    return load_broker_settings(BrokerArguments(flags=values), {})


def config_of(settings: BrokerSettings, *, path: str = "", **flags: str) -> ProxyConfig:
    environment = {"NAMESRV_ADDR": "192.0.2.9:9876", "THERMOCLINE_PROXY_GRPC_SERVER_PORT": "1234"}
    return merged_config(settings, config_path=path, environment=environment, flags=flags)


def test_a_broker_that_works_needs_no_settings_for_its_proxy(tmp_path: Path) -> None:
    certificates = {"tls.server.certPath": "/etc/c.pem", "tls.server.keyPath": "/etc/c.key", "tls.enable": "true"}
    settings = broker(tmp_path, brokerName="one", brokerClusterName="C", bindAddress="127.0.0.2", **certificates)
    config = config_of(settings)
    assert (config.namesrv, config.proxy_name, config.cluster_name) == (NAMESRV, "one", "C")
    assert (config.bind_address, config.grpc_port) == ("127.0.0.2", 1234)
    assert config.tls == settings.tls
    assert config.tls != TlsConfig()


def test_the_proxy_has_the_access_control_of_its_broker(tmp_path: Path) -> None:
    assert not config_of(broker(tmp_path)).authentication_enabled
    keys = '{"accessKey": "inner", "secretKey": "inner-secret"}'
    names = {"authenticationEnabled": "true", "innerClientAuthenticationCredentials": keys}
    config = config_of(broker(tmp_path, **names))
    assert (config.authentication_enabled, config.authorization_enabled) == (True, False)
    more = {"authorizationEnabled": "true", "auditLogPath": "/var/log/audit.log", "auditLogFileCount": "3"}
    config = config_of(broker(tmp_path, **names, **more))
    assert config.authorization_enabled
    assert (config.audit_path, config.audit_file_count) == ("/var/log/audit.log.proxy", 3)


def test_the_proxys_own_settings_stand_above_the_brokers(tmp_path: Path) -> None:
    path = tmp_path / "rmq-proxy.json"
    path.write_text('{"proxyMode": "local", "namesrvAddr": "192.0.2.3:9876", "grpcServerPort": 8082}')
    config = config_of(broker(tmp_path), path=str(path), bindAddress="127.0.0.3")
    assert (config.namesrv, config.grpc_port, config.bind_address) == ("192.0.2.3:9876", 1234, "127.0.0.3")


def test_the_proxy_asks_every_address_of_a_name_where_the_broker_does(tmp_path: Path) -> None:
    settings = broker(tmp_path, namesrvAddr="names.example:9876;more.example:9876", fetchNameSrvAddrByDnsLookup="true")
    assert config_of(settings).namesrv == "dns://names.example:9876;dns://more.example:9876"


def test_name_servers_of_an_address_server_are_those_of_the_proxy_too(tmp_path: Path) -> None:
    settings = broker(tmp_path, namesrvAddr="", fetchNamesrvAddrByAddressServer="true", namesrvDomain="192.0.2.4:8080")
    assert config_of(settings).namesrv == "http://192.0.2.4:8080/rocketmq/nsaddr"


@pytest.mark.parametrize(
    ("broker_flags", "flags", "sentence"),
    [
        ({"namesrvAddr": ""}, {}, "finds topics through NameServers"),
        ({}, {"grpcServerPrt": "1"}, "did you mean grpcServerPort"),
        ({}, {"grpcServerPort": "70000"}, "grpcServerPort must be at most"),
        ({"authenticationEnabled": "true"}, {}, "signs its requests as a broker does"),
    ],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, broker_flags: dict[str, str], flags: dict[str, str], sentence: str
) -> None:
    settings = broker(tmp_path, **broker_flags)
    with pytest.raises(SettingError, match=sentence):
        config_of(settings, **flags)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot be read"):
        config_of(broker(tmp_path), path=str(tmp_path / "missing.json"))
