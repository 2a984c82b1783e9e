"""The folders of `broker/`: what each may import of the others, and by which names.

The imports are read, never executed. A folder's `__init__.py` lists its public names; other folders import those names
from the folder. Entry modules are imported by path and late, by what starts them: the hot process must not load an
object store client.
"""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BROKER = ROOT / "broker"
PACKAGE = "thermocline.broker"
FILES_MAX = 25

# Lower folders first. "" is the broker's own folder: main and the hot process.
ALLOWED: dict[str, frozenset[str]] = {
    "state_files": frozenset(),
    "process": frozenset(),
    "cold": frozenset(),
    "settings.official_settings": frozenset(),
    "metrics": frozenset({"cold"}),
    "helpers": frozenset({"cold", "process"}),
    "settings": frozenset({"settings.official_settings", "state_files"}),
    "tables": frozenset({"process", "settings", "state_files"}),
    "queues": frozenset({"cold", "process", "settings"}),
    "state": frozenset({"helpers", "settings", "state_files"}),
    "cluster": frozenset({"settings", "tables"}),
    "stats": frozenset({"cold", "helpers", "metrics", "queues", "settings", "tables"}),
    "tier_process": frozenset({"cold", "helpers", "metrics", "state"}),
    "recovery": frozenset({"settings", "state", "tables"}),
    "static_topics": frozenset({"cluster", "cold", "queues", "tables"}),
    "pulls": frozenset({"cluster", "cold", "process", "queues", "settings", "tables"}),
    "pops": frozenset({"process", "pulls", "queues", "settings", "stats", "tables"}),
    "sends": frozenset({"pulls", "stats", "tables"}),
    "due": frozenset({"sends", "settings", "state_files", "stats", "tables"}),
    "tier": frozenset({"cold", "due", "helpers", "queues", "state_files", "tables"}),
    "processors": frozenset(
        {"cluster", "cold", "due", "queues", "settings", "state_files", "static_topics", "stats", "tables"}
    ),
    "follower": frozenset({"helpers", "processors", "pulls", "settings", "tables", "tier", "tier_process"}),
    "processors.pops": frozenset({"pops", "processors", "pulls", "queues", "sends", "settings", "stats", "tables"}),
    "processors.tier": frozenset({"cold", "helpers", "processors", "queues", "settings", "stats", "tables", "tier"}),
    "processors.messages": frozenset(
        {
            "cluster",
            "cold",
            "due",
            "process",
            "processors",
            "pulls",
            "queues",
            "sends",
            "settings",
            "static_topics",
            "stats",
            "tables",
        }
    ),
    "assembly": frozenset(
        {
            "cluster",
            "cold",
            "due",
            "follower",
            "helpers",
            "pops",
            "process",
            "processors",
            "processors.messages",
            "processors.pops",
            "processors.tier",
            "pulls",
            "queues",
            "sends",
            "settings",
            "state",
            "state_files",
            "static_topics",
            "stats",
            "tables",
            "tier",
            "tier_process",
        }
    ),
    "": frozenset({"assembly", "follower", "process", "pulls", "recovery", "settings", "state_files"}),
}

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


def imports_of(path: Path) -> Iterator[tuple[int, str, str]]:
    """Every name that a file imports from the broker, as (line, module below the broker, name)."""
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


def public_names(folder: str) -> list[str]:
    """The names in `__all__` of a folder's `__init__.py`."""
    tree = ast.parse(BROKER.joinpath(*folder.split("."), "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise AssertionError(f"{folder} lists no public names")


def test_the_table_names_every_folder_and_no_other() -> None:
    assert set(ALLOWED) == FOLDERS
    assert set().union(*ALLOWED.values()) <= FOLDERS


def test_each_folder_imports_only_what_it_may() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {folder or 'the top'}"
        for path in product_files()
        for line, module, name in imports_of(path)
        if (folder := imported_folder(module, name)) != folder_of(path) and folder not in ALLOWED[folder_of(path)]
    ]
    assert not wrong, "\n".join(wrong)


def test_the_table_allows_nothing_that_is_not_used() -> None:
    used: dict[str, set[str]] = {folder: set() for folder in FOLDERS}
    for path in product_files():
        used[folder_of(path)] |= {imported_folder(module, name) for _, module, name in imports_of(path)}
    unused = {folder: sorted(ALLOWED[folder] - used[folder]) for folder in FOLDERS if ALLOWED[folder] - used[folder]}
    assert not unused


def test_no_two_folders_import_each_other() -> None:
    order = list(graphlib.TopologicalSorter(ALLOWED).static_order())  # CycleError names a circle
    assert set(order) == FOLDERS


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
