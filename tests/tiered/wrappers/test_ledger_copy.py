"""LedgerCopyStore: a disk that is full costs the copy, with one warning, and never the commit."""

from __future__ import annotations

import logging

import pytest

from tests.simulated_disk import SimulatedDisk
from tests.tiered.ledger_data import KEYS
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import LedgerCopyStore

FOLDER = "/copy"


async def test_a_full_disk_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    disk, objects = SimulatedDisk(), MemoryObjectStore()
    store = LedgerCopyStore(objects, keys=KEYS, disk=disk, folder=FOLDER)
    keys = [f"{KEYS.ledger_prefix}{number:020}" for number in range(3)]
    disk.is_full = True
    with caplog.at_level(logging.WARNING, logger="thermocline"):
        for key in keys:
            await store.put(key, b"entry")
    assert [record.getMessage().partition(" folder=")[0] for record in caplog.records] == [
        "ledger copy cannot be written"
    ]
    assert [await objects.get(key) for key in keys] == [b"entry"] * 3
    assert [store.find(key) for key in keys] == [None] * 3
    disk.is_full = False
    await store.put(keys[0], b"again")
    assert store.find(keys[0]) == b"again"
