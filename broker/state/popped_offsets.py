"""Popped offsets: the first message in flight of each queue and popping group.

For state snapshots: a group that goes on there misses no unacknowledged message. Collected in slices, so that hundreds
of thousands of check points do not block the loop.
"""

from __future__ import annotations

import asyncio

from thermocline.pop.in_flight import InFlight
from thermocline.remoting.offsets import QueueOffset

CHECK_POINTS_PER_SLICE = 1_000


async def popped_offsets(in_flight: InFlight) -> list[tuple[str, str, int, QueueOffset]]:
    """Topic, group, queue id and first offset not acknowledged, of every queue with one."""
    first: dict[tuple[str, str, int], QueueOffset] = {}
    pending = list(in_flight)
    for start in range(0, len(pending), CHECK_POINTS_PER_SLICE):
        for each in pending[start : start + CHECK_POINTS_PER_SLICE]:
            offsets = each.open_offsets()
            if offsets and in_flight.is_own(each.check_point):
                check_point = each.check_point
                key = check_point.topic, check_point.group, check_point.queue_id
                first[key] = min(min(offsets), first.get(key, offsets[0]))
        await asyncio.sleep(0)
    return [(*key, offset) for key, offset in sorted(first.items())]
