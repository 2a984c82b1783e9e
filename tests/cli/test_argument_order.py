"""Arguments of all commands come in one order, so that users of one command can type another.

    where            BROKER, NAMESPACE: the process to query, or the place where something is stored
                     KIND: which kind of name NAME is
    what             TOPIC, NAME, GROUP, SOURCE, USER: the one thing that the command is about
    which of it      a message, a queue, keys; what is done with it; what it becomes
    file or bucket   URL, FILE, RECEIPT

A second name that could be taken for the first (a topic beside a group) is an option.
"""

from __future__ import annotations

import re

import click
import pytest

from tests.docs.test_commands import COMMANDS
from thermocline.cli.main import run

WHERE, WHAT, WHICH, PLACE = range(4)
RANKS = {
    "BROKER": WHERE,
    "NAMESPACE": WHERE,
    "KIND": WHERE,
    "TOPIC": WHAT,
    "NAME": WHAT,
    "GROUP": WHAT,
    "SOURCE": WHAT,
    "USER": WHAT,
    "USERS": WHAT,
    "NAMES": WHAT,
    "ACTION": WHICH,
    "ACTIONS": WHICH,
    "RESOURCE": WHICH,
    "RESOURCES": WHICH,
    "QUEUE": WHICH,
    "REPLICA": WHICH,
    "MESSAGE_ID": WHICH,
    "HANDLE": WHICH,
    "KEY": WHICH,
    "KEYS": WHICH,
    "VALUE": WHICH,
    "DURATION": WHICH,
    "BYTES": WHICH,
    "WHAT": WHICH,
    "NAME=VALUE": WHICH,
    "LIMIT=NUMBER": WHICH,
    "TARGET": WHICH,
    "OTHER": WHICH,
    "URL": PLACE,
    "FILE": PLACE,
    "RECEIPT": PLACE,
}
"""A command with an argument of another name needs its place here."""
URL_FIRST = "file:///nowhere"


def arguments(command: click.Command) -> list[str]:
    """The names of a command's arguments as its help shows them, without brackets and dots."""
    shown = [one.metavar or one.human_readable_name for one in command.params if isinstance(one, click.Argument)]
    return [re.sub(r"[\[\].]", "", word).upper() for text in shown for word in text.split()]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_arguments_come_in_one_order(name: str) -> None:
    names = arguments(COMMANDS[name])
    assert set(names) <= RANKS.keys()
    ranks = [RANKS[one] for one in names]
    assert ranks == sorted(ranks), f"{name} {' '.join(names)}"
    assert ranks.count(WHAT) <= 1, f"{name}: make one of {' '.join(names)} an option"


def test_a_key_comes_before_its_value() -> None:
    for names in map(arguments, COMMANDS.values()):
        assert "VALUE" not in names or names.index("KEY") < names.index("VALUE")


@pytest.mark.parametrize(
    "words",
    [
        ("broker", "--namesrv", "10.0.0.1:9876", "config", "set", "broker-a", "fileReservedTime=1"),
        ("broker", "--proxy", "runtime", "broker-a"),
        ("namesrv", "--set", "listenPort=1", "wipe-write-perm", "broker-a"),
        ("proxy", "--namesrv", "10.0.0.1:9876", "clients"),
        ("controller", "--peers", "n0-10.0.0.1:9878", "status"),
    ],
)
def test_options_of_a_daemon_in_front_of_a_subcommand_are_misuse(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """They had no effect: the subcommand asked, and changed, the cluster of the default or of NAMESRV_ADDR."""
    assert run(words) == 2
    assert f"{words[1]} is an option of running a {words[0]}" in capsys.readouterr().err


def test_a_variable_for_a_daemon_does_not_hinder_a_subcommand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THERMOCLINE_LOG_LEVEL", "ERROR")
    assert run(("broker", "config", "get", "--help")) == 0


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (("tier", "ls", "orders"), "thermocline tier ls TOPIC URL"),
        (("tier", "cat", "orders", "billing"), "thermocline tier cat TOPIC URL"),
        (("tier", "cat", URL_FIRST), "thermocline tier cat TOPIC URL"),
        (("tier", "verify", URL_FIRST, URL_FIRST), "thermocline tier verify TOPIC URL"),
        (("tier", "verify", URL_FIRST), "Give either TOPIC or --key"),
        (("tier", "ls", "orders", URL_FIRST, "more"), "thermocline tier ls TOPIC URL"),
        (("spark", "lag", "billing", "orders", "--from", URL_FIRST), "thermocline spark lag orders --group billing"),
        (("spark", "lag", "orders", "--from", URL_FIRST), "--group"),
        (("spark", "lag", "a", "b", "--group", "g", "--from", URL_FIRST), "Give one TOPIC"),
    ],
)
def test_an_error_shows_the_usage(words: tuple[str, ...], usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    assert usage in capsys.readouterr().err
