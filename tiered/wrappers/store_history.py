"""StoreHistory: what an object store was like a moment ago, for answers that lag. One for all that write to a store.

It keeps the last WRITES_KEPT creations and deletions, and of each replaced object what it was before.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable

import msgspec

from thermocline.remoting.errors import ObjectNotFoundError
from thermocline.tiered.objects import ObjectInfo, ObjectStore

WRITES_KEPT = 64
UNSEEN_MAX = 8


def _at_no_time() -> int:
    return 0


def _without_end(_key: str) -> float:
    return math.inf


class _Write(msgspec.Struct, frozen=True):
    """An object was put or created, or (`deleted`: what it was) deleted."""

    at_ms: int
    key: str
    deleted: ObjectInfo | None = None


class StoreHistory:
    """See the module's header. `note_*` before or after the write that they are named for.

    `unseen_max`: how many of the last writes below what it lists a stale listing has not seen yet.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        clock_ms: Callable[[], int] = _at_no_time,
        lag_ms_max: Callable[[str], float] = _without_end,
    ) -> None:
        """`lag_ms_max(key)`: for how long a write to it may go unseen."""
        self._store = store
        self._clock_ms = clock_ms
        self._lag_ms_max = lag_ms_max
        self.unseen_max = UNSEEN_MAX
        self._writes: deque[_Write] = deque(maxlen=WRITES_KEPT)
        self._replaced: dict[str, bytes] = {}

    async def note_replacing(self, key: str) -> None:
        """The object is about to be put."""
        with contextlib.suppress(ObjectNotFoundError):
            self._replaced[key] = await self._store.get(key)

    def note_created(self, key: str) -> None:
        """It was put or created."""
        self._writes.append(_Write(self._clock_ms(), key))

    async def note_deleting(self, key: str) -> None:
        """It is about to be deleted."""
        with contextlib.suppress(ObjectNotFoundError):
            info = await self._store.head(key)
            self._writes.append(_Write(self._clock_ms(), key, info))

    def before(self, key: str) -> bytes | None:
        """What the object was before it was replaced; None when it never was."""
        return self._replaced.get(key)

    def listed(self, there: dict[str, ObjectInfo], prefix: str, start_after: str) -> dict[str, ObjectInfo]:
        """What a list request says that has not heard of the newest objects and deletions; `there`: what there is."""
        found, now_ms = dict(there), self._clock_ms()
        asked_for = [
            each
            for each in self._writes
            if each.key.startswith(prefix) and each.key.encode() > start_after.encode()
            if each.key not in self._replaced
        ]
        for write in reversed(asked_for[-self.unseen_max :]):
            if now_ms - write.at_ms >= self._lag_ms_max(write.key):
                break
            if write.deleted is not None:
                found[write.key] = write.deleted
            else:
                found.pop(write.key, None)
        return {key: found[key] for key in sorted(found, key=str.encode)}
