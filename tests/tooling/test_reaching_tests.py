"""Marks are found in the tests that run their lines: in the test's own process and in servers that it started."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

from tooling.reaching_tests import place_marks, reaching, read_timeline, run_all, with_marks

MODULE = '''"""A module."""


def sign(number: int) -> int:
    if number < 0:
        return -1
    elif number == 0:
        return 0
    return max(
        1,
        number // number,
    )
'''
TESTS = """import subprocess
import sys

import pytest
from thermocline.numbers import sign

OTHER = "import sys; from thermocline.numbers import sign; print(sign(int(sys.argv[1])))"


def test_below() -> None:
    assert sign(-7) == -1


def test_zero() -> None:
    assert sign(0) == 0


def test_other_process() -> None:
    assert subprocess.check_output([sys.executable, "-c", OTHER, "5"]) == b"1\\n"


def test_that_fails() -> None:
    assert sign(5) == 2
"""


def test_a_mark_stands_before_the_statement_of_its_line() -> None:
    marked = with_marks(MODULE, [(7, 3), (11, 4), (6, 5)])
    ast.parse(marked)
    lines = [line.strip() for line in marked.splitlines()]
    assert [lines[lines.index(line) - 1][-8:] for line in ("if number < 0:", "return max(", "return -1")] == [
        ".mark(3)",
        ".mark(4)",
        ".mark(5)",
    ]


def test_each_mark_has_the_tests_that_reach_it(tmp_path: Path) -> None:
    package = tmp_path / "src/thermocline"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "numbers.py").write_text(MODULE)
    (tmp_path / "test_numbers.py").write_text(TESTS)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    marks, timeline = tmp_path / "marks.txt", tmp_path / "timeline.txt"
    place_marks(tmp_path, [("src/thermocline/numbers.py", line) for line in (6, 8, 10)], marks)
    run_all(tmp_path, timeline, ("-n", "2", "test_numbers.py"))
    runs = read_timeline(timeline)
    assert {run.node_id.partition("::")[2]: run.is_passed for run in runs} == {
        "test_below": True,
        "test_zero": True,
        "test_other_process": True,
        "test_that_fails": False,
    }
    below, zero, above = ({run.node_id.partition("::")[2] for run in found} for found in reaching(marks, runs, 3))
    assert (below, zero) == ({"test_below"}, {"test_zero"})
    assert "test_other_process" in above
    assert "test_that_fails" not in above
