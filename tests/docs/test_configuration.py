"""docs/configuration.md says every setting, and nothing else; its examples are read as they stand."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields

import pytest

from tests.docs.pages import DOCS, TableRow, code, code_blocks, table_rows
from thermocline.broker.settings.broker_settings import SECTIONS, SETTINGS, Setting
from thermocline.broker.settings.setting_sources import (
    ENVIRONMENT_ALIASES,
    ENVIRONMENT_OTHERS,
    environment_source,
    file_source,
    load_settings,
)
from thermocline.namesrv.name_server_config import OWN_FIELDS, NameServerConfig
from thermocline.namesrv.name_server_settings import environment_properties
from thermocline.remoting.settings.tls_config import TlsConfig
from thermocline.tiered.objects.masked_urls import SHOWN_OPTIONS
from thermocline.tiered.stores.object_store_url import parse_s3_url

PAGE = DOCS / "configuration.md"
BROKER, NAME_SERVER = "Settings of a broker", "Settings of a NameServer"
DEFAULT_ROOT = "~/store"


def rows_under(heading: str) -> dict[str, TableRow]:
    rows = [row for row in table_rows(PAGE) if heading in row.headings and "property" in row.cells]
    named = {code(row.cells["property"]): row for row in rows}
    assert len(named) == len(rows), "a property has two rows"
    return named


def default_text(setting: Setting) -> str:
    (item,) = [item for item in fields(SECTIONS[setting.section]) if item.name == setting.field]
    return DEFAULT_ROOT if item.default is MISSING else setting.show(item.default)


def cell(text: str) -> str:
    return f"`{text}`" if text else "empty"


def test_every_setting_of_a_broker_has_its_row() -> None:
    assert rows_under(BROKER).keys() == SETTINGS.keys()


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_a_row_is_true(name: str) -> None:
    setting, row = SETTINGS[name], rows_under(BROKER)[name]
    assert code(row.cells["TOML field"]) == setting.field
    assert row.cells["default"] == cell(default_text(setting))
    assert row.cells["change"] == ("live" if setting.is_live else "restart")
    assert row.headings[-1].endswith(f"`[{setting.section}]`")
    assert row.cells["what it does"].endswith(".")
    has_two_units = setting.parse is not setting.parse_field
    assert ("TOML:" in row.cells["unit"]) == has_two_units
    if setting.field.endswith("_ms") and not has_two_units:
        assert row.cells["unit"].startswith("ms")


def test_every_setting_of_a_name_server_has_its_row() -> None:
    rows = rows_under(NAME_SERVER)
    shown = NameServerConfig().shown()
    assert rows.keys() == shown.keys()
    black_list = shown["configBlackList"].split(";")
    for item in (*OWN_FIELDS, *fields(TlsConfig)):
        name = item.metadata["name"]
        assert rows[name].cells["default"] == cell(shown[name]), name
        is_live = item.metadata.get("is_live") and name not in black_list
        assert rows[name].cells["change"] == ("live" if is_live else "restart"), name


def test_variables_are_those_that_are_read() -> None:
    text = PAGE.read_text()
    for variable in (*ENVIRONMENT_ALIASES, *ENVIRONMENT_OTHERS):
        assert f"`{variable}`" in text
    for variable in set(re.findall(r"`(THERMOCLINE_[A-Z_]*[A-Z])`", text)) - ENVIRONMENT_OTHERS:
        is_name_server = variable.startswith("THERMOCLINE_NAME_SERVER_")
        source = (environment_properties if is_name_server else environment_source)({variable: "7"})
        setting_names = NameServerConfig().shown() if is_name_server else SETTINGS
        assert all(name in setting_names for name in source.values), variable


@pytest.mark.parametrize(("language", "path"), [("toml", "broker.toml"), ("properties", "broker.conf")])
def test_examples_of_files_are_read(language: str, path: str) -> None:
    (block,) = code_blocks(PAGE, language)
    loaded = load_settings([file_source(path, block.text.encode())])
    assert not loaded.ignored
    assert loaded.broker.broker_name == "broker-a"
    assert loaded.broker.name_server_source is not None
    assert len(loaded.broker.name_server_source.values) == 2
    assert loaded.broker.advertised_host == "192.0.2.10"
    assert loaded.store.file_reserved_ms == 6 * 3_600_000
    assert loaded.store.delete_when_hours == (4, 16)
    assert loaded.tier.seal_age_ms == 300_000
    options = parse_s3_url(loaded.tier.cold_url)
    assert (options.bucket, options.prefix, options.region) == ("history", "production", "eu-central-1")


def test_options_of_bucket_addresses_are_those_that_are_read() -> None:
    rows = [row for row in table_rows(PAGE) if "Options of a bucket" in row.headings]
    named = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row.cells["option"])}
    (example,) = re.findall(r"`(s3://history/production\?[^`]*)`", PAGE.read_text())
    assert parse_s3_url(example).ca == "/etc/thermocline/ca.pem"
    assert named == SHOWN_OPTIONS | {"access_key", "secret_key", "session_token"}
    values = {"path_style": "true", "endpoint": "https://host", "sse": "aws:kms"}
    options = parse_s3_url("s3://bucket/prefix?" + "&".join(f"{name}={values.get(name, 'x')}" for name in named))
    assert {name: getattr(options, name) for name in named} == {
        name: True if name == "path_style" else values.get(name, "x") for name in named
    }
