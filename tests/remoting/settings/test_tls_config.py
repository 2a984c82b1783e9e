"""TLS settings: values that contradict each other are refused, from every source, and no secret is shown.

Covers `remoting/tls/certificate_files.py` and `remoting/tls/file_changes.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.certificates import Authority
from thermocline.broker.settings.setting_sources import (
    environment_source,
    environment_variable,
    file_source,
    load_settings,
)
from thermocline.namesrv.name_server_settings import (
    environment_properties,
    file_properties,
    load_name_server_config,
)
from thermocline.remoting.errors import InvalidParameterError, PermissionDeniedError, SettingError
from thermocline.remoting.settings import PropertySource
from thermocline.remoting.settings.tls_config import TlsConfig
from thermocline.remoting.tls.certificate_files import read_tls_file
from thermocline.remoting.tls.server_context import make_server_context

SETTINGS = {
    "tls.server.mode": "enforcing",
    "tls.server.keyPath": "/k",
    "tls.server.keyPassword": "hunter2",
    "tls.server.certPath": "/c",
    "tls.server.need.client.auth": "require",
    "tls.server.trustCertPath": "/t",
    "tls.enable": "true",
    "tls.client.authServer": "true",
    "tls.protocols": "TLSv1.3",
    "tlsHandshakesMax": "7",
}
READ = TlsConfig(
    server_mode="enforcing",
    server_key_path="/k",
    server_key_password="hunter2",
    server_certificate_path="/c",
    client_certificate="require",
    server_trust_path="/t",
    outgoing=True,
    check_servers=True,
    protocols="TLSv1.3",
    handshakes_max=7,
)
PROPERTIES = "".join(f"{name} = {value}\n" for name, value in SETTINGS.items()).encode()
TOML = b"".join(
    b'%s = "%s"\n' % (name.encode(), value.encode())
    if "mode" in name
    else b'"%s" = "%s"\n' % (name.encode(), value.encode())
    for name, value in SETTINGS.items()
)
"""One name without quotes, which TOML takes as tables in tables."""


def of_broker(source: PropertySource) -> TlsConfig:
    return load_settings([PropertySource(place="test", values={"storePathRootDir": "/data"}), source]).tls


@pytest.mark.parametrize(
    "source",
    [
        file_source("broker.conf", PROPERTIES),
        file_source("broker.toml", TOML),
        environment_source({environment_variable(name): value for name, value in SETTINGS.items()}),
        PropertySource(place="flag", values=SETTINGS),
    ],
    ids=["properties", "toml", "environment", "flag"],
)
def test_a_broker_takes_them_from_every_source(source: PropertySource) -> None:
    assert of_broker(source) == READ


def test_a_broker_takes_fields_from_a_table() -> None:
    text = b'[tls]\nserver_mode = "disabled"\noutgoing = true\n'
    assert of_broker(file_source("broker.toml", text)) == TlsConfig(server_mode="disabled", outgoing=True)


@pytest.mark.parametrize(
    "source",
    [
        file_properties("namesrv.conf", PROPERTIES),
        file_properties("namesrv.toml", TOML),
        environment_properties(
            {f"THERMOCLINE_NAME_SERVER_{environment_variable(name)[12:]}": value for name, value in SETTINGS.items()}
        ),
        PropertySource(place="flag", values=SETTINGS),
    ],
    ids=["properties", "toml", "environment", "flag"],
)
def test_a_name_server_takes_them_from_every_source(source: PropertySource) -> None:
    assert load_name_server_config([source]).config.tls == READ


def test_variables_have_names_that_a_shell_takes() -> None:
    assert environment_variable("tls.server.need.client.auth") == "THERMOCLINE_TLS_SERVER_NEED_CLIENT_AUTH"
    assert environment_variable("tls.server.keyPath") == "THERMOCLINE_TLS_SERVER_KEY_PATH"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"server_mode": "on"}, "tls.server.mode must be one of disabled, permissive, enforcing"),
        ({"client_certificate": "yes"}, "tls.server.need.client.auth must be one of none, optional, require"),
        ({"protocols": "TLSv1.1,TLSv1.2"}, "tls.protocols must be one of TLSv1.2, TLSv1.3"),
        ({"server_key_path": "/k"}, "belong together: tls.server.certPath is missing"),
        ({"client_certificate_path": "/c"}, "belong together: tls.client.keyPath is missing"),
        ({"test_mode": False}, "tls.test.mode.enable=false needs tls.server.keyPath"),
        ({"client_certificate": "require"}, "a certificate that is not checked proves nothing"),
        ({"client_certificate": "optional"}, "a certificate that is not checked proves nothing"),
        ({"check_clients": True}, "checks nothing while no certificate is requested"),
        ({"handshakes_max": 0}, "tlsHandshakesMax must be from 1 to"),
        ({"handshake_timeout_ms": 1}, "tlsHandshakeTimeoutMills must be from 100 to"),
    ],
)
def test_values_that_promise_what_others_take_back_are_refused(values: Mapping[str, object], sentence: str) -> None:
    with pytest.raises(InvalidParameterError, match=sentence.replace(".", r"\.")):
        TlsConfig(**values)  # type: ignore[arg-type]


def test_a_port_without_tls_needs_no_certificate() -> None:
    assert not TlsConfig(server_mode="disabled", test_mode=False).takes_tls


def test_no_password_is_shown() -> None:
    for values in ({"tls.server.keyPassword": "hunter2"}, {"tls.client.keyPassword": "hunter2"}):
        shown = load_name_server_config([PropertySource(place="flag", values=values)]).config.shown()
        assert "hunter2" not in shown.values()
        assert "***" in shown.values()
    assert "hunter2" not in repr(READ)


def test_no_remote_caller_changes_them() -> None:
    config = load_name_server_config([PropertySource(place="flag", values=SETTINGS)]).config
    for name, value in (
        ("tls.server.mode", "permissive"),
        ("tls.server.keyPassword", "other"),
        ("tlsHandshakesMax", "9"),
        ("useTLS", "false"),
    ):
        with pytest.raises(PermissionDeniedError, match="in the configuration file alone"):
            config.updated({name: value, "orderMessageEnable": "true"})
    same = {name: value for name, value in config.shown().items() if name.startswith("tls")}
    assert config.updated({**same, "orderMessageEnable": "true"}).order_message


def test_an_official_configuration_file_is_read(tmp_path: Path) -> None:
    """The example of RocketMQ's page on TLS, with its comments."""
    path = tmp_path / "tls.properties"
    path.write_text(
        "# The flag to determine whether use test mode\n"
        "tls.test.mode.enable=false                     \n"
        "tls.server.need.client.auth=require   \n"
        "tls.server.keyPath=/opt/certFiles/server.key\n"
        "tls.server.keyPassword=123456\n"
        "tls.server.certPath=/opt/certFiles/server.pem\n"
        "tls.server.authClient=false\n"
        "tls.server.trustCertPath=/opt/certFiles/ca.pem\n"
        "tls.client.authServer=false                    \n"
    )
    config = of_broker(PropertySource(place="tls.properties", values=read_tls_file(str(path))))
    assert (config.client_certificate, config.server_trust_path) == ("require", "/opt/certFiles/ca.pem")
    assert (config.test_mode, config.server_key_password) == (False, "123456")


def test_a_file_of_tls_settings_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "tls.properties"
    with pytest.raises(SettingError, match="a TLS file cannot be read: No such file"):
        read_tls_file(str(path))
    path.write_text("brokerName = x\n")
    with pytest.raises(SettingError, match="brokerName is no TLS setting"):
        read_tls_file(str(path))
    path.write_bytes(b"tls.server.mode = \xff\n")
    with pytest.raises(SettingError, match="is no text"):
        read_tls_file(str(path))
    assert read_tls_file("/etc/rocketmq/tls.properties") == {}


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "one")
    certificate, key = authority.issue("s.pem", "s.key", subject="s", password="right")
    _, other_key = authority.issue("o.pem", "o.key", subject="o")
    (tmp_path / "text").write_text("nothing")

    def config(**values: str) -> TlsConfig:
        pair = {
            "server_certificate_path": str(certificate),
            "server_key_path": str(key),
            "server_key_password": "right",
        }
        return TlsConfig(**{**pair, **values})  # type: ignore[arg-type]

    make_server_context(config())
    for values, sentence in (
        ({"server_key_path": str(tmp_path / "none")}, "a TLS file cannot be read: No such file or directory"),
        ({"server_key_path": str(tmp_path)}, "a TLS file cannot be read: Is a directory"),
        ({"server_key_path": str(tmp_path / "text")}, "must be PEM, and the password right"),
        ({"server_certificate_path": str(tmp_path / "text")}, "must be PEM, and the password right"),
        ({"server_key_password": "wrong"}, "must be PEM, and the password right"),
        ({"server_key_password": ""}, "must be PEM, and the password right"),
        ({"server_key_path": str(other_key)}, "the private key does not belong to the certificate"),
        (
            {"client_certificate": "require", "server_trust_path": str(tmp_path / "text")},
            "the file holds no certificate that can be read",
        ),
    ):
        with pytest.raises(SettingError, match=sentence) as caught:
            make_server_context(config(**values))
        assert "right" not in str(caught.value).replace("password right", "")
