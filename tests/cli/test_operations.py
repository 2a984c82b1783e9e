"""Commands for operators against the fake broker: members, offsets, settings, traces, NameServers, producers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import pytest

from tests.cli.shell import Shell
from thermocline.cli.brokers.broker_operations import CLEANINGS
from thermocline.client import (
    AsyncPullConsumer,
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
)
from thermocline.client.admin.broker_administration import CLEANING_CODES
from thermocline.client.testing import FakeBroker
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import UnsupportedRequestError
from thermocline.remoting.request_code import RequestCode

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
RunningInfo: TypeAlias = Callable[[AsyncPullConsumer, RemotingCommand], RemotingCommand]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.create_topic("orders", queue_nums=2)
        yield broker


@pytest.fixture
def shell(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys, broker.namesrv_address)


def fill(broker: FakeBroker, count: int = 10) -> None:
    with Producer(namesrv=broker.namesrv_address) as producer:
        producer.send_many(Message("orders", b"%d" % number) for number in range(count))


class Member:
    """A push consumer of a group, and what it got."""

    def __init__(self, broker: FakeBroker, group: str = "billing", *, enable_trace: bool = False) -> None:
        self.bodies: list[bytes] = []
        self.answer = ConsumeResult.SUCCESS
        self.consumer = PushConsumer(
            group=group, namesrv=broker.namesrv_address, consume_from_where=FIRST, enable_trace=enable_trace
        )
        self.consumer.subscribe("orders")
        self.consumer.register_listener(self._listen)

    def _listen(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        self.bodies += [message.body for message in messages]
        return self.answer


@contextmanager
def member(broker: FakeBroker, group: str = "billing", *, enable_trace: bool = False) -> Iterator[Member]:
    one = Member(broker, group, enable_trace=enable_trace)
    with one.consumer:
        broker.wait_until(lambda: bool(broker.group_members(group)))
        yield one


# -- groups ------------------------------------------------------------------------------------------------------------


def test_offsets_are_skipped_and_cloned(broker: FakeBroker, shell: Shell) -> None:
    fill(broker)
    shell("group", "reset-offset", "billing", "--topic", "orders", "--to", "earliest", "--yes")
    assert (
        shell("group", "clone-offsets", "billing", "copy", "--topic", "orders")
        == "copy is where billing is in orders on broker-a\n"
    )
    assert [row["lag"] for row in shell.json("group", "progress", "copy")] == [5, 5]
    assert shell.json("group", "skip", "billing", "--topic", "orders", "--yes") == [
        {"broker": "broker-a", "queue": 0, "offset": 5},
        {"broker": "broker-a", "queue": 1, "offset": 5},
    ]
    assert [row["lag"] for row in shell.json("group", "progress", "billing")] == [0, 0]
    assert [row["lag"] for row in shell.json("group", "progress", "copy")] == [5, 5]


def test_skipping_asks_first(broker: FakeBroker, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda prompt: "n")
    shell("group", "skip", "billing", "--topic", "orders", status=1)
    assert not broker.requests(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)


def test_groups_are_created_and_changed(shell: Shell) -> None:
    shell("group", "create", "billing", "--retry-max", "5", "--retry-delays", "10s,1m", "--no-broadcast")
    (row,) = shell.json("group", "show", "billing")
    assert row == {
        "broker": "broker-a",
        "consume": True,
        "broadcast": False,
        "orderly": False,
        "retry_max": 5,
        "retry_queues": 1,
        "retry_waits": "10s,1m",
    }
    assert shell("group", "update", "billing", "--retry-growth", "5s,2h,3", "--no-consume") == (
        "updated billing on broker-a\n"
    )
    (row,) = shell.json("group", "show", "billing")
    assert (row["consume"], row["broadcast"], row["retry_max"], row["retry_waits"]) == (False, False, 5, "5s,2h,3")
    shell("group", "create", "plain")
    assert shell.json("group", "show", "plain")[0]["retry_waits"] == "default"


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--retry-delays", "soon"),
        ("--retry-growth", "1s,2s"),
        ("--retry-delays", "1s", "--retry-growth", "1s,2s,2"),
    ],
)
def test_misused_settings(shell: Shell, options: tuple[str, ...]) -> None:
    shell("group", "create", "billing")
    shell("group", "update", "billing", *options, status=2)


def test_a_group_that_is_not_there(shell: Shell) -> None:
    for arguments in (("update", "missing", "--retry-max", "1"), ("show", "missing"), ("delete", "missing", "--yes")):
        shell("group", *arguments, status=1)
        assert shell.err == "thermocline: no broker has this group group=missing.\n"
    shell("group", "members", "missing", status=1)


def test_members_say_how_they_are(broker: FakeBroker, shell: Shell) -> None:
    fill(broker)
    with member(broker) as one:
        broker.wait_until(lambda: len(one.bodies) == 10)
        # The last message is let go of after its listener has returned; the retry topic's queue may come later still.
        broker.wait_until(lambda: shell.json("group", "members", "billing")[0]["queues"] == 3)
        broker.wait_until(lambda: shell.json("group", "members", "billing")[0]["held"] == 0)
        (row,) = shell.json("group", "members", "billing", "--stacks")
        assert (row["client_id"], row["queues"], row["held"], row["state"]) == (one.consumer.client_id, 3, 0, "active")
        assert row["subscriptions"] == {"orders": "*", "%RETRY%billing": "*"}
        assert {(state["topic"], state["queue"]) for state in row["queue_states"]} >= {("orders", 0), ("orders", 1)}
        assert "in poll" in row["stacks"] or "File" in row["stacks"]
        text = shell("group", "members", "billing", "--stacks")
        assert one.consumer.client_id in text.splitlines()[-1] or "File" in text
        assert "File" not in shell("group", "members", "billing")
        shell("group", "members", "billing", "--client-id", "missing", status=1)


def test_a_pull_consumer_says_how_it_is(broker: FakeBroker, shell: Shell) -> None:
    with PullConsumer(group="audit", namesrv=broker.namesrv_address) as consumer:
        consumer.subscribe("orders")
        broker.wait_until(lambda: len(consumer.assignment()) > 0)
        (row,) = shell.json("group", "members", "audit")
        assert row["queues"] == len(consumer.assignment())
        assert row["state"] == "active"


def row_of_member(
    broker: FakeBroker, shell: Shell, monkeypatch: pytest.MonkeyPatch, running_info: RunningInfo
) -> dict[str, Any]:
    """What is shown of a member that answers so."""
    monkeypatch.setattr(AsyncPullConsumer, "running_info", running_info)
    with PullConsumer(group="audit", namesrv=broker.namesrv_address) as consumer:
        consumer.subscribe("orders")
        broker.wait_until(lambda: bool(broker.group_members("audit")))
        rows: list[dict[str, Any]] = shell.json("group", "members", "audit")
    (row,) = rows
    return row


def test_a_member_that_does_not_say_how_it_is(
    broker: FakeBroker, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: AsyncPullConsumer, command: RemotingCommand) -> RemotingCommand:
        raise UnsupportedRequestError(code=command.code)

    row = row_of_member(broker, shell, monkeypatch, refuse)
    assert row["queues"] is None
    assert row["state"] != "active"


def test_a_member_that_cannot_write_its_rates(
    broker: FakeBroker, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Go members do for a while: success, and nothing but a remark."""

    def fail(self: AsyncPullConsumer, command: RemotingCommand) -> RemotingCommand:
        return RemotingCommand.response(command, remark="json marshal error: unsupported value: NaN")

    row = row_of_member(broker, shell, monkeypatch, fail)
    assert row["queues"] is None
    assert "NaN" in row["state"]


def test_consumers_of_a_topic(broker: FakeBroker, shell: Shell) -> None:
    with member(broker, "shipping"):
        assert shell.json("topic", "consumers", "orders") == [{"group": "shipping"}]


# -- messages ----------------------------------------------------------------------------------------------------------


def test_a_message_is_traced(broker: FakeBroker, shell: Shell) -> None:
    with (
        member(broker, enable_trace=True) as one,
        Producer(group="shop", namesrv=broker.namesrv_address, enable_trace=True) as producer,
    ):
        sent = producer.send(Message("orders", b"x", tags="paid", keys="4711"))
        broker.wait_until(lambda: one.bodies == [b"x"])
    for name in (sent.message_id, "4711"):
        steps = shell.json("message", "trace", name)
        assert [(step["step"], step["group"], step["outcome"]) for step in steps] == [
            ("sent", "shop", "SUCCESS"),
            ("received", "billing", None),
            ("consumed", "billing", "SUCCESS"),
        ]
        assert {step["message_id"] for step in steps} == {sent.message_id}
    assert (steps[0]["tags"], steps[0]["kind"], steps[0]["client"]) == ("paid", "NORMAL", "127.0.0.1")
    assert shell("message", "trace", sent.message_id).splitlines()[0].split()[:2] == ["written", "step"]
    assert shell.json("message", "trace", "unknown") == []


def test_a_message_is_sent_once_more(broker: FakeBroker, shell: Shell) -> None:
    with Producer(namesrv=broker.namesrv_address) as producer:
        message = Message("orders", b"x", tags="paid", keys="a b", properties={"own": "1"}, sharding_key="s", flag=7)
        first = producer.send(message)
    resent = shell.json("message", "resend", "orders", first.message_id)
    (again,) = [one for one in broker.messages("orders") if one.message_id == resent["message_id"]]
    assert again.message_id != first.message_id
    assert (again.body, again.tags, again.keys, again.sharding_key, again.flag) == (b"x", "paid", "a b", "s", 7)
    assert again.properties["own"] == "1"
    shell("message", "resend", "orders", first.offset_message_id)
    assert len(broker.messages("orders")) == 3
    shell("message", "resend", "orders", "7F000001000000000000000000000000", status=1)
    assert "has no message" in shell.err


def test_a_dead_letter_goes_back_to_its_topic(broker: FakeBroker, shell: Shell) -> None:
    broker.create_group("billing", retry_max_times=0)
    with member(broker) as one:
        one.answer = ConsumeResult.RECONSUME_LATER
        fill(broker, count=1)
        broker.wait_until(lambda: bool(broker.messages("%DLQ%billing")))
    (dead,) = broker.messages("%DLQ%billing")
    resent = shell.json("message", "resend", "%DLQ%billing", dead.message_id)
    assert resent["topic"] == "orders"
    assert [message.body for message in broker.messages("orders")] == [b"0", b"0"]


def test_a_message_is_consumed_directly(broker: FakeBroker, shell: Shell) -> None:
    fill(broker, count=1)
    (message,) = broker.messages("orders")
    with member(broker) as one:
        broker.wait_until(lambda: one.bodies == [b"0"])
        arguments = ("message", "consume-directly", "orders", message.message_id, "--group", "billing")
        result = shell.json(*arguments)
        assert (result["result"], result["client_id"]) == ("CR_SUCCESS", one.consumer.client_id)
        assert one.bodies == [b"0", b"0"]
        one.answer = ConsumeResult.RECONSUME_LATER
        shell(*arguments, "--client-id", one.consumer.client_id, status=1)
        assert "CR_LATER" in shell.err
        shell(*arguments, "--client-id", "missing", status=1)
    shell(*arguments, status=1)


# -- brokers, producers, NameServers -----------------------------------------------------------------------------------


def test_the_traffic_of_a_broker_is_shown(broker: FakeBroker, shell: Shell) -> None:
    fill(broker)
    broker.create_topic("quiet")
    with member(broker) as one:
        broker.wait_until(lambda: len(one.bodies) == 10)
    shell("group", "reset-offset", "late", "--topic", "orders", "--to", "earliest", "--yes")
    rows = {(row["topic"], row["group"]): row for row in shell.json("broker", "stats", "broker-a")}
    assert rows.keys() >= {("orders", "billing"), ("orders", "late"), ("quiet", "")}
    assert [rows["orders", group]["lag"] for group in ("billing", "late")] == [0, 10]
    assert rows["orders", "billing"]["in_count_day"] == 10
    assert len(shell.json("broker", "stats", "broker-a", "--topic", "quiet")) == 1
    shell("broker", "stats", "broker-a", "--topic", "nowhere", status=1)
    shell("broker", "stats", "broker-x", status=1)


@pytest.mark.parametrize("what", CLEANINGS)
def test_a_broker_cleans_up(broker: FakeBroker, shell: Shell, what: str) -> None:
    assert shell("broker", "clean", "broker-a", what) == f"broker-a has cleaned {what}\n"
    assert len(broker.requests(CLEANING_CODES[what])) == 1
    shell("broker", "clean", "broker-a", "everything", status=2)
    assert set(CLEANINGS) == CLEANING_CODES.keys()


def test_producers(broker: FakeBroker, shell: Shell) -> None:
    shell("producer", "connections", "shop", status=1)
    with Producer(group="shop", namesrv=broker.namesrv_address) as producer:
        producer.send(Message("orders", b"x"))
        broker.wait_until(lambda: bool(shell.json("producer", "list")))
        (row,) = shell.json("producer", "list", "--broker", "broker-a")
        assert (row["group"], row["client_id"], row["language"]) == ("shop", producer.client_id, "PYTHON")
        (row,) = shell.json("producer", "connections", "shop")
        assert row["client_id"] == producer.client_id


def test_the_configuration_of_name_servers(broker: FakeBroker, shell: Shell) -> None:
    address = broker.namesrv_address
    wanted = {"namesrv": address, "name": "orderMessageEnable", "value": "false"}
    assert shell.json("namesrv", "config", "get", "--match", "ORDER") == [wanted]
    assert shell.json("namesrv", "config", "set", "orderMessageEnable=true") == [wanted | {"value": "true"}]
    shell("namesrv", "config", "set", "orderMassageEnable=true", status=1)
    assert "has no setting orderMassageEnable" in shell.err
    shell("namesrv", "config", "set", "nonsense", status=2)


def test_key_value_configuration(shell: Shell) -> None:
    shell("namesrv", "kv", "put", "ORDER_TOPIC_CONFIG", "orders", "broker-a:4")
    assert shell.json("namesrv", "kv", "list", "ORDER_TOPIC_CONFIG") == [{"key": "orders", "value": "broker-a:4"}]
    shell("namesrv", "kv", "delete", "ORDER_TOPIC_CONFIG", "orders")
    assert shell.json("namesrv", "kv", "list", "ORDER_TOPIC_CONFIG") == []
    shell("namesrv", "kv", "delete", "ORDER_TOPIC_CONFIG", "orders", status=1)


def test_a_broker_is_taken_out_of_service(broker: FakeBroker, shell: Shell) -> None:
    assert shell.json("namesrv", "wipe-write-perm", "broker-a")["topics"] >= 1
    assert shell.json("topic", "route", "orders")[0]["perm"] == "r--"
    shell("namesrv", "add-write-perm", "broker-a")
    assert shell.json("topic", "route", "orders")[0]["perm"] == "rw-"
    shell("namesrv", "wipe-write-perm", "broker-x", status=1)


def test_permissions_of_a_topic_on_one_broker(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeBroker(broker_names=("broker-a", "broker-b")) as brokers:
        brokers.create_topic("orders")
        shell = Shell(capsys, brokers.namesrv_address)
        shell("topic", "update", "orders", "--perm", "r", "--broker", "broker-b")
        perms = {row["broker"]: row["perm"] for row in shell.json("topic", "route", "orders")}
        assert perms == {"broker-a": "rw-", "broker-b": "r--"}
        shell("topic", "update", "orders", "--perm", "r", "--broker", "broker-x", status=1)
