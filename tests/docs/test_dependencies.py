"""docs/dependencies.md gives a reason for every package that the project asks for, and for no other."""

from __future__ import annotations

import re
import tomllib

from tests.docs.pages import DOCS, ROOT, table_rows

NAME = re.compile(r"^[A-Za-z0-9._-]+")


def wanted() -> dict[str, str]:
    """Package -> the extra that asks for it, "" for none."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    found: dict[str, str] = {}
    for extra, requirements in groups.items():
        for requirement in requirements:
            match = NAME.match(requirement)
            assert match is not None
            found[match[0]] = extra
    return found


def test_every_package_has_its_reason() -> None:
    explained: dict[str, str] = {}
    for row in table_rows(DOCS / "dependencies.md"):
        assert row.cells["why this one"], f"line {row.line}"
        names, _, extra = row.cells["package"].partition(" (extra ")
        for name in names.split(", "):
            explained[name] = extra.strip("`)")
    packages = wanted()
    assert explained.keys() == packages.keys()
    for name, extra in packages.items():
        assert explained[name] == (extra if extra in ("fast", "spark", "bodies", "notebook") else ""), name
