"""Reading a broker's state snapshots from its bucket, for whoever writes none."""

from __future__ import annotations

from thermocline.remoting.errors import ObjectNotFoundError, ObjectStoreUnavailableError
from thermocline.tiered.object_keys import BrokerKeys
from thermocline.tiered.object_store import ObjectStore
from thermocline.tiered.state.snapshot import StateName, StateSnapshot, decode_state

READ_ATTEMPTS_MAX = 8


async def read_newest(store: ObjectStore, keys: BrokerKeys) -> StateSnapshot | None:
    """The newest snapshot; None when there is none.

    Raises:
        ObjectStoreUnavailableError: No answer.
        StateCorruptError: It cannot be read.
    """
    for _ in range(READ_ATTEMPTS_MAX):
        names = await list_names(store, keys)
        if not names:
            return None
        name = names[-1]
        try:
            return decode_state(await store.get(keys.state(epoch=name.epoch, sequence=name.sequence)), name=name)
        except ObjectNotFoundError:
            continue  # superseded, twice, since it was listed
    raise ObjectStoreUnavailableError("state snapshots go faster than they can be read", root=keys.root)


async def list_names(store: ObjectStore, keys: BrokerKeys) -> list[StateName]:
    """The snapshots that there are, oldest first."""
    places = [keys.state_of(info.key) async for info in store.list(keys.state_prefix)]
    return sorted(StateName(*place) for place in places if place is not None)
