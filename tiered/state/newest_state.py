"""The newest state snapshot of a broker's prefix: a listing and a GET, for whoever recovers from it or looks at it.

When the newest is damaged the one before it is taken. That is safe: nothing was ever given out that both of the kept
two had not reserved (snapshot.py). It is older: groups may be taken back to where they were then, and settings too. A
third one is never taken, for it may have reserved less; nor one without a checksum, for those who wrote these did not
keep to that; nor is one passed over that a later version has written.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from thermocline.remoting.errors import ObjectNotFoundError, ObjectStoreUnavailableError
from thermocline.tiered.checked_json import is_sealed
from thermocline.tiered.errors import StateCorruptError, StateTooNewError
from thermocline.tiered.object_keys import BrokerKeys
from thermocline.tiered.object_store import ObjectStore
from thermocline.tiered.state.snapshot import KEPT_COUNT, StateName, StateSnapshot, decode_state

logger = logging.getLogger(__name__)

READ_ATTEMPTS_MAX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestState:
    """The newest snapshot that can be read; None when there is none at all. `skipped`: keys of newer ones that are
    damaged."""

    snapshot: StateSnapshot | None
    skipped: tuple[str, ...] = ()


async def find_newest(store: ObjectStore, keys: BrokerKeys, *, epoch_max: int | None = None) -> NewestState:
    """The newer one of the two that are kept, or the older one when that is damaged. `epoch_max`: the ledger's newest,
    where that is known; nobody has written later ones.

    Raises:
        ObjectStoreUnavailableError: No answer.
        StateTooNewError: A later version has written it.
        StateCorruptError: Neither can be read.
    """
    for _ in range(READ_ATTEMPTS_MAX):
        names = await list_names(store, keys)
        if epoch_max is not None:
            names = [name for name in names if name.epoch <= epoch_max]
        try:
            return await _first_readable(store, keys, names[-KEPT_COUNT:])
        except ObjectNotFoundError:
            continue  # superseded, twice, since it was listed
    raise ObjectStoreUnavailableError("state snapshots go faster than they can be read", root=keys.root)


async def read_newest(store: ObjectStore, keys: BrokerKeys) -> StateSnapshot | None:
    """The snapshot of `find_newest`, which raises the same; a warning tells when it is not the newest."""
    found = await find_newest(store, keys)
    for key in found.skipped:
        logger.warning("state snapshot damaged, the one before it is taken key=%s", key)
    return found.snapshot


async def list_names(store: ObjectStore, keys: BrokerKeys) -> list[StateName]:
    """The snapshots that there are, oldest first."""
    places = [keys.state_of(info.key) async for info in store.list(keys.state_prefix)]
    return sorted(StateName(*place) for place in places if place is not None)


async def _first_readable(store: ObjectStore, keys: BrokerKeys, names: list[StateName]) -> NewestState:
    """The newest of `names` that can be read; ObjectNotFoundError when one is gone."""
    skipped: list[str] = []
    for name in reversed(names):
        key = keys.state(epoch=name.epoch, sequence=name.sequence)
        data = await store.get(key)
        try:
            snapshot = decode_state(data, name=name)
            if skipped and not is_sealed(data):
                raise StateCorruptError("a state snapshot that may have reserved too little", key=key)
            return NewestState(snapshot=snapshot, skipped=tuple(skipped))
        except StateTooNewError:
            raise
        except StateCorruptError as error:
            skipped.append(key)
            last_error = error
    if skipped:
        raise StateCorruptError("no state snapshot can be read", damaged=", ".join(skipped)) from last_error
    return NewestState(snapshot=None)
