"""LedgerWriter: the one writer of a broker's ledger. To commit is to create the next numbered entry.

An entry is created only if its number is free, so one of two writers wins; the store or ballots arbitrate (see
`fencing.py`). A writer begins by claiming the next epoch with an entry; a writer that then meets an entry of a later
epoch is fenced, for good.

    commit:  bytes and nonce fixed -> create entry v -> taken?  read it: our nonce: done before, the answer was lost
                                                                         a later epoch: FencedError
                                   -> created: read v-1: not the one we built upon, and v+1 does not follow ours:
                                               delete the entry, FencedError

The last step guards against slots that garbage collection has freed: a writer suspended for days could create an
entry in the slot of a deleted one of its successor. Entries are deleted in ascending order, so then v-1 is gone too.
For v = 1 there is no v-1: instead no `head-hint` may exist, which every writer writes right after its claim. v-1 may
also be gone when this writer was suspended after creating a valid entry and a successor built upon it: then v+1
follows it, while it is kept.

Rules
  - One commit at a time; a second waits. A commit whose answer never came stays pending: the next `commit` or `settle`
    finishes exactly that one first, with the same bytes.
  - Segments are committed only under ids of this writer's epoch.
  - Every `checkpoint_interval` entries a checkpoint is written; one that failed is tried again after the next
    commit; at ENTRIES_MAX entries without one, commits fail until it succeeds.
Belongs to one event loop. Bounded: one pending entry, and the names of what this writer has discarded.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from random import Random

import msgspec

from thermocline.remoting.errors import (
    FencedError,
    InvalidRequestError,
    ObjectStoreUnavailableError,
    StoreClosedError,
)
from thermocline.tiered.catalog import (
    Catalog,
    LedgerChanges,
    LedgerEntry,
    TopicEntry,
    apply,
    check_follows,
    encode_entry,
    format_of,
)
from thermocline.tiered.ledger.checkpoint import CheckpointHead, bucket_count_for, write_checkpoint
from thermocline.tiered.ledger.fencing import ConditionalArbiter, EntryArbiter
from thermocline.tiered.ledger.ledger_reader import HeadHint, LedgerReader, find_entry, read_hint, write_hint
from thermocline.tiered.objects import (
    AlreadyExistsError,
    EarlierCommitUnsettledError,
    ForeignLedgerError,
    LedgerCorruptError,
    ObjectStore,
)
from thermocline.tiered.segments import BrokerKeys, SegmentEntry, SegmentId

logger = logging.getLogger(__name__)

CHECKPOINT_INTERVAL = 32
ENTRIES_MAX = 64
CLAIM_ATTEMPTS_MAX = 32
CLAIMS_PASSED_MAX = 1_000
"""An elected broker that cannot serve claims again with each of its tries."""


class LedgerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a writer: the UUID of its store directory, and the names under which it serves.

    `predecessor`: the UUID of the only other store directory whose ledger it may claim, that of the master whose log it
    was the copy of; empty: none. `master_epoch`: the epoch for which a controller has elected this broker; 0: none has.
    """

    store_uuid: str
    cluster: str
    broker_name: str
    predecessor: str = ""
    master_epoch: int = 0


class _Pending(msgspec.Struct, kw_only=True):
    """An entry being committed. `created`: it exists and is this writer's; its predecessor is not checked yet."""

    entry: LedgerEntry
    data: bytes
    after: Catalog
    created: bool = False


class _SlotTakenError(Exception):
    """The pending entry's number went to `winner`, or its predecessor is not the expected one (None)."""

    def __init__(self, winner: LedgerEntry | None) -> None:
        self.winner = winner


@dataclass(slots=True, eq=False)
class LedgerWriter:
    """Made by `open`. `discarded`: objects (key to size) that no readable version names and this writer may delete."""

    store: ObjectStore
    keys: BrokerKeys
    catalog: Catalog
    clock_ms: Callable[[], int]
    random: Random
    arbiter: EntryArbiter
    checkpoint_interval: int = CHECKPOINT_INTERVAL
    checkpoint: CheckpointHead | None = None
    discarded: dict[str, int] = field(default_factory=dict)
    _checkpoint_catalog: Catalog | None = None
    _pending: _Pending | None = None
    _next_sequence: int = 1
    _issued: set[str] = field(default_factory=set)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _fenced: bool = False
    _later_epoch: int = 0
    _closed: bool = False

    @classmethod
    async def open(
        cls,
        store: ObjectStore,
        keys: BrokerKeys,
        *,
        identity: LedgerIdentity,
        clock_ms: Callable[[], int],
        random: Random,
        arbiter: EntryArbiter | None = None,
        checkpoint_interval: int = CHECKPOINT_INTERVAL,
        adopt: bool = False,
    ) -> LedgerWriter:
        """Claim the next epoch. From then on every earlier writer of this ledger is fenced.

        `random` makes nonces: it must differ in every process. `arbiter` is this writer's; None: the store arbitrates.
        `adopt` takes over a ledger of another store directory.

        Raises:
            FencedError: Another writer began at the same time and has priority.
            ForeignLedgerError: The ledger belongs to another store directory.
            ObjectStoreUnavailableError: No answer; whether the claim was made does not matter to the next attempt.
            CorruptDataError: The ledger is inconsistent.
        """
        assert 1 <= checkpoint_interval <= ENTRIES_MAX
        chosen = arbiter if arbiter is not None else ConditionalArbiter(store, keys)
        for _ in range(CLAIM_ATTEMPTS_MAX):
            reader = await LedgerReader.open(store, keys)
            # Before `begin`, which may fence the owner.
            await check_owner(store, keys, reader.catalog, identity, adopt=adopt)
            if await chosen.begin(epoch=reader.catalog.epoch):
                await check_owner(store, keys, await reader.refresh(), identity, adopt=adopt)
            writer = cls(store, keys, reader.catalog, clock_ms, random, chosen, checkpoint_interval)
            writer.checkpoint, writer._checkpoint_catalog = reader.base, reader.base_catalog
            writer._pending = writer._prepare(LedgerChanges(), claim=identity)
            try:
                await writer._settle()
            except _SlotTakenError:
                continue  # another writer claimed at the same time: read again, and claim after it
            await write_hint(store, keys, writer._hint())
            # This writer has no uploads under way yet, and earlier writers can no longer commit.
            await writer._remove_incomplete()
            await writer._keep_checkpointed()
            logger.info("ledger claimed root=%s version=%d epoch=%d", keys.root, writer.version, writer.epoch)
            return writer
        raise ObjectStoreUnavailableError("too many writers claim this ledger at once", root=keys.root)

    @property
    def version(self) -> int:
        """The newest version committed."""
        return self.catalog.version

    @property
    def epoch(self) -> int:
        """This writer's epoch."""
        return self.catalog.epoch

    @property
    def is_fenced(self) -> bool:
        """True once a later writer has been met."""
        return self._fenced

    @property
    def commit_cost_max(self) -> int:
        """The most write and list requests of the next commit: its entry (with ballots also a proposal and a listing),
        and a checkpoint if one is due."""
        return self.commits_cost_max(1)

    def commits_cost_max(self, count: int) -> int:
        """As `commit_cost_max`, of the next `count` commits."""
        checkpoints = (self.version + count - self._checkpoint_version) // self.checkpoint_interval
        return count * self.arbiter.requests_per_entry + checkpoints * self.checkpoint_cost_max

    @property
    def checkpoint_cost_max(self) -> int:
        """As `commit_cost_max`, of a checkpoint: its buckets, the packs, its head, and the hint."""
        known_count = self.checkpoint.bucket_count if self.checkpoint is not None else 1
        return bucket_count_for(self.catalog, at_least=known_count) + 3

    def next_segment_id(self) -> SegmentId:
        """A new id. Commit the segment under it, or `abandon` it."""
        segment_id = SegmentId(self.epoch, self._next_sequence)
        self._next_sequence += 1
        self._issued.add(str(segment_id))
        return segment_id

    def next_piece_ids(self, count: int) -> list[SegmentId]:
        """New ids for the pieces of a pack, which are committed and abandoned with their pack."""
        start = self._next_sequence
        self._next_sequence += count
        return [SegmentId(self.epoch, sequence) for sequence in range(start, self._next_sequence)]

    def is_under_way(self, segment_id: SegmentId) -> bool:
        """Whether the id has been given out, and is neither committed nor abandoned yet."""
        return str(segment_id) in self._issued

    def under_way(self) -> list[SegmentId]:
        """All ids under way."""
        return [SegmentId.parse(text) for text in self._issued]

    def abandon(self, segment_id: SegmentId, keys: Iterable[str]) -> None:
        """Give up an id that was never committed: objects stored under `keys` are garbage."""
        assert str(segment_id) in self._issued, "committed, abandoned before, or of another writer"
        self._issued.discard(str(segment_id))
        self.discarded.update(dict.fromkeys(keys, 0))

    async def commit(self, changes: LedgerChanges) -> Catalog:
        """Make `changes` durable, all or none, and return the catalog with them.

        After ObjectStoreUnavailableError or cancellation the outcome is unknown: call `settle` until it returns, and
        the changes are in. An earlier commit that is still pending is settled first.

        Raises:
            EarlierCommitUnsettledError: It could not be settled; the commit of these changes never started.
            FencedError: A later writer has taken over. If the outcome was unknown or the ledger uses ballots, that one
                may have committed the changes; otherwise they are not and will not be committed.
            InvalidRequestError: The changes do not follow the catalog; nothing was committed.
            ObjectStoreUnavailableError: No answer.
            StoreClosedError: The writer is closed.
        """
        assert not changes.is_empty
        async with self._lock:
            try:
                await self._settle_or_fence()
            except ObjectStoreUnavailableError as error:
                raise EarlierCommitUnsettledError(root=self.keys.root, version=self.version + 1) from error
            self._pending = self._prepare(changes, checked=self._check_changes(changes))
            await self._settle_or_fence()
            await self._keep_checkpointed()
            return self.catalog

    async def settle(self) -> Catalog:
        """Finish a commit whose outcome is unknown; the catalog afterwards. Raises as `commit`."""
        async with self._lock:
            await self._settle_or_fence()
            return self.catalog

    async def check_newest(self) -> None:
        """Pass while no later writer has committed anything. Two requests.

        Raises:
            FencedError: One has, or had before.
            ObjectStoreUnavailableError: No answer.
        """
        async with self._lock:
            await self._settle_or_fence()
            hint = await read_hint(self.store, self.keys)
            is_behind = hint is not None and hint.version > self.version
            if is_behind or await find_entry(self.store, self.keys, self.version + 1) is not None:
                self._fenced = True
                await self._settle_or_fence()

    async def write_checkpoint(self) -> None:
        """Write a checkpoint of the newest version now, if it has none."""
        async with self._lock:
            await self._settle_or_fence()
            if self._checkpoint_version < self.version:
                await self._write_checkpoint()

    async def renew_checkpoint(self) -> None:
        """Write a checkpoint of a new version that names no bucket of an earlier one.

        From then on the newest catalog depends on no object written before. Raises as `commit`.
        """
        await self.commit(LedgerChanges(settings=self.catalog.settings))
        async with self._lock:
            await self._settle_or_fence()
            if self._checkpoint_version < self.version:
                await self._write_checkpoint(is_afresh=True)

    async def renew_hint(self) -> None:
        """Write `head-hint` again. Raises as `settle`."""
        async with self._lock:
            await self._settle_or_fence()
            await write_hint(self.store, self.keys, self._hint())

    async def close(self) -> None:
        """Write a fresh hint if the store answers; idempotent. A pending commit is not settled."""
        if self._closed:
            return
        async with self._lock:
            self._closed = True
            if not self._fenced:
                with contextlib.suppress(ObjectStoreUnavailableError):
                    await write_hint(self.store, self.keys, self._hint())

    @property
    def _checkpoint_version(self) -> int:
        return self.checkpoint.version if self.checkpoint is not None else 0

    def _hint(self) -> HeadHint:
        return HeadHint(version=self.version, checkpoint=self._checkpoint_version)

    def _prepare(
        self, changes: LedgerChanges, *, claim: LedgerIdentity | None = None, checked: Catalog | None = None
    ) -> _Pending:
        """Fix the bytes of the next entry. `checked`: the catalog that an earlier call computed for these changes."""
        catalog = self.catalog
        entry = LedgerEntry(
            format=format_of(with_packs=bool(catalog.packs or changes.packs_in)),
            version=catalog.version + 1,
            epoch=catalog.epoch + 1 if claim is not None else catalog.epoch,
            nonce=f"{self.random.getrandbits(128):032x}",
            previous_nonce=catalog.nonce,
            store_uuid=claim.store_uuid if claim is not None else catalog.store_uuid,
            cluster=claim.cluster if claim is not None else catalog.cluster,
            broker_name=claim.broker_name if claim is not None else catalog.broker_name,
            committed_ms=max(catalog.committed_ms, self.clock_ms()),
            claim=claim is not None,
            master_epoch=claim.master_epoch if claim is not None else 0,
            checkpoint=self.checkpoint.mark if self.checkpoint is not None else None,
            readable_from=changes.readable_from,
            settings=changes.settings,
            topics_deleted=changes.topics_deleted,
            segments_out=changes.segments_out,
            topics=changes.topics,
            segments_in=changes.segments_in,
            packs_out=changes.packs_out,
            packs_in=changes.packs_in,
            quarantine=changes.quarantine,
            quarantine_out=changes.quarantine_out,
            indexes_out=changes.indexes_out,
            indexes_in=changes.indexes_in,
            indexed_to=changes.indexed_to,
            state=changes.state,
        )
        if checked is not None:
            after = msgspec.structs.replace(checked, nonce=entry.nonce, committed_ms=entry.committed_ms)
        else:
            after = apply(catalog, entry)
        assert (after.version, after.epoch) == (entry.version, entry.epoch)
        assert catalog.readable_from <= after.readable_from <= after.version, "what is readable ends with the newest"
        assert catalog.indexed_to <= after.indexed_to
        return _Pending(entry=entry, data=encode_entry(entry), after=after)

    def _check_changes(self, changes: LedgerChanges) -> Catalog:
        """The catalog with the changes; InvalidRequestError unless it keeps its invariants."""
        for segment in changes.segments_in:
            assert segment.id.epoch == self.epoch, "a writer commits only objects of its own epoch"
            assert segment.segment_id in self._issued, "committed or abandoned before"
        for pack in changes.packs_in:
            assert pack.id.epoch == self.epoch, "a writer commits only objects of its own epoch"
            assert pack.pack_id in self._issued, "committed or abandoned before"
        for index in changes.indexes_in:
            assert index.id.epoch == self.epoch, "a writer commits only objects of its own epoch"
            assert index.index_id in self._issued, "committed or abandoned before"
        try:
            after = self._prepare(changes).after
        except LedgerCorruptError as error:
            raise InvalidRequestError("the changes do not follow the catalog", reason=str(error)) from error
        coming: dict[str, list[SegmentEntry]] = {}
        for segment in changes.segments_in:
            coming.setdefault(segment.topic, []).append(segment)
        for topic, segments in coming.items():
            _check_no_overlap(after.topics[topic], segments)
        check_follows(self.catalog, (pack for pack in changes.packs_in if pack.level == 0))
        return after

    async def _settle_or_fence(self) -> None:
        if self._fenced:
            raise FencedError(
                "a later writer has taken over",
                root=self.keys.root,
                epoch=self.epoch,
                later_epoch=self._later_epoch or "unknown",
            )
        if self._closed:
            raise StoreClosedError("the ledger writer is closed", root=self.keys.root)
        try:
            await self._settle()
        except FencedError:
            self._fenced = True
            raise
        except _SlotTakenError as error:
            self._fenced = True
            winner = error.winner
            if winner is not None and winner.epoch <= self.epoch:
                raise LedgerCorruptError(
                    "the next version was taken by an earlier epoch", version=winner.version, epoch=winner.epoch
                ) from error
            self._later_epoch = winner.epoch if winner is not None else 0
            raise FencedError(
                "a later writer has taken over",
                root=self.keys.root,
                epoch=self.epoch,
                later_epoch=winner.epoch if winner is not None else "collected",
            ) from error

    async def _settle(self) -> None:
        """Complete the pending entry; safe to repeat from any point. _SlotTakenError when it can never be committed."""
        pending = self._pending
        if pending is None:
            return
        entry = pending.entry
        if not pending.created:
            if not entry.claim and self.version - self._checkpoint_version >= ENTRIES_MAX:
                await self._write_checkpoint()
            await self._create(pending)
        if not await self._follows_what_we_know(entry):
            # Created in the slot of a later writer's deleted entry. No reader uses it, but it must be deleted.
            self._pending, self._fenced = None, True  # also when the deletion is cancelled
            with contextlib.suppress(ObjectStoreUnavailableError):
                await self.store.delete(self.keys.ledger_entry(entry.version))
            raise _SlotTakenError(None)
        self._pending = None
        self._take_over(pending)

    async def _create(self, pending: _Pending) -> None:
        version = pending.entry.version
        try:
            await self.arbiter.create(version, pending.data)
        except (AlreadyExistsError, ObjectStoreUnavailableError) as error:
            found = await find_entry(self.store, self.keys, version)
            if found is None:
                # Not stored, but the request may still arrive: the next attempt sends the same bytes.
                raise ObjectStoreUnavailableError("the commit got no answer", version=version) from error
            if found.nonce != pending.entry.nonce:
                self._pending = None
                raise _SlotTakenError(found) from error
        pending.created = True

    async def _follows_what_we_know(self, entry: LedgerEntry) -> bool:
        """Whether `entry`, which exists, is part of the ledger: the one before it is still the one that it was built
        upon, or the one behind it was built upon it."""
        if entry.version == 1:
            follows = await read_hint(self.store, self.keys) is None
        else:
            try:
                before = await find_entry(self.store, self.keys, entry.version - 1)
            except LedgerCorruptError as error:
                # It exists, so it was not collected. A damaged entry is a task for scrub, and not a rival's entry.
                logger.error("the entry before is damaged version=%d: %s", entry.version - 1, error)
                return True
            follows = before is not None and before.nonce == entry.previous_nonce
        if follows:
            return True
        after = await find_entry(self.store, self.keys, entry.version + 1)
        return after is not None and after.previous_nonce == entry.nonce

    def _take_over(self, pending: _Pending) -> None:
        """The entry is committed: adopt its catalog."""
        before, self.catalog = self.catalog, pending.after
        entry = pending.entry
        self._issued.difference_update(segment.segment_id for segment in entry.segments_in)
        self._issued.difference_update(pack.pack_id for pack in entry.packs_in)
        self._issued.difference_update(index.index_id for index in entry.indexes_in)
        remembered = {segment.segment_id for segment in self.catalog.removed}
        for segment in before.removed:
            if segment.segment_id not in remembered:
                self.discarded.update(dict.fromkeys(segment.keys, 0))
        logger.info(
            "ledger committed version=%d epoch=%d segments_in=%d segments_out=%d packs_in=%d packs_out=%d"
            " topics_changed=%d topics_deleted=%d",
            entry.version,
            entry.epoch,
            len(entry.segments_in),
            len(entry.segments_out),
            len(entry.packs_in),
            len(entry.packs_out),
            len(entry.topics),
            len(entry.topics_deleted),
        )

    async def _remove_incomplete(self) -> None:
        """Remove unfinished uploads of earlier writers. A failure costs storage, not correctness."""
        try:
            count = await self.store.remove_incomplete(f"{self.keys.root}/")
        except ObjectStoreUnavailableError as error:
            logger.debug("unfinished uploads not removed root=%s: %s", self.keys.root, error)
            return
        if count:
            logger.info("unfinished uploads removed root=%s count=%d", self.keys.root, count)

    async def _keep_checkpointed(self) -> None:
        """Write a checkpoint when one is due; after a failure the next commit tries again."""
        if self.version - self._checkpoint_version < self.checkpoint_interval:
            return
        try:
            await self._write_checkpoint()
        except ObjectStoreUnavailableError as error:
            logger.debug("checkpoint failed version=%d: %s", self.version, error)

    async def _write_checkpoint(self, *, is_afresh: bool = False) -> None:
        head = await write_checkpoint(
            self.store,
            self.keys,
            self.catalog,
            previous=None if is_afresh else self.checkpoint,
            previous_catalog=None if is_afresh else self._checkpoint_catalog,
        )
        self.checkpoint, self._checkpoint_catalog = head, self.catalog
        await write_hint(self.store, self.keys, self._hint())
        logger.info("checkpoint written version=%d buckets=%d", head.version, len(head.buckets))


async def check_owner(
    store: ObjectStore, keys: BrokerKeys, catalog: Catalog, identity: LedgerIdentity, *, adopt: bool = False
) -> None:
    """Pass a writer that may claim the ledger, whose newest version is `catalog`.

    A broker that a controller has elected passes over the claims of brokers that were elected before it, and have not
    committed anything since: they have failed to serve.

    Raises:
        ForeignLedgerError: It is another store directory's, or a later master of the replica set has it.
        ObjectStoreUnavailableError: No answer.
        CorruptDataError: An entry is damaged.
    """
    if 0 < identity.master_epoch < catalog.master_epoch and not adopt:
        raise ForeignLedgerError(
            "a later master of this replica set writes this ledger",
            root=keys.root,
            ledger_master_epoch=catalog.master_epoch,
            master_epoch=identity.master_epoch,
        )
    owners = {identity.store_uuid, identity.predecessor} - {""}
    if not catalog.version or catalog.store_uuid in owners or adopt:
        return
    if identity.master_epoch > catalog.master_epoch and await _is_claimed_alone(store, keys, catalog, owners):
        return
    raise ForeignLedgerError(
        "this prefix holds the history of another store directory: start with that directory; or, when it is lost,"
        " with --recover-from and an empty one; or use another broker name or prefix; --read-only-from serves it"
        " beside its owner",
        root=keys.root,
        ledger_store_uuid=catalog.store_uuid,
        store_uuid=identity.store_uuid,
    )


async def _is_claimed_alone(store: ObjectStore, keys: BrokerKeys, catalog: Catalog, owners: Collection[str]) -> bool:
    """Whether all entries behind the last one of an owner are claims of elected brokers. Such a claim changes nothing,
    and it is made before its broker serves; the next one, of its tier process, has no master epoch."""
    for version in range(catalog.version, max(0, catalog.version - CLAIMS_PASSED_MAX), -1):
        entry = await find_entry(store, keys, version)
        if entry is None:
            return False
        if entry.store_uuid in owners:
            return True
        if not entry.master_epoch:
            return False
    return False


def _check_no_overlap(topic: TopicEntry, coming: Iterable[SegmentEntry]) -> None:
    """InvalidRequestError when a new segment holds a queue offset that another segment holds already."""
    lost = [(each.queue_id, each.start_offset, each.end_offset) for kept in topic.quarantine for each in kept.lost]
    new = [(run.queue_id, run.start_offset, run.end_offset) for segment in coming for run in segment.runs]
    spans = sorted((*topic.segments.runs_near([*new, *lost]), *lost))
    for before, after in itertools.pairwise(spans):
        if before[0] == after[0] and before[2] > after[1]:
            raise InvalidRequestError(
                "two segments hold the same offsets", topic=topic.topic, queue_id=after[0], queue_offset=after[1]
            )
