"""The newest state snapshot of a broker's prefix.

    read_newest      what a listing shows: a listing and a GET, for whoever looks at a broker from outside
    read_last        the newest there is, though listings may lag: for whoever goes on from it

Names are a row: the sequence of an epoch begins with 1 and leaves none out (`state_log.py`), and the newest two stay.
So behind the newest that a listing shows, what it has not seen yet is found by name, as a GET sees all that was put: in
the same epoch the next UNLISTED_MAX, in each later one, up to the ledger's newest, the first UNLISTED_MAX.
"""

from __future__ import annotations

from thermocline.remoting.errors import ObjectNotFoundError, ObjectStoreUnavailableError
from thermocline.tiered.object_keys import BrokerKeys
from thermocline.tiered.object_store import ObjectStore
from thermocline.tiered.parallel import run_all
from thermocline.tiered.state.snapshot import StateName, StateSnapshot, decode_state

READ_ATTEMPTS_MAX = 8
UNLISTED_MAX = 16
"""By how many snapshots a listing may lag: as many intervals of `coldStateIntervalMs`, 16 minutes by default."""


async def read_newest(store: ObjectStore, keys: BrokerKeys) -> StateSnapshot | None:
    """The newest snapshot that is listed; None when there is none.

    Raises:
        ObjectStoreUnavailableError: No answer.
        StateCorruptError: It cannot be read.
    """
    for _ in range(READ_ATTEMPTS_MAX):
        names = await list_names(store, keys)
        if not names:
            return None
        found = await _read(store, keys, names[-1])
        if found is not None:
            return found  # else superseded, twice, since it was listed
    raise ObjectStoreUnavailableError("state snapshots go faster than they can be read", root=keys.root)


async def read_last(store: ObjectStore, keys: BrokerKeys, *, epoch: int) -> StateSnapshot | None:
    """The newest snapshot, listed or not; None when there is none. `epoch`: the ledger's newest.

    Raises: as `read_newest`.
    """
    for _ in range(READ_ATTEMPTS_MAX):
        names = await list_names(store, keys)
        listed = names[-1] if names else StateName(1, 0)
        behind = [StateName(listed.epoch, listed.sequence + number) for number in range(1, UNLISTED_MAX + 1)]
        for later in range(listed.epoch + 1, epoch + 1):
            behind += [StateName(later, number) for number in range(1, UNLISTED_MAX + 1)]
        wanted = behind if not names else [listed, *behind]
        found = [each for each in await run_all([_read(store, keys, name) for name in wanted]) if each is not None]
        if found:
            return found[-1]
        if not names:
            return None
    raise ObjectStoreUnavailableError("state snapshots go faster than they can be read", root=keys.root)


async def list_names(store: ObjectStore, keys: BrokerKeys) -> list[StateName]:
    """The snapshots that are listed, oldest first."""
    places = [keys.state_of(info.key) async for info in store.list(keys.state_prefix)]
    return sorted(StateName(*place) for place in places if place is not None)


async def _read(store: ObjectStore, keys: BrokerKeys, name: StateName) -> StateSnapshot | None:
    """The snapshot of that name; None when it is not there."""
    try:
        data = await store.get(keys.state(epoch=name.epoch, sequence=name.sequence))
    except ObjectNotFoundError:
        return None
    return decode_state(data, name=name)
