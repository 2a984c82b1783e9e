"""Watching: knows whether the object store answers, and says so once when that changes.

It stands above what retries: a call that fails here has failed for good. Any answer means that the store is there, that
an object is missing too; a refusal (credentials, permissions) is none that anybody could work with.

While the store is away nobody needs to prepare what it would not take: `check` asks it with one small request, and
raises until it answers.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from thermocline.remoting.errors import MQError, ObjectNotFoundError, ObjectStoreUnavailableError
from thermocline.tiered.object_store import ObjectInfo, ObjectStore
from thermocline.tiered.wrappers.wrapping import Result, StoreCall, WrappingObjectStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAbsence:
    """Since when the store has given no answer, and what the first call that got none was told."""

    since_ms: int
    reason: str


class WatchingObjectStore(WrappingObjectStore):
    """See the module's header. Belongs to one event loop."""

    def __init__(
        self,
        inner: ObjectStore,
        *,
        clock_ms: Callable[[], int],
        check_key: str,
        on_change: Callable[[StoreAbsence | None], None],
    ) -> None:
        """`check_key`: what `check` asks for, there or not. `on_change(absence)`: None when the store is back."""
        super().__init__(inner)
        self._clock_ms = clock_ms
        self._check_key = check_key
        self._on_change = on_change
        self.absence: StoreAbsence | None = None

    async def check(self) -> None:
        """Ask the store whether it is back, if it was away.

        Raises:
            ObjectStoreUnavailableError: It is not.
        """
        if self.absence is not None:
            try:
                await self.head(self._check_key)
            except ObjectNotFoundError:
                return

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        try:
            result = await attempt()
        except ObjectStoreUnavailableError as error:
            self._failed(error)
            raise
        except MQError:
            self._answered()
            raise
        self._answered()
        return result

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """See ObjectStore."""
        try:
            async for info in self._inner.list(prefix, start_after=start_after):
                self._answered()
                yield info
        except ObjectStoreUnavailableError as error:
            self._failed(error)
            raise
        self._answered()

    def _failed(self, error: ObjectStoreUnavailableError) -> None:
        if self.absence is None:
            self.absence = StoreAbsence(since_ms=self._clock_ms(), reason=str(error))
            logger.warning("object store does not answer; local files are kept meanwhile: %s", error)
            self._on_change(self.absence)

    def _answered(self) -> None:
        if self.absence is not None:
            away_ms, self.absence = self._clock_ms() - self.absence.since_ms, None
            logger.info("object store answers again away_ms=%d", away_ms)
            self._on_change(None)
