"""The section "Users and access" of docs/security.md: its table of rights is that of the code, and its steps, done as
printed, lead to a broker that serves a user with a right and no other client."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.command_lines import FREE_ADDRESS, Daemon
from tests.docs.pages import DOCS, code, code_blocks, table_rows
from thermocline.auth.auth_config import AuthConfig
from thermocline.auth.rights_table import RULES
from thermocline.broker.settings.setting_sources import file_source, load_settings
from thermocline.client import Credentials, Message, Producer
from thermocline.remoting.errors import PermissionDeniedError
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


def test_its_steps_lead_to_a_broker_that_serves_the_user_alone(tmp_path: Path) -> None:
    settings, keys, commands = (
        next(block for block in code_blocks(PAGE, language) if "Switching it on" in block.headings)
        for language in ("properties", "text", "sh")
    )
    for name, block in (("broker.conf", settings), ("tools.yml", keys)):
        (tmp_path / name).write_text(block.text)
        (tmp_path / name).chmod(0o600)
    name_server = Daemon(["namesrv", "--listen", FREE_ADDRESS], tmp_path)
    address = name_server.ready()["namesrv"]
    arguments = "broker --config broker.conf --data ./store --namesrv 127.0.0.1:9876"
    assert f"`thermocline {arguments}`" in PAGE.read_text()
    words = [address if word == "127.0.0.1:9876" else word for word in arguments.split()]
    broker = Daemon([*words, "--listen", FREE_ADDRESS], tmp_path)
    try:
        broker.ready()
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euc", commands.text],
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "NAMESRV_ADDR": address},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "allow     Custom: Allow Pub on Topic:orders" in done.stdout.splitlines()[-1]
        key = (tmp_path / "carol.key").read_text().strip()
        with Producer(
            group="shop", namesrv=address, credentials=Credentials(access_key="carol", secret_key=key)
        ) as shop:
            assert shop.send(Message("orders", b"signed")).queue_offset == 0
            with pytest.raises(PermissionDeniedError):
                shop.send(Message("others", b"no right"))
        with Producer(group="shop", namesrv=address) as stranger, pytest.raises(PermissionDeniedError):
            stranger.send(Message("orders", b"not signed"))
    finally:
        assert broker.stop() == 0
        assert name_server.stop() == 0
