"""What the running text of the documents names exists: commands with their options, modules, `make` targets, settings
with their values, variables, figures, codes and decisions; what looks like a name of code is a word of a source file.

Examples in fenced blocks have tests of their own.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from tests.docs.pages import DOCS, ROOT, inline_code, pages
from thermocline.auth.quota_texts import LIMITS
from thermocline.broker.metrics.families import FAMILIES as BROKER_FAMILIES
from thermocline.broker.settings.broker_settings import SETTINGS, parse_value
from thermocline.broker.settings.official_settings import BROKER_SETTINGS
from thermocline.broker.settings.setting_sources import ENVIRONMENT_ALIASES, ENVIRONMENT_OTHERS
from thermocline.cli.main import command_line
from thermocline.client import tls_environment
from thermocline.controller import controller_config
from thermocline.controller.figures import FAMILIES as CONTROLLER_FAMILIES
from thermocline.namesrv import name_server_config, name_server_settings
from thermocline.namesrv.official_settings import CONTROLLER_SETTINGS, NAME_SERVER_SETTINGS
from thermocline.proxy import settings as proxy_settings
from thermocline.proxy.metrics import FAMILIES as PROXY_FAMILIES
from thermocline.proxy.settings import setting_sources as proxy_sources
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.settings import environment_variable

PAGES = [*pages(), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
PLACEHOLDER = re.compile(r"\.\.\.|[A-Z][A-Z0-9_]*\b|\$")
"""A placeholder, for what the reader puts there."""
FIGURES = BROKER_FAMILIES.keys() | CONTROLLER_FAMILIES.keys() | PROXY_FAMILIES.keys()
CODES = {
    name: int(member)
    for codes in (RequestCode, PrivateRequestCode, ResponseCode)
    for name, member in codes.__members__.items()
}
CODE_WITH_NUMBER = re.compile(r"\b([A-Z][A-Z_]{3,}[A-Z])`? \((\d+)\)")
NUMBER_WITH_CODE = re.compile(r"\bcode (\d+) \(`([A-Z_]+)`\)")

of_each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


# -- commands ----------------------------------------------------------------------------------------------------------


def resolved(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that words name, and the words behind its name."""
    command: click.Command = command_line
    rest = list(words)
    while rest and isinstance(command, click.Group) and rest[0] in command.commands:
        command = command.commands[rest.pop(0)]
    return command, rest


def wrong_in_command(words: list[str]) -> list[str]:
    """The words that are no subcommand, or no option, of the command."""
    command, rest = resolved(words)
    options = {text for one in command.params for text in (*one.opts, *one.secondary_opts)}
    options |= {"-h", "--help"} | ({"--version"} if command is command_line else set())
    options.add("-")  # standard input, as the value of one
    wrong = [word for word in rest if word.startswith("-") and word.partition("=")[0] not in options]
    if rest and PLACEHOLDER.match(rest[0]) and isinstance(command, click.Group):
        return []
    takes_words = not isinstance(command, click.Group) or (rest and rest[0].startswith("-"))
    if rest and not takes_words:
        wrong.append(rest[0])
    return wrong


@of_each_page
def test_commands_have_the_subcommands_and_options_that_are_named(page: Path) -> None:
    wrong = {}
    for text in inline_code(page):
        head = text.split()
        is_short = len(head) > 1 and resolved(head[:2])[1] == []  # `tier seal`
        if head[:1] == ["thermocline"] or is_short:
            found = wrong_in_command(shlex.split(text)[head[0] == "thermocline" :])
            wrong |= {text: found} if found else {}
    assert wrong == {}


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """All commands by their names."""
    yield name, command
    for word, each in (command.commands if isinstance(command, click.Group) else {}).items():
        yield from commands(each, f"{name} {word}")


@pytest.mark.parametrize(
    ("name", "command"), [pytest.param(*each, id=each[0]) for each in commands(command_line, "thermocline")]
)
def test_help_names_commands_options_and_settings_that_exist(name: str, command: click.Command) -> None:
    """Examples, commands in backticks, options of the command itself, and settings."""
    texts = [command.help or "", *(option.help or "" for option in command.params if isinstance(option, click.Option))]
    text = "\n".join(texts).replace("\\\n", " ")
    examples = re.findall(r"^ +(thermocline .*)", text, re.MULTILINE)
    assert examples
    shown = [*examples, *re.findall(r"`(thermocline [^`]+)`", text)]
    shown += [f"thermocline {each}" for each in re.findall(r"`([^`]+)`", text) if not resolved(each.split()[:2])[1]]
    assert {each: wrong_in_command(shlex.split(each)[1:]) for each in shown} == {each: [] for each in shown}
    options = {each for option in command.params for each in (*option.opts, *option.secondary_opts)}
    rest = re.sub(r"`[^`]+`|^ +thermocline .*", "", text, flags=re.MULTILINE)
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", rest)) <= options
    assert set(re.findall(r"\b[a-z]+[A-Z]\w+\b", rest)) <= {"gRPC", *LIMITS} | setting_names()


@of_each_page
def test_modules_and_make_targets_are_there(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for text in inline_code(page):
        for module in re.findall(r"python -m ([\w.]+)", text):
            path = ROOT / module.removeprefix("thermocline.").replace(".", "/")
            assert path.with_suffix(".py").exists() or (path / "__main__.py").exists() or module == "venv", text
        if match := re.match(r"make ([a-z-]+)(.*)", text):
            assert re.search(rf"^{match[1]}:", makefile, re.MULTILINE), text
            for variable in re.findall(r"(\w+)=", match[2]):
                assert re.search(rf"^{variable} \?=|\$\({variable}\)", makefile, re.MULTILINE), text


# -- settings, variables -----------------------------------------------------------------------------------------------


@cache
def setting_names() -> frozenset[str]:
    """Of all daemons, RocketMQ's among them."""
    own = (*name_server_config.OWN_FIELDS, *controller_config.OWN_FIELDS)
    found = {item.metadata["name"] for item in own} | set(proxy_settings.FIELDS_BY_NAME)
    official = (BROKER_SETTINGS, NAME_SERVER_SETTINGS, CONTROLLER_SETTINGS, proxy_settings.PROXY_SETTINGS)
    return frozenset(found.union(SETTINGS, *official))


@of_each_page
def test_settings_with_a_value_are_settings_that_take_it(page: Path) -> None:
    for text in inline_code(page):
        name, separator, value = text.partition("=")
        if not separator or not re.fullmatch(r"[a-z]+([A-Z]\w*|(\.\w+)+)", name) or name in NO_SETTINGS:
            continue
        assert name in setting_names(), text
        if name in SETTINGS and not PLACEHOLDER.search(value.replace(" ", "")) and value:
            parse_value(name, value, source=str(page))


NO_SETTINGS = frozenset(
    {
        *("message.type", "queue.type", "cleanup.policy", "reserve.time"),  # attributes of topics
        *(
            "failOnDataLoss",
            "onCorruptFrame",
            "decompressBody",
            "availableNow",
            "path.style.access",
        ),  # of Spark's reads, and of s3a
        *("rocketmq.serialize.type", "org.apache.rocketmq.client.sendSmartMsg"),  # JVM properties of RocketMQ's clients
        "spark.hadoop.fs.s3a.experimental.input.fadvise",
    }
)


@cache
def variables() -> frozenset[str]:
    """All variables of the environment that some program of ours reads."""
    prefixes = {
        "THERMOCLINE_": SETTINGS,
        name_server_settings.ENVIRONMENT_PREFIX: [item.metadata["name"] for item in name_server_config.OWN_FIELDS],
        controller_config.ENVIRONMENT_PREFIX: [item.metadata["name"] for item in controller_config.OWN_FIELDS],
        proxy_sources.ENVIRONMENT_PREFIX: list(proxy_settings.FIELDS_BY_NAME),
    }
    found = {environment_variable(prefix, name) for prefix, names in prefixes.items() for name in names}
    details = ("CA", "CERT", "KEY", "KEY_PASSWORD", "KEY_PASSWORD_FILE", "SERVER_NAME", "VERIFY")
    tls = {tls_environment.TLS_VARIABLE, *(f"{tls_environment.TLS_VARIABLE}_{detail}" for detail in details)}
    return frozenset({*found, *tls, *ENVIRONMENT_ALIASES, *ENVIRONMENT_OTHERS})


@of_each_page
def test_variables_are_read(page: Path) -> None:
    named = set(re.findall(r"\bTHERMOCLINE_[A-Z_]*[A-Z]\b", page.read_text()))
    assert sorted(named - variables() - NO_VARIABLES) == []


NO_VARIABLES = frozenset({"THERMOCLINE_SERVICE_HOST", "THERMOCLINE_SPARK_WRITES"})
"""One of Kubernetes', which is passed over; a namespace in NameServers."""


# -- figures, codes, decisions -----------------------------------------------------------------------------------------


@of_each_page
def test_figures_are_shown(page: Path) -> None:
    named = {name for text in inline_code(page) for name in re.findall(r"\bthermocline_[a-z_]+[a-z]\b", text)}
    assert sorted(named - FIGURES) == []


@of_each_page
def test_codes_have_their_numbers(page: Path) -> None:
    text = page.read_text()
    named = [*CODE_WITH_NUMBER.findall(text), *((name, number) for number, name in NUMBER_WITH_CODE.findall(text))]
    wrong = [(name, number) for name, number in named if name in CODES and CODES[name] != int(number)]
    assert wrong == []


@of_each_page
def test_decisions_that_are_named_are_there(page: Path) -> None:
    text = page.read_text()
    there = {int(path.name[:4]) for path in (DOCS / "adr").glob("*.md")}
    named = {int(number) for number in re.findall(r"\b(?:ADR|[Dd]ecisions?) (\d+)\b", text)}
    assert sorted(named - there) == []
    for number, target in re.findall(r"\[(?:ADR|decision) (\d+)\]\(\S*?(\d{4})-[^)]*\)", text):
        assert int(number) == int(target)


# -- words of code -----------------------------------------------------------------------------------------------------


@cache
def source_words() -> frozenset[str]:
    """Every word of the tracked files that are not documents."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout.decode()
    found: set[str] = set()
    for name in listing.split("\0"):
        path = ROOT / name
        if name.endswith(SOURCES) and path.is_file() and not path.is_symlink():
            found.update(re.findall(r"\w+", path.read_text(encoding="utf-8", errors="replace")))
    return frozenset(found)


SOURCES = (".py", ".java", ".go", ".rs", ".c", ".toml", ".yaml", ".in", ".lock", ".lark", "Makefile")
NAME_OF_CODE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\(\))?")
HAS_A_BOUNDARY = re.compile(r"[a-z][A-Z]|_")


@of_each_page
def test_names_of_code_are_words_of_the_sources(page: Path) -> None:
    unknown = set()
    for text in inline_code(page):
        if NAME_OF_CODE.fullmatch(text) and HAS_A_BOUNDARY.search(text):
            unknown |= set(re.findall(r"\w+", text))
    elsewhere = source_words() | setting_names() | variables() | FIGURES | NAMES_ELSEWHERE
    assert sorted(unknown - elsewhere) == []


NAMES_ELSEWHERE = frozenset(
    {
        # RocketMQ's clients, tools and classes
        *("ROCKETMQ_ZONE_MODE", "pollNameServerInterval", "retryTimesWhenSendFailed", "sendLatencyFaultEnable"),
        *("sessionCredentials", "addBroker", "removeBroker", "switchTimerEngine", "triggerLiteDispatch"),
        *("getBrokerLiteInfo", "getLiteClientInfo", "getLiteGroupInfo", "getLiteTopicInfo", "getParentTopicInfo"),
        *("StatelessAuthenticationStrategy", "StatelessAuthorizationStrategy", "StatefulAuthorizationStrategy"),
        # Spark's
        *("filterPushdown", "foreachBatch", "ivySettings", "maxFailures", "pushFilters"),
        # AWS', Kubernetes'
        *("AWS_REGION", "THERMOCLINE_SERVICE_HOST"),
        # ends of names that the page gives once
        *("_long_polls", "_open_rpcs", "_receipt_handles", "_receiving_bytes"),
    }
)
