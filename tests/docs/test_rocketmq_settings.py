"""docs/rocketmq-settings.md is what the tables in code give."""

from __future__ import annotations

from tooling.settings_page import PAGE, page_text


def test_the_page_is_made_from_the_tables() -> None:
    assert PAGE.read_text() == page_text(), "run python -m tooling.settings_page"
