"""State files are written durably, by one thread, and shared by those who wait.

Covers `store/state/table_changes.py`.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from tests.simulated_disk import SimulatedDisk
from thermocline.broker.state_files.config_persister import ConfigPersister, load_file
from thermocline.remoting.errors import ClosedError, DiskFullError, UnavailableError
from thermocline.store.state.table_changes import TableChanges


class SlowDisk(SimulatedDisk):
    """Counts replaced files; writing waits for the gate, and may be refused."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.replaced: list[str] = []
        self.is_full = False

    def rename(self, source: str, target: str) -> None:
        if source.endswith(".tmp"):
            self.gate.wait(timeout=10)
            if self.is_full:
                raise DiskFullError("no room left on the disk", path=target)
            self.replaced.append(target)
        super().rename(source, target)


@pytest.fixture
def disk() -> SlowDisk:
    disk = SlowDisk()
    disk.make_directory("/config")
    return disk


@pytest.fixture
async def persister(disk: SlowDisk) -> AsyncIterator[ConfigPersister]:
    persister = ConfigPersister(disk)
    yield persister
    disk.gate.set()
    await persister.close()
    await persister.close()


def state(value: dict[str, int], name: str = "count") -> Callable[[], bytes]:
    return lambda: str(value[name]).encode()


async def test_a_save_is_durable_on_return(disk: SlowDisk, persister: ConfigPersister) -> None:
    values = {"count": 1}
    persister.register("a", "/config/a.json", state(values))
    await persister.save("a")
    values["count"] = 2
    await persister.save("a")
    assert disk.read("/config/a.json") == b"2"
    assert disk.read("/config/a.json.bak") == b"1"
    assert load_file(disk, "/config/a.json") == b"2"


async def test_many_callers_share_a_write(disk: SlowDisk, persister: ConfigPersister) -> None:
    values = {"count": 0}
    persister.register("a", "/config/a.json", state(values))
    disk.gate.clear()
    first = asyncio.ensure_future(persister.save("a"))
    await asyncio.sleep(0)  # the first write has begun
    waiting = []
    for _ in range(1_000):
        values["count"] += 1
        waiting.append(asyncio.ensure_future(persister.save("a")))
    await asyncio.sleep(0)
    disk.gate.set()
    await asyncio.gather(first, *waiting)
    assert disk.read("/config/a.json") == b"1000"
    assert len(disk.replaced) <= 3


async def test_a_failed_write_is_logged_and_retried_with_the_next(disk: SlowDisk, persister: ConfigPersister) -> None:
    values = {"count": 1}
    persister.register("a", "/config/a.json", state(values))
    disk.is_full = True
    with pytest.raises(UnavailableError, match="not written"):
        await persister.save("a")
    persister.request("a")  # no caller waits, no error is raised
    disk.is_full = False
    values["count"] = 2
    await persister.save("a")
    assert disk.read("/config/a.json") == b"2"


async def test_a_file_that_is_always_dirty_does_not_starve_others(disk: SlowDisk, persister: ConfigPersister) -> None:
    values = {"count": 0}
    is_done = False

    def encode_busy() -> bytes:
        if not is_done:
            persister.request("busy")
        return b"busy"

    persister.register("busy", "/config/busy.json", encode_busy)
    persister.register("other", "/config/other.json", state(values))
    persister.request("busy")
    await asyncio.wait_for(persister.save("other"), timeout=10)
    is_done = True


async def test_the_backup_stands_in_for_a_missing_file(disk: SlowDisk) -> None:
    assert load_file(disk, "/config/a.json") is None
    file = disk.open("/config/a.json.bak", create=True)
    file.write_at(b"old", 0)
    file.close()
    assert load_file(disk, "/config/a.json") == b"old"
    file = disk.open("/config/a.json", create=True)
    for size_bytes in (0, 5):  # as a power cut leaves a file that was not synced before it was renamed
        file.truncate(size_bytes)
        assert load_file(disk, "/config/a.json") == b"old"
    file.close()


class Table:
    """A table of one number."""

    def __init__(self) -> None:
        self.number = 0
        self.changes = TableChanges()
        self.encoded = asyncio.Event()

    def set(self, number: int) -> None:
        self.number = number
        self.changes.add()

    def encode(self) -> bytes:
        self.encoded.set()
        return str(self.number).encode()

    def load(self, data: bytes | None) -> None:
        self.number = int(data or b"0")


async def test_only_a_table_that_changed_is_saved(disk: SlowDisk, persister: ConfigPersister) -> None:
    table = Table()
    persister.open("/config", "a.json", table, changes=table.changes)
    await persister.save_changed("a.json")
    assert not disk.replaced
    table.set(3)
    await persister.save_changed("a.json")
    assert not table.changes.is_unsaved
    await persister.save_changed("a.json")
    assert disk.replaced == ["/config/a.json"]
    again = Table()
    ConfigPersister(disk).open("/config", "a.json", again)
    assert again.number == 3


async def test_a_change_during_a_write_stays_unsaved(disk: SlowDisk, persister: ConfigPersister) -> None:
    table = Table()
    persister.open("/config", "a.json", table, changes=table.changes)
    table.set(1)
    disk.gate.clear()
    first = asyncio.ensure_future(persister.save_changed("a.json"))
    await asyncio.wait_for(table.encoded.wait(), timeout=10)
    table.set(2)
    assert table.encode() == b"2", "to show a table is not to save it"
    second = asyncio.ensure_future(persister.save_changed("a.json"))
    await asyncio.sleep(0)
    disk.gate.set()
    await first
    assert table.changes.is_unsaved
    await second
    assert not table.changes.is_unsaved
    assert disk.read("/config/a.json") == b"2"


async def test_the_changes_of_a_failed_write_stay_unsaved(disk: SlowDisk, persister: ConfigPersister) -> None:
    table = Table()
    persister.open("/config", "a.json", table, changes=table.changes)
    table.set(1)
    disk.is_full = True
    with pytest.raises(UnavailableError):
        await persister.save_changed("a.json")
    assert table.changes.is_unsaved
    disk.is_full = False
    await persister.save_changed("a.json")
    assert disk.read("/config/a.json") == b"1"


async def test_closing_writes_requested_files(disk: SlowDisk, persister: ConfigPersister) -> None:
    persister.register("a", "/config/a.json", state({"count": 7}))
    persister.request("a")
    await persister.close()
    assert disk.read("/config/a.json") == b"7"
    with pytest.raises(ClosedError):
        await persister.save("a")
