"""ScrubView: a scrub's information besides the bucket. A broker's tier process has more than a reader of the bucket."""

from __future__ import annotations

from typing import Protocol

from thermocline.tiered.catalog import Catalog
from thermocline.tiered.ledger import BallotArbiter, LedgerReader, LedgerWriter
from thermocline.tiered.objects import ObjectStore
from thermocline.tiered.segments import BrokerKeys, SegmentId, segment_id_of
from thermocline.tiered.state import StateLog, StateName


class ScrubView(Protocol):
    """`is_writer`: the view has the catalog and the uploads under way without reading the bucket."""

    @property
    def is_writer(self) -> bool:
        """See the class."""

    async def newest(self) -> Catalog:
        """The newest catalog: read no earlier than this call. CorruptDataError when the ledger cannot be followed."""

    def checkpoint_versions(self) -> frozenset[int]:
        """Complete checkpoints that no entry names yet."""

    def is_on_its_way(self, key: str) -> bool:
        """Whether an object that no catalog names is being written, or about to be deleted. May be called late."""

    @property
    def ballot_key(self) -> str | None:
        """The ballot that must exist, if known."""

    def kept_states(self) -> tuple[StateName, ...]:
        """The state snapshots that must exist, as far as known."""

    def may_be_state(self, name: StateName) -> bool:
        """Whether any writer can have written a state snapshot of that name. May be called late."""


class BucketView:
    """A reader's view: any object of the newest epoch may be under way."""

    is_writer = False

    def __init__(self, store: ObjectStore, keys: BrokerKeys) -> None:
        self._store = store
        self._keys = keys
        self._checkpoints: frozenset[int] = frozenset()
        self._epoch = 0

    async def newest(self) -> Catalog:
        """See ScrubView."""
        reader = await LedgerReader.open(self._store, self._keys)
        self._checkpoints = frozenset([reader.base.version] if reader.base is not None else [])
        self._epoch = reader.catalog.epoch
        return reader.catalog

    def checkpoint_versions(self) -> frozenset[int]:
        """See ScrubView."""
        return self._checkpoints

    def is_on_its_way(self, key: str) -> bool:
        """See ScrubView."""
        segment_id = segment_id_of(key)
        return segment_id is not None and segment_id.epoch == self._epoch

    @property
    def ballot_key(self) -> str | None:
        """See ScrubView."""
        return None

    def kept_states(self) -> tuple[StateName, ...]:
        """See ScrubView."""
        return ()

    def may_be_state(self, name: StateName) -> bool:
        """See ScrubView."""
        return True


class WriterView:
    """The writer's own view: exact.

    Objects under way or about to be deleted when a catalog was returned stay so for checks by that catalog.
    """

    is_writer = True

    def __init__(self, writer: LedgerWriter, states: StateLog | None = None) -> None:
        """`states`: None when its writer's snapshots are not known."""
        self._writer = writer
        self._states = states
        self._leaving: set[str] = set()
        self._coming: set[SegmentId] = set()

    async def newest(self) -> Catalog:
        """See ScrubView."""
        self._leaving.update(self._writer.discarded)
        self._coming.update(self._writer.under_way())
        return self._writer.catalog

    def checkpoint_versions(self) -> frozenset[int]:
        """See ScrubView."""
        checkpoint = self._writer.checkpoint
        return frozenset([checkpoint.version] if checkpoint is not None else [])

    def is_on_its_way(self, key: str) -> bool:
        """See ScrubView."""
        segment_id = segment_id_of(key)
        if segment_id is None:
            return False
        if key in self._leaving or key in self._writer.discarded:
            return True
        return segment_id in self._coming or self._writer.is_under_way(segment_id)

    @property
    def ballot_key(self) -> str | None:
        """See ScrubView."""
        arbiter = self._writer.arbiter
        ballot = arbiter.ballot if isinstance(arbiter, BallotArbiter) else None
        return self._writer.keys.ballot(ballot) if ballot is not None else None

    def kept_states(self) -> tuple[StateName, ...]:
        """See ScrubView."""
        return self._states.kept if self._states is not None else ()

    def may_be_state(self, name: StateName) -> bool:
        """See ScrubView."""
        return self._states is None or self._states.may_have_made(name)
