"""The folders of `broker/`: none imports back, none is too large, and each is used by its public names.

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
from tests.test_layers import ALLOWED

ROOT = Path(__file__).resolve().parents[2]
TOP = "broker"
BROKER = ROOT / TOP
PACKAGE = f"thermocline.{TOP}"
FILES_MAX = 25

ENTRY_MODULES = frozenset(
    {
        "follower.follower_process",
        "helpers.index_process",
        "recovery.bucket_recovery",
        "tier_process.tier_process",
    }
)


def folder_of(path: Path) -> str:
    """The dotted folder that a file of the broker is in."""
    return ".".join(path.parent.relative_to(BROKER).parts)


FOLDERS = frozenset(folder_of(path) for path in BROKER.rglob("__init__.py"))


@cache
def imports_of(path: Path) -> tuple[tuple[int, str, str], ...]:
    """Every name that a file imports from the broker, as (line, module below the broker, name)."""
    return tuple(read_imports(path))


def read_imports(path: Path) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(ast.parse(path.read_text(), filename=str(path))):
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith(PACKAGE) for alias in node.names), f"{path}: use `from ... import`"
        elif isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{PACKAGE}."):
            assert node.module is not None
            module = node.module.removeprefix(PACKAGE).removeprefix(".")
            for alias in node.names:
                yield node.lineno, module, alias.name


def imported_folder(module: str, name: str) -> str:
    """The folder that a name is imported from."""
    folder = f"{module}.{name}".lstrip(".")
    while folder not in FOLDERS:
        folder = folder.rpartition(".")[0]
    return folder


def product_files() -> list[Path]:
    return sorted(BROKER.rglob("*.py"))


@cache
def public_names(folder: str) -> list[str]:
    """The names in `__all__` of a folder's `__init__.py`."""
    tree = ast.parse(BROKER.joinpath(*folder.split("."), "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise AssertionError(f"{folder} lists no public names")


def above(folder: str) -> set[str]:
    """The folders of the broker that the allow-list lets a folder import."""
    rules = ALLOWED[f"{TOP}.{folder}".rstrip(".")] & ALLOWED.keys()
    return {rule.removeprefix(TOP).removeprefix(".") for rule in rules if rule.split(".")[0] == TOP}


def test_no_folder_imports_back() -> None:
    """The allow-list has lower folders first, so there is no circle."""
    order = [folder.removeprefix(TOP).removeprefix(".") for folder in ALLOWED if folder.split(".")[0] == TOP]
    assert set(order) == FOLDERS
    wrong = [(folder, lower) for folder in order for lower in above(folder) if order.index(lower) > order.index(folder)]
    assert wrong == []


def test_the_page_lists_a_folder_below_all_that_it_imports() -> None:
    column = f"part of `{TOP}/`"
    rows = table_rows(ROOT / "docs" / "architecture.md")
    order = [row.cells[column].strip("`/").removeprefix(f"{TOP}/") for row in rows if column in row.cells]
    parts = {folder: folder.partition(".")[0] for folder in FOLDERS - {""}}
    assert sorted(order) == sorted(set(parts.values()))
    wrong = [
        (folder, lower)
        for folder, part in parts.items()
        for lower in above(folder)
        if order.index(parts[lower]) > order.index(part)
    ]
    assert wrong == []


@pytest.mark.parametrize("folder", sorted(FOLDERS))
def test_a_folder_is_small_enough_to_be_seen_whole(folder: str) -> None:
    files = [path for path in product_files() if folder_of(path) == folder]
    assert len(files) <= FILES_MAX


def test_other_folders_use_public_names() -> None:
    wrong = []
    for path in product_files():
        for line, module, name in imports_of(path):
            folder = imported_folder(module, name)
            if folder == folder_of(path) or module in ENTRY_MODULES:
                continue
            if module != folder or name not in public_names(folder):
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name} from {module}")
    assert not wrong, "\n".join(wrong)


def test_a_folder_makes_nothing_public_that_other_folders_do_not_use() -> None:
    used: set[tuple[str, str]] = set()
    for top in ("broker", "cli", "tooling", "benchmarks", "tests"):
        for path in sorted((ROOT / top).rglob("*.py")):
            for _, module, name in imports_of(path):
                used.add((module, name))
    unused = [
        f"{folder}.{name}"
        for folder in sorted(FOLDERS)
        if folder and folder != "settings.official_settings"
        for name in public_names(folder)
        if (folder, name) not in used
    ]
    assert not unused, "\n".join(unused)
