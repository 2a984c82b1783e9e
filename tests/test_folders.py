"""The folders inside `broker/`, `tiered/`, `store/` and `remoting/`: circles, sizes and public names.

What each may import of the others is in the allow-list of `tests/test_layers.py`. The imports are read, never executed.
A folder's `__init__.py` lists its public names; other folders import those names from the folder. Entry modules are
imported by path and late, by what starts them: the hot process must not load an object store client.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import table_rows
from tests.test_layers import ALLOWED, PRODUCT

ROOT = Path(__file__).resolve().parents[1]
TOPS = ("broker", "tiered", "store", "remoting")
FILES_MAX, LINES_MAX, FUNCTION_LINES_MAX = 25, 650, 80

ENTRY_MODULES = frozenset(
    {
        "broker.follower.follower_process",
        "broker.follower.slave_process",
        "broker.helpers.index_process",
        "broker.main",
        "broker.proxy_process.proxy_process",
        "broker.recovery.bucket_recovery",
        "broker.recovery.log_cut",
        "broker.recovery.promotion",
        "broker.tier_process.tier_process",
    }
)
BY_MODULE = frozenset(
    {
        "broker.settings.official_settings",
        "remoting",
        "remoting.bodies",
        "remoting.headers",
        "remoting.records",
        "store",
    }
)
"""Folders whose modules are imported by path: tables of data, and the codec, of which a process loads what it uses."""

USERS = (*PRODUCT, "tooling", "benchmarks", "examples", "tests")
"""Folders that may use a public name."""


def folder_of(path: Path) -> str:
    """The dotted folder that a file is in: `tiered.ledger`."""
    return ".".join(path.parent.relative_to(ROOT).parts)


FOLDERS = frozenset(folder_of(path) for top in TOPS for path in (ROOT / top).rglob("__init__.py"))


@cache
def imports_of(path: Path) -> tuple[tuple[int, str, str], ...]:
    """Every name that a file imports from one of TOPS, as (line, module, name)."""
    return tuple(read_imports(path))


def read_imports(path: Path) -> Iterator[tuple[int, str, str]]:
    packages = tuple(f"thermocline.{top}" for top in TOPS)
    for node in ast.walk(ast.parse(path.read_text(), filename=str(path))):
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith(packages) for alias in node.names), f"{path}: use `from ... import`"
        elif isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(tuple(f"{each}." for each in packages)):
            assert node.module is not None
            for alias in node.names:
                yield node.lineno, node.module.removeprefix("thermocline."), alias.name


def imported_folder(module: str, name: str) -> str:
    """The folder that a name is imported from."""
    folder = f"{module}.{name}"
    while folder not in FOLDERS:
        folder = folder.rpartition(".")[0]
    return folder


def files_of(*tops: str) -> list[Path]:
    return [path for top in tops for path in sorted((ROOT / top).rglob("*.py"))]


@cache
def public_names(folder: str) -> list[str]:
    """The names in `__all__` of a folder's `__init__.py`."""
    tree = ast.parse(ROOT.joinpath(*folder.split("."), "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise AssertionError(f"{folder} lists no public names")


def above(folder: str) -> set[str]:
    """The folders of the same top-level folder that the allow-list lets a folder import, also by single modules."""
    top = folder.partition(".")[0]
    rules = {rule if rule in FOLDERS else rule.rpartition(".")[0] for rule in ALLOWED[folder]}
    return {rule for rule in rules & FOLDERS if rule.partition(".")[0] == top}


@pytest.mark.parametrize("top", TOPS)
def test_no_folder_imports_back(top: str) -> None:
    """The allow-list has lower folders first, so there is no circle."""
    order = [folder for folder in ALLOWED if folder.partition(".")[0] == top]
    assert set(order) == {folder for folder in FOLDERS if folder.partition(".")[0] == top}
    wrong = [(folder, lower) for folder in order for lower in above(folder) if order.index(lower) > order.index(folder)]
    assert wrong == []


@pytest.mark.parametrize("top", TOPS)
def test_the_page_lists_a_folder_below_all_that_it_imports(top: str) -> None:
    column = f"part of `{top}/`"
    rows = table_rows(ROOT / "docs" / "architecture.md")
    order = [row.cells[column].strip("`/").replace("/", ".") for row in rows if column in row.cells]
    order = [folder if folder.startswith(f"{top}.") else f"{top}.{folder}" for folder in order]
    parts = {
        folder: ".".join(folder.split(".")[:2]) for folder in FOLDERS - set(TOPS) if folder.partition(".")[0] == top
    }
    assert sorted(order) == sorted(set(parts.values()))
    wrong = [
        (folder, lower)
        for folder, part in parts.items()
        for lower in above(folder) - set(TOPS)
        if order.index(parts[lower]) > order.index(part)
    ]
    assert wrong == []


@pytest.mark.parametrize("folder", sorted({folder_of(path) for path in files_of(*PRODUCT)}))
def test_a_folder_is_small_enough_to_be_seen_whole(folder: str) -> None:
    assert len(list(ROOT.joinpath(*folder.split(".")).glob("*.py"))) <= FILES_MAX


def test_no_file_and_no_function_is_too_long_to_be_read_at_once() -> None:
    too_long = []
    for path in files_of(*PRODUCT, "tooling", "benchmarks"):
        text = path.read_text()
        if text.count("\n") > LINES_MAX:
            too_long.append(f"{path.relative_to(ROOT)}")
        for node in ast.walk(ast.parse(text)):
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if is_function and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX:
                too_long.append(f"{path.relative_to(ROOT)}: {node.name}")
    assert too_long == []


def test_other_folders_use_public_names() -> None:
    wrong = []
    for path in files_of(*(user for user in USERS if user not in ("examples", "tests"))):
        for line, module, name in imports_of(path):
            folder = imported_folder(module, name)
            if folder == folder_of(path) or folder in BY_MODULE or module in ENTRY_MODULES:
                continue
            if module != folder or name not in public_names(folder):
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name} from {module}")
    assert not wrong, "\n".join(wrong)


def test_a_folder_makes_nothing_public_that_other_folders_do_not_use() -> None:
    used = {(module, name) for path in files_of(*USERS) for _, module, name in imports_of(path)}
    unused = [
        f"{folder}.{name}"
        for folder in sorted(FOLDERS - set(TOPS) - BY_MODULE)
        for name in public_names(folder)
        if (folder, name) not in used
    ]
    assert not unused, "\n".join(unused)
