"""Nothing that a broker, its helpers or a NameServer write is readable by other users, whatever the umask."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_daemons import Daemon
from tests.crash import wire
from tests.crash.broker_process import FILES_GO_AT_ONCE, SMALL_FILES, BrokerProcess
from tests.docs.pages import DOCS
from tests.waiting import until
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.headers.namesrv import PutKVConfigRequestHeader
from thermocline.remoting.request_code import RequestCode

pytestmark = pytest.mark.crash

TOPIC = "Private"
SOON_MS = 600_000


def open_to_others(*folders: Path) -> list[str]:
    """What other users have any access to, with its mode; files and folders, those given included."""
    found = []
    for path in (each for folder in folders for each in [folder, *folder.rglob("*")]):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:  # a temporary file
            continue
        wanted = 0o700 if stat.S_ISDIR(mode) else 0o600
        if not stat.S_ISLNK(mode) and stat.S_IMODE(mode) != wanted:
            found.append(f"{path} {stat.S_IMODE(mode):04o}")
    return found


def own_files(store: Path) -> set[str]:
    """Files and folders that Apache RocketMQ does not have; beside one that is replaced is its next content."""
    return {path.name.removesuffix(".tmp") for path in (store / "thermocline").iterdir()}


def described_files() -> set[str]:
    """Those that the page has."""
    found = re.findall(r"`thermocline/([\w.-]+)/?`( \(\+ `\.bak`\))?", (DOCS / "store-format.md").read_text())
    return {name + suffix for name, has_backup in found for suffix in ("", ".bak" if has_backup else "")}


@pytest.fixture
def runtime_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where sockets are; short enough for one."""
    folder = Path(tempfile.mkdtemp(prefix="tc-"))
    monkeypatch.setenv("THERMOCLINE_RUNTIME_DIR", str(folder / "run"))
    yield folder / "run"
    shutil.rmtree(folder)


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Daemons inherit a umask that keeps nothing back."""
    before = os.umask(0)
    yield
    os.umask(before)


def cold_settings(folder: Path) -> dict[str, str]:
    """A broker that writes files of all kinds soon."""
    return {**SMALL_FILES, **FILES_GO_AT_ONCE, "coldUrl": (folder / "cold").as_uri(), "coldStateIntervalMs": "200"}


async def use(connection: ClientConnection, *, cold: Path) -> None:
    """Have files of all kinds written: log, queues, index, state, timers, segments, snapshots, changed settings."""
    await wire.make_topic(connection, TOPIC, queues=2)
    await wire.make_group(connection, "readers")
    await wire.send(connection, "MadeByAMessage", 0, b"first")
    await wire.send(connection, TOPIC, 0, b"timed", properties=f"TIMER_DELAY_MS\x01{SOON_MS}\x02")
    await wire.send_batch(connection, TOPIC, 0, [(b"x" * 4_000, "KEYS\x01key\x02")] * 50)
    await wire.commit_offset(connection, "readers", TOPIC, 0, 1)
    await wire.patiently(lambda: wire.seal(connection))
    await wire.ask(connection, RequestCode.UPDATE_BROKER_CONFIG, body=b"pullBatchSize=16")
    await until(lambda: any(cold.rglob("state/*.json")))


@pytest.mark.usefixtures("no_umask")
async def test_a_broker_and_a_name_server_write_for_their_user_alone(tmp_path: Path, runtime_folder: Path) -> None:
    names = Daemon(["namesrv", "--data", "names", "--listen", "127.0.0.1:0"], tmp_path)
    started: list[BrokerProcess] = []
    try:
        address = names.ready()["namesrv"]
        name_server = await ClientConnection.open(address)
        header = PutKVConfigRequestHeader(namespace="space", key="key", value="value")
        await wire.ask(name_server, RequestCode.PUT_KV_CONFIG, header)
        await wire.ask(name_server, RequestCode.UPDATE_NAMESRV_CONFIG, body=b"returnOrderTopicConfigToBroker=true")
        name_server.close()
        broker = BrokerProcess(tmp_path / "broker", {**cold_settings(tmp_path), "namesrvAddr": address})
        await broker.start()
        started.append(broker)
        connection = await ClientConnection.open(broker.address)
        await use(connection, cold=tmp_path / "cold")
        connection.close()
        assert [path for path in runtime_folder.iterdir() if path.is_socket()]
        folders = (broker.store, tmp_path / "cold", tmp_path / "names", runtime_folder)
        assert open_to_others(*folders) == []
        await broker.kill()
        await broker.start()
        assert open_to_others(*folders) == []
        assert await broker.stop() == 0
        assert open_to_others(*folders) == []
        again = BrokerProcess(tmp_path / "again", cold_settings(tmp_path))
        again.arguments = ("--recover-from", again.properties["coldUrl"])
        await again.start()
        started.append(again)
        assert open_to_others(again.store, tmp_path / "cold") == []
        files = own_files(broker.store) | own_files(again.store)
        assert {"origin.json", "queueEnds", "queueEnds.bak", "settings.json", "spool"} <= files
        assert files <= described_files(), "docs/store-format.md describes each"
        assert await again.stop() == 0
    finally:
        for each in started:
            await each.kill()
        assert names.stop() == 0


@pytest.mark.usefixtures("no_umask")
def test_dev_writes_for_its_user_alone(tmp_path: Path, runtime_folder: Path) -> None:
    daemon = Daemon(["dev", "--data", "data", "--namesrv", "127.0.0.1:0", "--listen", "127.0.0.1:0"], tmp_path)
    try:
        daemon.ready()
        assert open_to_others(tmp_path / "data", runtime_folder) == []
    finally:
        assert daemon.stop() == 0
    assert open_to_others(tmp_path / "data") == []


def open_up(folder: Path) -> None:
    """As an earlier release has left it."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


async def test_readable_files_are_closed_at_the_start(tmp_path: Path, runtime_folder: Path) -> None:
    cold = tmp_path / "cold"
    broker = BrokerProcess(tmp_path / "broker", cold_settings(tmp_path))
    await broker.start()
    connection = await ClientConnection.open(broker.address)
    await use(connection, cold=cold)
    connection.close()
    assert await broker.stop() == 0
    open_up(broker.store)
    open_up(cold)
    foreign = broker.store / "not-ours"
    foreign.write_text("a foreign file")
    foreign.chmod(0o644)
    await broker.start()
    await until(lambda: not open_to_others(cold))
    assert [text.rpartition(" ")[0] for text in open_to_others(broker.store)] == [str(foreign)]
    assert "access of other users changed" in broker.log
    assert await broker.stop() == 0

    names = tmp_path / "names"
    names.mkdir()
    (names / "kvConfig.json").write_text('{"configTable":{}}')
    open_up(names)
    daemon = Daemon(["namesrv", "--data", "names", "--listen", "127.0.0.1:0"], tmp_path)
    try:
        daemon.ready()
        assert open_to_others(names) == []
    finally:
        assert daemon.stop() == 0


@pytest.mark.full
async def test_a_directory_for_other_readers(tmp_path: Path, runtime_folder: Path) -> None:
    """Objects that are there follow the setting, in both directions; the store stays private."""
    cold = tmp_path / "cold"
    broker = BrokerProcess(tmp_path / "broker", cold_settings(tmp_path))

    def has_modes(file_mode: int, directory_mode: int) -> bool:
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [cold, *cold.rglob("*")] if path.exists()}
        return len(modes) > 1 and all(
            mode == (directory_mode if path.is_dir() else file_mode) for path, mode in modes.items()
        )

    for readers, file_mode, directory_mode in (
        ("owner", 0o600, 0o700),
        ("group", 0o640, 0o750),
        ("owner", 0o600, 0o700),
    ):
        broker.properties["coldDirectoryReaders"] = readers
        await broker.start()
        connection = await ClientConnection.open(broker.address)
        await wire.send(connection, TOPIC, 0, readers.encode())
        await wire.patiently(lambda connection=connection: wire.seal(connection))  # type: ignore[misc]
        connection.close()
        assert await broker.stop() == 0
        assert has_modes(file_mode, directory_mode), readers
        assert open_to_others(broker.store) == []
