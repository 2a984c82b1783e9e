"""The command as a whole: exit status, messages, help with examples; and each admin command against the fake broker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import click
import pytest

from tests.cli.shell import Shell
from thermocline.cli.main import command_line, run
from thermocline.cli.messages import message
from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.producer import Producer
from thermocline.client.testing import FakeBroker
from thermocline.remoting.bodies import SetMessageRequestModeRequestBody
from thermocline.remoting.request_code import RequestCode


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


@pytest.fixture
def shell(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys, broker.namesrv_address)


def commands(group: click.Command = command_line, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its path, groups included."""
    yield path, group
    if isinstance(group, click.Group):
        for name, command in group.commands.items():
            yield from commands(command, (*path, name))


# -- the whole ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [path for path, _ in commands()], ids=" ".join)
def test_every_help_explains_and_gives_an_example(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*path, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Example:" in text
    assert f"thermocline {' '.join(path)}".strip() in text.split("Example:")[1]


def test_failures_are_one_sentence_and_exit_status_1(shell: Shell) -> None:
    shell("topic", "status", "nowhere", status=1)
    assert shell.out == ""
    assert shell.err.startswith("thermocline: ")
    assert shell.err.count("\n") == 1


def test_misuse_is_exit_status_2(shell: Shell) -> None:
    shell("topic", "create", status=2)
    assert "Missing argument" in shell.err
    shell("nonsense", status=2)
    shell("topic", "update", "orders", status=2)
    shell("message", "send", "orders", status=2)
    shell("message", "send", "orders", "--body", "x", "--property", "nothing", status=2)
    shell("message", "send", "orders", "--body", "x", "--deliver-at", "latest", status=2)
    shell("message", "pull", "orders", "--since", "latest", status=2)
    shell("message", "pull", "orders", "--since", "earliest", "--offset", "3", status=2)
    shell("message", "query", "orders", "--key", "4711", "--since", "latest", status=2)
    shell("ttl", "set", "orders", "soon", status=2)
    for option in (("--since", "now"), ("--count", "1")):
        shell("message", "query", "orders", "--id", "4711", *option, status=2)
        assert "--since and --count go with --key" in shell.err
    # Without RESOURCE all policies go, not the defaults alone.
    shell("acl", "delete", "alice", "--default", "--yes", status=2)
    assert "--default says where the entry of RESOURCE is" in shell.err


def test_an_unreachable_cluster_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(capsys, "127.0.0.1:1")
    shell("topic", "list", "--timeout-ms", "500", status=1)
    assert "no NameServer answers" in shell.err
    Shell(capsys, "nonsense")("topic", "list", status=1)


def test_it_refuses_to_run_without_assertions() -> None:
    code = "import sys; from thermocline.cli.main import run; sys.exit(run(['--version']))"
    result = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "assertions" in result.stderr


def test_a_send_that_is_interrupted_shows_what_was_sent(
    broker: FakeBroker, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines(file: object) -> Iterator[bytes]:
        yield b"one"
        raise KeyboardInterrupt  # while the next line of a pipe or a terminal is waited for

    monkeypatch.setattr(message, "_lines", lines)
    broker.create_topic("orders")
    shell("message", "send", "orders", "--file", __file__, "--json", status=1)
    answer = json.loads(shell.out)
    assert [row["message_id"] for row in answer["result"]] == [one.message_id for one in broker.messages("orders")]
    assert answer["errors"] == [{"broker": None, "address": None, "error": "interrupted"}]
    assert shell.err == "thermocline: interrupted.\n"


# -- topics ------------------------------------------------------------------------------------------------------------


def test_topics(broker: FakeBroker, shell: Shell) -> None:
    assert shell("topic", "create", "orders", "--queues", "3", "--attribute", "message.type=FIFO") == (
        "created orders with 3 queues on broker-a\n"
    )
    assert shell.json("topic", "list") == [{"topic": "orders"}]
    assert "TBW102" in [row["topic"] for row in shell.json("topic", "list", "--all")]
    (route,) = shell.json("topic", "route", "orders")
    assert (route["broker"], route["read_queues"], route["perm"]) == ("broker-a", 3, "rw-")
    assert route["attributes"] == {"message.type": "FIFO"}
    shell("topic", "update", "orders", "--write-queues", "5", "--remove-attribute", "message.type", "--perm", "r")
    (route,) = shell.json("topic", "route", "orders")
    assert (route["write_queues"], route["perm"], route["attributes"]) == (5, "r--", {})
    status = shell.json("topic", "status", "orders")
    assert [row["queue"] for row in status] == [0, 1, 2, 3, 4]
    shell("topic", "delete", "orders", "--yes")
    assert shell("topic", "list") == ""
    assert shell.err == "nothing to show\n"


def test_deleting_asks_first(broker: FakeBroker, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("orders")
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda prompt: "n")
    shell("topic", "delete", "orders", status=1)
    assert shell.json("topic", "list") == [{"topic": "orders"}]


def test_tables_are_for_people(broker: FakeBroker, shell: Shell) -> None:
    broker.create_topic("orders", queue_nums=1)
    with Producer(namesrv=broker.namesrv_address) as producer:
        producer.send(Message("orders", b"x"))
    lines = shell("topic", "status", "orders").splitlines()
    assert lines[0].split() == ["broker", "queue", "min", "offset", "max", "offset", "messages", "last", "update"]
    assert lines[1].split()[:5] == ["broker-a", "0", "0", "1", "1"]


# -- messages ----------------------------------------------------------------------------------------------------------


def test_sending_reading_and_finding(broker: FakeBroker, shell: Shell, tmp_path: Any) -> None:
    broker.create_topic("orders", queue_nums=2)
    (sent,) = shell.json(
        "message", "send", "orders", "--body", "hello", "--tag", "paid", "--key", "k1", "--property", "a=b"
    )
    assert sent["status"] == "SEND_OK"
    lines = tmp_path / "lines.txt"
    lines.write_text("one\n\ntwo\r\nthree\n")
    assert len(shell.json("message", "send", "orders", "--file", str(lines))) == 3
    found = shell.json("message", "pull", "orders")
    assert sorted(row["body"] for row in found) == ["hello", "one", "three", "two"]
    assert len(shell.json("message", "pull", "orders", "--count", "1")) == 2
    assert [row["body"] for row in shell.json("message", "pull", "orders", "--tag", "paid")] == ["hello"]
    shell("message", "pull", "orders", "--tag", "paid", "--sql", "a = 'b'", status=2)
    assert shell.json("message", "pull", "orders", "--since", "now") == []
    (row,) = shell.json("message", "query", "orders", "--key", "k1")
    assert (row["body"], row["properties"]["a"], row["tags"]) == ("hello", "b", "paid")
    assert shell.json("message", "query", "orders", "--id", sent["message_id"])[0]["body"] == "hello"
    assert shell.json("message", "query", "orders", "--id", row["offset_message_id"])[0]["body"] == "hello"
    assert shell.json("message", "query", "orders", "--key", "none") == []
    shell("message", "pull", "orders", "--queue", "7", status=1)


def test_sending_for_later_and_recalling(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeBroker(delays_messages=True) as broker:
        broker.create_topic("orders")
        shell = Shell(capsys, broker.namesrv_address)
        (far,) = shell.json("message", "send", "orders", "--body", "far", "--delay", "1d12h")
        (then,) = shell.json("message", "send", "orders", "--body", "then", "--deliver-at", "2999-01-01T00:00")
        (now,) = shell.json("message", "send", "orders", "--body", "now")
        assert "recall_handle" not in now
        assert [row["body"] for row in shell.json("message", "pull", "orders")] == ["now"]
        for sent in (far, then):
            recalled = shell.json("message", "recall", sent["recall_handle"])
            assert recalled == {"message_id": sent["message_id"]}
        properties = [request.fields["i"] for request in broker.requests(RequestCode.SEND_MESSAGE_V2)]
        assert "TIMER_DELAY_MS\x01129600000\x02" in properties[0]
        assert "TIMER_DELIVER_MS\x0132" in properties[1]
        shell("message", "recall", "nonsense", status=1)
        assert "recall handle is invalid" in shell.err
        shell("message", "send", "orders", "--body", "x", "--delay", "1s", "--deliver-at", "now", status=2)


def test_bodies_that_are_no_text_and_long_ones(broker: FakeBroker, shell: Shell) -> None:
    broker.create_topic("orders", queue_nums=1)
    with Producer(namesrv=broker.namesrv_address) as producer:
        producer.send(Message("orders", b"\xff\xfe"))
        producer.send(Message("orders", b"y" * 500))
    assert [row["body"] for row in shell.json("message", "pull", "orders")] == ["base64://4=", "y" * 500]
    assert "y" * 81 not in shell("message", "pull", "orders")
    assert "y" * 500 in shell("message", "pull", "orders", "--full")


def test_pulling_reads_on_over_many_requests(broker: FakeBroker, shell: Shell) -> None:
    broker.create_topic("orders", queue_nums=1)
    with Producer(namesrv=broker.namesrv_address) as producer:
        producer.send_many(Message("orders", b"%d" % i) for i in range(100))
    rows = shell.json("message", "pull", "orders", "--offset", "10", "--count", "75")
    assert [int(row["body"]) for row in rows] == list(range(10, 85))
    assert len(broker.requests(RequestCode.PULL_MESSAGE)) == 3


# -- groups ------------------------------------------------------------------------------------------------------------


def test_groups(broker: FakeBroker, shell: Shell) -> None:
    broker.create_topic("orders", queue_nums=1)
    broker.create_group("billing")
    with Producer(namesrv=broker.namesrv_address) as producer:
        producer.send_batch([Message("orders", b"%d" % i) for i in range(10)])
    assert shell.json("group", "list") == [{"group": "billing"}]
    shell("group", "reset-offset", "billing", "--topic", "orders", "--to", "earliest", "--yes")
    (row,) = shell.json("group", "progress", "billing")
    assert (row["broker_offset"], row["consumer_offset"], row["lag"]) == (10, 0, 10)
    assert "lag" in shell("group", "progress", "billing")
    assert "lag in all: 10" in shell.err
    assert shell.json("group", "reset-offset", "billing", "--topic", "orders", "--to", "latest", "--yes") == [
        {"broker": "broker-a", "queue": 0, "offset": 10}
    ]
    changed = shell.json("group", "set-mode", "billing", "--topic", "orders", "--mode", "pop", "--share-queues", "2")
    assert changed == {"group": "billing", "topic": "orders", "mode": "pop", "brokers": ["broker-a"]}
    (request,) = broker.requests(RequestCode.SET_MESSAGE_REQUEST_MODE)
    assert SetMessageRequestModeRequestBody.decode(request.body) == SetMessageRequestModeRequestBody(
        consumer_group="billing", topic="orders", mode="POP", pop_share_queue_num=2
    )
    shell("group", "set-mode", "billing", "--topic", "orders", "--mode", "peek", status=2)
    shell("group", "progress", "missing", status=1)
    shell("group", "connections", "billing", status=1)
    shell("group", "delete", "billing", "--offsets", "--yes")
    assert shell.json("group", "list") == []
    shell("group", "delete", "billing", "--offsets", "--yes", status=1)
    assert (shell.out, shell.err) == ("", "thermocline: no broker has this group group=billing.\n")
    assert broker.committed_offset("billing", "orders", 0) is None
    queue = MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)
    assert broker.messages("orders")[0].queue == queue


# -- brokers -----------------------------------------------------------------------------------------------------------


def test_brokers(broker: FakeBroker, shell: Shell) -> None:
    (row,) = shell.json("cluster", "list")
    assert (row["broker"], row["version"], row["state"]) == ("broker-a", "V5_5_0", "active")
    assert shell.json("broker", "config", "get", "broker-a", "--match", "FLUSH") == {"flushDiskType": "ASYNC_FLUSH"}
    assert shell.json("broker", "config", "set", "broker-a", "flushDiskType=SYNC_FLUSH") == {
        "flushDiskType": "SYNC_FLUSH"
    }
    shell("broker", "config", "set", "broker-a", "flushDiscType=x", status=1)
    assert "no setting flushDiscType" in shell.err
    shell("broker", "config", "set", "broker-a", "nonsense", status=2)
    assert "V5_5_0" in shell("broker", "runtime", "broker-a", "--match", "version")
    shell("broker", "runtime", "broker-x", status=1)


def test_tier_commands_say_that_another_broker_has_no_cold_tier(broker: FakeBroker, shell: Shell) -> None:
    broker.create_topic("orders")
    for arguments in (("tier", "status"), ("tier", "explain", "orders"), ("ttl", "show", "orders")):
        shell(*arguments, status=1)
        assert "not supported" in shell.err
