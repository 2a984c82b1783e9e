"""State check: the snapshots of topics, groups and offsets, from which a broker recovers.

    the newest two      must exist, decodable, with a correct checksum, under their own name
    older ones          about to be deleted, once two newer ones are readable: garbage, counted
    of a later epoch    than the ledger's, or, for the writer, of a number that it has not reached: foreign, and a
                        recovery would take it for the newest

The writer detects any missing snapshot, as it has the names that it wrote. A reader of the bucket detects one only when
there are fewer than two although an earlier one was written, and when there is history but no snapshot at all; it
cannot tell which of the two is missing.

The names are listed before the catalog is read, as all names are (`scrubber.py`), and again for each check, as a
snapshot is kept for some minutes only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from thermocline.remoting.errors import ObjectNotFoundError
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.findings import Finding, ObjectKind, Problem
from thermocline.tiered.objects import ObjectStore, StateCorruptError
from thermocline.tiered.scrub.view import ScrubView
from thermocline.tiered.segments import BrokerKeys
from thermocline.tiered.state import KEPT_COUNT, StateName, StateSnapshot, decode_state


class StateListing(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshots listed, name to size in bytes; `expected`: those that the writer had before the listing."""

    there: dict[StateName, int]
    expected: frozenset[StateName]


@dataclass(slots=True, kw_only=True)
class StateState:
    """The result. `garbage`: key -> size of snapshots that the writer will delete."""

    findings: list[Finding] = field(default_factory=list)
    garbage: dict[str, int] = field(default_factory=dict)
    read_bytes: int = 0


async def list_states(store: ObjectStore, keys: BrokerKeys, view: ScrubView) -> StateListing:
    """List the snapshots. ObjectStoreUnavailableError when the store gives no answer."""
    expected = frozenset(view.kept_states())
    there = {}
    async for info in store.list(keys.state_prefix):
        place = keys.state_of(info.key)
        if place is not None:
            there[StateName(*place)] = info.size_bytes
    return StateListing(there=there, expected=expected)


async def check_states(
    store: ObjectStore,
    keys: BrokerKeys,
    listing: StateListing,
    *,
    catalog: Catalog,
    view: ScrubView,
    is_rescued: bool = False,
) -> StateState:
    """Check by a catalog that is newer than the listing, or by one that may be outdated (`is_rescued`).

    ObjectStoreUnavailableError when there is no answer.
    """
    return await _StateCheck(store, keys, view).run(listing, catalog, is_rescued=is_rescued)


class _StateCheck:
    def __init__(self, store: ObjectStore, keys: BrokerKeys, view: ScrubView) -> None:
        self._store = store
        self._keys = keys
        self._view = view
        self._state = StateState()

    async def run(self, listing: StateListing, catalog: Catalog, *, is_rescued: bool) -> StateState:
        own = sorted(
            name
            for name in listing.there
            if (is_rescued or name.epoch <= catalog.epoch) and self._view.may_be_state(name)
        )
        for name in sorted(listing.there.keys() - set(own)):
            self._find(name, Problem.EXTRA, "a recovery would take it for the newest")
        for name in self._still_kept(listing.expected):
            if name not in listing.there:
                self._find(name, Problem.MISSING)
        older, newest = list(own), list[StateSnapshot | None]()
        while older and sum(snapshot is not None for snapshot in newest) < KEPT_COUNT:
            newest.append(await self._check(older.pop()))
        for name in older:
            self._state.garbage[self._key(name)] = listing.there[name]
        if not self._view.kept_states():
            self._check_count(newest, catalog)
        return self._state

    def _check_count(self, newest: list[StateSnapshot | None], catalog: Catalog) -> None:
        """Check the number of snapshots, for a scrub without the writer's names."""
        if not newest and catalog.live_keys() and not self._view.is_writer:
            self._find(StateName(catalog.epoch, 1), Problem.MISSING, "there is none at all")
        if len(newest) == 1 and newest[0] is not None and newest[0].previous is not None:
            self._find(newest[0].previous, Problem.MISSING, "this one, or the one behind the only one that is there")

    async def _check(self, name: StateName) -> StateSnapshot | None:
        """The snapshot, if it is valid."""
        try:
            data = await self._store.get(self._key(name))
        except ObjectNotFoundError:
            for _ in self._still_kept([name]):
                self._find(name, Problem.MISSING)
            return None  # or superseded since it was listed
        self._state.read_bytes += len(data)
        try:
            return decode_state(data, name=name)
        except StateCorruptError as error:
            self._find(name, Problem.MISPLACED if "found" in error.context else Problem.DAMAGED, str(error))
            return None

    def _still_kept(self, names: Iterable[StateName]) -> list[StateName]:
        """The snapshots that the writer has not superseded meanwhile."""
        return sorted(set(names).intersection(self._view.kept_states()))

    def _find(self, name: StateName, problem: Problem, detail: str = "") -> None:
        self._state.findings.append(Finding(kind=ObjectKind.STATE, problem=problem, key=self._key(name), detail=detail))

    def _key(self, name: StateName) -> str:
        return self._keys.state(epoch=name.epoch, sequence=name.sequence)
