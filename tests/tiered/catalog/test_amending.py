"""Objects that were written for a change are given up exactly when it will not be committed."""

from __future__ import annotations

import asyncio

import pytest

from thermocline.tiered.catalog.amending import Change, amend_or_give_up
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.catalog.ledger_entry import LedgerChanges
from thermocline.tiered.objects.errors import EarlierCommitUnsettledError

CHANGES = LedgerChanges()


class Ledger:
    """Commits, refuses to begin, or is cancelled in the middle."""

    def __init__(self, outcome: bool | BaseException) -> None:
        self.outcome = outcome
        self.given_up = 0

    async def amend(self, change: Change) -> bool:
        assert change(Catalog.empty()) is CHANGES
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome

    def give_up(self) -> None:
        self.given_up += 1

    async def run(self) -> bool:
        return await amend_or_give_up(self.amend, lambda catalog: CHANGES, give_up=self.give_up)


async def test_a_committed_change_stays() -> None:
    ledger = Ledger(True)
    assert await ledger.run()
    assert ledger.given_up == 0


async def test_an_overtaken_change_is_dropped() -> None:
    ledger = Ledger(False)
    assert not await ledger.run()
    assert ledger.given_up == 1


async def test_a_change_that_never_started_is_dropped() -> None:
    ledger = Ledger(EarlierCommitUnsettledError("not settled"))
    with pytest.raises(EarlierCommitUnsettledError):
        await ledger.run()
    assert ledger.given_up == 1


async def test_a_cancelled_change_may_be_committed_and_stays() -> None:
    ledger = Ledger(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await ledger.run()
    assert ledger.given_up == 0
