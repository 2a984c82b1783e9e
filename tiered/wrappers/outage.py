"""Outages: logs one line when the object store becomes unavailable, rare reminders, and one when it is back.

Rounds, merges, state snapshots and reads all meet an outage, again and again. They handle it without logging; every
call passes this wrapper, so it logs the outage once. Any answer means that the store is available, even a missing
object; but a refusal (credentials, permissions) counts as an outage.

    begins     a call has failed, all its repetitions too                            WARNING
    goes on    every REMINDER_MS                                                     WARNING
    ends       a call has been answered, not-found and the like included             INFO

An outage that begins within SETTLED_MS of the last one's end is logged only after it has lasted as long: a flapping
store does not log two lines each time. `on_change` receives every change at once. Stands above retrying.

During an outage callers need not prepare uploads: `check` sends one small request, and raises until it is answered.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from thermocline.remoting.errors import MQError, ObjectNotFoundError, ObjectStoreUnavailableError
from thermocline.tiered.objects import ObjectInfo, ObjectStore
from thermocline.tiered.wrappers.wrapping import Result, StoreCall, WrappingObjectStore

logger = logging.getLogger(__name__)

REMINDER_MS = 600_000
SETTLED_MS = 30_000


class OutageWatch:
    """Whether the store answers. `clock`: milliseconds since 1970. `on_change(watch)`: an outage begins or ended."""

    def __init__(self, clock: Callable[[], int], *, on_change: Callable[[OutageWatch], None] | None = None) -> None:
        self._clock = clock
        self._on_change = on_change
        self._began_ms: int | None = None
        self._ended_ms: int | None = None
        self._told_ms: int | None = None
        self._failed_count = 0
        self.last_error = ""

    @property
    def since_ms(self) -> int | None:
        """When the present outage began; None while there is none."""
        return self._began_ms

    def failed(self, error: ObjectStoreUnavailableError) -> None:
        """A call has got no answer, however often it was repeated."""
        now_ms = self._clock()
        self.last_error = str(error)
        if self._began_ms is None:
            self._began_ms, self._told_ms, self._failed_count = now_ms, None, 0
            self._changed()
        self._failed_count += 1
        away_ms = now_ms - self._began_ms
        if self._told_ms is None:
            is_new = self._ended_ms is None or self._began_ms - self._ended_ms >= SETTLED_MS
            if is_new or away_ms >= SETTLED_MS:
                self._told_ms = now_ms
                logger.warning("object store does not answer; what needs it waits until it does: %s", error)
        elif now_ms - self._told_ms >= REMINDER_MS:
            self._told_ms = now_ms
            logger.warning(
                "object store still does not answer away_s=%d failed_calls=%d: %s",
                away_ms // 1_000,
                self._failed_count,
                error,
            )

    def answered(self) -> None:
        """A call has got an answer."""
        if self._began_ms is None:
            return
        self._ended_ms = self._clock()
        if self._told_ms is not None:
            logger.info(
                "object store answers again away_s=%d failed_calls=%d",
                (self._ended_ms - self._began_ms) // 1_000,
                self._failed_count,
            )
        self._began_ms, self.last_error = None, ""
        self._changed()

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change(self)


class OutageWatchingObjectStore(WrappingObjectStore):
    """Tells `watch` of every call. Belongs to one event loop."""

    def __init__(self, inner: ObjectStore, watch: OutageWatch, *, check_key: str) -> None:
        """`check_key`: what `check` asks for, there or not."""
        super().__init__(inner)
        self.watch = watch
        self._check_key = check_key

    async def check(self) -> None:
        """Ask the store whether it is back, if it was away.

        Raises:
            ObjectStoreUnavailableError: It is not.
        """
        if self.watch.since_ms is not None:
            try:
                await self.head(self._check_key)
            except ObjectNotFoundError:
                return

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        try:
            result = await attempt()
        except ObjectStoreUnavailableError as error:
            self.watch.failed(error)
            raise
        except MQError:
            self.watch.answered()
            raise
        self.watch.answered()
        return result

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """See ObjectStore."""
        try:
            async for info in self._inner.list(prefix, start_after=start_after):
                self.watch.answered()
                yield info
        except ObjectStoreUnavailableError as error:
            self.watch.failed(error)
            raise
        self.watch.answered()
