"""The section "TLS" of docs/security.md: its commands are run as printed, in their order, and lead to a TLS cluster."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.command_lines import FREE_ADDRESS, Daemon, is_daemon
from tests.docs.pages import DOCS, code_blocks, table_rows
from thermocline.client.tls_environment import TLS_VARIABLE, tls_of_environment

pytestmark = pytest.mark.xdist_group("docs-security")

PAGE = DOCS / "security.md"
NAME_SERVER = "127.0.0.1:9876"
BROKER = "127.0.0.1:10911"


def run_in_shell(text: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a block as a user would, the package's own command first in the path."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    finished = subprocess.run(
        ["bash", "-euc", text],
        cwd=directory,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, f"{text}\n{finished.stdout}{finished.stderr}"
    return finished


@pytest.fixture(scope="module")
def directory(module_folder: Path) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("the page's commands need openssl")
    return module_folder


@pytest.fixture(scope="module")
def addresses(directory: Path) -> Iterator[dict[str, str]]:
    """Run the shell blocks in their order; what serves stays until the end of the module."""
    daemons: list[Daemon] = []
    found: dict[str, str] = {}
    try:
        for block in code_blocks(PAGE, "sh"):
            if "TLS" not in block.headings:
                continue
            text = block.text
            for printed, address in found.items():
                text = text.replace(printed, address)
            words = shlex.split(text.replace("\\\n", " ").replace("$PWD", str(directory)))
            if words[0] == "thermocline" and is_daemon(words[1:]):
                printed = words[words.index("--listen") + 1]
                words[words.index("--listen") + 1] = FREE_ADDRESS
                daemons.append(Daemon(words[1:], directory))
                found[printed] = daemons[-1].ready()["broker" if words[1] == "broker" else "namesrv"]
                continue
            finished = run_in_shell(text, directory)
            if "cluster list" in text:
                assert found[BROKER] in finished.stdout
        yield found
    finally:
        for daemon in reversed(daemons):
            assert daemon.stop() == 0


def test_the_commands_lead_to_a_cluster_that_speaks_tls(addresses: dict[str, str]) -> None:
    assert addresses.keys() == {NAME_SERVER, BROKER}


def test_plain_connections_are_refused_then(addresses: dict[str, str], directory: Path) -> None:
    finished = subprocess.run(
        [str(Path(sys.executable).parent / "thermocline"), "cluster", "list", "--namesrv", addresses[NAME_SERVER]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 1
    assert "no NameServer answers" in finished.stderr
    assert "a port that takes TLS alone closes plain connections" in finished.stderr


def test_the_python_example_sends(addresses: dict[str, str], directory: Path) -> None:
    (block,) = (block for block in code_blocks(PAGE, "python") if "TLS" in block.headings)
    text = block.text.replace(NAME_SERVER, addresses[NAME_SERVER])
    finished = subprocess.run(
        [sys.executable, "-c", text], cwd=directory, capture_output=True, text=True, timeout=60, check=False
    )
    assert finished.returncode == 0, finished.stderr


def test_the_table_of_variables_is_whole() -> None:
    rows = [row for row in table_rows(PAGE) if "variable" in row.cells]
    named = {name for row in rows for name in re.findall(r"`(THERMOCLINE_CLIENT_TLS\w*)", row.cells["variable"])}
    read: set[str] = set()

    class Watched(dict[str, str]):
        def get(self, name: str, default: object = None) -> str:  # type: ignore[override]
            read.add(name)
            return "true" if name == TLS_VARIABLE else ""

    tls_of_environment(Watched())
    assert named == read
