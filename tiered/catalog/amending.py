"""Amending: commit objects that were written beforehand in place of others, or give them up.

Whoever writes new objects and then amends the catalog has three ends to tell apart: the change is in; the newest
catalog has nothing left to change, so the objects are garbage; the commit never started. A commit that is cancelled may
still have landed: its objects stay as they are, under ids that count as under way, until the writer's epoch has ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from thermocline.remoting.errors import MQError
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.catalog.ledger_entry import LedgerChanges

Change: TypeAlias = Callable[[Catalog], LedgerChanges | None]
"""Makes a change from the newest catalog; None when there is nothing left to change."""

Amend: TypeAlias = Callable[[Change], Awaitable[bool]]
"""Commits what a change makes; False when that is nothing: `TierService.amend`."""


async def amend_or_give_up(amend: Amend, change: Change, *, give_up: Callable[[], None]) -> bool:
    """Commit a change that names new objects; call `give_up` when it will not be committed. Returns whether it is in.

    Raises:
        MQError: The commit never started; the objects have been given up.
    """
    try:
        is_in = await amend(change)
    except MQError:
        give_up()
        raise
    if not is_in:
        give_up()
    return is_in
