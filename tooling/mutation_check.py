"""Mutation check: whether the tests notice single changes of the code, chosen by a seed.

    python -m tooling.mutation_check --seed 7 --count 40 [--only store tiered] [--near]

Each mutation changes one operator, one literal or one call on one line of a function in FOLDERS. It is made in a
worktree of its own, so the tree that is worked on stays as it is. Then tests run until one fails:

    near       test files that are named after the module or name it in their header, and those that import it
    reaching   tests of `make test-full` that run the line, the shortest first; one whole run of `make test-full`, with
               marks at the lines of all mutations that the near tests left, finds which (tooling/reaching_tests.py)

With `--near` the check ends before that run. A mutation that survives is printed as a diff: it gets a test, or it
changes nothing that can be seen (say which in the note).
Not mutated: assertions, log calls, annotations, docstrings, and what stands outside functions.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tooling.reaching_tests import place_marks, reaching, read_timeline, run_all

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("store", "tiered", "broker", "remoting", "replication")
NEAR_MAX = 12
"""Of the test files that import a module."""
NEAR_TIMEOUT_S = 300
REACHING_S = 2_400
"""Of the tests that reach a line, the shortest run, up to this sum of their times."""
PASSED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
NEAR_OPTIONS = ("-n", "2")
WHOLE_OPTIONS = ("-n", "6", "--dist", "loadgroup", "--full")

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """Columns [start, end) of a line (from 1) become `text`."""

    path: str
    line: int
    start: int
    end: int
    text: str

    def apply(self, source: str) -> str:
        """The source with the change made."""
        lines = source.splitlines(keepends=True)
        line = lines[self.line - 1]
        lines[self.line - 1] = line[: self.start] + self.text + line[self.end :]
        return "".join(lines)


def mutations_of(path: str, source: str) -> list[Mutation]:
    """Every mutation of a file, in the order of its lines. Columns count characters; the file must be ASCII there."""
    tree = ast.parse(source)
    lines = source.splitlines()
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    found = {
        mutation
        for function in functions
        for statement in function.body
        for node in _mutable(statement)
        for mutation in _of_node(path, node, lines)
        if lines[mutation.line - 1].isascii()
    }
    return sorted(found, key=lambda each: (each.line, each.start, each.text))


def _mutable(node: ast.AST) -> Iterator[ast.AST]:
    """A statement's nodes without those that are not mutated."""
    if isinstance(node, ast.Assert | ast.Raise) or _is_log_call(node) or _is_text(node):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _mutable(child)


def _is_log_call(node: ast.AST) -> bool:
    call = node.value if isinstance(node, ast.Expr) else node
    return isinstance(call, ast.Call) and ast.unparse(call.func).startswith("logger.")


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


def _of_node(path: str, node: ast.AST, lines: list[str]) -> Iterator[Mutation]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield from _between(path, node.left, node.comparators[0], COMPARISONS.get(type(node.ops[0])), lines)
    elif isinstance(node, ast.BinOp):
        yield from _between(path, node.left, node.right, ARITHMETIC.get(type(node.op)), lines)
    elif isinstance(node, ast.BoolOp):
        words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        yield from _between(path, node.values[0], node.values[1], words, lines)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and node.lineno == node.operand.lineno:
        yield Mutation(path=path, line=node.lineno, start=node.col_offset, end=node.operand.col_offset, text="")
    elif isinstance(node, ast.Constant) and isinstance(node.value, int) and node.end_col_offset is not None:
        text = str(not node.value) if isinstance(node.value, bool) else str(node.value + 1)
        yield Mutation(path=path, line=node.lineno, start=node.col_offset, end=node.end_col_offset, text=text)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await) and node.lineno == node.end_lineno:
        assert node.end_col_offset is not None
        yield Mutation(path=path, line=node.lineno, start=node.col_offset, end=node.end_col_offset, text="pass")


def _between(
    path: str, first: ast.expr, second: ast.expr, words: tuple[str, str] | None, lines: list[str]
) -> Iterator[Mutation]:
    """The operator between two operands, where all of it is on one line."""
    if words is None or first.end_lineno != second.lineno or first.end_col_offset is None:
        return
    start, end = first.end_col_offset, second.col_offset
    match = re.search(rf"(?<!\S){re.escape(words[0])}(?!\S)", lines[second.lineno - 1][start:end])
    if match is not None:
        yield Mutation(
            path=path, line=second.lineno, start=start + match.start(), end=start + match.end(), text=words[1]
        )


def choose(root: Path, seed: int, count: int, folders: list[str]) -> list[Mutation]:
    """`count` mutations: a file by its number of lines, then one of its mutations."""
    files = [
        path for path in _git(root, "ls-files", *folders) if path.endswith(".py") and not path.endswith("__init__.py")
    ]
    sources = {path: (root / path).read_text() for path in files}
    candidates = {path: mutations_of(path, source) for path, source in sources.items()}
    files = [path for path in files if candidates[path]]
    chooser = random.Random(seed)
    weights = [sources[path].count("\n") for path in files]
    chosen: list[Mutation] = []
    while len(chosen) < count:
        mutation = chooser.choice(candidates[chooser.choices(files, weights)[0]])
        if mutation not in chosen:
            chosen.append(mutation)
    return chosen


def near_tests(root: Path, path: str) -> list[str]:
    """The test files nearest to a module, at most NEAR_MAX."""
    module = path.removesuffix(".py").replace("/", ".")
    folder, _, name = module.rpartition(".")
    files = _git(root, "ls-files", "tests")
    tests = [test for test in files if Path(test).name.startswith("test_") and test.endswith(".py")]
    naming = _git(root, "grep", "-l", "-F", f"`{path}`", "tests")
    named = [test for test in tests if Path(test).name == f"test_{name}.py" or test in naming]
    imports = rf"thermocline\.({re.escape(module)}|{re.escape(folder)}) import"
    importing = _git(root, "grep", "-l", "-E", imports, "tests")
    return [*named, *(test for test in importing if test in tests and test not in named)][:NEAR_MAX]


def _git(root: Path, *arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.splitlines()


class MutatedTree:
    """A worktree of a commit in which mutations are made one at a time."""

    def __init__(self, folder: Path, commit: str) -> None:
        self.path = folder / "tree"
        _git(ROOT, "worktree", "add", "--detach", str(self.path), commit)
        if (ROOT / ".cache").exists():
            (self.path / ".cache").symlink_to(ROOT / ".cache")

    def remove(self) -> None:
        """Remove the worktree."""
        _git(ROOT, "worktree", "remove", "--force", str(self.path))

    def noticing(self, mutation: Mutation, tests: list[str], options: Sequence[str], timeout_s: float) -> str | None:
        """The first of `tests` that notices the mutation; None if all pass. A file whose tests fail without it too, in
        this selection, is passed over."""
        path = self.path / mutation.path
        source = path.read_text()
        while tests:
            path.write_text(mutation.apply(source))
            try:
                failing = self._first_failing(tests, options, timeout_s)
            finally:
                path.write_text(source)
            if failing is None:
                return None
            beside = [test for test in tests if test.startswith(failing.partition("::")[0])]
            if not beside or self._first_failing(beside, options, timeout_s) is None:
                return failing
            tests = [test for test in tests if test not in beside]
        return None

    def _first_failing(self, tests: list[str], options: Sequence[str], timeout_s: float) -> str | None:
        environment = {**os.environ, "PYTHONPATH": str(self.path / "src")}
        list_file = self.path.parent / "tests.txt"
        list_file.write_text("\n".join(tests))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *options, f"@{list_file}"]
        try:
            done = subprocess.run(
                command, cwd=self.path, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return f"{len(tests)} tests do not end"
        if done.returncode in PASSED:
            return None
        if done.returncode == pytest.ExitCode.USAGE_ERROR:
            raise SystemExit(f"pytest does not take these tests: {done.stdout[-2_000:]}{done.stderr[-2_000:]}")
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
        return failed.group(1) if failed else f"pytest ended with {done.returncode}"


def main() -> None:
    """Print a line for each mutation and stage, and the diff of each that survives."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, required=True, nargs="+", help="several make a draw each")
    parser.add_argument("--count", type=int, default=40, help="mutations of a draw; default: %(default)s")
    parser.add_argument("--only", nargs="*", default=list(FOLDERS), metavar="FOLDER", help="top-level folders")
    parser.add_argument("--near", action="store_true", help="only the near tests")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mutations-"))
    (commit,) = _git(ROOT, "rev-parse", "HEAD")  # the branch may go on while this runs
    tree = MutatedTree(folder, commit)
    try:
        mutations = [
            each for seed in arguments.seed for each in choose(tree.path, seed, arguments.count, arguments.only)
        ]
        survivors = list(_try_near(tree, mutations))
        if not arguments.near:
            survivors = list(_try_reaching(tree, survivors, folder, commit))
    finally:
        tree.remove()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(mutations) - len(survivors)} of {len(mutations)} noticed")


def _try_near(tree: MutatedTree, mutations: list[Mutation]) -> Iterator[Mutation]:
    """Those that the near tests leave."""
    for number, mutation in enumerate(mutations, start=1):
        test = tree.noticing(mutation, near_tests(tree.path, mutation.path), NEAR_OPTIONS, NEAR_TIMEOUT_S)
        _print(tree, f"{number:3}", mutation, test)
        if test is None:
            yield mutation


def _try_reaching(tree: MutatedTree, mutations: list[Mutation], folder: Path, commit: str) -> Iterator[Mutation]:
    """Those that no test that reaches them notices, after a whole run that finds these tests."""
    marked = MutatedTree(folder / "marked", commit)
    marks, timeline = folder / "marks.txt", folder / "timeline.txt"
    try:
        place_marks(marked.path, [(each.path, each.line) for each in mutations], marks)
        run_all(marked.path, timeline, WHOLE_OPTIONS)
    finally:
        marked.remove()
    runs = read_timeline(timeline)
    print(f"whole run: {len(runs)} tests, not passed: {sum(not run.is_passed for run in runs)}", flush=True)
    for mutation, reached in zip(mutations, reaching(marks, runs, len(mutations)), strict=True):
        sums_s = list(itertools.accumulate(run.end - run.start for run in reached))
        tests = [run.node_id for run, sum_s in zip(reached, sums_s, strict=True) if sum_s <= REACHING_S]
        test = tree.noticing(mutation, tests, WHOLE_OPTIONS, REACHING_S)
        _print(tree, f"{len(tests)} of {len(reached)} tests", mutation, test)
        if test is None:
            yield mutation


def _print(tree: MutatedTree, head: str, mutation: Mutation, test: str | None) -> None:
    place = f"{mutation.path}:{mutation.line}"
    print(f"{head} {place:60} {test or 'SURVIVED'}", flush=True)
    if test is None:
        source = (tree.path / mutation.path).read_text()
        before = source.splitlines()[mutation.line - 1]
        print(f"    - {before}\n    + {mutation.apply(source).splitlines()[mutation.line - 1]}", flush=True)


if __name__ == "__main__":
    main()
