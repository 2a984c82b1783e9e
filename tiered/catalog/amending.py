"""Amending: commit objects that were uploaded beforehand in place of others, or give them up.

A caller that uploads new objects and then amends the catalog distinguishes three results: the change is committed; the
newest catalog no longer needs the change, so the objects are garbage; the commit never started. A cancelled commit may
still have landed: its objects stay, under ids that count as under way, until the writer's epoch ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from thermocline.remoting.errors import MQError
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.catalog.ledger_entry import LedgerChanges

Change: TypeAlias = Callable[[Catalog], LedgerChanges | None]
"""Computes a change from the newest catalog; None when it is no longer needed."""

Amend: TypeAlias = Callable[[Change], Awaitable[bool]]
"""Commits a change; False when it is no longer needed: `TierService.amend`."""


async def amend_or_give_up(amend: Amend, change: Change, *, give_up: Callable[[], None]) -> bool:
    """Commit a change that names new objects; call `give_up` if it will not be committed. Returns True if it is.

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
