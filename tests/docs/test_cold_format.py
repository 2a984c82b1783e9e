"""docs/cold-format.md shows the reader in examples/ as it is: its commands run as they stand, its sections exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from examples import cold_reader
from tests.docs.pages import DOCS, ROOT, code_blocks, headings, table_rows

PAGE = DOCS / "cold-format.md"
READER = ROOT / "examples" / "cold_reader.py"
LINES = [line for block in code_blocks(PAGE, "sh") for line in block.text.splitlines()]


def test_every_command_is_shown() -> None:
    cells = [row.cells["command"] for row in table_rows(PAGE) if "command" in row.cells]
    assert [cell.strip("`").split()[0] for cell in cells] == list(cold_reader.WORDS)
    assert [len(cell.strip("`").split()) - 1 for cell in cells] == list(cold_reader.WORDS.values())
    assert {shlex.split(line)[3] for line in LINES} == set(cold_reader.WORDS)


@pytest.mark.parametrize("line", LINES, ids=lambda line: " ".join(shlex.split(line)[3:6]))
def test_a_command_runs(line: str) -> None:
    python, program, *words = shlex.split(line)
    assert (python, ROOT / program) == ("python", READER)
    done = subprocess.run([sys.executable, program, *words], capture_output=True, check=False, cwd=ROOT, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout


def test_the_sections_that_the_reader_names_are_there() -> None:
    numbers = {heading.split()[0].rstrip(".") for heading in headings(PAGE)}
    named = set(re.findall(r"[( ](\d\.\d)[,)]", READER.read_text()))
    assert len(named) >= 6
    assert named <= numbers
