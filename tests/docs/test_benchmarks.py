"""docs/benchmarks.md names each program of `benchmarks/`, and no option that its program does not take."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS, ROOT, table_rows

PAGE = DOCS / "benchmarks.md"
FOLDER = ROOT / "benchmarks"
COMMAND = re.compile(r"python -m benchmarks\.(\w+)([^`\n]*)")
SHARED = (FOLDER / "compare.py").read_text()
"""Has the options of those that measure both brokers in turn."""


def programs() -> set[str]:
    return {path.stem for path in FOLDER.glob("*.py") if 'if __name__ == "__main__":' in path.read_text()}


def test_each_program_is_in_the_table_and_has_help() -> None:
    rows = [row.cells["command"] for row in table_rows(PAGE) if "question" in row.cells]
    assert {name for cell in rows for name, _ in COMMAND.findall(cell)} == programs()
    assert [name for name in sorted(programs()) if "ArgumentParser(" not in (FOLDER / f"{name}.py").read_text()] == []


def test_options_are_those_that_programs_take() -> None:
    for name, words in COMMAND.findall(PAGE.read_text()):
        source = (FOLDER / f"{name}.py").read_text()
        source += SHARED if "parse_with_common" in source else ""
        assert [option for option in re.findall(r"--[a-z-]+", words) if f'"{option}"' not in source] == [], name
