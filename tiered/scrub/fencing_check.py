"""Fencing check: the objects of `coldFencing=ballots` (fencing.py), most of which are obsolete.

    ballots      are kept for ever. Only their names matter; the content is two fixed bytes. The highest one fences all
                 others. Reported missing if its writer scrubs, or if a proposal of it exists. The content is checked
                 by size, of the highest one byte by byte
    proposals    for a version that has its entry: settled, the next commit deletes them: garbage, counted
                 for the next version: being committed, or a crash's remainder, which the next writer commits: it must
                 be a valid entry
                 for a later version: impossible, a finding

A missing proposal counts as settled: both look the same. A missing highest ballot looks to a reader of the bucket like
one that was never written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from thermocline.remoting.errors import ObjectNotFoundError
from thermocline.tiered.catalog import Catalog, decode_entry
from thermocline.tiered.findings import Finding, ObjectKind, Problem
from thermocline.tiered.ledger import BALLOT_BYTES, ballot_of, proposal_of
from thermocline.tiered.objects import LedgerCorruptError, ObjectStore
from thermocline.tiered.scrub.view import ScrubView
from thermocline.tiered.segments import BrokerKeys


@dataclass(slots=True, kw_only=True)
class FencingState:
    """The result. `garbage`: key -> size of objects that the next commit deletes."""

    findings: list[Finding] = field(default_factory=list)
    garbage: dict[str, int] = field(default_factory=dict)
    read_bytes: int = 0


class FencingCheck:
    """Checks ballots and proposals once, by a catalog that is not older than the listing."""

    def __init__(
        self, store: ObjectStore, keys: BrokerKeys, *, listed: Mapping[str, int], catalog: Catalog, view: ScrubView
    ) -> None:
        self._store = store
        self._keys = keys
        self._listed = listed
        self._catalog = catalog
        self._view = view
        self._state = FencingState()

    async def run(self) -> FencingState:
        """Check everything. ObjectStoreUnavailableError when the store gives no answer."""
        await self._check_ballots()
        for key in sorted(self._listed):
            proposal = proposal_of(key, self._keys)
            if proposal is not None:
                await self._check_proposal(key, *proposal)
        return self._state

    async def _check_ballots(self) -> None:
        ballots = sorted(key for key in self._listed if ballot_of(key, self._keys) is not None)
        for key in ballots[:-1]:
            if self._listed[key] != len(BALLOT_BYTES):
                detail = f"{self._listed[key]} bytes instead of {len(BALLOT_BYTES)}"
                self._find(ObjectKind.BALLOT, Problem.SIZE, key, detail)
        own = self._view.ballot_key
        for key in {*ballots[-1:], *([own] if own is not None else [])}:
            data = await self._get(key)
            if data is None:
                self._find(ObjectKind.BALLOT, Problem.MISSING, key)
            elif data != BALLOT_BYTES:
                self._find(ObjectKind.BALLOT, Problem.DAMAGED, key)

    async def _check_proposal(self, key: str, version: int, ballot: str) -> None:
        following = self._catalog.version + 1
        if version < following:
            self._state.garbage[key] = self._listed[key]
            return
        if version > following:
            self._find(ObjectKind.PROPOSAL, Problem.EXTRA, key, version=version)
            return
        data = await self._get(key)
        if data is None:
            return  # settled since it was listed
        try:
            decode_entry(data, version=version)
        except LedgerCorruptError as error:
            problem = Problem.MISPLACED if "found" in error.context else Problem.DAMAGED
            self._find(ObjectKind.PROPOSAL, problem, key, str(error), version=version)
        ballot_key = self._keys.ballot(ballot)
        reported = {finding.key for finding in self._state.findings}
        if ballot_key not in reported and await self._get(ballot_key) is None:
            self._find(ObjectKind.BALLOT, Problem.MISSING, ballot_key, "there is a proposal of it")

    async def _get(self, key: str) -> bytes | None:
        try:
            data = await self._store.get(key)
        except ObjectNotFoundError:
            return None
        self._state.read_bytes += len(data)
        return data

    def _find(self, kind: ObjectKind, problem: Problem, key: str, detail: str = "", *, version: int = 0) -> None:
        self._state.findings.append(Finding(kind=kind, problem=problem, key=key, detail=detail, version=version))
