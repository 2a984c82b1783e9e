"""docs/dependencies.md gives a reason for every package that the project asks for, and for no other."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch

from tests.docs.pages import DOCS, ROOT, table_rows

NAME = re.compile(r"^[A-Za-z0-9._-]+")
ENDINGS = (".lock", ".pom.xml", "package-lock.json", "go.mod")
UNNAMED = {"tooling/spark-s3a.pom.xml"}
"""Pins nothing by itself: `spark/connector/s3a-jars.lock` is made from it."""


def wanted() -> dict[str, str]:
    """Package -> the first extra that asks for it, "" for none."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    found: dict[str, str] = {}
    for extra, requirements in groups.items():
        for requirement in requirements:
            match = NAME.match(requirement)
            assert match is not None
            found.setdefault(match[0], extra)
    return found


def test_every_package_has_its_reason() -> None:
    explained: dict[str, str] = {}
    for row in table_rows(DOCS / "dependencies.md"):
        if "package" not in row.cells:
            continue
        assert row.cells["why this one"], f"line {row.line}"
        names, _, extra = row.cells["package"].partition(" (extra ")
        for name in names.split(", "):
            explained[name] = extra.strip("`)")
    packages = wanted()
    assert explained.keys() == packages.keys()
    for name, extra in packages.items():
        assert explained[name] == (extra if extra in ("fast", "spark", "bodies", "notebook") else ""), name


def test_every_lock_file_is_named() -> None:
    """Packages of all registries, and the Maven projects that pin what no lock file does."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "." and path.name != "src"]
    found = [ROOT / "requirements.lock", *(path for each in folders for path in each.rglob("*"))]
    locks = {path.relative_to(ROOT).as_posix() for path in found if path.name.endswith(ENDINGS)}
    named = set(re.findall(r"`([^`]+)`", (DOCS / "dependencies.md").read_text()))
    named = {name for name in named if name.endswith(ENDINGS)}
    explained = {lock for lock in locks for name in named if fnmatch(lock, name)}
    assert locks - explained == UNNAMED
    assert [name for name in named if not any(fnmatch(lock, name) for lock in locks)] == []
