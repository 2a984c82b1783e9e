"""Ledger check: every entry that a readable version needs, every kept checkpoint with its buckets, the hint, the pins.

    each object by itself   there, decodable, its checksum right, under its own name
    the chain               each entry names the nonce of the one before it
    the sum                 entries applied one after another give the catalog of each checkpoint, and the writer's

The given catalog decides what is needed. Objects of versions below `readable_from` are not checked: they may be about
to be deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError
from thermocline.tiered.catalog import Catalog, LedgerEntry, RemovedSegment, apply, decode_entry
from thermocline.tiered.findings import Finding, ObjectKind, Problem
from thermocline.tiered.ledger import (
    BucketContent,
    BucketReference,
    CheckpointHead,
    PacksContent,
    catalog_of,
    decode_hint,
    decode_object,
    decode_pin,
)
from thermocline.tiered.ledger import decode_head as decode_checkpoint_head
from thermocline.tiered.objects import LedgerCorruptError, ObjectStore, run_all
from thermocline.tiered.segments import BrokerKeys


@dataclass(slots=True, kw_only=True)
class LedgerState:
    """The result. `named`: the keys of objects that belong to the ledger."""

    findings: list[Finding] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    entry_count: int = 0
    checkpoint_count: int = 0
    read_bytes: int = 0


class LedgerCheck:
    """Checks the ledger once, by one catalog."""

    def __init__(
        self,
        store: ObjectStore,
        keys: BrokerKeys,
        catalog: Catalog,
        *,
        listed: Iterable[str],
        checkpoints: frozenset[int],
        knows_head: bool,
    ) -> None:
        """`checkpoints`: complete ones besides those that the catalog names. `knows_head`: no entry can be behind the
        catalog's version; otherwise entries listed there mean that one in front of them is missing."""
        self._store = store
        self._keys = keys
        self._catalog = catalog
        self._listed = set(listed)
        self._knows_head = knows_head
        named = {mark.version for mark in catalog.checkpoints}
        self._checkpoint_versions = sorted(
            version for version in named | checkpoints if catalog.readable_from <= version <= catalog.version
        )
        self._entries: dict[int, LedgerEntry] = {}
        self._saved: dict[int, Catalog] = {}
        self._state = LedgerState()

    async def run(self) -> LedgerState:
        """Check everything. ObjectStoreUnavailableError when the store gives no answer."""
        if self._catalog.version:
            await self._check_entries()
            await self._check_checkpoints()
            self._check_sum()
            await self._check_hint()
        await self._check_pins()
        return self._state

    # -- each object by itself -----------------------------------------------------------------------------------------

    async def _get(self, key: str) -> bytes | None:
        self._state.named.add(key)
        try:
            data = await self._store.get(key)
        except ObjectNotFoundError:
            return None
        self._state.read_bytes += len(data)
        return data

    def _find(
        self, kind: ObjectKind, problem: Problem, key: str, error: Exception | str = "", *, version: int = 0
    ) -> None:
        self._state.findings.append(Finding(kind=kind, problem=problem, key=key, detail=str(error), version=version))

    async def _check_entries(self) -> None:
        catalog = self._catalog
        versions = range(max(1, catalog.readable_from), catalog.version + 1)
        await run_all([self._check_entry(version) for version in versions])
        self._state.entry_count = len(versions)
        for version in versions[1:]:
            entry, before = self._entries.get(version), self._entries.get(version - 1)
            if entry is not None and before is not None and entry.previous_nonce != before.nonce:
                key = self._keys.ledger_entry(version)
                self._find(
                    ObjectKind.LEDGER_ENTRY,
                    Problem.CONTRADICTORY,
                    key,
                    "does not follow the entry before it",
                    version=version,
                )
        if not self._knows_head:
            await self._check_beyond_head()

    async def _check_entry(self, version: int) -> None:
        key = self._keys.ledger_entry(version)
        data = await self._get(key)
        if data is None:
            self._find(ObjectKind.LEDGER_ENTRY, Problem.MISSING, key, version=version)
            return
        try:
            self._entries[version] = decode_entry(data, version=version)
        except LedgerCorruptError as error:
            problem = Problem.MISPLACED if "found" in error.context else Problem.DAMAGED
            self._find(ObjectKind.LEDGER_ENTRY, problem, key, error, version=version)

    async def _check_beyond_head(self) -> None:
        """The next entry: damaged, or missing although later ones exist. A valid one was just committed."""
        head = self._catalog.version
        key = self._keys.ledger_entry(head + 1)
        data = await self._get(key)
        if data is not None:
            try:
                apply(self._catalog, decode_entry(data, version=head + 1))
            except LedgerCorruptError as error:
                problem = Problem.MISPLACED if "found" in error.context else Problem.DAMAGED
                self._find(ObjectKind.LEDGER_ENTRY, problem, key, error, version=head + 1)
            return
        listed = (self._keys.ledger_version(name) for name in self._listed)
        beyond = sorted(version for version in listed if version is not None and version > head + 1)
        if beyond and await self._is_of_this_ledger(beyond[0]):
            self._state.named.update(map(self._keys.ledger_entry, beyond))
            detail = f"entry {beyond[0]} follows it"
            self._find(ObjectKind.LEDGER_ENTRY, Problem.MISSING, key, detail, version=head + 1)

    async def _is_of_this_ledger(self, version: int) -> bool:
        data = await self._get(self._keys.ledger_entry(version))
        try:
            return data is not None and decode_entry(data, version=version).epoch >= self._catalog.epoch
        except LedgerCorruptError:
            self._state.named.discard(self._keys.ledger_entry(version))
            return False

    async def _check_checkpoints(self) -> None:
        heads = await run_all([self._check_head(version) for version in self._checkpoint_versions])
        good = [head for head in heads if head is not None]
        self._state.checkpoint_count = len(self._checkpoint_versions)
        references = {(reference.key, reference.crc32): reference for head in good for reference in head.objects}
        contents = await run_all([self._check_bucket(reference) for reference in references.values()])
        by_name = dict(zip(references, contents, strict=True))
        for head in good:
            parts = [by_name[reference.key, reference.crc32] for reference in head.objects]
            if all(part is not None for part in parts):
                self._saved[head.version] = catalog_of(head, [part for part in parts if part is not None])

    async def _check_head(self, version: int) -> CheckpointHead | None:
        key = self._keys.checkpoint_head(version)
        data = await self._get(key)
        if data is None:
            self._find(ObjectKind.CHECKPOINT_HEAD, Problem.MISSING, key, version=version)
            return None
        try:
            head = decode_checkpoint_head(data, version=version)
        except LedgerCorruptError as error:
            problem = Problem.MISPLACED if "found" in error.context else Problem.DAMAGED
            self._find(ObjectKind.CHECKPOINT_HEAD, problem, key, error, version=version)
            return None
        entry = self._entries.get(version)
        if entry is not None and entry.nonce != head.nonce:
            self._find(
                ObjectKind.CHECKPOINT_HEAD,
                Problem.CONTRADICTORY,
                key,
                "is of another history than its entry",
                version=version,
            )
            return None
        return head

    async def _check_bucket(self, reference: BucketReference) -> BucketContent | PacksContent | None:
        key = reference.key
        data = await self._get(key)
        if data is None:
            self._find(ObjectKind.CHECKPOINT_BUCKET, Problem.MISSING, key)
            return None
        if len(data) != reference.stored_bytes:
            detail = f"{len(data)} bytes instead of {reference.stored_bytes}"
            self._find(ObjectKind.CHECKPOINT_BUCKET, Problem.SIZE, key, detail)
            return None
        try:
            return decode_object(data, reference)
        except CorruptDataError as error:
            self._find(ObjectKind.CHECKPOINT_BUCKET, Problem.DAMAGED, key, error)
            return None

    async def _check_hint(self) -> None:
        key = self._keys.head_hint
        data = await self._get(key)
        if data is None:
            self._find(ObjectKind.HEAD_HINT, Problem.MISSING, key)
            return
        try:
            hint = decode_hint(data, key=key)
        except LedgerCorruptError as error:
            self._find(ObjectKind.HEAD_HINT, Problem.DAMAGED, key, error)
            return
        existing = {0, *self._checkpoint_versions}
        if not hint.checkpoint <= hint.version <= self._catalog.version or hint.checkpoint not in existing:
            self._find(ObjectKind.HEAD_HINT, Problem.CONTRADICTORY, key, f"it names a missing checkpoint: {hint}")

    async def _check_pins(self) -> None:
        pins = [key for key in self._listed if key.startswith(self._keys.pins_prefix) and key.endswith(".json")]
        await run_all([self._check_pin(key) for key in pins])

    async def _check_pin(self, key: str) -> None:
        data = await self._get(key)
        if data is None:
            return  # deleted since it was listed
        try:
            pin = decode_pin(data, key=key)
        except LedgerCorruptError as error:
            self._find(ObjectKind.PIN, Problem.DAMAGED, key, error)
            return
        if self._keys.pin(pin.pin_id) != key:
            self._find(ObjectKind.PIN, Problem.MISPLACED, key, f"it is the pin {pin.pin_id}")

    # -- the sum -------------------------------------------------------------------------------------------------------

    def _check_sum(self) -> None:
        """Apply entry after entry, and compare with each checkpoint; objects found broken already are skipped."""
        target, start = self._catalog, self._catalog.readable_from
        catalog: Catalog | None = self._saved.get(start)
        if catalog is None and start <= 1:
            catalog = Catalog.empty()
        first = start + 1 if start in self._saved else max(1, start)
        for version in range(first, target.version + 1):
            entry = self._entries.get(version)
            if catalog is not None and (entry is None or catalog.version != version - 1):
                catalog = None
            if catalog is not None and entry is not None:
                catalog = self._applied(catalog, entry)
            saved = self._saved.get(version)
            if saved is not None and catalog is not None and not _is_same(catalog, saved):
                key = self._keys.checkpoint_head(version)
                detail = "the entries up to it make another catalog"
                self._find(ObjectKind.CHECKPOINT_HEAD, Problem.CONTRADICTORY, key, detail, version=version)
            catalog = saved if saved is not None else catalog
        if self._knows_head and catalog is not None and not _is_same(catalog, target):
            key = self._keys.ledger_entry(target.version)
            detail = "the ledger makes another catalog than its writer has"
            self._find(ObjectKind.LEDGER_ENTRY, Problem.CONTRADICTORY, key, detail, version=target.version)

    def _applied(self, catalog: Catalog, entry: LedgerEntry) -> Catalog | None:
        try:
            return apply(catalog, entry)
        except LedgerCorruptError as error:
            key = self._keys.ledger_entry(entry.version)
            found = {finding.key for finding in self._state.findings}
            if key not in found:
                self._find(ObjectKind.LEDGER_ENTRY, Problem.CONTRADICTORY, key, error, version=entry.version)
            return None


def _is_same(one: Catalog, other: Catalog) -> bool:
    """Whether two catalogs are equal, ignoring the order of removed segments."""

    def removed(catalog: Catalog) -> list[RemovedSegment]:
        live = [segment for segment in catalog.removed if segment.removed_in > catalog.readable_from]
        return sorted(live, key=lambda segment: (segment.removed_in, segment.topic, segment.segment_id))

    return (
        (one.version, one.nonce, one.epoch, one.readable_from)
        == (other.version, other.nonce, other.epoch, other.readable_from)
        and one.settings == other.settings
        and one.topics == other.topics
        and one.packs == other.packs
        and one.packed == other.packed
        and one.indexes == other.indexes
        and one.indexed_to == other.indexed_to
        and removed(one) == removed(other)
    )


async def rescue_catalog(store: ObjectStore, keys: BrokerKeys, listed: Iterable[str]) -> Catalog | None:
    """The newest catalog that can still be read from a damaged ledger; None when there is none.

    Only for continuing a scrub: it may be far behind the newest.
    """
    versions = sorted(
        (part[0] for key in listed if (part := keys.checkpoint_part(key)) is not None and part[1] is None), reverse=True
    )
    catalog: Catalog | None = None
    for version in versions:
        try:
            head = decode_checkpoint_head(await store.get(keys.checkpoint_head(version)), version=version)
            contents = [decode_object(await store.get(part.key), part) for part in head.objects]
        except (CorruptDataError, ObjectNotFoundError):
            continue
        catalog = catalog_of(head, contents)
        break
    catalog = catalog if catalog is not None else Catalog.empty()
    while True:
        try:
            data = await store.get(keys.ledger_entry(catalog.version + 1))
            catalog = apply(catalog, decode_entry(data, version=catalog.version + 1))
        except (CorruptDataError, ObjectNotFoundError):
            return catalog if catalog.version else None
