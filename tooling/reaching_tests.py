"""Which tests run a line: marks in a copy of the tree, and one whole run of the tests that records them.

A mark stands before the statement of a line. It appends its number, the time, the pytest worker and pytest's current
test to a file, from whatever process runs it: the test's own, or a server that the test started. A server may outlive
the test that started it, so each test's begin and end are recorded as well (this module is the pytest plugin that does
it); every test of that worker that ran at the time of a mark counts as reaching it.

Used by `tooling/mutation_check.py`.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

TIMELINE_FILE = "TEST_TIMELINE"
"""Environment variable: where the plugin appends `worker, start, end, outcome, test`, with tabs between, times in s.
Brokers refuse unknown variables whose names begin as their own do."""
SLOT_S = 0.2
"""A mark is written at most once in this time by a process and test."""
OWN = "test process"
"""Stands for the worker where the test's own process ran the line: the test is known then."""
MARKS_MODULE = f'''"""Writes down that a line runs. Made by tooling/reaching_tests.py."""

import os
import sys
import time

written = set()


def mark(number):
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    key = (number, test, int(time.time() / {SLOT_S}), os.getpid())
    if key not in written:
        if len(written) > 10_000:
            written.clear()
        written.add(key)
        worker = "{OWN}" if test and "pytest" in sys.modules else os.environ.get("PYTEST_XDIST_WORKER", "")
        file = os.open(FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.write(file, f"{{number}}\\t{{worker}}\\t{{time.time()}}\\t{{test}}\\n".encode())
        os.close(file)


FILE = '''


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRun:
    """A test's run: when it ran, in seconds of the clock, and where."""

    name: str
    worker: str
    start: float
    end: float
    is_passed: bool

    @property
    def node_id(self) -> str:
        """The name without the xdist group that `--dist loadgroup` appends."""
        return re.sub(r"@[^\]@:/]+$", "", self.name)


def place_marks(tree: Path, places: Sequence[tuple[str, int]], file: Path) -> None:
    """Put mark K before the statement of the Kth (path, line) in `tree`; marks that run are appended to `file`."""
    (tree / "src/thermocline/reached_lines.py").write_text(f"{MARKS_MODULE}{str(file)!r}\n")
    by_path: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, (path, line) in enumerate(places):
        by_path[path].append((line, number))
    for path, marks in by_path.items():
        source = (tree / path).read_text()
        (tree / path).write_text(with_marks(source, marks))


def with_marks(source: str, marks: Iterable[tuple[int, int]]) -> str:
    """`source` with a mark for each (line, number) before the innermost statement that holds the line."""
    lines = source.splitlines(keepends=True)
    statements = _markable(ast.parse(source), lines)
    inserted = [(_innermost(statements, line), number) for line, number in marks]
    for statement, number in sorted(inserted, key=lambda each: -each[0].lineno):
        call = f"__import__('thermocline.reached_lines', fromlist=['mark']).mark({number})\n"
        lines.insert(statement.lineno - 1, " " * statement.col_offset + call)
    return "".join(lines)


def _markable(tree: ast.Module, lines: list[str]) -> list[ast.stmt]:
    """Statements of functions before which a line can stand: not an `elif`, not one with a decorator."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [
        node
        for function in functions
        for statement in function.body
        for node in ast.walk(statement)
        if isinstance(node, ast.stmt)
        and not getattr(node, "decorator_list", None)
        and lines[node.lineno - 1][: node.col_offset].strip() == ""
        and not lines[node.lineno - 1].lstrip().startswith("elif ")
    ]


def _innermost(statements: list[ast.stmt], line: int) -> ast.stmt:
    """Of the statements that hold the line, the one that begins last."""
    holding = [each for each in statements if each.lineno <= line <= (each.end_lineno or each.lineno)]
    return max(holding, key=lambda each: (each.lineno, each.col_offset))


def run_all(tree: Path, timeline: Path, arguments: Sequence[str]) -> None:
    """Run the tests of a tree with its marks in place; failures are in the timeline."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{tree / 'src'}:{Path(__file__).resolve().parent.parent}",
        TIMELINE_FILE: str(timeline),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tooling.reaching_tests"]
    with timeline.with_suffix(".log").open("w") as log:
        subprocess.run([*command, *arguments], cwd=tree, env=environment, stdout=log, stderr=log, check=False)


def read_timeline(timeline: Path) -> list[TestRun]:
    """Every run of a test that the plugin recorded."""
    rows = (line.split("\t", 4) for line in timeline.read_text().splitlines())
    return [
        TestRun(name=name, worker=worker, start=float(start), end=float(end), is_passed=outcome == "passed")
        for worker, start, end, outcome, name in rows
    ]


def reaching(file: Path, runs: list[TestRun], count: int) -> list[list[TestRun]]:
    """For each of `count` marks the tests that passed and reached it, the shortest first."""
    by_name = {run.name: run for run in runs}
    found: list[dict[str, TestRun]] = [{} for _ in range(count)]
    for number, worker, moment, test in _written_marks(file):
        own = [by_name[test]] if test in by_name else []
        beside = [
            run for run in runs if worker in ("", run.worker) and run.start - SLOT_S <= moment <= run.end + SLOT_S
        ]
        found[number].update((run.name, run) for run in own + (beside if worker != OWN else []) if run.is_passed)
    return [sorted(tests.values(), key=lambda run: run.end - run.start) for tests in found]


def _written_marks(file: Path) -> set[tuple[int, str, float, str]]:
    """Numbers, workers, times in s and tests of the marks, those of one test's process once."""
    lines = file.read_text().splitlines() if file.exists() else []
    rows = (line.split("\t", 3) for line in lines)
    return {
        (int(number), worker, 0.0 if worker == OWN else round(float(moment) / SLOT_S) * SLOT_S, test.rpartition(" ")[0])
        for number, worker, moment, test in rows
    }


class Timeline:
    """The pytest plugin: a line for each test that a worker has run."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._worker = os.environ.get("PYTEST_XDIST_WORKER", "")
        self._start = 0.0
        self._outcomes: set[str] = set()

    def pytest_runtest_logstart(self) -> None:
        """A test begins."""
        self._start = time.time()
        self._outcomes.clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of the test has ended."""
        self._outcomes.add(report.outcome)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """The test has ended."""
        outcome = next(iter(self._outcomes)) if len(self._outcomes) == 1 else "failed or skipped"
        with self._file.open("a") as file:
            file.write(f"{self._worker}\t{self._start}\t{time.time()}\t{outcome}\t{nodeid}\n")


def pytest_configure(config: pytest.Config) -> None:
    """Record in workers only: the process that controls them sees each test a second time."""
    if TIMELINE_FILE in os.environ and "PYTEST_XDIST_WORKER" in os.environ:
        config.pluginmanager.register(Timeline(Path(os.environ[TIMELINE_FILE])))
