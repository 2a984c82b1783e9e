"""docs/proxy.md: settings and RPCs are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, table_rows
from thermocline.proxy.configuration import load_config
from thermocline.proxy.grpc.messages import messages
from thermocline.proxy.grpc.service.grpc_rights import RIGHTS
from thermocline.proxy.messaging import Caller
from thermocline.proxy.proxy_server import ProxyServer
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


async def test_the_example_of_routing_rules_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy starts with both files, and each row of the table goes where it says."""
    section = PAGE.read_text().partition("## Routing rules")[2].partition("\n## ")[0]
    config_text, rules_text = re.findall(r"```json\n(.*?)```", section, flags=re.DOTALL)
    config_path = tmp_path / "rmq-proxy.json"
    config_path.touch(mode=0o600)
    config_path.write_text(config_text)
    (tmp_path / "routing-rules.json").write_text(rules_text)
    monkeypatch.chdir(tmp_path)
    config = load_config(
        config_path=config_path, environment={}, flags={"grpcServerPort": "0", "remotingListenPort": "0"}
    )
    server = ProxyServer(config)
    await server.start()
    try:
        rows = [row.cells for row in table_rows(PAGE) if "goes to" in row.cells]
        assert len(rows) == 6
        for row in rows:
            topic, group, user, address = (row[name].strip("`") for name in ("topic", "group", "user", "address"))
            found = server.routing.decide(topic, group, Caller(user=user, address=address)).clusters
            assert ", and reads ".join(found) == row["goes to"], row
    finally:
        await server.close()


def test_rpcs_and_tests_that_are_named_exist() -> None:
    rows = [row.cells["RPC"] for row in table_rows(PAGE) if "RPC" in row.cells and "here" in row.cells]
    assert rows
    for name in [name for row in rows for name in row.split(", ") if "/" not in name]:
        assert hasattr(messages, f"{name}Request"), name
    needs = [row.cells["RPC"] for row in table_rows(PAGE) if "needs" in row.cells]
    assert sorted(name for row in needs for name in row.split(", ")) == sorted(RIGHTS)
    for path in re.findall(r"`(tests/\S+\.py)`", PAGE.read_text()):
        assert (ROOT / path).is_file(), path
