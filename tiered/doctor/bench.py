"""Bench: a folder of a store, for a doctor to try things in, which is empty again afterwards.

    {parent}{id}/...     `id` is random: doctors that work at the same time do not see each other's objects
    {parent}{id}-...     a flat bench, which leaves no folder of its own where a store is a directory underneath

What a doctor leaves behind that is killed goes with the next one: what has such a name in `parent`, and is an hour
older than what the store itself says our own newest object is. No other clock is asked, and nothing younger is touched:
deleting what another doctor is racing for would make it see two winners. Objects of other names are foreign, and stay.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from random import Random

from thermocline.remoting.errors import MQError, ObjectNotFoundError
from thermocline.tiered.objects import ObjectStore
from thermocline.tiered.wrappers import Result, StoreCall, Verb, WrappingObjectStore

logger = logging.getLogger(__name__)

STALE_MS = 3_600_000
CLEAR_ATTEMPTS_MAX = 3
_PROBE_NAME = re.compile(r"[0-9a-f]{16}[/-].+")
_WRITES = frozenset({Verb.PUT, Verb.CREATE_IF_ABSENT})


class Bench(WrappingObjectStore):
    """The store, with a record of what is written through it. Names are made by `key`."""

    def __init__(self, store: ObjectStore, *, parent: str, random: Random, is_flat: bool = False) -> None:
        super().__init__(store)
        assert parent.endswith("/")
        self.parent = parent
        self.random = random
        self.prefix = f"{parent}{random.getrandbits(64):016x}{'-' if is_flat else '/'}"
        self._is_flat = is_flat
        self._written: set[str] = set()

    def key(self, name: str) -> str:
        """The key of an object on this bench, or the prefix of several."""
        return self.prefix + (name.replace("/", "-") if self._is_flat else name)

    def will_write(self, key: str) -> None:
        """Note a key that is written past this wrapper."""
        self._written.add(key)

    async def clear(self) -> list[str]:
        """Remove everything of this bench and what dead doctors left; returns what could not be removed.

        Looks whether it is gone: listings of some stores go on showing what many writers raced for.
        """
        for attempt in range(CLEAR_ATTEMPTS_MAX):
            try:
                listed = await self._garbage()
            except (MQError, KeyError, TypeError, ValueError) as error:  # a listing may be any answer
                logger.debug("what a doctor wrote cannot be listed: %r", error)
                return await self._remove(sorted(self._written))
            remaining = [key for key in listed if attempt == 0 or await self._is_there(key)]
            if not remaining:
                return []
            await self._remove(remaining)
        return remaining

    async def _garbage(self) -> list[str]:
        """The objects of this bench, and those of doctors that are long dead."""
        found = [info async for info in self._inner.list(self.parent)]
        own = {info.key: info.modified_ms for info in found if info.key.startswith(self.prefix)}
        limit_ms = max(own.values(), default=0) - STALE_MS
        dead = {info.key for info in found if info.modified_ms < limit_ms and is_probe(info.key, self.parent)}
        return sorted(own.keys() | dead)

    async def _is_there(self, key: str) -> bool:
        try:
            await self._inner.head(key)
        except ObjectNotFoundError:
            return False
        except MQError:  # unknown
            return True
        return True

    async def _remove(self, keys: list[str]) -> list[str]:
        """Remove them, one by one where it cannot be done at once; returns those that stay."""
        try:
            await self._inner.delete_many(keys)
        except MQError as error:
            logger.debug("what a doctor wrote cannot be removed at once: %s", error)
        else:
            return []
        remaining = []
        for key in keys:
            try:
                await self._inner.delete(key)
            except MQError as error:
                logger.debug("an object of a doctor cannot be removed key=%s: %s", key, error)
                remaining.append(key)
        return remaining

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        if call.verb in _WRITES:
            self._written.add(call.key)
        return await attempt()


def is_probe(key: str, parent: str) -> bool:
    """Whether an object of this name is what a doctor tries out."""
    return key.startswith(parent) and _PROBE_NAME.fullmatch(key.removeprefix(parent)) is not None
