"""What the file provider has answered survives a power cut, and every one of its syncs is needed for that."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from tests.simulated_disk import PowerCut, SimulatedDisk
from thermocline.remoting.errors import ObjectNotFoundError, ObjectStoreUnavailableError
from thermocline.store.files.disk import RealDisk
from thermocline.tiered.objects.errors import AlreadyExistsError, ObjectStoreRefusedError
from thermocline.tiered.stores.file import FileObjectStore
from thermocline.tiered.stores.file.file_object_store import ObjectSyncSite

KEYS = [f"{folder}/{number}" for folder in ("ledger", "topics/a", "topics/b") for number in range(4)]


@dataclass
class Expectation:
    """What must be there after a cut: for each key the contents that it may have; None: may be absent."""

    allowed: dict[str, set[bytes | None]] = field(default_factory=lambda: {key: {None} for key in KEYS})


async def run_until_cut(disk: SimulatedDisk, random: Random, expectation: Expectation) -> None:
    """Random calls, in runs that end by a kill now and then, until the power goes off."""
    tokens = itertools.count()
    allowed = expectation.allowed
    while True:
        store = FileObjectStore("/data/cold", disk=disk, in_thread=False, make_token=lambda: str(next(tokens)))
        for _ in range(random.randint(1, 8)):
            key, data = random.choice(KEYS), random.randbytes(random.choice([5, 600, 3_000]))
            verb = random.choice(["put", "create", "create", "create", "delete", "find"])
            before = allowed[key]
            if verb == "put":
                allowed[key] = before | {data}
                await store.put(key, data)
                allowed[key] = {data}
            elif verb == "create":
                allowed[key] = before | {data}
                try:
                    await store.create_if_absent(key, data)
                    allowed[key] = {data}
                except AlreadyExistsError:
                    # A caller that gets this error, and reads the object, relies on its content.
                    allowed[key] = {await store.get(key)}
            elif verb == "delete":
                allowed[key] = before | {None}
                await store.delete(key)
                allowed[key] = {None}
            else:
                with contextlib.suppress(ObjectNotFoundError):
                    assert await store.get(key) in before
        if random.random() < 0.4:
            # The process is killed inside a call, the machine keeps running.
            disk.cut_at_step = disk.step_count + random.randint(1, 12)
            key, data = random.choice(KEYS), random.randbytes(700)
            expectation.allowed[key] = expectation.allowed[key] | {data}
            with contextlib.suppress(PowerCut, AlreadyExistsError):
                await store.create_if_absent(key, data)
            disk.revive()
        if random.random() < 0.3:
            disk.cut_at_step = disk.step_count + random.randint(1, 20)


async def violation(seed: int, *, ignored: ObjectSyncSite | None = None) -> str | None:
    """Run one case; what is wrong after the cut, if anything is."""
    random = Random(seed)
    disk = SimulatedDisk(ignored_sites=[ignored] if ignored else [])
    disk.make_directory("/data")
    disk.sync_everything()
    expectation = Expectation()
    with contextlib.suppress(PowerCut):
        await run_until_cut(disk, random, expectation)
    store = FileObjectStore("/data/cold", disk=disk.after_power_cut(random), in_thread=False)
    for key, allowed in expectation.allowed.items():
        try:
            found: bytes | None = await store.get(key)
        except ObjectNotFoundError:
            found = None
        if found not in allowed:
            return f"{key}: {found and len(found)} bytes, allowed {[value and len(value) for value in allowed]}"
    listed = [info.key async for info in store.list("")]
    return None if set(listed) <= set(KEYS) else f"listed {listed}"


@pytest.mark.parametrize("seed_range", range(4))
async def test_answered_writes_survive_a_power_cut(seed_range: int) -> None:
    for seed in range(seed_range * 60, seed_range * 60 + 60):
        assert await violation(seed) is None, f"seed={seed}"


@pytest.mark.parametrize("site", ObjectSyncSite)
async def test_every_sync_is_needed(site: ObjectSyncSite) -> None:
    """Without it, something that was answered is lost."""
    for seed in range(600):
        if await violation(seed, ignored=site) is not None:
            return
    pytest.fail(f"nothing is lost without the sync {site!r}")


async def test_partial_files_are_never_listed_and_are_removed(tmp_path: Path) -> None:
    store = FileObjectStore(str(tmp_path), disk=RealDisk())
    await store.put("mine/a/1", b"1")
    for name in ("mine/a/2.token", "mine/b.token", "other/1.token"):
        path = tmp_path / ".partial" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    assert [info.key async for info in store.list("")] == ["mine/a/1"]
    assert await store.remove_incomplete("mine/") == 2
    assert await store.remove_incomplete("mine/") == 0
    assert (tmp_path / ".partial/other/1.token").exists()
    assert await store.get("mine/a/1") == b"1"


async def test_failed_writes_leave_nothing(tmp_path: Path) -> None:
    store = FileObjectStore(str(tmp_path), disk=RealDisk())
    await store.put("a", b"1")
    with pytest.raises((ObjectStoreRefusedError, ObjectStoreUnavailableError)):
        await store.put("a/below", b"1")
    await store.put("folder/inside", b"1")
    with pytest.raises((ObjectStoreRefusedError, ObjectStoreUnavailableError, AlreadyExistsError)):
        await store.create_if_absent("folder", b"1")
    with pytest.raises(AlreadyExistsError):
        await store.create_if_absent("a", b"2")
    assert [path for path in (tmp_path / ".partial").rglob("*") if path.is_file()] == []


async def test_a_folder_that_was_deleted_when_it_was_empty_is_made_again(tmp_path: Path) -> None:
    store = FileObjectStore(str(tmp_path), disk=RealDisk())
    await store.put("cluster/ledger/1", b"1")
    for write in (store.put, store.create_if_absent):
        await write("cluster/topics/orders/1", b"1")
        await store.delete("cluster/topics/orders/1")
        (tmp_path / "cluster/topics/orders").rmdir()
        (tmp_path / "cluster/topics").rmdir()
        with pytest.raises(ObjectStoreUnavailableError):
            await write("cluster/topics/orders/1", b"1")
        assert [path for path in (tmp_path / ".partial").rglob("*") if path.is_file()] == []
        await write("cluster/topics/orders/1", b"1")
        assert await store.get("cluster/topics/orders/1") == b"1"
        await store.delete("cluster/topics/orders/1")


async def test_a_tree_that_is_gone_is_neither_empty_nor_begun_anew(tmp_path: Path) -> None:
    """As when its file system was unmounted: what is behind the mount point is not the cold tier."""
    await FileObjectStore(str(tmp_path), disk=RealDisk()).put("cluster/ledger/1", b"1")
    writer, reader = (FileObjectStore(str(tmp_path), disk=RealDisk()) for _ in range(2))
    await writer.create_if_absent("cluster/ledger/2", b"2")
    assert await reader.get("cluster/ledger/1") == b"1"
    (tmp_path / "cluster").rename(tmp_path.parent / "mounted")
    for key in ("cluster/ledger/3", "cluster/topics/new/1", "cluster/ledger/3"):
        with pytest.raises(ObjectStoreUnavailableError):
            await writer.create_if_absent(key, b"3")
    assert not (tmp_path / "cluster").exists()
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: reader.get("cluster/ledger/1"),
        lambda: reader.head("cluster/ledger/1"),
        lambda: reader.get_suffix("cluster/ledger/1", size_bytes=1),
        lambda: reader.delete("cluster/ledger/1"),
        lambda: anext(reader.list("cluster/pins/")),
    ]
    for call in calls:
        with pytest.raises(ObjectStoreUnavailableError, match="not mounted"):
            await call()
    with pytest.raises(ObjectNotFoundError):
        await reader.get("other/ledger/1")
    (tmp_path.parent / "mounted").rename(tmp_path / "cluster")
    await writer.create_if_absent("cluster/ledger/3", b"3")
    assert [info.key async for info in reader.list("cluster/ledger/")] == [f"cluster/ledger/{n}" for n in (1, 2, 3)]


async def test_a_full_disk_is_unavailable() -> None:
    disk = SimulatedDisk()
    store = FileObjectStore("/cold", disk=disk, in_thread=False)
    await store.put("a", b"1")
    disk.is_full = True
    with pytest.raises(ObjectStoreUnavailableError):
        await store.put("b", b"x" * 10_000)
    disk.is_full = False
    await store.put("b", b"2")
    assert await store.get("b") == b"2"
