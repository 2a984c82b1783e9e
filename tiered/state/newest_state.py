"""The newest state snapshot of a broker's prefix, for a recovery or an inspection.

    find_newest      by a listing: a listing and a GET, for a reader outside the broker
    find_last        exact although listings may lag: for a broker that continues from the snapshot
    with_carried     the snapshot in a ledger entry, if that is newer (carried_state.py)
    find_superseded  snapshots that no recovery needs any more: for deletion

Names have no gaps: the sequence of an epoch begins with 1 (`state_log.py`), and the newest two are kept. So snapshots
that a lagging listing does not show are found by name, as a GET sees every completed put: in the epoch of the newest
listed one the next UNLISTED_MAX names, in each later epoch, up to the ledger's newest, the first UNLISTED_MAX.

If the newest is damaged, the one before it is used. That is safe: offsets are only used once both kept snapshots have
reserved them (snapshot.py). But it is older: groups and settings may return to their earlier state. A third one is
never used, as it may have reserved less; nor one without a checksum, as its writers did not follow this rule. A
snapshot of a later version is never skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import msgspec

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError, ObjectStoreUnavailableError
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.ledger import open_catalog
from thermocline.tiered.objects import ObjectStore, StateCorruptError, StateTooNewError, is_sealed, run_all
from thermocline.tiered.segments import BrokerKeys
from thermocline.tiered.state.carried_state import find_carried
from thermocline.tiered.state.snapshot import KEPT_COUNT, StateName, StateSnapshot, decode_state

logger = logging.getLogger(__name__)

READ_ATTEMPTS_MAX = 8
UNLISTED_MAX = 16
"""By how many snapshots a listing may lag: so many intervals of `coldStateIntervalMs`, 15 minutes or more."""
NAMES_AT_ONCE = 1_000
"""A broker that was started again and again without saving anything has left very many epochs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestState:
    """The newest readable snapshot; None when there is none at all. `skipped`: keys of newer, damaged ones. `names`:
    the newest objects, readable or not, oldest first. `is_carried`: it is in a ledger entry."""

    snapshot: StateSnapshot | None = None
    is_carried: bool = False
    skipped: tuple[str, ...] = ()
    names: tuple[StateName, ...] = ()

    def warn(self) -> None:
        """Log a warning when it is not the newest."""
        for key in self.skipped:
            logger.warning("state snapshot damaged, the one before it is taken key=%s", key)


async def find_newest(store: ObjectStore, keys: BrokerKeys) -> NewestState:
    """The newer one of the two that are kept, as listed, or the older one when that is damaged.

    Raises:
        ObjectStoreUnavailableError: No answer.
        StateTooNewError: A later version has written it.
        StateCorruptError: Neither can be read.
    """
    for _ in range(READ_ATTEMPTS_MAX):
        names = (await list_names(store, keys))[-KEPT_COUNT:]
        stored: dict[StateName, bytes] = {}
        for name in reversed(names):
            data = await _get(store, keys, name)
            if data is None:
                break  # superseded, twice, since it was listed
            stored[name] = data
            try:
                return _first_readable(stored, keys, names)
            except StateTooNewError:
                raise
            except StateCorruptError:
                if len(stored) == len(names):
                    raise
        if not names:
            return NewestState()
    raise ObjectStoreUnavailableError("state snapshots go faster than they can be read", root=keys.root)


async def find_last(store: ObjectStore, keys: BrokerKeys, *, epoch: int) -> NewestState:
    """The newest snapshot, listed or not, or the one before it when that is damaged. `epoch`: the ledger's newest; a
    caller that continues from the snapshot must have claimed it, so that no later snapshot exists.

    Raises: as `find_newest`.
    """
    for _ in range(READ_ATTEMPTS_MAX):
        names = [name for name in await list_names(store, keys) if name.epoch <= epoch]
        listed = names[-1] if names else StateName(1, 0)
        wanted = names[-KEPT_COUNT:]
        wanted += [StateName(listed.epoch, listed.sequence + number) for number in range(1, UNLISTED_MAX + 1)]
        for later in range(listed.epoch + 1, epoch + 1):
            wanted += [StateName(later, number) for number in range(1, UNLISTED_MAX + 1)]
        found: dict[StateName, bytes] = {}
        for start in range(0, len(wanted), NAMES_AT_ONCE):
            part = wanted[start : start + NAMES_AT_ONCE]
            answers = await run_all([_get(store, keys, name) for name in part])
            found |= {name: data for name, data in zip(part, answers, strict=True) if data is not None}
        kept = sorted(found)[-KEPT_COUNT:]
        if kept:
            return _first_readable({name: found[name] for name in reversed(kept)}, keys, kept)
        if not names:
            return NewestState()
    raise ObjectStoreUnavailableError("state snapshots go faster than they can be read", root=keys.root)


async def find_superseded(store: ObjectStore, keys: BrokerKeys, names: Collection[StateName]) -> list[StateName]:
    """Those of `names` that are older than the newest KEPT_COUNT of them that can be read.

    Unreadable objects do not count: a foreign object under such a name, or a snapshot damaged later, must not cause the
    deletion of a good one. One of a later version does not count either, as its content is not known.

    Raises:
        ObjectStoreUnavailableError: No answer.
    """
    older, readable_count = sorted(names), 0
    while older and readable_count < KEPT_COUNT:
        readable_count += await _is_readable(store, keys, older.pop())
    return older if readable_count == KEPT_COUNT else []


async def read_newest(store: ObjectStore, keys: BrokerKeys) -> StateSnapshot | None:
    """The snapshot of `find_newest`, which raises the same, or a newer one that the ledger carries; a warning tells
    when it is not the newest."""
    found = await find_newest(store, keys)
    found.warn()
    try:
        catalog = await open_catalog(store, keys, only_topics=frozenset())
    except CorruptDataError as error:
        logger.warning("the ledger cannot be read, nor whether it carries a newer state: %s", error)
        return found.snapshot
    return (await with_carried(found, store, keys, catalog)).snapshot


async def with_carried(found: NewestState, store: ObjectStore, keys: BrokerKeys, catalog: Catalog) -> NewestState:
    """The snapshot found among the objects, or the one carried by `catalog`'s ledger when that is newer.

    Raises:
        ObjectStoreUnavailableError: No answer.
        StateTooNewError: A later version has written it.
    """
    if found.snapshot is None:
        return found  # without an object nothing is reserved
    carried = await find_carried(store, keys, version=catalog.state_version)
    if carried is None or carried.name < found.snapshot.name:
        return found
    ceiling = max(carried.log_ceiling, found.snapshot.log_ceiling)
    return replace(found, snapshot=msgspec.structs.replace(carried, log_ceiling=ceiling), is_carried=True)


async def list_names(store: ObjectStore, keys: BrokerKeys) -> list[StateName]:
    """The snapshots that are listed, oldest first."""
    places = [keys.state_of(info.key) async for info in store.list(keys.state_prefix)]
    return sorted(StateName(*place) for place in places if place is not None)


async def _is_readable(store: ObjectStore, keys: BrokerKeys, name: StateName) -> bool:
    data = await _get(store, keys, name)
    try:
        return data is not None and bool(decode_state(data, name=name))
    except StateCorruptError:
        return False


async def _get(store: ObjectStore, keys: BrokerKeys, name: StateName) -> bytes | None:
    """The snapshot's bytes; None when it is not there."""
    try:
        return await store.get(keys.state(epoch=name.epoch, sequence=name.sequence))
    except ObjectNotFoundError:
        return None


def _first_readable(stored: Mapping[StateName, bytes], keys: BrokerKeys, names: list[StateName]) -> NewestState:
    """The first readable stored snapshot, newest first."""
    skipped: list[str] = []
    for name, data in stored.items():
        key = keys.state(epoch=name.epoch, sequence=name.sequence)
        try:
            snapshot = decode_state(data, name=name)
            if skipped and not is_sealed(data):
                raise StateCorruptError("a state snapshot that may have reserved too little", key=key)
            return NewestState(snapshot=snapshot, skipped=tuple(skipped), names=tuple(names))
        except StateTooNewError:
            raise
        except StateCorruptError as error:
            skipped.append(key)
            last_error = error
    raise StateCorruptError("no state snapshot can be read", damaged=", ".join(skipped)) from last_error
