"""Which packs to merge next. Pure.

Packs of one TTL class and level, of one range of topics, are merged once there are `fan_in` generations of them: the
oldest first, into packs of the next level, cut by ranges of topics so that each is about `pack_bytes`. So a byte is
written once per level, a topic is in at most about `fan_in` packs per level, and its pieces grow by `fan_in` from level
to level until they are segments of their own.

    level 0   all topics    [..16..]
    level 1   eighths       [..16..] [..16..] ...        16 packs of level 0 made eight of these
    level 2   128ths        ...

A pack is kept until its newest message expires. To bound how long merging keeps expired messages, the packs of one
merge span at most an eighth of the longest time to live of their class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from thermocline.tiered.catalog import Catalog
from thermocline.tiered.packs import SPAN_OF_TTL, PackEntry, longest_ttl_ms

MERGE_COUNT_MIN = 2
OWN_PART = 2
"""A topic whose pieces in one merge reach 1/OWN_PART of a segment gets segments of its own; a topic with that much
waiting is sealed by itself at once."""
DEPTH_MAX = 16


def own_bytes_of(segment_bytes: int) -> int:
    """The raw bytes from which on a topic gets a segment of its own."""
    return max(1, segment_bytes // OWN_PART)


class MergePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Packs to merge, all of one class; the resulting packs are of `level`, cut by the first `depth` bits."""

    packs: tuple[PackEntry, ...]
    level: int
    depth: int

    @property
    def raw_bytes(self) -> int:
        """Record bytes, expired ones included."""
        return sum(pack.raw_bytes for pack in self.packs)


class MergePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """See the module's header."""

    fan_in: int
    pack_bytes: int

    def choose(self, catalog: Catalog) -> MergePlan | None:
        """The next merge, of the lowest level first; None when none is due."""
        groups: dict[tuple[int, str], list[PackEntry]] = {}
        for pack in catalog.packs.values():
            groups.setdefault((pack.level, pack.ttl_class), []).append(pack)
        for (level, ttl_class), packs in sorted(groups.items()):
            chosen = self._choose_of(packs, longest_ttl_ms(ttl_class))
            if chosen:
                return self.plan_of(chosen, level=level + 1)
        return None

    def plan_of(self, packs: Iterable[PackEntry], *, level: int) -> MergePlan:
        """The merge of these packs into level `level`."""
        inputs = tuple(packs)
        depth = min(pack.depth for pack in inputs)
        pack_count = sum(pack.raw_bytes for pack in inputs) / self.pack_bytes
        bits = max(0, math.ceil(math.log2(pack_count))) if pack_count > 1 else 0
        return MergePlan(packs=inputs, level=level, depth=min(DEPTH_MAX, depth + bits))

    def _choose_of(self, packs: list[PackEntry], ttl_ms: int | None) -> list[PackEntry]:
        depth = min(pack.depth for pack in packs)
        ranges: dict[int, list[PackEntry]] = {}
        for pack in packs:
            ranges.setdefault(pack.prefix >> (pack.depth - depth), []).append(pack)
        for _, members in sorted(ranges.items()):
            members.sort(key=lambda pack: (pack.min_store_ms, pack.pack_id))
            chosen: list[PackEntry] = []
            generations = 0.0
            for pack in members:
                chosen.append(pack)
                generations += 2.0 ** (depth - pack.depth)
                # Those of one generation stay together.
                if generations >= self.fan_in:
                    break
            if generations >= self.fan_in:
                within = _within(chosen, ttl_ms)
                if len(within) >= MERGE_COUNT_MIN:
                    return within
        return []


def _within(packs: list[PackEntry], ttl_ms: int | None) -> list[PackEntry]:
    """The longest run of packs, ordered by oldest message, whose time span is within the bound."""
    if ttl_ms is None:
        return packs
    best: list[PackEntry] = []
    for start in range(len(packs)):
        newest_ms, stretch = 0, list[PackEntry]()
        for pack in packs[start:]:
            newest_ms = max(newest_ms, pack.max_store_ms)
            if newest_ms - packs[start].min_store_ms > ttl_ms // SPAN_OF_TTL:
                break
            stretch.append(pack)
        if len(stretch) > len(best):
            best = stretch
    return best
