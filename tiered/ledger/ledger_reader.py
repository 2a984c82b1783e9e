"""LedgerReader: finds the head of a ledger, follows it, and opens any version that is still readable. Never lists, save
once when `head-hint` is missing or points to what is gone.

How the head is found
  1. `head-hint` names a version and a checkpoint not after it. The checkpoint's head, buckets and entry are read, then
     entries one after another until one is missing.
  2. No hint, or its checkpoint is a relic: one listing of `checkpoints/`, newest good one first; without any, entries
     from 1 (there are none below the first checkpoint only if all are there).
     A checkpoint with a missing bucket is skipped from then on, even if the hint or an entry names it: its writer was
     suspended while its buckets were collected, then finished the checkpoint and wrote the hint. Without another
     checkpoint and without entry 1 the ledger is damaged.
  3. The last entry found is read once more. Entries are deleted in ascending order, so while it exists the one
     behind it has not been deleted: it does not exist yet. Otherwise the collector has overtaken us: start again.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from thermocline.remoting.errors import ObjectNotFoundError, ObjectStoreUnavailableError
from thermocline.tiered.catalog import Catalog, LedgerEntry, apply, decode_entry
from thermocline.tiered.ledger.checkpoint import CheckpointHead, load_checkpoint, load_head_if_good
from thermocline.tiered.objects import (
    LedgerCorruptError,
    ObjectStore,
    VersionExpiredError,
    check_json,
    run_all,
    seal_json,
)
from thermocline.tiered.segments import BrokerKeys

PROBE_WINDOW_MAX = 16
RESTART_COUNT_MAX = 8


class HeadHint(msgspec.Struct, frozen=True, kw_only=True):
    """`head-hint`: a recent version, and a checkpoint not after it (0: none yet). Only a hint."""

    version: int
    checkpoint: int


class OvertakenError(ObjectStoreUnavailableError):
    """The objects being read were collected meanwhile; reading again from the start succeeds."""


class LedgerReader:
    """Holds the catalog at the newest version seen; `refresh` continues from there. Belongs to one event loop.

    `base` is the checkpoint that reading started from, `base_catalog` its catalog.
    """

    def __init__(
        self,
        store: ObjectStore,
        keys: BrokerKeys,
        *,
        catalog: Catalog,
        base: CheckpointHead | None,
        base_catalog: Catalog | None,
    ) -> None:
        self._store = store
        self._keys = keys
        self.catalog = catalog
        self.base = base
        self.base_catalog = base_catalog

    @classmethod
    async def open(
        cls, store: ObjectStore, keys: BrokerKeys, *, only_topics: frozenset[str] | None = None
    ) -> LedgerReader:
        """Read the newest catalog, or some of its topics. A prefix without a ledger gives version 0.

        Raises:
            ObjectStoreUnavailableError: No answer.
            CorruptDataError: The ledger is damaged or inconsistent.
        """
        gone: set[int] = set()
        for _ in range(RESTART_COUNT_MAX):
            try:
                return await cls._open(store, keys, only_topics, gone)
            except OvertakenError:
                continue
        for version in gone:
            # The collector deletes heads first: this one is the only start left, so its buckets had to exist.
            if await load_head_if_good(store, keys, version) is not None:
                raise LedgerCorruptError("an object of a checkpoint is missing", version=version)
        raise ObjectStoreUnavailableError("the ledger moves faster than it can be read", root=keys.root)

    @classmethod
    async def _open(
        cls, store: ObjectStore, keys: BrokerKeys, only_topics: frozenset[str] | None, gone: set[int]
    ) -> LedgerReader:
        """`gone`: checkpoints found incomplete; a further one is added when it is met."""
        base = await _find_base(store, keys, gone)
        if base is None and gone and await find_entry(store, keys, 1) is None:
            raise OvertakenError("no checkpoint is whole", version=max(gone))
        catalog, base_catalog = Catalog.empty(only_topics=only_topics), None
        if base is not None:
            try:
                catalog = base_catalog = await load_checkpoint(store, base, only_topics=only_topics)
            except ObjectNotFoundError as error:
                gone.add(base.version)  # for good: no bucket's name is used twice
                raise OvertakenError("a checkpoint was collected while it was read", version=base.version) from error
        reader = cls(store, keys, catalog=catalog, base=base, base_catalog=base_catalog)
        await reader._advance()
        return reader

    async def refresh(self) -> Catalog:
        """Apply the entries committed since; after a long absence read everything anew. Returns the newest catalog.

        Raises: see `open`.
        """
        try:
            await self._advance()
        except OvertakenError:
            fresh = await self.open(self._store, self._keys, only_topics=self.catalog.only_topics)
            self.catalog, self.base, self.base_catalog = fresh.catalog, fresh.base, fresh.base_catalog
        return self.catalog

    async def _advance(self) -> None:
        """Read entries until one is missing, several at a time once there are many."""
        catalog, window = self.catalog, 1
        while True:
            versions = range(catalog.version + 1, catalog.version + 1 + window)
            entries = await run_all([find_entry(self._store, self._keys, version) for version in versions])
            for entry in entries:
                if entry is None:
                    break
                catalog = apply(catalog, entry)
            if entries[-1] is None:
                break
            window = min(window * 2, PROBE_WINDOW_MAX)
        if catalog.version:
            last = await find_entry(self._store, self._keys, catalog.version)
            if last is None or last.nonce != catalog.nonce:
                raise OvertakenError("the collector has passed this version", version=catalog.version)
        self.catalog = catalog


async def open_catalog(
    store: ObjectStore,
    keys: BrokerKeys,
    *,
    version: int | None = None,
    only_topics: frozenset[str] | None = None,
) -> Catalog:
    """The newest catalog, or the one at `version`, or some of its topics.

    Raises:
        VersionExpiredError: That version is not readable any more, or does not exist yet.
        ObjectStoreUnavailableError: No answer.
        CorruptDataError: The ledger is damaged or inconsistent.
    """
    if version is None:
        return (await LedgerReader.open(store, keys, only_topics=only_topics)).catalog
    last = await find_entry(store, keys, version)
    if last is None:
        raise VersionExpiredError("there is no such version, or not any more", version=version)
    gone: set[int] = set()
    while True:
        try:
            return await _open_at(store, keys, last, only_topics, gone)
        except OvertakenError:
            continue  # from a checkpoint that is kept for a pin; each turn skips one more


async def find_roots(store: ObjectStore) -> list[str]:
    """The roots (`{cluster}/{broker_name}`) that have a ledger in this store: about two list requests for each."""
    roots: list[str] = []
    start_after = ""
    while True:
        first = None
        async for info in store.list("", start_after=start_after):
            first = info.key
            break
        if first is None:
            return roots
        components = first.split("/")
        if len(components) < 3:
            start_after = first
            continue
        root = "/".join(components[:2])
        keys = BrokerKeys(root)
        if await find_entry_or_hint(store, keys):
            roots.append(root)
        start_after = f"{root}/\U0010ffff"


async def find_entry_or_hint(store: ObjectStore, keys: BrokerKeys) -> bool:
    """Whether a writer has ever begun under this prefix."""
    return await read_hint(store, keys) is not None or await find_entry(store, keys, 1) is not None


async def find_entry(store: ObjectStore, keys: BrokerKeys, version: int) -> LedgerEntry | None:
    """The entry of that version, if there is one."""
    try:
        return decode_entry(await store.get(keys.ledger_entry(version)), version=version)
    except ObjectNotFoundError:
        return None


async def read_hint(store: ObjectStore, keys: BrokerKeys) -> HeadHint | None:
    """The content of `head-hint`; None when it is missing or cannot be decoded."""
    try:
        return decode_hint(await store.get(keys.head_hint), key=keys.head_hint)
    except (ObjectNotFoundError, LedgerCorruptError):
        return None


def decode_hint(data: bytes, *, key: str) -> HeadHint:
    """Decode the bytes of `head-hint`. LedgerCorruptError when they are not a hint, or damaged."""
    check_json(data, key=key)
    try:
        return msgspec.json.decode(data, type=HeadHint)
    except msgspec.DecodeError as error:
        raise LedgerCorruptError("the hint cannot be decoded", key=key) from error


async def write_hint(store: ObjectStore, keys: BrokerKeys, hint: HeadHint) -> None:
    """Replace `head-hint`."""
    await store.put(keys.head_hint, seal_json(msgspec.json.encode(hint)))


async def _open_at(
    store: ObjectStore, keys: BrokerKeys, last: LedgerEntry, only_topics: frozenset[str] | None, gone: set[int]
) -> Catalog:
    """The catalog at the version of entry `last`. `gone`: checkpoints found to be collected.

    The checkpoint named by an entry may be collected while the entry itself is kept for a pin: then a later checkpoint
    exists.
    """
    base = await _find_base_of(store, keys, last, gone)
    catalog = Catalog.empty(only_topics=only_topics)
    if base is not None:
        try:
            catalog = await load_checkpoint(store, base, only_topics=only_topics)
        except ObjectNotFoundError as error:
            gone.add(base.version)
            raise OvertakenError("a checkpoint was collected while it was read", version=base.version) from error
    base_version = catalog.version
    versions = range(base_version + 1, last.version + 1)
    for entry in await run_all([find_entry(store, keys, number) for number in versions]):
        if entry is None:
            gone.add(base_version)
            raise OvertakenError("entries were collected while they were read", version=last.version)
        catalog = apply(catalog, entry)
    return catalog


async def _find_base_of(
    store: ObjectStore, keys: BrokerKeys, last: LedgerEntry, gone: set[int]
) -> CheckpointHead | None:
    """A good checkpoint at or before the version of entry `last`, not in `gone`; None (0) when all entries from the
    first one exist. VersionExpiredError when there is neither."""

    async def first_good(versions: Iterable[int]) -> CheckpointHead | None:
        for version in versions:
            if 0 < version <= last.version and version not in gone:
                base = await load_head_if_good(store, keys, version)
                if base is not None:
                    return base
        return None

    named = last.checkpoint.version if last.checkpoint is not None else 0
    base = await first_good((named, last.version))
    if base is not None:
        return base
    if not named and 0 not in gone and await find_entry(store, keys, 1) is not None:
        return None
    # The checkpoint named by the entry is collected: a later one was kept, and the newest catalog names it.
    newest = await open_catalog(store, keys, only_topics=frozenset())
    base = await first_good(mark.version for mark in reversed(newest.checkpoints))
    if base is None:
        # Unless a pin keeps the version although `readable_from` has passed it.
        base = await first_good(sorted(await _listed_checkpoints(store, keys), reverse=True))
    if base is None:
        raise VersionExpiredError("the version has been collected", version=last.version)
    return base


async def _listed_checkpoints(store: ObjectStore, keys: BrokerKeys) -> list[int]:
    """The versions with a checkpoint head."""
    versions: list[int] = []
    async for info in store.list(keys.checkpoints_prefix):
        part = keys.checkpoint_part(info.key)
        if part is not None and part[1] is None:
            versions.append(part[0])
    return versions


async def _find_base(store: ObjectStore, keys: BrokerKeys, gone: set[int]) -> CheckpointHead | None:
    """The checkpoint to start from, none of `gone`; None to start from entry 1."""
    hint = await read_hint(store, keys)
    if hint is not None and hint.checkpoint not in gone:
        if hint.checkpoint:
            base = await load_head_if_good(store, keys, hint.checkpoint)
            if base is not None:
                return base
        elif await find_entry(store, keys, 1) is not None:
            return None
    versions = await _listed_checkpoints(store, keys)
    for version in sorted(set(versions) - gone, reverse=True):
        base = await load_head_if_good(store, keys, version)
        if base is not None:
            return base
    if versions or await find_entry(store, keys, 1) is not None:
        if await find_entry(store, keys, 1) is None:
            raise OvertakenError("every checkpoint listed is gone", root=keys.root)
        return None
    async for info in store.list(keys.ledger_prefix):
        if await find_entry(store, keys, 1) is not None or await _listed_checkpoints(store, keys):
            # Or, after the listing, the first checkpoint was written and all entries before it were collected.
            raise OvertakenError("the ledger began while it was looked for", root=keys.root)
        raise LedgerCorruptError("the ledger has neither its beginning nor a checkpoint", key=info.key)
    return None
