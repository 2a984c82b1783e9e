"""Which store directory may claim a ledger, of a set under a controller."""

from __future__ import annotations

from functools import partial

import pytest

from tests.tiered.ledger_data import commit_segment, open_writer
from thermocline.tiered.ledger import ledger_writer
from thermocline.tiered.ledger.ledger_writer import LedgerIdentity
from thermocline.tiered.objects.errors import ForeignLedgerError
from thermocline.tiered.stores.memory import MemoryObjectStore


def elected_after(owner: str, name: str, master_epoch: int) -> LedgerIdentity:
    """A broker of the set that is the master since this epoch; `owner`: whose ledger it takes over."""
    return LedgerIdentity(
        store_uuid=name,
        cluster="DefaultCluster",
        broker_name="broker-a",
        predecessor=owner,
        master_epoch=master_epoch,
    )


async def test_an_elected_broker_that_could_not_serve_holds_no_other_up() -> None:
    """Of a set under a controller: its claim alone is no reason to refuse the ledger to the next elected broker."""
    store = MemoryObjectStore()
    master = await open_writer(store)
    await commit_segment(master)
    elected = partial(elected_after, master.catalog.store_uuid)

    for seed in (2, 3):
        await open_writer(store, seed=seed, identity=elected("slave-1", 2))
    for epoch in (0, 2):
        with pytest.raises(ForeignLedgerError):
            await open_writer(store, seed=4, identity=elected("slave-2", epoch))
    await open_writer(store, seed=5, identity=elected("slave-2", 3))
    again = LedgerIdentity(
        store_uuid="slave-1", cluster="DefaultCluster", broker_name="broker-a", predecessor="", master_epoch=4
    )
    await open_writer(store, seed=6, identity=again)
    tier_process = LedgerIdentity(store_uuid="slave-1", cluster="DefaultCluster", broker_name="broker-a")
    writer = await open_writer(store, seed=7, identity=tier_process)
    with pytest.raises(ForeignLedgerError):
        await open_writer(store, seed=8, identity=elected("slave-2", 5))
    await commit_segment(writer, start=10)
    with pytest.raises(ForeignLedgerError):
        await open_writer(store, seed=9, identity=elected("slave-2", 5))


async def test_claims_are_followed_back_to_their_owner_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is a request: an owner that is not among the newest entries is taken for another one."""
    store = MemoryObjectStore()
    master = await open_writer(store)
    await commit_segment(master)
    elected = partial(elected_after, master.catalog.store_uuid)

    for epoch in (2, 3):
        await open_writer(store, seed=epoch, identity=elected(f"slave-{epoch}", epoch))
    monkeypatch.setattr(ledger_writer, "CLAIMS_PASSED_MAX", 2)
    with pytest.raises(ForeignLedgerError):
        await open_writer(store, seed=4, identity=elected("slave-4", 4))
    monkeypatch.setattr(ledger_writer, "CLAIMS_PASSED_MAX", 3)
    await open_writer(store, seed=5, identity=elected("slave-4", 4))
