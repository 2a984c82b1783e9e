"""Mutations: the cold tier with one of its rules taken away, for the time of a `with`. Each has to be noticed.

with MUTATIONS["entry before upload"]():
    carry_out(trial)                        some trial fails
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import AbstractContextManager
from unittest.mock import patch

from thermocline.broker.recovery import bucket_recovery
from thermocline.broker.tier_process.tier_indexing import TierIndexing
from thermocline.store.retention import RetentionGate
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.catalog.ledger_entry import LedgerChanges, LedgerEntry, SegmentOut
from thermocline.tiered.garbage import garbage
from thermocline.tiered.garbage.garbage import GarbageReport
from thermocline.tiered.garbage.orphan_search import OrphanSearch
from thermocline.tiered.indexes.index_builder import IndexBuilder
from thermocline.tiered.indexes.index_merger import IndexMerger
from thermocline.tiered.ledger.ledger_writer import LedgerWriter, _Pending
from thermocline.tiered.ledger.pins import Pin
from thermocline.tiered.merging.merging import Merging
from thermocline.tiered.merging.pack_merger import MergeResult, PackMerger
from thermocline.tiered.objects.errors import AlreadyExistsError
from thermocline.tiered.objects.object_store import Data, ObjectStore
from thermocline.tiered.packs.packed_catalog import live_topics
from thermocline.tiered.purge import purger
from thermocline.tiered.purge.segment_rewriter import SegmentRewriter
from thermocline.tiered.sealing import due_changes, sealer
from thermocline.tiered.sealing.catalog_commits import CatalogCommits
from thermocline.tiered.sealing.pack_sealer import PackSealer
from thermocline.tiered.segments.object_keys import BrokerKeys, segment_id_of
from thermocline.tiered.segments.segment_entry import SegmentEntry
from thermocline.tiered.segments.segment_writer import FinishedSegment
from thermocline.tiered.service.tier_service import TierService
from thermocline.tiered.state import state_log
from thermocline.tiered.state.newest_state import NewestState, find_newest
from thermocline.tiered.wrappers.wrapping import WrappingObjectStore

_commit = CatalogCommits.commit


def _put_when_committed(waiting: list[tuple[ObjectStore, str, bytes]]) -> AbstractContextManager[object]:
    """A commit is followed by the puts that wait for it."""

    async def commit(commits: CatalogCommits, changes: LedgerChanges) -> None:
        await _commit(commits, changes)
        while waiting:
            store, key, part = waiting[0]
            await store.put(key, part)
            del waiting[0]

    return patch.object(CatalogCommits, "commit", commit)


@contextlib.contextmanager
def entry_before_upload() -> Iterator[None]:
    """A segment is committed, then its parts are uploaded."""
    waiting: list[tuple[ObjectStore, str, bytes]] = []

    async def upload(
        store: ObjectStore, keys: BrokerKeys, finished: FinishedSegment, *, created_ms: int
    ) -> SegmentEntry:
        log_key, cq_key, idx_key = keys.segment(finished.footer.topic, finished.footer.segment_id)
        for key, part in ((log_key, finished.log), (cq_key, finished.cq), (idx_key, finished.idx)):
            waiting.append((store, key, bytes(part)))
        return finished.entry(log_key=log_key, cq_key=cq_key, idx_key=idx_key, created_ms=created_ms)

    with patch.object(sealer, "upload_segment", upload), _put_when_committed(waiting):
        yield


class _Postponing(WrappingObjectStore):
    """Puts of objects wait until the test releases them."""

    def __init__(self, inner: ObjectStore, waiting: list[tuple[ObjectStore, str, bytes]]) -> None:
        super().__init__(inner)
        self._waiting = waiting

    async def put(self, key: str, data: Data) -> None:
        """Not yet."""
        self._waiting.append((self._inner, key, bytes(data)))


class _PostponingWriter:
    """A ledger's writer as sealers and mergers see it."""

    def __init__(self, writer: LedgerWriter, waiting: list[tuple[ObjectStore, str, bytes]]) -> None:
        self._writer = writer
        self.store = _Postponing(writer.store, waiting)

    def __getattr__(self, name: str) -> object:
        return getattr(self._writer, name)


@contextlib.contextmanager
def _committed_before_put(
    of: type[PackSealer | PackMerger | IndexBuilder | IndexMerger | SegmentRewriter],
) -> Iterator[None]:
    """What these upload is committed, then it is uploaded."""
    waiting: list[tuple[ObjectStore, str, bytes]] = []
    original = of.__init__

    def init(self: object, writer: LedgerWriter, **arguments: object) -> None:
        original(self, writer=_PostponingWriter(writer, waiting), **arguments)  # type: ignore[arg-type]

    with patch.object(of, "__init__", init), _put_when_committed(waiting):
        yield


def pack_entry_before_upload() -> AbstractContextManager[object]:
    """A pack is committed, then it is uploaded."""
    return _committed_before_put(PackSealer)


def merge_before_upload() -> AbstractContextManager[object]:
    """A merge is committed, then what it has written is uploaded."""
    return _committed_before_put(PackMerger)


def index_entry_before_upload() -> AbstractContextManager[object]:
    """Index objects are committed, then they are uploaded."""
    return _committed_before_put(IndexBuilder)


def index_merge_before_upload() -> AbstractContextManager[object]:
    """Merged index objects are committed, then they are uploaded."""
    return _committed_before_put(IndexMerger)


def index_of_what_is_under_way() -> AbstractContextManager[object]:
    """A range is indexed as far as the log goes, whatever of it is committed."""
    return patch.object(TierIndexing, "_gate", lambda indexing: indexing._service.backlog.reported_offset)


@contextlib.contextmanager
def index_deleted_before_entry() -> Iterator[None]:
    """Index objects that have expired or were merged are deleted, then an entry says so."""

    async def commit(commits: CatalogCommits, changes: LedgerChanges) -> None:
        indexes = commits.catalog.indexes
        await commits.writer.store.delete_many([indexes[index_id].key for index_id in changes.indexes_out])
        await _commit(commits, changes)

    with patch.object(CatalogCommits, "commit", commit):
        yield


@contextlib.contextmanager
def pack_deleted_before_entry() -> Iterator[None]:
    """Packs that have expired or were merged are deleted, then an entry says so."""

    async def commit(commits: CatalogCommits, changes: LedgerChanges) -> None:
        packs = commits.catalog.packs
        await commits.writer.store.delete_many([packs[pack_id].key for pack_id in changes.packs_out])
        await _commit(commits, changes)

    with patch.object(CatalogCommits, "commit", commit):
        yield


def pack_dies_with_its_first_topic() -> AbstractContextManager[object]:
    """A pack goes when everything of one topic in it has expired."""

    def expired(catalog: Catalog, cuts_ms: Mapping[str, int], *, ending: Set[str]) -> tuple[str, ...]:
        return tuple(
            pack.pack_id
            for pack in catalog.packs.values()
            if ending.isdisjoint(pack.topics)
            and any(pack.max_store_ms < cuts_ms.get(topic, 0) for topic in live_topics(pack, catalog.packed))
        )

    return patch.object(due_changes, "expired_packs", expired)


def merge_that_was_overtaken() -> AbstractContextManager[object]:
    """A merge is committed whatever became of its packs and topics meanwhile."""

    def changes(_merging: Merging, _catalog: Catalog, result: MergeResult) -> LedgerChanges:
        return LedgerChanges(
            packs_out=result.packs_out, packs_in=tuple(result.packs_in), segments_in=tuple(result.segments_in)
        )

    return patch.object(Merging, "_changes", changes)


@contextlib.contextmanager
def delete_before_entry() -> Iterator[None]:
    """What has expired is deleted, then an entry says so."""

    async def commit(commits: CatalogCommits, changes: LedgerChanges) -> None:
        gone = {(out.topic, out.segment_id) for out in changes.segments_out}
        for topic in commits.catalog.topics.values():
            for segment in topic.segments:
                if (topic.topic, segment.segment_id) in gone:
                    await commits.writer.store.delete_many(segment.keys)
        await _commit(commits, changes)

    with patch.object(CatalogCommits, "commit", commit):
        yield


def purge_before_upload() -> AbstractContextManager[object]:
    """A rewritten segment is committed, then it is uploaded."""
    return _committed_before_put(SegmentRewriter)


def purge_that_was_overtaken() -> AbstractContextManager[object]:
    """A rewritten segment is committed whatever became of the old one and of its topic meanwhile."""

    def changes(_catalog: Catalog, segment: SegmentEntry, coming: SegmentEntry) -> LedgerChanges:
        gone = SegmentOut(topic=segment.topic, segment_id=segment.segment_id)
        return LedgerChanges(segments_out=(gone,), segments_in=(coming,))

    return patch.object(purger, "in_its_place", changes)


def purge_beside_the_old_segment() -> AbstractContextManager[object]:
    """A rewritten segment is committed, and the old one stays."""

    def changes(_catalog: Catalog, _segment: SegmentEntry, coming: SegmentEntry) -> LedgerChanges:
        return LedgerChanges(segments_in=(coming,))

    return patch.object(purger, "in_its_place", changes)


@contextlib.contextmanager
def purge_of_what_is_visible() -> Iterator[None]:
    """A segment is rewritten without what has not expired yet: only its newest messages stay."""
    original = SegmentRewriter.rewrite

    async def rewrite(rewriter: SegmentRewriter, segment: SegmentEntry, *, cut_ms: int) -> SegmentEntry:
        assert cut_ms <= segment.max_store_ms
        return await original(rewriter, segment, cut_ms=segment.max_store_ms)

    with patch.object(SegmentRewriter, "rewrite", rewrite):
        yield


def purge_with_a_grace_period() -> AbstractContextManager[object]:
    """What was rewritten stays until garbage is due."""

    async def collect_now(_service: TierService) -> GarbageReport:
        return GarbageReport()

    return patch.object(TierService, "collect_now", collect_now)


def no_epoch_check() -> AbstractContextManager[object]:
    """A writer that finds the next version taken assumes that it wrote that version itself."""

    async def create(writer: LedgerWriter, pending: _Pending) -> None:
        with contextlib.suppress(AlreadyExistsError):
            await writer.arbiter.create(pending.entry.version, pending.data)
        pending.created = True

    return patch.object(LedgerWriter, "_create", create)


def no_look_at_the_one_before() -> AbstractContextManager[object]:
    """A writer that has created an entry assumes that it is committed."""

    async def follows(_writer: LedgerWriter, _entry: LedgerEntry) -> bool:
        return True

    return patch.object(LedgerWriter, "_follows_what_we_know", follows)


def gate_by_age_only() -> AbstractContextManager[object]:
    """Local files go when they are old, whatever is committed."""
    return patch.object(RetentionGate, "offset", property(lambda _gate: 1 << 62))


def collection_of_its_own_epoch() -> AbstractContextManager[object]:
    """What a listing shows of this epoch and no version names is taken for garbage, too."""

    return _collection_of_all_of(lambda keys: keys.topics_prefix)


def collection_of_its_own_packs() -> AbstractContextManager[object]:
    """The same of packs."""
    return _collection_of_all_of(lambda keys: keys.packs_prefix)


def _collection_of_all_of(prefix_of: Callable[[BrokerKeys], str]) -> AbstractContextManager[object]:
    def is_earlier(search: OrphanSearch, key: str) -> bool:
        writer, segment_id = search._writer, segment_id_of(key)
        is_meant = key.startswith(prefix_of(writer.keys))
        return is_meant and segment_id is not None and segment_id.epoch <= writer.epoch

    return patch.object(OrphanSearch, "_is_earlier", is_earlier)


@contextlib.contextmanager
def sealed_before_it_is_flushed() -> Iterator[None]:
    """Segments follow the append offset: the bucket may hold records that the disk does not."""
    original = TierService.__init__

    def init(service: TierService, **arguments: object) -> None:
        original(service, **{**arguments, "flush_offset": lambda: 1 << 62})  # type: ignore[arg-type]

    with patch.object(TierService, "__init__", init):
        yield


def pins_not_looked_at() -> AbstractContextManager[object]:
    """The collector sees no pin."""

    async def no_pins(_store: ObjectStore, _keys: BrokerKeys) -> list[Pin]:
        return []

    return patch.object(garbage, "list_pins", no_pins)


@contextlib.contextmanager
def state_by_listing_alone() -> Iterator[None]:
    """A writer that starts reads the newest state that a listing shows."""

    async def listed(store: ObjectStore, keys: BrokerKeys, *, epoch: int) -> NewestState:
        assert epoch > 0
        return await find_newest(store, keys)

    with patch.object(state_log, "find_last", listed), patch.object(bucket_recovery, "find_last", listed):
        yield


MUTATIONS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "entry before upload": entry_before_upload,
    "delete before entry": delete_before_entry,
    "no epoch check": no_epoch_check,
    "no look at v-1": no_look_at_the_one_before,
    "gate by age only": gate_by_age_only,
    "collection of its own epoch by listing": collection_of_its_own_epoch,
    "sealed before it is flushed": sealed_before_it_is_flushed,
    "pack: entry before upload": pack_entry_before_upload,
    "pack: delete before entry": pack_deleted_before_entry,
    "pack: dies with its first topic": pack_dies_with_its_first_topic,
    "pack: collection of its own epoch by listing": collection_of_its_own_packs,
    "merge: entry before upload": merge_before_upload,
    "merge: committed when overtaken": merge_that_was_overtaken,
    "purge: entry before upload": purge_before_upload,
    "purge: delete before entry": delete_before_entry,
    "purge: committed when overtaken": purge_that_was_overtaken,
    "purge: beside the old segment": purge_beside_the_old_segment,
    "purge: of what is visible": purge_of_what_is_visible,
    "purge: with a grace period": purge_with_a_grace_period,
    "pins not looked at": pins_not_looked_at,
    "state: by listing alone": state_by_listing_alone,
    "index: entry before upload": index_entry_before_upload,
    "index: merge before upload": index_merge_before_upload,
    "index: delete before entry": index_deleted_before_entry,
    "index: of what is under way": index_of_what_is_under_way,
}
