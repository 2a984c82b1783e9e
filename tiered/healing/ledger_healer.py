"""Ledger healer: restores objects of the ledger from their writer's local copies and memory.

    entry, checkpoint    byte for byte from the local copy (ledger_copy.py), if it fits the neighbouring objects
    the newest catalog   if that is not enough: a checkpoint of a new version, which depends on no older object
    head hint            written again
    pin                  its own bytes, if they are stored under another pin's name; else a pin of everything readable

A tier process that cannot even open its ledger calls `restore_damaged` first: it replaces damaged objects by their
copies, and restores missing objects of a checkpoint whose head exists, as heads are collected first. Other missing
objects are not restored: without an epoch it is unknown whether they were collected.

Before and after each put there must be no entry behind the writer's own: a later writer may have collected the missing
objects. In that case objects put in empty places are deleted again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import zstandard

from thermocline.remoting.errors import CorruptDataError, FencedError, ObjectNotFoundError
from thermocline.tiered.catalog import LedgerEntry, decode_entry
from thermocline.tiered.findings import Finding, ObjectKind, Problem
from thermocline.tiered.ledger import (
    BucketReference,
    LedgerWriter,
    Pin,
    decode_head,
    decode_object,
    decode_pin,
    encode_pin,
    find_entry,
    load_head_if_good,
)
from thermocline.tiered.objects import LedgerCorruptError, ObjectStore, is_sealed
from thermocline.tiered.segments import BrokerKeys, decompress

logger = logging.getLogger(__name__)

PIN_HELD_MS = 7 * 24 * 3_600_000
"""How long a pin whose version is no longer known holds everything that is readable now."""

LEDGER_KINDS = frozenset(
    {
        ObjectKind.LEDGER_ENTRY,
        ObjectKind.CHECKPOINT_HEAD,
        ObjectKind.CHECKPOINT_BUCKET,
        ObjectKind.HEAD_HINT,
        ObjectKind.PIN,
    }
)


class LedgerHealer:
    """For one scrub of one writer. Called with exclusive use of the ledger (`TierService.alone`)."""

    def __init__(
        self, writer: LedgerWriter, *, find_copy: Callable[[str], bytes | None], clock_ms: Callable[[], int]
    ) -> None:
        self._writer = writer
        self._find_copy = find_copy
        self._clock_ms = clock_ms

    async def heal(self, findings: list[Finding]) -> set[str]:
        """Heal what can be healed; return the keys of it.

        Raises:
            FencedError: A later writer has taken over.
            ObjectStoreUnavailableError: No answer; the rest is left to a later scrub.
        """
        healed: set[str] = set()
        # From the newest entry down: each is checked by the one behind it. Entries first, then what they check.
        order = (ObjectKind.LEDGER_ENTRY, ObjectKind.CHECKPOINT_HEAD, ObjectKind.CHECKPOINT_BUCKET)
        by_kind = {kind: [finding for finding in findings if finding.kind is kind] for kind in LEDGER_KINDS}
        for kind in order:
            for finding in sorted(by_kind[kind], key=lambda finding: -finding.version):
                if finding.problem is not Problem.EXTRA and await self._put_back(finding):
                    healed.add(finding.key)
        if any(
            finding.key not in healed and self._newest_depends_on(finding)
            for kind in order
            for finding in by_kind[kind]
        ):
            logger.warning("a checkpoint is written in place of what is damaged root=%s", self._writer.keys.root)
            await self._writer.renew_checkpoint()
        for finding in by_kind[ObjectKind.HEAD_HINT]:
            await self._writer.renew_hint()
            healed.add(finding.key)
        healed |= await self._heal_pins(by_kind[ObjectKind.PIN])
        return healed

    def _newest_depends_on(self, finding: Finding) -> bool:
        """Whether a reader of the newest catalog needs the object."""
        checkpoint = self._writer.checkpoint
        if finding.problem is Problem.EXTRA:
            return False
        if finding.kind is ObjectKind.LEDGER_ENTRY:
            return checkpoint is None or finding.version >= checkpoint.version
        if checkpoint is None:
            return False
        if finding.kind is ObjectKind.CHECKPOINT_HEAD:
            return finding.version == checkpoint.version
        return finding.key in checkpoint.object_keys

    # -- from the local copy -------------------------------------------------------------------------------------------

    async def _put_back(self, finding: Finding) -> bool:
        """Store the copy of an object, if there is one that fits."""
        data = self._find_copy(finding.key)
        if data is None:
            return False
        try:
            is_right = await self._fits(finding, data)
        except (CorruptDataError, ObjectNotFoundError) as error:
            logger.info("the local copy is of no use key=%s: %s", finding.key, error)
            return False
        if not is_right:
            return False
        store = self._writer.store
        await self._check_not_fenced()
        await store.put(finding.key, data)
        try:
            await self._check_not_fenced()
        except FencedError:
            if finding.problem is Problem.MISSING:
                await store.delete(finding.key)
            raise
        logger.warning("put back from the local copy key=%s bytes=%d", finding.key, len(data))
        return True

    async def _check_not_fenced(self) -> None:
        writer = self._writer
        later = await find_entry(writer.store, writer.keys, writer.version + 1)
        if later is not None:
            raise FencedError(
                "a later writer has taken over", root=writer.keys.root, epoch=writer.epoch, later_epoch=later.epoch
            )

    async def _fits(self, finding: Finding, data: bytes) -> bool:
        """Whether a copy is the stored object, by its neighbours. CorruptDataError or ObjectNotFoundError: it is not,
        or its neighbours cannot decide."""
        if finding.kind is ObjectKind.LEDGER_ENTRY:
            return await self._entry_fits(decode_entry(data, version=finding.version))
        if finding.kind is ObjectKind.CHECKPOINT_HEAD:
            entry = await self._entry(finding.version)
            return decode_head(data, version=finding.version).nonce == entry.nonce
        reference = await self._reference_to(finding.key)
        decode_object(data, reference)
        return True

    async def _entry_fits(self, entry: LedgerEntry) -> bool:
        catalog = self._writer.catalog
        if entry.version == catalog.version:
            return entry.nonce == catalog.nonce
        return (await self._entry(entry.version + 1)).previous_nonce == entry.nonce

    async def _entry(self, version: int) -> LedgerEntry:
        entry = await find_entry(self._writer.store, self._writer.keys, version)
        if entry is None:
            raise LedgerCorruptError("there is no entry to judge by", version=version)
        return entry

    async def _reference_to(self, key: str) -> BucketReference:
        """The reference to this bucket in a kept checkpoint."""
        writer = self._writer
        if writer.checkpoint is not None:
            for reference in writer.checkpoint.objects:
                if reference.key == key:
                    return reference
        for mark in reversed(writer.catalog.checkpoints):
            head_key = writer.keys.checkpoint_head(mark.version)
            try:
                head = decode_head(await writer.store.get(head_key), version=mark.version)
            except (CorruptDataError, ObjectNotFoundError):
                continue
            for reference in head.objects:
                if reference.key == key:
                    return reference
        raise LedgerCorruptError("no checkpoint names this bucket", key=key)

    # -- pins ----------------------------------------------------------------------------------------------------------

    async def _heal_pins(self, findings: list[Finding]) -> set[str]:
        store, keys = self._writer.store, self._writer.keys
        misplaced: dict[str, bytes] = {}
        for finding in findings:
            if finding.problem is Problem.MISPLACED:
                data = await store.get(finding.key)
                misplaced[keys.pin(decode_pin(data, key=finding.key).pin_id)] = data
        healed: set[str] = set()
        for finding in findings:
            if finding.problem not in (Problem.MISPLACED, Problem.DAMAGED):
                continue
            pin = Pin(
                pin_id=finding.key.removeprefix(keys.pins_prefix).removesuffix(".json"),
                version=self._writer.catalog.readable_from,
                until_ms=self._clock_ms() + PIN_HELD_MS,
                owner="the scrubber, in place of a pin that was damaged",
            )
            await store.put(finding.key, misplaced.get(finding.key, encode_pin(pin)))
            logger.warning("pin written anew key=%s is_own=%s", finding.key, finding.key in misplaced)
            healed.add(finding.key)
        return healed


async def restore_damaged(
    store: ObjectStore, keys: BrokerKeys, *, store_uuid: str, find_copy: Callable[[str], bytes | None]
) -> int:
    """Replace damaged entries and checkpoints by copies that fit, and complete checkpoints; returns how many objects.

    Raises the store's errors.
    """
    listed = [info.key async for info in store.list(keys.ledger_prefix)]
    listed += [info.key async for info in store.list(keys.checkpoints_prefix)]
    restored = 0
    for key in sorted(listed, reverse=True):  # entries are judged by those behind them
        copy = find_copy(key)
        if copy is None:
            continue
        try:
            data = await store.get(key)
        except ObjectNotFoundError:
            continue
        if data == copy or _is_whole(keys, key, data, store_uuid) or not _is_whole(keys, key, copy, store_uuid):
            continue
        version = keys.ledger_version(key)
        if version is not None and not await _is_followed(store, keys, decode_entry(copy, version=version)):
            continue
        await store.put(key, copy)
        logger.warning("put back from the local copy key=%s bytes=%d", key, len(copy))
        restored += 1
    return restored + await _complete_checkpoints(store, keys, set(listed), store_uuid, find_copy)


async def _complete_checkpoints(
    store: ObjectStore, keys: BrokerKeys, there: set[str], store_uuid: str, find_copy: Callable[[str], bytes | None]
) -> int:
    """Restore missing objects that a head names; those of a suspended writer's late head are collected again."""
    restored = 0
    for key in sorted(there):
        part = keys.checkpoint_part(key)
        if part is None or part[1] is not None:
            continue
        try:
            head = await load_head_if_good(store, keys, part[0])
        except CorruptDataError:
            continue  # there was no copy of it, or of its entry, that fits
        for reference in head.objects if head is not None and head.store_uuid == store_uuid else ():
            copy = find_copy(reference.key) if reference.key not in there else None
            if copy is not None and _is_named(reference, copy):
                await store.put(reference.key, copy)
                logger.warning("put back from the local copy key=%s bytes=%d", reference.key, len(copy))
                restored += 1
    return restored


def _is_named(reference: BucketReference, data: bytes) -> bool:
    """Whether the bytes match a head's reference."""
    try:
        decode_object(data, reference)
    except CorruptDataError:
        return False
    return True


def _is_whole(keys: BrokerKeys, key: str, data: bytes, store_uuid: str) -> bool:
    """Whether the bytes are an object of that name, of this store directory's ledger."""
    version, part = keys.ledger_version(key), keys.checkpoint_part(key)
    try:
        if version is not None:
            return is_sealed(data) and decode_entry(data, version=version).store_uuid == store_uuid
        if part is not None and part[1] is None:
            return is_sealed(data) and decode_head(data, version=part[0]).store_uuid == store_uuid
        decompress(data, raw_bytes=zstandard.frame_content_size(data))
    except (CorruptDataError, zstandard.ZstdError):
        return False
    return True


async def _is_followed(store: ObjectStore, keys: BrokerKeys, entry: LedgerEntry) -> bool:
    """Whether the next entry, if there is one that can be read, was built upon this one."""
    try:
        following = await find_entry(store, keys, entry.version + 1)
    except CorruptDataError:
        return True
    return following is None or following.previous_nonce == entry.nonce
