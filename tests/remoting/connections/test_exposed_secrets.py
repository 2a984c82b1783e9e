"""Secrets in flags, and in files that others may read, are warned of once; the warning has no secret in it.

Covers `broker/settings/setting_sources.py`, `namesrv/name_server_settings.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from thermocline.broker.main import BrokerArguments, load_broker_settings
from thermocline.namesrv.main import load_config

SECRET = "the-secret-itself"
USER = json.dumps({"username": "root", "password": SECRET})
INNER = json.dumps({"accessKey": "brokers", "secretKey": SECRET})
FILE = f"authenticationEnabled=true\ninitAuthenticationUser={USER}\n"


def load(kind: str, *, path: Path | None, flags: Mapping[str, str], root: Path) -> None:
    if kind == "broker":
        arguments = BrokerArguments(
            config_path=None if path is None else str(path), flags={"storePathRootDir": str(root), **flags}
        )
        load_broker_settings(arguments, {})
    else:
        load_config(config_path=path, environment={}, flags=flags)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert SECRET not in caplog.text
    found = [record.getMessage() for record in caplog.records if "secret" in record.getMessage()]
    caplog.clear()
    return found


@pytest.mark.parametrize("kind", ["broker", "name server"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("initAuthenticationUser", USER),
        ("innerClientAuthenticationCredentials", INNER),
        ("tls.server.keyPassword", SECRET),
    ],
)
def test_a_secret_in_a_flag(kind: str, name: str, text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load(kind, path=None, flags={name: text}, root=tmp_path)
    (warning,) = warnings(caplog)
    assert "ps" in warning
    assert warning.endswith(f"settings={name}")


def test_keys_in_the_url_of_the_cold_tier_are_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = f"s3://bucket/prefix?access_key=me&secret_key={SECRET}"
    load("broker", path=None, flags={"coldUrl": url}, root=tmp_path)
    (warning,) = warnings(caplog)
    assert warning.endswith("settings=coldUrl")
    load("broker", path=None, flags={"coldUrl": "s3://bucket/prefix"}, root=tmp_path)
    assert not warnings(caplog)


@pytest.mark.parametrize("kind", ["broker", "name server"])
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o606])
def test_a_file_that_others_may_read(kind: str, mode: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "daemon.conf"
    path.write_text(FILE)
    path.chmod(mode)
    load(kind, path=path, flags={}, root=tmp_path / "store")
    (warning,) = warnings(caplog)
    assert f"path={path} mode={mode:04o} settings=initAuthenticationUser" in warning
    path.chmod(0o600)
    load(kind, path=path, flags={}, root=tmp_path / "store")
    assert not warnings(caplog)


@pytest.mark.parametrize("kind", ["broker", "name server"])
def test_a_file_without_secrets_may_be_read(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "daemon.conf"
    path.write_text("authenticationEnabled=true\ninitAuthenticationUser=\n")
    path.chmod(0o644)
    load(kind, path=path, flags={"authorizationEnabled": "true"}, root=tmp_path / "store")
    assert not warnings(caplog)


def test_files_that_a_setting_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """tls.properties with a password, and an older file of accounts."""
    tls, accounts = tmp_path / "tls.properties", tmp_path / "plain_acl.yml"
    tls.write_text(f"tls.server.keyPassword={SECRET}\n")
    accounts.write_text(f"accounts:\n  - accessKey: a\n    secretKey: {SECRET}\n")
    for path in (tls, accounts):
        path.chmod(0o644)
    flags = {
        "tls.config.file": str(tls),
        "authenticationEnabled": "true",
        "migrateAuthFromV1Enabled": "true",
        "aclFile": str(accounts),
    }
    load("broker", path=None, flags=flags, root=tmp_path / "store")
    found = warnings(caplog)
    assert len(found) == 2
    assert f"path={tls} mode=0644 settings=tls.server.keyPassword" in found[0]
    assert f"path={accounts} mode=0644 settings=secretKey" in found[1]
    load("name server", path=None, flags={"tls.config.file": str(tls)}, root=tmp_path)
    assert len(warnings(caplog)) == 1
