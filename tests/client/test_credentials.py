"""Where the keys of a client come from, and that a signed send is what the official clients sign.

Covers `remoting/request_signature.py`.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from thermocline.client import Credentials, Producer, credentials_from_environment, credentials_from_file
from thermocline.client.producer.send_frame import SendTemplate
from thermocline.remoting.command import RemotingCommand, decode_command
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import SIGNATURE

KEYS = Credentials(access_key="alice", secret_key="s3cret", security_token="t0ken")


def test_a_key_of_the_environment_that_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command ended with a traceback."""
    for name in ("ACCESS", "SECRET"):
        monkeypatch.setenv(f"THERMOCLINE_{name}_KEY", "caf\udce9")
    with pytest.raises(InvalidRequestError, match="is no text"):
        Producer()


def test_keys_of_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("accessKey: alice\nsecretKey: s3cret\n")
    file.chmod(0o600)
    named = {"THERMOCLINE_ACCESS_KEY": "alice", "THERMOCLINE_SECRET_KEY": "s3cret"}
    assert credentials_from_environment({}) is None
    assert credentials_from_environment(named) == Credentials(access_key="alice", secret_key="s3cret")
    assert credentials_from_environment({**named, "THERMOCLINE_SECURITY_TOKEN": "t0ken"}) == KEYS
    by_file = credentials_from_environment({"THERMOCLINE_CREDENTIALS_FILE": str(file)})
    assert by_file == Credentials(access_key="alice", secret_key="s3cret")
    with pytest.raises(InvalidRequestError):
        credentials_from_environment({"THERMOCLINE_ACCESS_KEY": "alice"})


@pytest.mark.parametrize(
    "text",
    [
        "# of RocketMQ\naccessKey: alice\nsecretKey: s3cret\nsecurityToken: t0ken\n",
        'accessKey = "alice"\nsecretKey=s3cret\nsecurityToken=t0ken',
        '{"accessKey": "alice", "secretKey": "s3cret", "securityToken": "t0ken"}',
    ],
)
def test_keys_of_a_file(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    file.chmod(0o600)
    assert credentials_from_file(file) == KEYS
    assert not caplog.records
    file.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert credentials_from_file(file) == KEYS
    assert "chmod 600" in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("text", ["accessKey: alice\nsecret: s3cret\n", '{"accessKey": 7, "secretKey": "s3cret"}', ""])
def test_a_file_without_keys_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(InvalidRequestError) as refused:
        credentials_from_file(file)
    assert "s3cret" not in str(refused.value)
    with pytest.raises(InvalidRequestError):
        credentials_from_file(tmp_path / "none")


def test_no_secret_is_shown() -> None:
    shown = f"{KEYS!r} {Producer(group='g', credentials=KEYS)!r}"
    assert "s3cret" not in shown
    assert "t0ken" not in shown


@pytest.mark.parametrize("limit", [None, 16])
@pytest.mark.parametrize("batch", [False, True])
def test_a_send_of_a_template_is_signed_as_any_request(batch: bool, limit: int | None) -> None:
    template = SendTemplate.render(
        group="größe",
        topic="T",
        broker_name="broker-a",
        queue_id=3,
        default_topic="TBW102",
        default_topic_queue_nums=8,
        batch=batch,
        reconsume_times=2,
        max_reconsume_times=limit,
        credentials=KEYS,
    )
    frame = template.fill(
        sys_flag=1,
        born_timestamp_ms=1_700_000_000_000,
        flag=-7,
        properties_text='KEYS\x01"k" ü\x02',
        body=b"body",
        opaque=5,
    )
    sent = decode_command(frame[4:])
    assert sent.code == (RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2)
    again = RemotingCommand.request(sent.code, ext_fields=sent.ext_fields, body=sent.body)
    KEYS.sign(again)
    assert sent.ext_fields is not None
    assert again.ext_fields == sent.ext_fields
    assert sent.ext_fields[SIGNATURE]
