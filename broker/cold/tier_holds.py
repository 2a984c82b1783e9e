"""Tier holds: which pins keep a topic's removed objects in the bucket, and which of its messages cannot be read.

Computed in the tier process, which has the catalog; put into words by tier_explanation.py.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from thermocline.remoting.offsets import QueueOffset
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.ledger import Pin
from thermocline.tiered.segments import is_pack_key


class PinHold(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pin, and the objects removed from the newest catalog that it keeps: the topic's segments, and any packs."""

    pin_id: str
    owner: str
    until_ms: int
    object_count: int
    stored_bytes: int


class QuarantinedRange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Offsets [start_offset, end_offset) that a scrub has put into quarantine; `damage` names objects."""

    queue_id: int
    start_offset: QueueOffset
    end_offset: QueueOffset
    damage: str


def pin_holds(catalog: Catalog, topic: str, pins: Iterable[Pin], *, now_ms: int) -> list[PinHold]:
    """The pins that keep something of the topic, the one that ends last first."""
    has_packs = topic in catalog.packed
    removed = [
        each
        for each in catalog.removed
        if each.topic == topic or (has_packs and not each.topic and all(is_pack_key(key) for key in each.keys))
    ]
    holds: list[PinHold] = []
    for pin in sorted(pins, key=lambda pin: (-pin.until_ms, pin.pin_id)):
        held = [each for each in removed if each.removed_in > pin.version] if pin.until_ms > now_ms else []
        if held:
            holds.append(
                PinHold(
                    pin_id=pin.pin_id,
                    owner=pin.owner,
                    until_ms=pin.until_ms,
                    object_count=sum(len(each.keys) for each in held),
                    stored_bytes=sum(each.stored_bytes for each in held),
                )
            )
    return holds


def quarantined_ranges(catalog: Catalog, topic: str) -> list[QuarantinedRange]:
    """The quarantined ranges of the topic's current incarnation, by queue and offset."""
    entry = catalog.topics.get(topic)
    return sorted(
        (
            QuarantinedRange(
                queue_id=lost.queue_id,
                start_offset=lost.start_offset,
                end_offset=lost.end_offset,
                damage=", ".join(f"{part.key} {part.problem}" for part in kept.damage),
            )
            for kept in (entry.quarantine if entry is not None else ())
            for lost in kept.lost
        ),
        key=lambda each: (each.queue_id, each.start_offset),
    )
