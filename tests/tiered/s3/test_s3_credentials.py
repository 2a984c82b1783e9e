"""Which key signs a request, by the sources that are chosen; the library's own files and variables, and a server."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tiered.s3.stub_server import stubbed
from thermocline.remoting.errors import InvalidRequestError
from thermocline.tiered.s3 import S3ObjectStore, S3Options
from thermocline.tiered.s3.s3_options import CREDENTIAL_KINDS

UNSIGNED = ""


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with two profiles in a file, and nothing else that says who it is."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    keys = "[default]\naws_access_key_id = of-default\naws_secret_access_key = s\n"
    (tmp_path / "keys").write_text(keys + keys.replace("default", "history"))
    (tmp_path / "more").write_text(keys.replace("default", "elsewhere"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


async def signer(*credentials: str, profile: str | None = None, credentials_file: str | None = None) -> str:
    """The access key of the next request; the options have one of their own, `key`."""
    options = S3Options(
        bucket="bucket", credentials=credentials or None, profile=profile, credentials_file=credentials_file
    )
    async with stubbed(options) as (stub, store):
        stub.found(b"x")
        assert await store.get("k") == b"x"
        found = re.search(r"authorization: .*Credential=([^/]*)/", stub.requests[0], re.IGNORECASE)
        return UNSIGNED if found is None else found[1]


async def test_with_no_choice_it_is_the_key_of_the_options() -> None:
    assert await signer() == "key"


async def test_the_first_that_has_something_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await signer("environment", "keys", "profile") == "key"
    assert await signer("environment", "profile", "keys") == "of-default"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    assert await signer("environment", "profile", "keys") == "of-environment"
    assert await signer("environment", "profile", profile="history") == "of-environment"


async def test_a_profile_and_its_file_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await signer("profile", profile="history") == "of-history"
    assert await signer("profile", profile="elsewhere", credentials_file=str(tmp_path / "more")) == "of-elsewhere"
    monkeypatch.setenv("AWS_PROFILE", "history")
    assert await signer("profile") == "of-history"


async def test_anonymous_requests_are_not_signed() -> None:
    assert await signer("anonymous") == UNSIGNED
    assert await signer("environment", "web-identity", "anonymous", "keys") == UNSIGNED
    assert await signer("profile", "anonymous") == "of-default"


async def test_every_source_is_known() -> None:
    assert await signer(*(kind for kind in CREDENTIAL_KINDS if kind not in ("keys", "profile"))) == UNSIGNED


async def test_a_profile_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    reached = S3Options(bucket="bucket", endpoint="http://127.0.0.1:9")
    sentence = r"cannot be set up bucket=bucket reason=.*\(missing\)"
    with pytest.raises(InvalidRequestError, match=sentence):
        await S3ObjectStore.open(replace(reached, credentials=("profile",), profile="missing"))
    monkeypatch.setenv("AWS_PROFILE", "missing")
    with pytest.raises(InvalidRequestError, match=sentence):
        await S3ObjectStore.open(reached)


@pytest.mark.parametrize("credentials", [(), ("magic",), ("keys", "")])
def test_a_choice_that_is_none_is_refused(credentials: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequestError, match="credentials are of keys, environment"):
        S3Options(bucket="bucket", credentials=credentials)
