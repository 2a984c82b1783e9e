"""The objects that a broker's part of a bucket should hold by its ledger, and the objects that it holds."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache

from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.ledger.checkpoint import load_head_if_good
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.packs.pack_entry import PackEntry
from thermocline.tiered.packs.piece_table import QueueRange
from thermocline.tiered.segments.object_keys import BrokerKeys
from thermocline.tiered.state.newest_state import list_names
from thermocline.tiered.state.snapshot import KEPT_COUNT

PACKS_CACHED = 10_000
KEYS = BrokerKeys.of(cluster="DefaultCluster", broker_name="broker-a")


async def listed_keys(store: ObjectStore, prefix: str = f"{KEYS.root}/") -> set[str]:
    """Every object there is, but for what a start that was killed had tried: a later start removes that, in an hour."""
    return {info.key async for info in store.list(prefix) if not info.key.startswith(KEYS.doctor_prefix)}


async def named_keys(store: ObjectStore) -> set[str]:
    """Every object that some readable version names, what it takes to read these versions, and the newest states.

    Each readable version is opened by itself, as a reader that has pinned it would: so all of them must open.
    """
    head = await open_catalog(store, KEYS)
    named = {KEYS.head_hint}
    for version in range(head.readable_from, head.version + 1):
        catalog = await open_catalog(store, KEYS, version=version)
        named.update(catalog.live_keys())
        named.add(KEYS.ledger_entry(version))
        checkpoint = await load_head_if_good(store, KEYS, version)
        if checkpoint is not None:
            named.add(KEYS.checkpoint_head(version))
            named.update(checkpoint.object_keys)
    for name in (await list_names(store, KEYS))[-KEPT_COUNT:]:
        named.add(KEYS.state(epoch=name.epoch, sequence=name.sequence))
    return named


async def newest(store: ObjectStore) -> Catalog:
    """The catalog at the ledger's head."""
    return await open_catalog(store, KEYS)


def held_ranges(catalog: Catalog, topic: str) -> dict[int, list[tuple[int, int]]]:
    """Queue id -> what segments and packs hold of it, readable or lost, in order."""
    entry, packed = catalog.topics.get(topic), catalog.packed.get(topic)
    ranges: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for run in entry.ranges() if entry is not None else ():
        ranges[run.queue_id].append((run.start_offset, run.end_offset))
    for pack_id in packed.packs if packed is not None else ():
        assert packed is not None
        for each in _ranges_in(catalog.packs[pack_id], topic, packed.incarnation):
            ranges[each.queue_id].append((each.start_offset, each.end_offset))
    return {queue_id: sorted(found) for queue_id, found in ranges.items()}


@lru_cache(maxsize=PACKS_CACHED)
def _ranges_in(pack: PackEntry, topic: str, incarnation: int) -> tuple[QueueRange, ...]:
    """What the entry says. Found by all of the entry's content, so an entry that changes is read anew."""
    return tuple(pack.ranges_of(topic, incarnation))
