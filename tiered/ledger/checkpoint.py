"""Checkpoint: the whole catalog at one version, so that a reader needs one bucket and the few entries after it.

    checkpoints/{version:020}/head.json                     names the buckets, and all of the catalog but topics
    checkpoints/{version:020}/{bucket:03}-{epoch:010}.zst   one zstd frame: the topics that hash to the bucket
    checkpoints/{version:020}/packs-{epoch:010}.zst         one zstd frame: all packs, and the topics in each; all index
                                                            objects

    bucket(topic) = CRC-32 of its UTF-8 name, modulo bucket_count (a power of two)

Rules
  - Buckets first, the head last and by create-if-absent: a head that exists names buckets that exist.
  - A bucket in which nothing changed is not written again: the head names the earlier object, which stays as long as
    any kept head names it.
  - A head is good only while the ledger entry of its own version exists, with the nonce that the head carries.
    Otherwise it is a relic: written by a writer that was suspended, or half collected.
"""

from __future__ import annotations

import asyncio
import gc
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec
import zstandard

from thermocline.remoting.errors import ObjectNotFoundError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.tiered.catalog import (
    LEDGER_FORMAT,
    Catalog,
    CatalogSettings,
    CheckpointMark,
    RemovedSegment,
    TopicEntry,
    decode_entry,
    format_of,
)
from thermocline.tiered.index_format import IndexEntry
from thermocline.tiered.objects import (
    AlreadyExistsError,
    FrameChecksumError,
    LedgerCorruptError,
    ObjectStore,
    check_json,
    run_all,
    seal_json,
)
from thermocline.tiered.packs import PackedTopic, PackEntry
from thermocline.tiered.segments import BrokerKeys, decode_catalog_value, decompress, encode_catalog_value

BUCKET_COUNT_MAX = 64
BUCKET_SEGMENTS = 2048
PACKS_BUCKET = -1
"""In a reference: the object that holds the packs."""
BUCKET_CONCURRENCY_MAX = 8

Content = TypeVar("Content")


class BucketReference(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The object of one bucket's topics."""

    bucket: int
    key: str
    stored_bytes: int
    raw_bytes: int
    crc32: int


class CheckpointHead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`head.json`. `checkpoints` are those before it, as its catalog has them. Empty buckets are not named."""

    format: int
    version: int
    nonce: str
    epoch: int
    store_uuid: str
    cluster: str
    broker_name: str
    committed_ms: int
    settings: CatalogSettings
    readable_from: int
    checkpoints: tuple[CheckpointMark, ...]
    bucket_count: int
    buckets: tuple[BucketReference, ...]
    packs: BucketReference | None = None
    state_version: int = 0
    master_epoch: int = 0

    @property
    def objects(self) -> tuple[BucketReference, ...]:
        """All objects that the head names: its buckets, then its packs' object."""
        return self.buckets if self.packs is None else (*self.buckets, self.packs)

    @property
    def object_keys(self) -> list[str]:
        """The keys of `objects`."""
        return [each.key for each in self.objects]

    @property
    def mark(self) -> CheckpointMark:
        """The mark that ledger entries carry for this checkpoint."""
        return CheckpointMark(self.version, self.committed_ms)


class BucketContent(msgspec.Struct, frozen=True, kw_only=True):
    """JSON inside a bucket's zstd frame."""

    topics: list[TopicEntry]
    removed: list[RemovedSegment]


class PacksContent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """JSON inside the zstd frame that holds the packs and the index objects."""

    packs: list[PackEntry]
    packed: list[PackedTopic]
    indexes: list[IndexEntry] = []
    indexed_to: PhysicalOffset = LOG_START


_encoder = msgspec.json.Encoder(enc_hook=encode_catalog_value)
_head_decoder = msgspec.json.Decoder(CheckpointHead)
_bucket_decoder = msgspec.json.Decoder(BucketContent, dec_hook=decode_catalog_value)
_packs_decoder = msgspec.json.Decoder(PacksContent)


def bucket_of(topic: str, *, bucket_count: int) -> int:
    """The bucket that a topic is in."""
    return zlib.crc32(topic.encode()) % bucket_count


def bucket_count_for(catalog: Catalog, *, at_least: int) -> int:
    """How many buckets to use: a power of two that grows with the number of segments and never shrinks."""
    count = at_least
    while count < BUCKET_COUNT_MAX and count * BUCKET_SEGMENTS < catalog.segment_count:
        count *= 2
    return count


async def write_checkpoint(
    store: ObjectStore,
    keys: BrokerKeys,
    catalog: Catalog,
    *,
    previous: CheckpointHead | None,
    previous_catalog: Catalog | None,
) -> CheckpointHead:
    """Save the catalog; `previous` is the latest checkpoint and `previous_catalog` what it saved.

    Durable on return. When it raises, some buckets may be stored; no head names them.

    Raises:
        ObjectStoreUnavailableError: An object could not be stored.
        LedgerCorruptError: There is a checkpoint of this version that another writer made.
    """
    assert catalog.only_topics is None
    assert (previous is None) == (previous_catalog is None)
    count = bucket_count_for(catalog, at_least=previous.bucket_count if previous is not None else 1)
    contents = _buckets(catalog, count)
    references: dict[int, BucketReference] = {}
    if previous is not None and previous_catalog is not None and previous.bucket_count == count:
        changed = _changed_buckets(catalog, previous_catalog, count)
        references = {ref.bucket: ref for ref in previous.buckets if ref.bucket not in changed}

    encoding = asyncio.Lock()  # one after another: the JSON is several times as large as the stored object

    async def write_object(key: str, bucket: int, content: BucketContent | PacksContent) -> BucketReference:
        async with encoding:
            data, raw_bytes = await asyncio.to_thread(_compressed, content)
        await store.put(key, data)
        return BucketReference(bucket, key, len(data), raw_bytes, zlib.crc32(data))

    async def write_bucket(bucket: int) -> None:
        key = keys.checkpoint_bucket(catalog.version, bucket, epoch=catalog.epoch)
        references[bucket] = await write_object(key, bucket, contents[bucket])

    packs = previous.packs if previous is not None else None
    if not catalog.packs and not catalog.indexed_to:
        packs = None
    elif packs is None or previous_catalog is None or _shared(catalog) != _shared(previous_catalog):
        content = PacksContent(
            packs=list(catalog.packs.values()),
            packed=list(catalog.packed.values()),
            indexes=list(catalog.indexes.values()),
            indexed_to=catalog.indexed_to,
        )
        packs = await write_object(keys.checkpoint_packs(catalog.version, epoch=catalog.epoch), PACKS_BUCKET, content)
    missing = sorted(contents.keys() - references.keys())
    await run_all([write_bucket(bucket) for bucket in missing], concurrency_max=BUCKET_CONCURRENCY_MAX)
    head = CheckpointHead(
        format=format_of(with_packs=bool(catalog.packs)),
        version=catalog.version,
        nonce=catalog.nonce,
        epoch=catalog.epoch,
        store_uuid=catalog.store_uuid,
        cluster=catalog.cluster,
        broker_name=catalog.broker_name,
        committed_ms=catalog.committed_ms,
        settings=catalog.settings,
        readable_from=catalog.readable_from,
        checkpoints=catalog.checkpoints,
        bucket_count=count,
        buckets=tuple(references[bucket] for bucket in sorted(references)),
        packs=packs,
        state_version=catalog.state_version,
        master_epoch=catalog.master_epoch,
    )
    key = keys.checkpoint_head(head.version)
    try:
        await store.create_if_absent(key, seal_json(_encoder.encode(head)))
    except AlreadyExistsError:
        # Perhaps this writer's own, its response lost: then the bytes are the same.
        if decode_head(await store.get(key), version=head.version) != head:
            raise LedgerCorruptError("another checkpoint of this version exists", version=head.version) from None
    return head


async def load_head(store: ObjectStore, keys: BrokerKeys, version: int) -> CheckpointHead:
    """The head of a checkpoint. ObjectNotFoundError when there is none."""
    return decode_head(await store.get(keys.checkpoint_head(version)), version=version)


async def load_checkpoint(store: ObjectStore, head: CheckpointHead, *, only_topics: frozenset[str] | None) -> Catalog:
    """The catalog that a checkpoint saved, or that of some topics, each bucket by one request.

    Raises:
        ObjectNotFoundError: A bucket is gone: the checkpoint was collected meanwhile.
        CorruptDataError: A bucket is damaged.
    """
    wanted: Iterable[BucketReference] = head.objects
    if only_topics is not None:
        numbers = {bucket_of(topic, bucket_count=head.bucket_count) for topic in only_topics}
        wanted = [reference for reference in head.objects if reference.bucket in {*numbers, PACKS_BUCKET}]

    async def load_object(reference: BucketReference) -> BucketContent | PacksContent:
        return decode_object(await store.get(reference.key), reference)

    contents = await run_all(map(load_object, wanted), concurrency_max=BUCKET_CONCURRENCY_MAX)
    return catalog_of(head, contents, only_topics=only_topics)


def catalog_of(
    head: CheckpointHead,
    contents: Iterable[BucketContent | PacksContent],
    *,
    only_topics: frozenset[str] | None = None,
) -> Catalog:
    """Build the catalog from a head and the contents of all objects that it names."""
    contents = list(contents)
    buckets = [content for content in contents if isinstance(content, BucketContent)]
    topics = {topic.topic: topic for bucket in buckets for topic in bucket.topics}
    removed = [segment for bucket in buckets for segment in bucket.removed]
    if only_topics is not None:
        topics = {name: topic for name, topic in topics.items() if name in only_topics}
        removed = [segment for segment in removed if segment.topic in only_topics]
    packs, packed = dict[str, PackEntry](), dict[str, PackedTopic]()
    indexes, indexed_to = dict[str, IndexEntry](), LOG_START
    for content in contents:
        if isinstance(content, PacksContent):
            loaded = content.packed
            packed = {each.topic: each for each in loaded if only_topics is None or each.topic in only_topics}
            used = {pack_id for each in packed.values() for pack_id in each.packs}
            packs = {pack.pack_id: pack for pack in content.packs if pack.pack_id in used}
            indexes = {index.index_id: index for index in content.indexes}
            indexed_to = content.indexed_to
    return Catalog(
        version=head.version,
        nonce=head.nonce,
        epoch=head.epoch,
        store_uuid=head.store_uuid,
        cluster=head.cluster,
        broker_name=head.broker_name,
        committed_ms=head.committed_ms,
        settings=head.settings,
        readable_from=head.readable_from,
        checkpoints=head.checkpoints,
        topics=topics,
        removed=tuple(sorted(removed, key=lambda segment: (segment.removed_in, segment.segment_id))),
        packs=packs,
        packed=packed,
        indexes=indexes,
        indexed_to=indexed_to,
        state_version=head.state_version,
        master_epoch=head.master_epoch,
        only_topics=only_topics,
    )


async def load_head_if_good(store: ObjectStore, keys: BrokerKeys, version: int) -> CheckpointHead | None:
    """The head of a checkpoint, or None when there is none or it is a relic (see the module's header)."""
    try:
        head = await load_head(store, keys, version)
        entry = decode_entry(await store.get(keys.ledger_entry(version)), version=version)
    except ObjectNotFoundError:
        return None
    return head if entry.nonce == head.nonce else None


def decode_head(data: bytes, *, version: int) -> CheckpointHead:
    """`head.json` of the checkpoint of `version`. LedgerCorruptError when it is none, damaged, or of a later format."""
    check_json(data, key=f"head of checkpoint {version}")
    try:
        head = _head_decoder.decode(data)
    except msgspec.DecodeError as error:
        raise LedgerCorruptError("a checkpoint's head cannot be decoded", version=version) from error
    if head.format > LEDGER_FORMAT or head.version != version:
        raise LedgerCorruptError(
            "a checkpoint's head of a later format or another version", version=version, found=head.version
        )
    return head


def decode_bucket(data: bytes, reference: BucketReference) -> BucketContent:
    """The content of a bucket. FrameChecksumError or LedgerCorruptError when it is not the one that the head names."""
    return _decode_object(data, reference, _bucket_decoder)


def decode_object(data: bytes, reference: BucketReference) -> BucketContent | PacksContent:
    """The content of any object that a head names. Raises as `decode_bucket`."""
    return decode_packs(data, reference) if reference.bucket == PACKS_BUCKET else decode_bucket(data, reference)


def decode_packs(data: bytes, reference: BucketReference) -> PacksContent:
    """The content of the packs' object. Raises as `decode_bucket`."""
    return _decode_object(data, reference, _packs_decoder)


def _decode_object(data: bytes, reference: BucketReference, decoder: msgspec.json.Decoder[Content]) -> Content:
    if len(data) != reference.stored_bytes or zlib.crc32(data) != reference.crc32:
        raise FrameChecksumError("a checkpoint's bucket is not the one that was stored", key=reference.key)
    raw = decompress(data, raw_bytes=reference.raw_bytes)
    try:
        with _collector_paused():
            return decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise LedgerCorruptError("a checkpoint's bucket cannot be decoded", key=reference.key) from error


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the garbage collector: JSON values have no cycles, and searching for them adds half of the coding time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _compressed(content: BucketContent | PacksContent) -> tuple[bytes, int]:
    """A zstd frame around the JSON, and the JSON's size. The JSON is several times as large, so it is not kept."""
    with _collector_paused():
        raw = _encoder.encode(content)
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(raw), len(raw)


def _shared(catalog: Catalog) -> tuple[object, ...]:
    """The content of the packs' object; the topics in a pack may change while the packs stay."""
    return catalog.packs, catalog.packed, catalog.indexes, catalog.indexed_to


def _buckets(catalog: Catalog, count: int) -> dict[int, BucketContent]:
    """The catalog by bucket, in an order that depends on nothing but the catalog."""
    contents: dict[int, BucketContent] = {}
    for name in sorted(catalog.topics):
        bucket = bucket_of(name, bucket_count=count)
        contents.setdefault(bucket, BucketContent(topics=[], removed=[])).topics.append(catalog.topics[name])
    for segment in catalog.removed:
        bucket = bucket_of(segment.topic, bucket_count=count)
        contents.setdefault(bucket, BucketContent(topics=[], removed=[])).removed.append(segment)
    return contents


def _changed_buckets(catalog: Catalog, before: Catalog, count: int) -> set[int]:
    names = {
        name
        for name in catalog.topics.keys() | before.topics.keys()
        if catalog.topics.get(name) is not before.topics.get(name)
    }
    names.update(segment.topic for segment in set(catalog.removed) ^ set(before.removed))
    return {bucket_of(name, bucket_count=count) for name in names}
