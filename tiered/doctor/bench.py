"""Bench: a folder of a store, for a doctor to try things in, which is empty again afterwards.

    {parent}{id}/...     `id` is random: doctors that work at the same time do not see each other's objects

What a doctor leaves behind that is killed goes with the next one: whatever in `parent` is an hour older than what the
store itself says our own newest object is. No other clock is asked, and nothing younger is touched: deleting what
another doctor is racing for would make it see two winners.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from random import Random

from thermocline.remoting.errors import MQError
from thermocline.tiered.object_store import ObjectStore
from thermocline.tiered.wrappers.wrapping import Result, StoreCall, Verb, WrappingObjectStore

logger = logging.getLogger(__name__)

STALE_MS = 3_600_000
_WRITES = frozenset({Verb.PUT, Verb.CREATE_IF_ABSENT})


class Bench(WrappingObjectStore):
    """The store, with a record of what is written through it. Names are made by `key`."""

    def __init__(self, store: ObjectStore, *, parent: str, random: Random) -> None:
        super().__init__(store)
        assert parent.endswith("/")
        self.parent = parent
        self.random = random
        self.prefix = f"{parent}{random.getrandbits(64):016x}/"
        self._written: set[str] = set()

    def key(self, name: str) -> str:
        """The key of an object on this bench."""
        return self.prefix + name

    def will_write(self, key: str) -> None:
        """Note a key that is written past this wrapper."""
        self._written.add(key)

    async def clear(self) -> list[str]:
        """Remove everything of this bench and what dead doctors left; returns what could not be removed."""
        stale: set[str] = set()
        try:
            found = [info async for info in self._inner.list(self.parent)]
            own = [info for info in found if info.key.startswith(self.prefix)]
            self._written.update(info.key for info in own)
            limit_ms = max((info.modified_ms for info in own), default=0) - STALE_MS
            stale = {info.key for info in found if info.modified_ms < limit_ms}
        except (MQError, KeyError, TypeError, ValueError) as error:  # a listing may be any answer
            logger.debug("what a doctor wrote cannot be listed: %r", error)
        left = sorted(self._written | stale)
        try:
            await self._inner.delete_many(left)
        except MQError as error:
            logger.debug("what a doctor wrote cannot be removed at once: %s", error)
        else:
            left = []
        for key in list(left):
            try:
                await self._inner.delete(key)
            except MQError as error:
                logger.debug("an object of a doctor cannot be removed key=%s: %s", key, error)
            else:
                left.remove(key)
        self._written = set(left)
        return left

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        if call.verb in _WRITES:
            self._written.add(call.key)
        return await attempt()
