"""docs/security.md says which right each request code needs, as the code has it."""

from __future__ import annotations

from tests.docs.pages import DOCS, code, code_blocks, table_rows
from thermocline.auth.auth_config import AuthConfig
from thermocline.auth.rights_table import RULES
from thermocline.broker.settings.setting_sources import file_source, load_settings
from tooling.rights_page import replaced

PAGE = DOCS / "security.md"


def test_the_table_of_rights_is_that_of_the_code() -> None:
    text = PAGE.read_text()
    assert replaced(text) == text, "run python -m tooling.rights_page"
    rows = [row for row in table_rows(PAGE) if "what it needs" in row.cells]
    assert {int(row.cells["code"]) for row in rows} == set(map(int, RULES))
    assert all(code(row.cells["name"]) for row in rows)


def test_the_settings_that_are_shown_switch_it_on() -> None:
    (block,) = code_blocks(PAGE, "properties")
    text = f"storePathRootDir = /nowhere\n{block.text}"
    auth = load_settings([file_source("broker.conf", text.encode())]).auth
    assert isinstance(auth, AuthConfig)
    assert auth.authentication_enabled
    assert auth.authorization_enabled
    assert [name for name, _ in auth.first_users()] == ["root", "brokers"]
    credentials = auth.credentials()
    assert credentials is not None
    assert credentials.access_key == "brokers"
