"""What stdout may be: a closed pipe, a full disk, a terminal without Unicode; and values that no calendar has."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Shell
from thermocline.cli.common.daemon_options import print_line
from thermocline.cli.common.output import time_text
from thermocline.cli.main import run
from thermocline.client.message import Message
from thermocline.client.producer.producer import Producer
from thermocline.client.testing import FakeBroker


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.create_topic("orders", queue_nums=1)
        with Producer(namesrv=broker.namesrv_address) as producer:
            producer.send(Message("orders", b"x", keys="zw\xf6lf \U0001f600"))
        yield broker


def pull(broker: FakeBroker, *options: str) -> int:
    return run(["message", "pull", "orders", "--namesrv", broker.namesrv_address, *options])


def test_a_pipe_that_is_closed_is_exit_status_1(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A short result was written by Python at its end: "Exception ignored ...", exit status 120."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert pull(broker) == 1
    assert capsys.readouterr().err == ""


def test_a_full_disk_is_exit_status_1_and_a_sentence(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert pull(broker, "--json") == 1
    assert capsys.readouterr().err == "thermocline: No space left on device.\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_without_unicode_gets_escapes(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    for options in ((), ("--json",)):
        data = io.BytesIO()
        stdout = io.TextIOWrapper(data, encoding=encoding)
        monkeypatch.setattr(sys, "stdout", stdout)
        assert pull(broker, *options) == 0
        text = data.getvalue().decode(encoding)
        if options:
            assert json.loads(text)[0]["keys"] == "zw\xf6lf \U0001f600"
        else:
            word = "zw\\xf6lf" if encoding == "ascii" else "zw\xf6lf"
            assert word in text


def test_a_daemon_serves_though_its_line_cannot_be_printed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A NameServer whose stdout was on a full disk stopped as soon as it served."""
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full", "w") as full, open(writer, "w") as closed:
        for stdout in (full, closed):
            monkeypatch.setattr(sys, "stdout", stdout)
            print_line("ready namesrv=127.0.0.1:9876")
            stdout.flush()  # nothing is left that a later flush fails with
    assert caplog.text.count("ready namesrv=127.0.0.1:9876") == 2


def test_a_process_without_stdout(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Started with `>&-`, it has none; every command ended with a traceback."""
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    for options in ((), ("--json",)):
        assert pull(broker, *options) == 0
    assert run(["topic", "status", "unknown", "--namesrv", broker.namesrv_address]) == 1
    assert sys.stdout.name == sys.stdout.fileno()
    assert os.get_inheritable(sys.stdout.fileno())


def test_a_folder_that_cannot_be_made_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dev", "--data", "/proc/none/data"]) == 1
    assert capsys.readouterr().err == "thermocline: No such file or directory path=/proc/none.\n"


def test_a_key_that_is_no_text(broker: FakeBroker, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"caf\xe9")
    Shell(capsys, broker.namesrv_address)("user", "create", "alice", "--password-file", str(tmp_path / "key"), status=2)


def test_arguments_that_are_no_unicode(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """Python gives such bytes as halves of surrogate pairs; they are sent as they are, or refused with a sentence."""
    shell = Shell(capsys, broker.namesrv_address)
    name = os.fsdecode(b"caf\xe9")
    shell("message", "send", "orders", "--body", name)
    assert [one.body for one in broker.messages("orders")] == [b"x", b"caf\xe9"]
    shell("message", "send", "orders", "--body", "x", "--key", name, status=1)
    shell("topic", "status", name, "--json", status=1)
    assert json.loads(shell.out)["errors"]


def test_times_that_no_calendar_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert time_text(1 << 62) == f"{1 << 62} ms"
    assert run(["message", "pull", "orders", "--since", "0001-01-01"]) == 2
    assert "is no time" in capsys.readouterr().err
