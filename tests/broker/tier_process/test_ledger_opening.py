"""A broker whose bucket has no ledger any more does not begin a new one: its history is elsewhere. One whose ledger is
damaged mends it from the copy on its own disk."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.clock import Clock
from tests.tiered.ledger_data import KEYS, commit_segment
from thermocline.broker.helpers import HelloReply
from thermocline.broker.tier_process import ledger_opening
from thermocline.broker.tier_process.ledger_opening import open_ledger
from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.config import StoreConfig
from thermocline.store.files import RealDisk
from thermocline.tiered.budgets import TierConfig
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.objects import UnfitStoreError
from thermocline.tiered.stores.file import FileObjectStore
from thermocline.tiered.wrappers import LedgerCopyStore

LOG_END = 1_000
"""Of the ten records that are committed."""


class Opened:
    """Opens the ledger in `folder`/cold, whose copy is in `folder`/copy."""

    def __init__(self, folder: Path) -> None:
        self.cold, self.copy = folder / "cold", folder / "copy"
        self.cold.mkdir()
        self._count = 0

    async def open(
        self, *, store_uuid: str = "store-1", broker_name: str = "broker-a", append_offset: int = LOG_END
    ) -> LedgerWriter:
        self._count += 1
        random = Random(self._count)
        disk = RealDisk()
        store = LedgerCopyStore(FileObjectStore(str(self.cold), disk=disk), keys=KEYS, disk=disk, folder=str(self.copy))
        settings = HelloReply(
            store=StoreConfig(root_path=str(self.copy.parent / "store")),
            tier=TierConfig(cold_url=f"file://{self.cold}"),
            store_uuid=store_uuid,
            cluster_name="DefaultCluster",
            broker_name=broker_name,
            was_clean=True,
        )
        return await open_ledger(
            store,
            settings,
            clock=Clock(),
            on_failure=lambda _reason: None,
            append_offset=PhysicalOffset(append_offset),
            make_random=lambda: random,
        )


async def test_a_place_without_the_ledger_that_was_written_is_refused(tmp_path: Path) -> None:
    ledger = Opened(tmp_path)
    await commit_segment(await ledger.open())
    ledger.cold.rename(tmp_path / "unmounted")
    ledger.cold.mkdir()
    with pytest.raises(UnfitStoreError, match="without this broker's history"):
        await ledger.open()
    assert not list(ledger.cold.rglob("ledger/*"))
    ledger.cold.rename(tmp_path / "mount point")
    (tmp_path / "unmounted").rename(ledger.cold)
    assert (await ledger.open()).catalog.topics["orders"].segments


async def test_a_new_history_begins_where_the_operator_wants_it(tmp_path: Path) -> None:
    ledger = Opened(tmp_path)
    await commit_segment(await ledger.open())
    ledger.cold.rename(tmp_path / "old")
    for copy in ledger.copy.iterdir():
        copy.unlink()
    assert (await ledger.open()).version == 1


async def test_copies_of_another_directory_or_name_forbid_nothing(tmp_path: Path) -> None:
    ledger = Opened(tmp_path)
    await commit_segment(await ledger.open())
    ledger.cold.rename(tmp_path / "old")
    assert (await ledger.open(store_uuid="store-2")).version == 1
    (tmp_path / "cold").rename(tmp_path / "second")
    assert (await ledger.open(broker_name="broker-b")).version == 1


async def test_the_copy_of_a_first_entry_forbids_nothing(tmp_path: Path) -> None:
    """It was made before that was stored, which may not have succeeded."""
    ledger = Opened(tmp_path)
    await ledger.open()
    ledger.cold.rename(tmp_path / "old")
    assert (await ledger.open()).version == 1


async def test_a_log_that_ends_before_what_is_committed_is_refused(tmp_path: Path) -> None:
    """Its disk was set back: the next messages would get offsets that are in the cold tier."""
    ledger = Opened(tmp_path)
    await commit_segment(await ledger.open(append_offset=0), count=10)
    with pytest.raises(UnfitStoreError, match="ends before what was committed"):
        await ledger.open(append_offset=LOG_END - 1)
    await ledger.open(append_offset=LOG_END)


def damage_last_entry(ledger: Opened) -> bytes:
    """What it was before."""
    last = max(ledger.cold.rglob("ledger/*"))
    whole = last.read_bytes()
    last.write_bytes(whole[:-1])
    return whole


async def test_a_damaged_ledger_is_mended_from_the_copy(tmp_path: Path) -> None:
    ledger = Opened(tmp_path)
    await commit_segment(await ledger.open())
    whole = damage_last_entry(ledger)
    damaged = max(ledger.cold.rglob("ledger/*"))
    writer = await ledger.open()
    assert damaged.read_bytes() == whole
    assert writer.catalog.topics["orders"].segments


@pytest.mark.parametrize("has_damaged_copy", [True, False])
async def test_a_damaged_ledger_without_a_copy_that_fits_is_not_opened(tmp_path: Path, has_damaged_copy: bool) -> None:
    ledger = Opened(tmp_path)
    await commit_segment(await ledger.open())
    damage_last_entry(ledger)
    for copy in ledger.copy.iterdir():
        if has_damaged_copy:
            copy.write_bytes(copy.read_bytes()[:-1])
        else:
            copy.unlink()
    with pytest.raises(CorruptDataError):
        await ledger.open()


async def test_damage_that_comes_back_is_mended_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a store that loses what it confirms."""
    ledger = Opened(tmp_path)
    await commit_segment(await ledger.open())
    damage_last_entry(ledger)
    calls = 0

    async def restore(*_arguments: object, **_options: object) -> int:
        nonlocal calls
        calls += 1
        return 1

    monkeypatch.setattr(ledger_opening, "restore_damaged", restore)
    with pytest.raises(CorruptDataError):
        await ledger.open()
    assert calls == 1
