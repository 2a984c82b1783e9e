"""Settings of a proxy: RocketMQ's names, what they mean, and where they come from.

Covers `proxy/settings/proxy_config.py`, `proxy/settings/official_settings.py` and
`proxy/settings/official_auth_settings.py`.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from thermocline.proxy.main import load_config
from thermocline.proxy.proxy_access import own_credentials
from thermocline.proxy.settings import (
    FIELDS_BY_NAME,
    PROXY_AUTH_CONFIG,
    PROXY_CONFIG,
    PROXY_SETTINGS,
    ProxyConfig,
    environment_variable,
    file_properties,
    load_proxy_config,
)
from thermocline.remoting.errors import SettingError
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.settings import MACHINE, PropertySource, Treatment

REFUSED = sorted(name for name, each in PROXY_SETTINGS.items() if each.treatment is Treatment.REFUSED)

OTHER_DEFAULTS = {"grpcMaxConcurrentCallsPerConnection": "2147483647"}
"""Settings without a bound at RocketMQ, which have one here."""


def source(**values: str) -> PropertySource:
    return PropertySource(place="test", values=values)


def test_each_official_setting_has_one_treatment_and_a_reason() -> None:
    table = (*PROXY_CONFIG, *PROXY_AUTH_CONFIG)
    assert [name for name, count in Counter(each.name for each in table).items() if count > 1] == []
    for setting in table:
        if setting.treatment is Treatment.HONOURED:
            carrier = setting.carrier or setting.name
            assert carrier in FIELDS_BY_NAME, setting.name
            if setting.default != MACHINE and setting.name not in OTHER_DEFAULTS:
                default = FIELDS_BY_NAME[carrier].default
                assert setting.default == (str(default).lower() if isinstance(default, bool) else str(default))
        else:
            assert setting.note, setting.name


def test_every_official_default_starts_a_proxy() -> None:
    table = (*PROXY_CONFIG, *PROXY_AUTH_CONFIG)
    values = {each.name: each.default for each in table if each.default not in (MACHINE, *OTHER_DEFAULTS.values())}
    loaded = load_proxy_config([PropertySource(place="test", values=values)])
    assert loaded.config == ProxyConfig()
    assert "grpcThreadPoolQueueCapacity" in loaded.ignored


@pytest.mark.parametrize("name", REFUSED)
def test_a_setting_that_promises_what_is_not_built_is_refused(name: str) -> None:
    default = PROXY_SETTINGS[name].default
    other = {"true": "false", "false": "true"}.get(default, str(int(default) + 1) if default.isdecimal() else "other")
    with pytest.raises(SettingError, match="is refused: it would promise"):
        load_proxy_config([source(**{name: other})])


def test_the_shipped_file_of_rocketmq_starts_a_proxy(tmp_path: Path) -> None:
    path = tmp_path / "rmq-proxy.json"
    path.write_text('{"rocketMQClusterName": "DefaultCluster", "grpcServerPort": 18081, "enableProxyAutoRenew": false}')
    environment = {"NAMESRV_ADDR": "ns:9876", "THERMOCLINE_PROXY_MAX_MESSAGE_SIZE": "1_000", "PATH": "/bin"}
    config = load_config(config_path=path, environment=environment, flags={"grpcServerPort": "1"})
    assert (config.namesrv, config.message_bytes_max, config.grpc_port, config.renews) == ("ns:9876", 1_000, 1, False)


def test_a_file_of_rocketmq_with_access_control_is_understood(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "rmq-proxy.json"
    path.write_text(
        """{
            "authenticationEnabled": true,
            "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
            "authenticationMetadataProvider": "org.apache.rocketmq.proxy.auth.ProxyAuthenticationMetadataProvider",
            "innerClientAuthenticationCredentials": "{\\"accessKey\\":\\"rocketmq\\",\\"secretKey\\":\\"a secret\\"}",
            "authorizationEnabled": true,
            "authorizationMetadataProvider": "org.apache.rocketmq.proxy.auth.ProxyAuthorizationMetadataProvider",
            "userCacheMaxNum": 5, "aclCacheMaxNum": 6
        }"""
    )
    path.chmod(0o600)
    config = load_config(config_path=path, environment={}, flags={})
    assert (config.authentication_enabled, config.authorization_enabled, config.users_max) == (True, True, 5)
    assert own_credentials(config) == Credentials(access_key="rocketmq", secret_key="a secret")
    assert "a secret" not in repr(config)
    assert "secrets in a file" not in caplog.text
    path.chmod(0o644)
    load_config(config_path=path, environment={}, flags={})
    assert "secrets in a file can be read by other users" in caplog.text
    assert "a secret" not in caplog.text


def test_certificates_are_named_as_rocketmq_names_them(tmp_path: Path) -> None:
    loaded = load_proxy_config([source(tlsKeyPath="k.pem", tlsCertPath="c.pem", **{"tls.server.mode": "enforcing"})])
    tls = loaded.config.tls
    assert (tls.server_key_path, tls.server_certificate_path, tls.server_mode) == ("k.pem", "c.pem", "enforcing")
    assert environment_variable("tls.server.mode") == "THERMOCLINE_PROXY_TLS_SERVER_MODE"
    path = tmp_path / "tls.properties"
    path.write_text("tls.server.mode=disabled\n")
    flags = {"tls.config.file": str(path)}
    assert load_config(config_path=None, environment={}, flags=flags).tls.server_mode == "disabled"


WRONG = {
    "a mode of TLS that does not exist": (source(**{"tls.server.mode": "maybe"}), "tls.server.mode"),
    "an unknown name": (source(grpcServerPrt="1"), "did you mean grpcServerPort"),
    "an unknown variable": (source(THERMOCLINE_PROXY_GRPC_PORT="1"), "unknown setting"),
    "no number": (source(grpcServerPort="x"), "a whole number is needed"),
    "no truth": (source(enableProxyAutoRenew="maybe"), "true or false"),
    "too small": (source(grpcServerPort="-1"), "at least 0"),
    "too large": (source(grpcServerPort="65536"), "at most 65535"),
    "rights without signatures": (source(authorizationEnabled="true"), "authorizationEnabled needs"),
    "no quota": (source(quotas="topic"), "a quota is"),
    "polls the wrong way round": (
        source(grpcClientConsumerMinLongPollingTimeoutMillis="30000"),
        "longer than the longest",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_a_setting_is_refused_with_its_place(name: str) -> None:
    wrong, sentence = WRONG[name]
    with pytest.raises(SettingError, match=sentence) as caught:
        load_proxy_config([wrong])
    assert caught.value.context["source"] == wrong.place


@pytest.mark.parametrize("text", ["[1]", "{", '{"grpcServerPort": [1]}', '{"grpcServerPort": null}'])
def test_a_file_that_is_no_configuration(text: str) -> None:
    with pytest.raises(SettingError):
        file_properties("rmq-proxy.json", text.encode())


def test_toml_and_missing_files(tmp_path: Path) -> None:
    assert file_properties("proxy.toml", b"grpcServerPort = 5\nuseEndpointPortFromRequest = true\n").values == {
        "grpcServerPort": "5",
        "useEndpointPortFromRequest": "true",
    }
    dotted = b'tls.server.mode = "enforcing"\ntls.enable = true\n'
    assert file_properties("proxy.toml", dotted).values == {"tls.server.mode": "enforcing", "tls.enable": "true"}
    with pytest.raises(SettingError, match="cannot be read"):
        load_config(config_path=tmp_path / "none.json", environment={}, flags={})
    assert environment_variable("grpcServerPort") == "THERMOCLINE_PROXY_GRPC_SERVER_PORT"


def test_clusters_are_a_list_in_a_file_and_warned_of_where_they_have_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rmq-proxy.json"
    clusters: list[dict[str, object]] = [{"name": "east", "namesrvAddr": "127.0.0.1:9876"}]
    path.write_text(json.dumps({"routingClusters": clusters, "routingRulesPath": "rules.json"}))
    path.chmod(0o644)
    config = load_config(config_path=path, environment={}, flags={})
    assert json.loads(config.routing_clusters) == clusters
    assert not caplog.records
    clusters[0]["credentials"] = {"accessKey": "proxy", "secretKey": "hidden"}
    path.write_text(json.dumps({"routingClusters": clusters, "routingRulesPath": "rules.json"}))
    config = load_config(config_path=path, environment={}, flags={})
    assert "settings=routingClusters" in caplog.text
    assert "hidden" not in caplog.text + repr(config)
    with pytest.raises(SettingError, match="a text, a number, true or false is needed"):
        file_properties("rmq-proxy.json", b'{"quotas": []}')
