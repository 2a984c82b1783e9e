"""Every module of the broker, of both tiers, of the proxy, of the controller and of the protocol has tests.

They are in a test file of its name, or in one whose header names it in a line "Covers `folder/module.py`, ...".
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOPS = (
    *("broker", "tiered", "store", "remoting", "replication", "pop", "timers", "transactions", "filters", "namesrv"),
    *("proxy", "controller"),
)
DATA = ROOT / "broker" / "settings" / "official_settings"
"""Tables of settings, compared with RocketMQ's classes as a whole."""
COVERS = re.compile(r"^Covers (`.*?)\.$", re.MULTILINE | re.DOTALL)
QUOTED_PATH = re.compile(r"`([\w/]+\.py)`")

MODULES = [
    path
    for top in TOPS
    for path in sorted((ROOT / top).rglob("*.py"))
    if not path.name.startswith("__") and DATA not in path.parents
]
TEST_FILES = sorted((ROOT / "tests").rglob("test_*.py"))


def covered_by(test_file: Path) -> list[str]:
    """The paths of modules that a test file's header names."""
    header = ast.get_docstring(ast.parse(test_file.read_text())) or ""
    return [path for text in COVERS.findall(header) for path in QUOTED_PATH.findall(text)]


@pytest.fixture(scope="module")
def covered() -> set[str]:
    """What all headers name; read when a test asks, since each worker imports this file."""
    return {path for test_file in TEST_FILES for path in covered_by(test_file)}


def test_each_module_has_a_test_file(covered: set[str]) -> None:
    names = {path.stem.removeprefix("test_") for path in TEST_FILES}
    missing = [
        str(path.relative_to(ROOT))
        for path in MODULES
        if path.stem not in names and str(path.relative_to(ROOT)) not in covered
    ]
    assert missing == []


def test_headers_name_modules_that_exist(covered: set[str]) -> None:
    assert [path for path in sorted(covered) if not (ROOT / path).is_file()] == []
