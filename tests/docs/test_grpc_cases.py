"""docs/grpc-cases.md names every case once, and tests that exist."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.pages import DOCS, ROOT, TableRow, table_rows

PAGE = DOCS / "grpc-cases.md"
OWN_FILE = "tests/interop/test_grpc_cases.py"
ROWS = table_rows(PAGE)
CLASSES, CASES = 26, 124


def test_every_case_of_the_suite_is_there_once() -> None:
    cases = [(row.cells["class"], case) for row in ROWS for case in row.cells["cases"].split(", ")]
    assert len(cases) == len(set(cases))
    assert len({name for name, _ in cases}) == CLASSES
    assert f"{CASES} active cases for the Java client, in {CLASSES} classes" in PAGE.read_text()
    assert len(cases) == CASES


@pytest.mark.parametrize("row", ROWS, ids=[str(row.line) for row in ROWS])
def test_a_row_names_tests_that_exist_or_why_there_is_none(row: TableRow) -> None:
    named = re.findall(r"`((?:tests/\S+::)?test_\w+)`", row.cells["here"])
    if not named:
        assert row.cells["here"].startswith(("no request: ", "no server: "))
    for name in named:
        path, _, function = name.rpartition("::")
        tree = ast.parse((ROOT / (path or OWN_FILE)).read_text())
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_each_test_of_the_cases_is_named() -> None:
    tree = ast.parse((ROOT / OWN_FILE).read_text())
    tests = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    text = PAGE.read_text()
    assert [name for name in tests if f"`{name}`" not in text] == []
