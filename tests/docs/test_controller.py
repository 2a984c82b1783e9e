"""docs/controller.md: its table of settings is that of the code; its examples are run by test_commands.py."""

from __future__ import annotations

from tests.docs.pages import DOCS, code, table_rows
from thermocline.controller.controller_config import OWN_FIELDS
from thermocline.namesrv.port_config import PortConfig, own_fields

PAGE = DOCS / "controller.md"
SHARED = {item.metadata["name"] for item in own_fields(PortConfig)}


def test_the_settings_of_a_controller_are_those_of_the_page() -> None:
    rows = {code(row.cells["property"]): row.cells for row in table_rows(PAGE) if "property" in row.cells}
    own = {item.metadata["name"]: item for item in OWN_FIELDS if item.metadata["name"] not in SHARED}
    assert rows.keys() == own.keys()
    for name, item in own.items():
        default = str(item.default).lower() if isinstance(item.default, bool) else str(item.default)
        assert rows[name]["default"] == (f"`{default}`" if default else "empty"), name
        assert rows[name]["change"] == ("live" if item.metadata["is_live"] else "restart"), name
        assert rows[name]["what it does"], name


def test_the_settings_of_the_port_are_a_name_servers() -> None:
    """As the page says."""
    text = (DOCS / "configuration.md").read_text().partition("## Settings of a NameServer")[2]
    assert [name for name in sorted(SHARED) if f"| `{name}` |" not in text] == []
