"""Files that the documents name are there, and a stranger finds the three places that every reader looks for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, pages, table_rows
from thermocline.remoting.request_code import RequestCode

NOT_OURS = frozenset({"build", "data", "dist", "thermocline-data"})
"""Made by commands of the documents, and not part of the repository."""
FOLDERS = sorted(
    path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] not in "._" and path.name not in NOT_OURS
)
NAMED = re.compile(rf"(?<![\w/.{{}}-])(?:{'|'.join(FOLDERS)})/[\w./-]*\w")


def is_there(name: str) -> bool:
    return any((ROOT / f"{name}{ending}").exists() for ending in ("", ".py"))


@pytest.mark.parametrize("page", [*pages(), ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_files_that_are_named_are_there(page: Path) -> None:
    named = set(NAMED.findall(page.read_text()))
    assert sorted(name for name in named if not is_there(name)) == []


def test_every_folder_is_explained() -> None:
    cells = " ".join(row.cells.get("folder", "") for row in table_rows(DOCS / "architecture.md"))
    explained = set(re.findall(r"`([a-z_]+)/`", cells))
    assert set(FOLDERS) <= explained


def test_request_codes_are_handled_where_the_page_says() -> None:
    handlers = "".join(path.read_text() for path in (ROOT / "broker" / "processors").rglob("*.py"))
    served = {name for name in RequestCode.__members__ if f"RequestCode.{name}:" in handlers}
    assert {"SEND_MESSAGE_V2", "PULL_MESSAGE", "UPDATE_AND_CREATE_TOPIC", "QUERY_MESSAGE"} <= served


@pytest.mark.parametrize(
    "path",
    [
        "broker/processors/",
        "namesrv/processor.py",
        "tiered/segments/segment_writer.py",
        "store/config/ttl.py",
        "tiered/catalog/ttl.py",
    ],
)
def test_entry_points_for_new_readers_have_clear_names(path: str) -> None:
    assert f"`{path}`" in (DOCS / "architecture.md").read_text()
    assert (ROOT / path).exists()
