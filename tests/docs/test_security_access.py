"""The section "Users and access" of docs/security.md: its table of rights is that of the code, and its steps, done as
printed, lead to a broker that serves a user with a right and no other client."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.command_lines import FREE_ADDRESS, Daemon, is_daemon
from tests.docs.pages import DOCS, CodeBlock, code, code_blocks, table_rows
from thermocline.auth.auth_config import AuthConfig
from thermocline.auth.rights_table import RULES
from thermocline.broker.settings.setting_sources import file_source, load_settings
from thermocline.client import Credentials, Message, Producer, TlsOptions
from thermocline.remoting.errors import PermissionDeniedError, UnavailableError
from tooling.rights_page import replaced

pytestmark = pytest.mark.xdist_group("docs-security")

NAME_SERVER = "127.0.0.1:9876"
BROKER = "127.0.0.1:10911"
PAGE = DOCS / "security.md"


def test_the_table_of_rights_is_that_of_the_code() -> None:
    text = PAGE.read_text()
    assert replaced(text) == text, "run python -m tooling.rights_page"
    rows = [row for row in table_rows(PAGE) if "what it needs" in row.cells]
    assert {int(row.cells["code"]) for row in rows} == set(map(int, RULES))
    assert all(code(row.cells["name"]) for row in rows)


def blocks(*languages: str) -> list[CodeBlock]:
    """Of the steps that switch it on."""
    return [block for block in code_blocks(PAGE, *languages) if "Switching it on" in block.headings]


def test_the_settings_that_are_shown_switch_it_on() -> None:
    (block,) = blocks("properties")
    text = f"storePathRootDir = /nowhere\n{block.text}"
    auth = load_settings([file_source("broker.conf", text.encode())]).auth
    assert isinstance(auth, AuthConfig)
    assert auth.authentication_enabled
    assert auth.authorization_enabled
    assert [name for name, _ in auth.first_users()] == ["root", "brokers"]
    credentials = auth.credentials()
    assert credentials is not None
    assert credentials.access_key == "brokers"


class Walk:
    """The page's blocks, run in a directory as printed, but for the ports."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.output = ""
        self.addresses: dict[str, str] = {}
        self._daemons: list[Daemon] = []

    def run(self, text: str) -> None:
        """A block: a daemon, which goes on, or commands."""
        for printed, address in self.addresses.items():
            text = text.replace(printed, address)
        words = shlex.split(text.replace("\\\n", " ").replace("$PWD", str(self.directory)))
        if words[0] == "thermocline" and is_daemon(words[1:]):
            printed = words[words.index("--listen") + 1]
            words[words.index("--listen") + 1] = FREE_ADDRESS
            self._daemons.append(Daemon(words[1:], self.directory))
            self.addresses[printed] = self._daemons[-1].ready()["broker" if words[1] == "broker" else "namesrv"]
            return
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euc", text],
            cwd=self.directory,
            env={**os.environ, "PATH": path, "NAMESRV_ADDR": self.addresses.get(NAME_SERVER, "")},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.output = done.stdout + done.stderr
        assert done.returncode == 0, f"{text}\n{self.output}"

    def stop(self) -> None:
        for daemon in reversed(self._daemons):
            assert daemon.stop() == 0


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the page's commands need openssl")
def test_its_steps_lead_to_a_cluster_that_serves_the_user_alone(tmp_path: Path) -> None:
    """From an empty directory: certificates as the page makes them, then the steps of this section, all of them."""
    walk = Walk(tmp_path)
    for block in code_blocks(PAGE, "sh"):
        if "From nothing to TLS" in block.headings and "thermocline" not in block.text:
            walk.run(block.text)
    (settings,), (keys,), (example,) = blocks("properties"), blocks("text"), blocks("python")
    for name, block in (("access.conf", settings), ("tools.yml", keys)):
        (tmp_path / name).write_text(block.text)
    try:
        for block in blocks("sh"):
            walk.run(block.text)
        assert walk.addresses.keys() == {NAME_SERVER, BROKER}
        assert "allow     Custom: Allow Pub on Topic:orders" in walk.output.splitlines()[-1]
        address = walk.addresses[NAME_SERVER]
        text = example.text.replace(NAME_SERVER, address)
        subprocess.run([sys.executable, "-c", text], cwd=tmp_path, timeout=60, check=True)
        key = (tmp_path / "carol.key").read_text().strip()
        carol = Credentials(access_key="carol", secret_key=key)
        tls = TlsOptions(ca_file=str(tmp_path / "ca.pem"))
        with Producer(group="shop", namesrv=address, tls=tls, credentials=carol) as shop:
            shop.send(Message("orders", b"signed"))
            with pytest.raises(PermissionDeniedError):
                shop.send(Message("others", b"no right"))
        with (
            Producer(group="shop", namesrv=address, tls=tls) as stranger,
            pytest.raises(PermissionDeniedError, match="username cannot be null"),
        ):
            stranger.send(Message("orders", b"not signed"))
        with (
            Producer(group="shop", namesrv=address, credentials=carol) as plain,
            pytest.raises(UnavailableError, match="the connection was lost"),
        ):
            plain.send(Message("orders", b"not over TLS"))
    finally:
        walk.stop()
