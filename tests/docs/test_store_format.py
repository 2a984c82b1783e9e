"""docs/store-format.md names each file and folder that a broker makes beside Apache RocketMQ's."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS, ROOT
from thermocline.auth import auth_store
from thermocline.broker.recovery.recovered_store import REPORT_NAME

PAGE = DOCS / "store-format.md"
MADE = re.compile(r'own_path(?:\}/|\) / ")([a-zA-Z][\w.-]*)')
"""Where code names a place in the folder `thermocline/` of a store."""


def test_each_file_of_our_own_has_its_row() -> None:
    sources = [path for top in ("auth", "broker", "store", "tiered") for path in (ROOT / top).rglob("*.py")]
    names = {name for path in sources for name in MADE.findall(path.read_text())} | {auth_store.FILE_NAME, REPORT_NAME}
    assert {"identity.json", "spool", "audit.log"} <= names
    rows = "".join(line for line in PAGE.read_text().splitlines() if line.startswith("| `"))
    assert sorted(name for name in names if not re.search(rf"`thermocline/{re.escape(name)}[`/]", rows)) == []
