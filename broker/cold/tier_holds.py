"""Tier holds: which pins keep a topic's removed objects in the bucket, and which of its messages cannot be read.

Computed in the tier process, which has the catalog; put into words by tier_explanation.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from thermocline.remoting.offsets import QueueOffset
from thermocline.tiered.catalog import Catalog, RemovedSegment
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


class PinHolds:
    """What the pins hold, for any number of topics: what left the catalog is read once, and only if a pin is live."""

    def __init__(self, catalog: Catalog, pins: Iterable[Pin], *, now_ms: int) -> None:
        live = (pin for pin in pins if pin.until_ms > now_ms)
        self._pins = sorted(live, key=lambda pin: (-pin.until_ms, pin.pin_id))
        self._packed = catalog.packed
        self._of_topics: defaultdict[str, list[RemovedSegment]] = defaultdict(list)
        packs: list[RemovedSegment] = []
        for each in catalog.removed if self._pins else ():
            if each.topic:
                self._of_topics[each.topic].append(each)
            elif all(is_pack_key(key) for key in each.keys):
                packs.append(each)
        self._packs_held = [_held(packs, pin) for pin in self._pins]

    def of(self, topic: str) -> list[PinHold]:
        """The pins that keep something of the topic, the one that ends last first."""
        own, has_packs = self._of_topics.get(topic, []), topic in self._packed
        holds: list[PinHold] = []
        for pin, packs_held in zip(self._pins, self._packs_held, strict=True):
            object_count, stored_bytes = _held(own, pin)
            if has_packs:
                object_count, stored_bytes = object_count + packs_held[0], stored_bytes + packs_held[1]
            if object_count:
                holds.append(
                    PinHold(
                        pin_id=pin.pin_id,
                        owner=pin.owner,
                        until_ms=pin.until_ms,
                        object_count=object_count,
                        stored_bytes=stored_bytes,
                    )
                )
        return holds


def _held(removed: Iterable[RemovedSegment], pin: Pin) -> tuple[int, int]:
    """How many of the removed objects the pin keeps, and their bytes."""
    held = [each for each in removed if each.removed_in > pin.version]
    return sum(len(each.keys) for each in held), sum(each.stored_bytes for each in held)


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
