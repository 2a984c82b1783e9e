"""docs/proxy.md: settings and RPCs are those of the code."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS, ROOT, table_rows
from thermocline.proxy.grpc.messages import messages
from thermocline.proxy.grpc.service.grpc_rights import RIGHTS
from thermocline.proxy.settings import OWN_FIELDS

PAGE = DOCS / "proxy.md"


def test_every_setting_has_its_row() -> None:
    rows = {row.cells["property"].strip("`"): row for row in table_rows(PAGE) if "property" in row.cells}
    own = {item.metadata["name"]: item for item in OWN_FIELDS}  # those of TLS are on the page about TLS
    assert list(rows) == list(own)
    for name, item in own.items():
        default = str(item.default).lower() if isinstance(item.default, bool) else str(item.default)
        assert rows[name].cells["default"].strip("`") == default, name
        assert rows[name].cells["what it does"].endswith("."), name


def test_rpcs_and_tests_that_are_named_exist() -> None:
    rows = [row.cells["RPC"] for row in table_rows(PAGE) if "RPC" in row.cells and "here" in row.cells]
    assert rows
    for name in [name for row in rows for name in row.split(", ") if "/" not in name]:
        assert hasattr(messages, f"{name}Request"), name
    needs = [row.cells["RPC"] for row in table_rows(PAGE) if "needs" in row.cells]
    assert sorted(name for row in needs for name in row.split(", ")) == sorted(RIGHTS)
    for path in re.findall(r"`(tests/\S+\.py)`", PAGE.read_text()):
        assert (ROOT / path).is_file(), path
