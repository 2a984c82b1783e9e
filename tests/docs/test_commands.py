"""docs/commands.md says every command and option, and nothing else; the commands in all documents are run."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import pytest

from tests.docs.command_lines import FREE_ADDRESS, Daemon, command_lines, is_daemon
from tests.docs.pages import DOCS, README, TableRow, code, code_blocks, headings, pages, table_rows
from tests.waiting import wait_until
from thermocline.cli.main import command_line, run
from thermocline.client.admin.admin_client import AdminClient
from thermocline.client.consumer.options import ConsumeFromWhere
from thermocline.client.consumer.pull_consumer import PullConsumer
from thermocline.client.consumer.push_consumer import PushConsumer
from thermocline.client.message import Message
from thermocline.client.producer.producer import Producer
from thermocline.client.producer.transaction_producer import TransactionProducer
from thermocline.client.producer.transactions import LocalTransactionState
from thermocline.localstack.loopback_port import free_port
from thermocline.remoting.bodies.replica import SyncStateSet
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import ConsumerOfflineError, ObjectNotFoundError
from thermocline.remoting.header_codec import Header
from thermocline.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    ElectMasterRequestHeader,
)
from thermocline.remoting.headers.namesrv import BrokerHeartbeatRequestHeader
from thermocline.remoting.request_code import RequestCode

pytestmark = pytest.mark.xdist_group("docs-commands")

PAGE = DOCS / "commands.md"
SECURITY = DOCS / "security.md"
MIGRATION = DOCS / "migrate-from-rocketmq.md"
COMMON_HEADING = "Common options"
TLS_FLAGS = ("--tls", "--tls-ca", "--tls-cert", "--tls-key", "--tls-server-name", "--tls-no-verify")


def leaf_commands(
    command: click.Command = command_line, path: str = "thermocline"
) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by its full name."""
    if isinstance(command, click.Group):
        if command.invoke_without_command:
            yield path, command
        for name, sub in command.commands.items():
            yield from leaf_commands(sub, f"{path} {name}")
    else:
        yield path, command


COMMANDS = dict(leaf_commands())
GROUPS_AND_COMMANDS = [command_line, *COMMANDS.values()]


def options(command: click.Command) -> dict[str, click.Option]:
    """Options by their texts, as the page writes them: `-n --namesrv`."""
    return {" ".join(one.opts): one for one in command.params if isinstance(one, click.Option)}


def rows_under(heading: str) -> dict[str, TableRow]:
    """Rows of options under a heading, by the option's texts."""
    rows = [row for row in table_rows(PAGE) if row.headings and row.headings[-1] == heading and "option" in row.cells]
    return {row.cells["option"].split("`")[1]: row for row in rows}


def default_text(option: click.Option) -> str:
    default = option.get_default(click.Context(click.Command("any")))
    is_unset = default in (None, "", ()) or repr(default).startswith("Sentinel")
    return "" if option.is_flag or is_unset else f"`{default}`"


def test_every_command_has_its_entry() -> None:
    found = [heading for heading in headings(PAGE) if heading.startswith("thermocline ")]
    assert sorted(found) == sorted(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_an_entry_is_true(name: str) -> None:
    command, rows = COMMANDS[name], rows_under(name)
    wanted = options(command)
    common = rows_under(COMMON_HEADING)
    if "-n --namesrv" in wanted:
        for text, row in common.items():
            option = wanted.pop(text)
            assert row.cells["default"] == default_text(option), text
    elif name in OF_ONE_SERVER:
        wanted = {text: option for text, option in wanted.items() if text not in common}
    assert rows.keys() == wanted.keys()
    for text, option in wanted.items():
        shown = rows[text].cells["default"]
        if option.required:
            assert shown == "required"
        elif default_text(option):
            assert shown == default_text(option), text
        elif shown:
            assert shown.strip("`") in (option.help or ""), f"{text}: the help says no such default"
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    examples = [block for block in code_blocks(PAGE, "sh") if block.headings[-1] == name]
    assert examples, "an example is missing"
    assert all(line.startswith(f"{name} ") or line == name for block in examples for line in block.text.splitlines())
    if arguments:
        usage = f"`{name} " + " ".join(
            argument.metavar
            or (argument.human_readable_name if argument.required else f"[{argument.human_readable_name}]")
            for argument in arguments
        )
        assert usage + "`" in PAGE.read_text()


OF_ONE_SERVER = frozenset(
    {
        "thermocline proxy rules",
        "thermocline replica status",
        *(f"thermocline controller {name}" for name in ("status", "elect", "clean", "config get", "config set")),
    }
)
"""Commands that ask one server, no NameServer, and take the other common options."""


def test_the_common_options_are_those_that_commands_share() -> None:
    assert rows_under(COMMON_HEADING).keys() == {
        *("-n --namesrv", "--timeout-ms", "--json", *TLS_FLAGS),
        *("--credentials", "--access-key", "--secret-key"),
    }
    without = [name for name, command in COMMANDS.items() if "-n --namesrv" not in options(command)]
    assert sorted(name.removeprefix("thermocline ") for name in without) == [
        "broker",
        "cold read",
        "controller",
        "controller clean",
        "controller config get",
        "controller config set",
        "controller elect",
        "controller status",
        "dev",
        "namesrv",
        "proxy",
        "proxy rules",
        "replica status",
        "spark catch-up",
        "spark compare",
        "spark counts",
        "spark key-history",
        "spark lag",
        "spark republish",
        "store doctor",
        "tier cat",
        "tier ls",
        "tier verify",
    ]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*name.split()[1:], "--help"]) == 0
    assert f"  {name}" in capsys.readouterr().out.partition("Example:")[2]


def test_code_cells_are_whole() -> None:
    for row in table_rows(PAGE):
        if "default" in row.cells and row.cells["default"] not in ("", "required"):
            assert code(row.cells["default"]), f"line {row.line}"


# -- the commands are run ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(module_folder: Path) -> Iterator[dict[str, str]]:
    """`thermocline dev` with what the examples speak of: topic orders, groups billing and shipping with a member each,
    a producer of group shop, users alice and bob. The broker has access control: everything is signed with the keys in
    the environment.
    """
    user = '{"username": "root", "password": "the-key-of-root"}'
    access = ["authenticationEnabled=true", "authorizationEnabled=true", f"initAuthenticationUser={user}"]
    settings = [word for setting in ("traceTopicEnable=true", *access) for word in ("--set", setting)]
    daemon = Daemon(
        ["dev", "--data", "data", "--namesrv", FREE_ADDRESS, "--listen", FREE_ADDRESS, *settings], module_folder
    )
    (module_folder / "carol.key").write_text("the-key-of-carol\n")
    keys = pytest.MonkeyPatch()
    keys.setenv("THERMOCLINE_ACCESS_KEY", "root")
    keys.setenv("THERMOCLINE_SECRET_KEY", "the-key-of-root")
    try:
        ready = daemon.ready()
        with AdminClient(namesrv=ready["namesrv"]) as admin:
            for name in ("alice", "bob"):
                admin.create_user(name, f"the-key-of-{name}")
            admin.set_acl("User:alice", ["Topic:orders", "Group:billing"], ["All"])
        with AdminClient(namesrv=ready["namesrv"]) as admin:
            admin.create_topic("orders", queue_nums=4)
            admin.create_topic("orders-copy", queue_nums=4)
            admin.create_group("old-billing")
        with Producer(namesrv=ready["namesrv"]) as producer:
            producer.send_many(Message("orders", b"%d" % i, keys=f"{4700 + i}") for i in range(20))
        shipping = PushConsumer(group="shipping", namesrv=ready["namesrv"])
        shipping.subscribe("orders")
        shipping.register_listener(lambda messages, context: None)
        shop = Producer(group="shop", namesrv=ready["namesrv"])
        with (
            shop,
            shipping,
            PullConsumer(
                group="billing",
                namesrv=ready["namesrv"],
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            ) as consumer,
        ):
            consumer.subscribe("orders")
            assert consumer.poll()
            consumer.commit()
            shop.send(Message("orders", b"announces its producer"))
            wait_for_clients(ready["namesrv"])
            yield ready
    finally:
        keys.undo()
        status = daemon.stop()
    assert status == 0


def wait_for_clients(namesrv: str) -> None:
    """Until the broker has heard of both groups' members and of the producer."""
    with AdminClient(namesrv=namesrv) as admin:
        for attempt in range(1_000):
            try:
                assert admin.consumer_connections("billing").connection_set
                assert admin.consumer_connections("shipping").connection_set
                assert admin.producer_connections("shop")
            except (ConsumerOfflineError, ObjectNotFoundError):
                assert attempt < 999
            else:
                return


SHOWN = {
    tuple(words): f"{page.name}:{block.line} {' '.join(words[:3])}"
    for page in pages()
    if page not in (README, SECURITY, MIGRATION)  # tests of their own run them in a shell
    for block, words in command_lines(page)
    if "A set on one machine" not in block.headings  # test_controlled_set.py runs it as a whole
}
DAEMONS = [pytest.param(list(words), id=name) for words, name in SHOWN.items() if is_daemon(words)]
SPARK_MARKS = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(900)]
"""A JVM that starts on a machine with much else to do takes minutes."""
OTHERS = [
    pytest.param(list(words), id=name, marks=SPARK_MARKS if words[0] == "spark" else [])
    for words, name in SHOWN.items()
    if not is_daemon(words)
]


def in_this_process(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = run(arguments)
    return status, *capsys.readouterr()


SPARK_PROGRAM = """
import contextlib, io, json, sys
from thermocline.cli.main import run
from thermocline.spark import local_session

session = local_session(cores=2)
answers = []
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(["tier", "seal"]) or run(words)
    answers.append([status, out.getvalue(), err.getvalue()])
session.stop()
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def spark_answers(
    cluster: dict[str, str], new_module_folder: Callable[[str], Path], java_home: Path
) -> dict[tuple[str, ...], tuple[int, str, str]]:
    """Status, stdout and stderr of every Spark command that is shown, in their order, each after everything was sealed.

    In one process, for its JVM takes longer to start than they take, and not in this one, where later tests of Spark
    would find it.
    """
    # A hand-off takes the receipt of the catch-up that is shown beside it.
    commands = sorted((words for words in SHOWN if words[0] == "spark"), key=lambda words: words[1] == "hand-off")
    done = subprocess.run(
        [sys.executable, "-c", SPARK_PROGRAM, json.dumps([_at(words, cluster) for words in commands])],
        env={**os.environ, "JAVA_HOME": str(java_home), "NAMESRV_ADDR": cluster["namesrv"]},
        cwd=new_module_folder("spark"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    return {words: (status, out, err) for words, (status, out, err) in zip(commands, answers, strict=True)}


def _at(words: Sequence[str], cluster: dict[str, str]) -> list[str]:
    """The words with the places of the cluster that runs."""
    places = {"--from": cluster["cold"], "--namesrv": cluster["namesrv"]}
    return [places.get(before, word) for before, word in itertools.pairwise(["", *words])]


@pytest.mark.parametrize("words", OTHERS)
def test_a_command_that_is_shown_works(
    words: list[str],
    cluster: dict[str, str],
    module_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(module_folder)
    monkeypatch.setenv("NAMESRV_ADDR", cluster["namesrv"])
    if words[0] == "cold" or (words[0] == "tier" and words[1] in ("ls", "cat", "verify")):
        assert run(["tier", "seal", "orders"]) == 0
    if "$HANDLE" in words:
        words[words.index("$HANDLE")] = recallable(capsys)
    if "$TRACED_ID" in words:
        words[words.index("$TRACED_ID")] = sent(cluster["namesrv"], enable_trace=True)
    if "$SENT_ID" in words:
        words[words.index("$SENT_ID")] = sent(cluster["namesrv"])
    if "$MESSAGE_ID" in words:
        words[words.index("$MESSAGE_ID")] = undecided(cluster["namesrv"])
    if "--proxy" in words:
        words[words.index("--proxy") + 1] = request.getfixturevalue("proxy_health_address")
    if words[0] in ("controller", "replica"):
        monkeypatch.setenv("THERMOCLINE_CONTROLLERS", request.getfixturevalue("controllers"))
    arguments = [word.replace("$PWD", str(module_folder)) for word in words]
    if words[0] == "spark":
        status, out, err = request.getfixturevalue("spark_answers")[tuple(words)]
    else:
        status, out, err = in_this_process(arguments, capsys)
    assert status == 0, err
    assert out or "nothing to show" in err
    if "--json" in words:
        json.loads(out)


@pytest.fixture(scope="module")
def proxy_health_address(cluster: dict[str, str], new_module_folder: Callable[[str], Path]) -> Iterator[str]:
    """The HTTP port of a proxy of the cluster."""
    ports = [word for name in ("healthPort", "remotingListenPort") for word in ("--set", f"{name}=0")]
    words = ["proxy", "--namesrv", cluster["namesrv"], "--listen", FREE_ADDRESS, *ports]
    daemon = Daemon(words, new_module_folder("proxy"))
    try:
        daemon.ready()
        found = re.search(r"health endpoint host=(\S+) port=(\d+)", daemon.errors())
        assert found is not None, daemon.errors()
        yield f"{found[1]}:{found[2]}"
    finally:
        status = daemon.stop()
    assert status == 0


@pytest.fixture(scope="module")
def controllers(new_module_folder: Callable[[str], Path]) -> Iterator[str]:
    """A controller with three replicas of broker-a: number 1 is the master of {1, 2}, number 3 is dead."""
    address = f"127.0.0.1:{free_port()}"
    words = ["controller", "--data", "data", "--peers", f"n0-{address}", "--id", "n0"]
    daemon = Daemon(words, new_module_folder("controller"))
    try:
        daemon.ready()
        with AdminClient(namesrv=address) as admin:
            wait_until(lambda: admin.controller_status(address)[address].is_leader, what="the controller leads")

            def ask(code: RequestCode, header: Header, body: bytes = b"") -> None:
                admin.invoke(address, RemotingCommand.request(code, header, body=body))

            name = {"cluster_name": "DefaultCluster", "broker_name": "broker-a"}
            for number in (1, 2, 3):
                code = f"127.0.0.1:{20_000 + number};1"
                header = ApplyBrokerIdRequestHeader(**name, applied_broker_id=number, register_check_code=code)
                ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, header)
            for number in (1, 2):
                beat = BrokerHeartbeatRequestHeader(
                    **name, broker_addr="", broker_id=number, heartbeat_timeout_mills=600_000
                )
                ask(RequestCode.BROKER_HEARTBEAT, beat)
            ask(RequestCode.CONTROLLER_ELECT_MASTER, ElectMasterRequestHeader(**name, broker_id=1))
            alter = AlterSyncStateSetRequestHeader(broker_name="broker-a", master_broker_id=1, master_epoch=1)
            members = SyncStateSet(sync_state_set=[1, 2], sync_state_set_epoch=1)
            ask(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, alter, members.encode())
            yield address
    finally:
        status = daemon.stop()
    assert status == 0


def recallable(capsys: pytest.CaptureFixture[str]) -> str:
    """The handle of a message that waits, on a broker that allows recalls."""
    assert run(["broker", "config", "set", "broker-a", "recallMessageEnable=true"]) == 0
    capsys.readouterr()
    assert run(["message", "send", "orders", "--body", "later", "--delay", "1h", "--json"]) == 0
    (sent,) = json.loads(capsys.readouterr().out)
    handle: str = sent["recall_handle"]
    return handle


def sent(namesrv: str, *, enable_trace: bool = False) -> str:
    """The id of a message in orders."""
    with Producer(namesrv=namesrv, enable_trace=enable_trace) as producer:
        return producer.send(Message("orders", b"sent")).message_id


class Undecided:
    """Local transactions whose outcome stays unknown."""

    def execute_local_transaction(self, *_: object) -> LocalTransactionState:
        return LocalTransactionState.UNKNOWN

    check_local_transaction = execute_local_transaction


def undecided(namesrv: str) -> str:
    """The offset message id of a half message that stays open."""
    producer = TransactionProducer(group="undecided", namesrv=namesrv)
    producer.register_transaction_listener(Undecided())
    with producer:
        return producer.send_message_in_transaction(Message("orders", b"undecided")).offset_message_id


@pytest.mark.parametrize("words", DAEMONS)
def test_a_daemon_that_is_shown_serves(words: list[str], cluster: dict[str, str], tmp_path: Path) -> None:
    words = [word.replace("$PWD", str(tmp_path)) for word in words]
    for option in ("--listen", "--namesrv"):
        if option in words:
            is_client = words[0] in ("broker", "proxy") and option == "--namesrv"
            words[words.index(option) + 1] = cluster["namesrv"] if is_client else FREE_ADDRESS
        elif words[0] == "dev":
            words += [option, FREE_ADDRESS]
    if words[0] == "broker":
        words += ["--name", "broker-z"]
    if words[0] == "controller":
        words[words.index("--peers") + 1] = f"n0-127.0.0.1:{free_port()}"
    if words[0] == "proxy":
        words += ["--set", "remotingListenPort=0"]
    if "--proxy" in words:
        words += ["--proxy-set", "remotingListenPort=0", "--proxy-set", "grpcServerPort=0"]
    daemon = Daemon(words, tmp_path)
    try:
        ready = daemon.ready()
    finally:
        status = daemon.stop()
    assert status == 0
    fields = {"dev": {"namesrv", "broker", "cold"}, "namesrv": {"namesrv"}, "broker": {"broker", "cold"}}
    fields["controller"] = {"controller"}
    proxies = {"proxy", "remoting"} if "--proxy" in words else set()
    assert {**fields, "proxy": {"proxy", "remoting"}}[words[0]] | proxies == ready.keys()
