"""Damage: what can happen to an object, done to objects in memory; and which objects of a rig's bucket there are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

from tests.tiered.ledger_data import KEYS
from tests.tiered.scrub.rig import ScrubRig
from thermocline.tiered.findings.findings import ObjectKind
from thermocline.tiered.stores.memory import MemoryObjectStore


async def remove(store: MemoryObjectStore, key: str, random: Random) -> None:
    """It is gone."""
    assert key in store.objects
    await store.delete(key)


async def truncate(store: MemoryObjectStore, key: str, random: Random) -> None:
    """Its end is gone."""
    data = store.objects[key]
    await store.put(key, data[: random.randrange(1, len(data))])


async def flip_bit(store: MemoryObjectStore, key: str, random: Random) -> None:
    """One bit, anywhere."""
    data = bytearray(store.objects[key])
    position = random.randrange(8 * len(data))
    data[position // 8] ^= 1 << position % 8
    await store.put(key, bytes(data))


async def swap(store: MemoryObjectStore, key: str, other: str) -> None:
    """Each holds what the other should."""
    one, two = store.objects[key], store.objects[other]
    await store.put(key, two)
    await store.put(other, one)


DAMAGE: dict[str, Callable[[MemoryObjectStore, str, Random], Awaitable[None]]] = {
    "missing": remove,
    "truncated": truncate,
    "bit-flipped": flip_bit,
}


def objects_of(rig: ScrubRig, kind: ObjectKind) -> list[str]:
    """Objects of a kind that the newest readable versions need, oldest first."""
    catalog = rig.catalog
    segments = [segment for topic in catalog.topics.values() for segment in topic.segments]
    checkpoints = [mark.version for mark in catalog.checkpoints if mark.version >= catalog.readable_from]
    match kind:
        case ObjectKind.LOG:
            return [segment.log.key for segment in segments]
        case ObjectKind.COLUMNS:
            return [segment.cq.key for segment in segments]
        case ObjectKind.KEY_INDEX:
            return [segment.idx.key for segment in segments]
        case ObjectKind.PACK:
            return [pack.key for pack in catalog.packs.values()]
        case ObjectKind.INDEX:
            return [index.key for index in catalog.indexes.values()]
        case ObjectKind.LEDGER_ENTRY:
            return [KEYS.ledger_entry(version) for version in range(catalog.readable_from, catalog.version + 1)]
        case ObjectKind.CHECKPOINT_HEAD:
            return [KEYS.checkpoint_head(version) for version in checkpoints]
        case ObjectKind.CHECKPOINT_BUCKET:
            return sorted(
                key for key in rig.objects.objects if key.startswith(KEYS.checkpoints_prefix) and "zst" in key
            )
        case ObjectKind.HEAD_HINT:
            return [KEYS.head_hint]
        case ObjectKind.PIN:
            return sorted(key for key in rig.objects.objects if key.startswith(KEYS.pins_prefix))
        case ObjectKind.STATE:
            return sorted(key for key in rig.objects.objects if key.startswith(KEYS.state_prefix))
        case ObjectKind.BALLOT:
            return sorted(key for key in rig.objects.objects if key.startswith(KEYS.ballots_prefix))
    raise AssertionError(kind)
