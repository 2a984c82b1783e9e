"""docs/compatibility.md says what works: its tables are held against the running daemons, and against the tests."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.controller.controller_group import controller_group
from tests.docs.pages import DOCS, README, ROOT, TableRow, code, table_rows
from tests.interop import test_java_controller_mode, test_mqadmin_users
from tests.interop.cluster import thermocline_daemons
from tests.interop.test_mqadmin_comparison import COMMANDS, DIFFERENT, ENDLESS
from thermocline.broker.settings.official_settings import BROKER_SETTINGS
from thermocline.broker.tables.topic_attributes import ATTRIBUTES, apply_change
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.response_code import ResponseCode

pytestmark = pytest.mark.xdist_group("docs-compatibility")

PAGE = DOCS / "compatibility.md"
STATUSES = {"works", "differs", "not yet"}
ANSWER_TIMEOUT_MS = 10_000
SUPER_USER = Credentials(access_key="root", secret_key="the-key-of-root")
ACCESS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": SUPER_USER.access_key, "password": SUPER_USER.secret_key}),
}
"""A broker serves the requests about users while it has access control."""


def rows_under(heading: str) -> list[TableRow]:
    return [row for row in table_rows(PAGE) if row.headings[-1] == heading]


CODES = {code(row.cells["name"]): row.cells for row in rows_under("Request codes")}
COMMAND_ROWS = {code(row.cells["command"]): row.cells for row in rows_under("mqadmin commands")}


@pytest.mark.parametrize("heading", ["Features", "mqadmin commands", "Request codes"])
def test_each_row_has_a_status_and_says_how_it_differs(heading: str) -> None:
    for row in rows_under(heading):
        assert row.cells["status"] in STATUSES
        if row.cells["status"] == "differs":
            assert row.cells.get("remarks") or row.cells["remarks, tests"], row.line


def test_every_request_code_has_its_row() -> None:
    assert {name: int(cells["code"]) for name, cells in CODES.items()} == {each.name: each for each in RequestCode}
    assert len(CODES) == len(rows_under("Request codes"))


@pytest.fixture(scope="module")
def addresses(module_folder: Path) -> Iterator[Mapping[str, str]]:
    with (
        thermocline_daemons(module_folder, settings=ACCESS) as daemons,
        controller_group(module_folder, size=1) as controllers,
    ):
        controllers.leader()
        yield {
            "NameServer": daemons.namesrv,
            "broker": daemons.broker_address,
            "controller": controllers.text,
        }


@pytest.mark.parametrize("asked_of", ["broker", "NameServer", "controller"])
def test_a_code_is_served_when_its_row_says_so(addresses: Mapping[str, str], asked_of: str) -> None:
    """Each code is asked without fields or body: what is served complains of them, the rest is not supported."""

    async def served() -> set[str]:
        connection = await ClientConnection.open(addresses[asked_of])
        found = set()
        for request_code in RequestCode:
            command = RemotingCommand.request(request_code)
            SUPER_USER.sign(command)
            answer = await connection.call(command, timeout_ms=ANSWER_TIMEOUT_MS)
            if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                found.add(request_code.name)
        connection.close()
        return found

    rows = {name: cells for name, cells in CODES.items() if cells["asked of"] == asked_of}
    wanted = {name for name, cells in rows.items() if cells["status"] != "not yet"}
    assert asyncio.run(served()) == wanted | ({"BROKER_HEARTBEAT"} if asked_of == "controller" else set())


def test_a_command_works_when_it_prints_what_the_official_broker_does() -> None:
    run = {command.name for command in COMMANDS} | set(ENDLESS)
    run |= {line.split()[0] for line in test_mqadmin_users.COMMANDS} | test_java_controller_mode.COMMANDS
    different = {line.split()[0] for line in (*DIFFERENT, *test_mqadmin_users.DIFFERENT)}
    for name, cells in COMMAND_ROWS.items():
        if name not in run:
            assert cells["status"] == "not yet", name
        elif name in different:
            assert cells["status"] == "differs", name
        else:
            assert cells["status"] == "works", name
    assert run <= COMMAND_ROWS.keys()


NOT_YET = [row for row in rows_under("Features") if row.cells["status"] == "not yet"]


def is_refused(text: str) -> bool:
    """Whether a setting (`name`, or `name=value`), a topic's attribute or a command of mqadmin is refused."""
    name, _, value = text.removeprefix("mqadmin ").partition("=")
    if name in ATTRIBUTES:
        try:
            apply_change({}, {f"+{name}": value}, is_new=True)
        except InvalidRequestError:
            return True
        return False
    if name in BROKER_SETTINGS:
        return not BROKER_SETTINGS[name].accepts(value or "true")
    return name in COMMAND_ROWS and COMMAND_ROWS[name]["status"] == "not yet"


@pytest.mark.parametrize("row", NOT_YET, ids=lambda row: f"line {row.line}")
def test_what_is_not_built_is_refused(row: TableRow) -> None:
    """Each row names what is refused because of it, and all of that is."""
    texts = re.findall(r"`([^`]+)`", " ".join(row.cells.values()))
    names = [text for text in texts if re.fullmatch(r"(mqadmin )?[a-zA-Z.]+(=\w+)?", text)]
    assert names, "nothing is named that is refused"
    assert [name for name in names if not is_refused(name)] == []


def test_the_readme_names_what_is_not_built_and_nothing_else() -> None:
    paragraph = README.read_text().partition("## What is not there yet")[2].strip().partition(".")[0]
    names = [name.removeprefix("the ").casefold() for name in " ".join(paragraph.split()).split(", ")]
    features = [row.cells["feature"].casefold() for row in NOT_YET]
    assert [name for name in names if not any(name in feature for feature in features)] == []
    assert [feature for feature in features if not any(name in feature for name in names)] == []


def test_the_tests_that_features_name_are_there() -> None:
    for row in rows_under("Features"):
        for path in re.findall(r"`(tests/[^`]+)`", row.cells["remarks, tests"]):
            assert (ROOT / Path(path)).is_file(), path
