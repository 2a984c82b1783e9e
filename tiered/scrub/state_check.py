"""State check: the snapshots of topics, groups and offsets, which are what a broker comes back by.

    the newest two      are there, decodable, their checksum right, under their own name
    older ones          on their way out, once there are two newer ones that can be read: garbage, counted
    of a later epoch    than the ledger's, or, for the writer, of a number that it has not come to: nobody's, and a
                        recovery would take it for the newest

A snapshot that is gone is missed by its writer, who knows what he wrote. Somebody who has only the bucket misses one
when fewer than two are there although one was written before, and when there is history and no snapshot at all; which
of the two it was he cannot tell.

The names are listed in front of the catalog that they are judged by, as everything is (`scrubber.py`), and anew for
each look, for a snapshot lives no longer than some minutes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from thermocline.remoting.errors import ObjectNotFoundError
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.findings import Finding, ObjectKind, Problem
from thermocline.tiered.objects import ObjectStore, StateCorruptError
from thermocline.tiered.scrub.view import ScrubView
from thermocline.tiered.segments import BrokerKeys
from thermocline.tiered.state import KEPT_COUNT, StateName, StateSnapshot, decode_state


@dataclass(frozen=True, slots=True, kw_only=True)
class StateListing:
    """What there is, name to size in bytes; `expected`: what its writer knew of before it was listed."""

    there: dict[StateName, int]
    expected: frozenset[StateName]


@dataclass(slots=True, kw_only=True)
class StateState:
    """What was found. `garbage`: key -> size of what goes by itself."""

    findings: list[Finding] = field(default_factory=list)
    garbage: dict[str, int] = field(default_factory=dict)
    read_bytes: int = 0


async def list_states(store: ObjectStore, keys: BrokerKeys, view: ScrubView) -> StateListing:
    """Look what is there. ObjectStoreUnavailableError when the store gives no answer."""
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
    """Judge by a catalog that is newer than the listing, or by one that says nothing of what is newest (`is_rescued`).

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
        """Without its writer's word: how many there are at least."""
        if not newest and catalog.live_keys() and not self._view.is_writer:
            self._find(StateName(catalog.epoch, 1), Problem.MISSING, "there is none at all")
        if len(newest) == 1 and newest[0] is not None and newest[0].previous is not None:
            self._find(newest[0].previous, Problem.MISSING, "this one, or the one behind the only one that is there")

    async def _check(self, name: StateName) -> StateSnapshot | None:
        """The snapshot, if it is one."""
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
        """Those that their writer has not superseded meanwhile."""
        return sorted(set(names).intersection(self._view.kept_states()))

    def _find(self, name: StateName, problem: Problem, detail: str = "") -> None:
        self._state.findings.append(Finding(kind=ObjectKind.STATE, problem=problem, key=self._key(name), detail=detail))

    def _key(self, name: StateName) -> str:
        return self._keys.state(epoch=name.epoch, sequence=name.sequence)
