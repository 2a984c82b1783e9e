"""Settings of access control: what is refused at the start, and that no error shows a secret."""

from __future__ import annotations

import pytest

from thermocline.auth.auth_config import AuthConfig
from thermocline.broker.settings.setting_sources import load_settings
from thermocline.namesrv.name_server_settings import load_name_server_config
from thermocline.remoting.errors import InvalidParameterError, SettingError
from thermocline.remoting.settings import PropertySource


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"authorization_enabled": True}, "authorizationEnabled needs authenticationEnabled"),
        ({"migrate_v1": True}, "migrateAuthFromV1Enabled needs aclFile"),
        ({"authentication_whitelist": "10,send"}, "authenticationWhitelist is a list of request codes"),
        ({"init_user": '{"username": "root", "password": s3cret}'}, "initAuthenticationUser is a JSON object"),
        (
            {"init_user": '{"username": " ", "password": "s3cret"}'},
            "initAuthenticationUser needs username and password",
        ),
        ({"inner_credentials": '{"accessKey": "a", "secret": "s3cret"}'}, "innerClientAuthenticationCredentials is a"),
        ({"audit_file_bytes": 1}, "auditLogFileBytes must be at least 4096"),
    ],
)
def test_what_cannot_be_is_refused_without_showing_a_secret(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(InvalidParameterError) as refused:
        AuthConfig(**settings)  # type: ignore[arg-type]
    assert sentence in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_broker_and_a_name_server_read_them_by_rocketmqs_names() -> None:
    values = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationWhitelist": "105, 34",
        "initAuthenticationUser": '{"username": "root", "password": "s3cret"}',
        "innerClientAuthenticationCredentials": '{"accessKey": "inner", "secretKey": "s3cret"}',
        "authenticationStrategy": "org.apache.rocketmq.auth.authentication.strategy.StatefulAuthenticationStrategy",
        "authenticationMetadataProvider": (
            "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
        ),
        "userCacheMaxNum": "10",
    }
    broker = load_settings([PropertySource(place="file", values={"storePathRootDir": "/nowhere", **values})]).auth
    names = {name: text for name, text in values.items() if not name.endswith(("Strategy", "Provider", "MaxNum"))}
    name_server = load_name_server_config([PropertySource(place="file", values=names)]).config
    for auth in (broker, name_server.auth):
        assert auth.whitelists() == (frozenset({105, 34}), frozenset())
        assert auth.first_users() == (("root", "s3cret"), ("inner", "s3cret"))
        assert "s3cret" not in repr(auth)
    assert "s3cret" not in repr(name_server)
    assert "s3cret" not in str(name_server.shown())


def test_another_provider_is_refused() -> None:
    values = {"storePathRootDir": "/nowhere", "authenticationProvider": "com.example.Provider"}
    with pytest.raises(SettingError):
        load_settings([PropertySource(place="file", values=values)])
