"""Mutation check: whether the tests notice single changes of the code, chosen by a seed.

    python -m tooling.mutation_check --seed 7 --count 40 [--only store tiered] [--until folder]

Each mutation changes one operator, one literal or one call on one line of a function in FOLDERS. It is made in a
worktree of its own, so the tree that is worked on stays as it is. Then tests run until one fails:

    near     test files that are named after the module or name it in their header, and those that import it
    folder   tests of the module's top-level folder
    broad    tests of all layers without servers: BROAD

All of them are part of `make test-full`. A mutation that survives is printed as a diff: it gets a test, or it changes
nothing that can be seen (say which in the note).
Not mutated: assertions, log calls, annotations, docstrings, and what stands outside functions.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("store", "tiered", "broker", "remoting", "replication")
BROAD = (
    *("tests/store", "tests/remoting", "tests/broker", "tests/tiered", "tests/boundary", "tests/timers"),
    *("tests/replication", "tests/transactions", "tests/pop", "tests/namesrv", "tests/client", "tests/crash/points"),
)
NEAR_MAX = 12
"""Of the test files that import a module."""
TIMEOUT_S = {"near": 300, "folder": 900, "broad": 2_400}
STAGES = tuple(TIMEOUT_S)

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


def choose(seed: int, count: int, folders: list[str]) -> list[Mutation]:
    """`count` mutations: a file by its number of lines, then one of its mutations."""
    files = [path for path in _git("ls-files", *folders) if path.endswith(".py") and not path.endswith("__init__.py")]
    sources = {path: (ROOT / path).read_text() for path in files}
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


def stages(path: str) -> Iterator[tuple[str, list[str]]]:
    """Names of the stages with the tests of each."""
    module = path.removesuffix(".py").replace("/", ".")
    folder, _, name = module.rpartition(".")
    tests = [test for test in _git("ls-files", "tests") if Path(test).name.startswith("test_") and test.endswith(".py")]
    naming = _git("grep", "-l", "-F", f"`{path}`", "tests")
    named = [test for test in tests if Path(test).name == f"test_{name}.py" or test in naming]
    importing = _git("grep", "-l", "-E", rf"thermocline\.({re.escape(module)}|{re.escape(folder)}) import", "tests")
    near = [*named, *(test for test in importing if test in tests and test not in named)][:NEAR_MAX]
    if near:
        yield "near", near
    top = f"tests/{path.split('/')[0]}"
    yield "folder", [top]
    yield "broad", [each for each in BROAD if each != top]


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.splitlines()


def run_stage(tree: Path, name: str, tests: list[str]) -> str | None:
    """The first test that notices the mutation in `tree`; None if all pass."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "2", *tests]
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S[name], check=False
        )
    except subprocess.TimeoutExpired:
        return f"a test of {', '.join(tests)} does not end"
    if done.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return failed.group(1) if failed else f"pytest ended with {done.returncode}"


def main() -> None:
    """Print a line for each mutation, and the diff of each that survives."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--only", nargs="*", default=list(FOLDERS), metavar="FOLDER", help="top-level folders")
    parser.add_argument(
        "--until", choices=STAGES, default=STAGES[-1], help="the last stage to try; default: %(default)s"
    )
    arguments = parser.parse_args()
    tree = Path(tempfile.mkdtemp(prefix="mutations-")) / "tree"
    subprocess.run(["git", "worktree", "add", "--detach", str(tree)], cwd=ROOT, check=True, capture_output=True)
    if (ROOT / ".cache").exists():
        (tree / ".cache").symlink_to(ROOT / ".cache")
    survivors = 0
    try:
        for number, mutation in enumerate(choose(arguments.seed, arguments.count, arguments.only), start=1):
            survivors += not _try(tree, number, mutation, arguments.until)
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True, capture_output=True)
        shutil.rmtree(tree.parent, ignore_errors=True)
    print(f"{arguments.count - survivors} of {arguments.count} noticed")


def _try(tree: Path, number: int, mutation: Mutation, last_stage: str) -> bool:
    """Whether the mutation is noticed by a stage up to `last_stage`; prints what notices it."""
    path = tree / mutation.path
    source = path.read_text()
    path.write_text(mutation.apply(source))
    started = time.monotonic()
    try:
        allowed = STAGES[: STAGES.index(last_stage) + 1]
        runs = ((name, run_stage(tree, name, tests)) for name, tests in stages(mutation.path) if name in allowed)
        noticed = next(((name, test) for name, test in runs if test), None)
    finally:
        path.write_text(source)
    place = f"{mutation.path}:{mutation.line}"
    stage, test = noticed or ("SURVIVED", "")
    print(f"{number:3} {place:60} {stage:8} {time.monotonic() - started:6.0f} s  {test}", flush=True)
    if noticed is None:
        before = source.splitlines()[mutation.line - 1]
        print(f"    - {before}\n    + {mutation.apply(source).splitlines()[mutation.line - 1]}", flush=True)
    return noticed is not None


if __name__ == "__main__":
    main()
