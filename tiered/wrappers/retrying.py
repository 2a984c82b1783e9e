"""Retrying: repeats what failed for want of an answer, a bounded number of times, each wait longer and jittered.

Only ObjectStoreUnavailableError is repeated, and not its leaf ObjectStoreRefusedError: a refusal does not change within
seconds. A listing goes on behind the last key that it gave. A repeated create_if_absent may meet its own first attempt
and then raises AlreadyExistsError; who must know reads the object (see `ledger_writer.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from random import Random

from thermocline.remoting.errors import ObjectStoreUnavailableError
from thermocline.tiered.objects import ObjectInfo, ObjectStore, ObjectStoreRefusedError
from thermocline.tiered.wrappers.wrapping import Result, StoreCall, Verb, WrappingObjectStore

logger = logging.getLogger(__name__)

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how long. The wait before retry n is random in [half, whole] of min(first * 2^n, maximum)."""

    attempts_max: int = 6
    first_delay_ms: int = 50
    delay_ms_max: int = 5_000

    def delay_ms(self, retry: int, random: Random) -> float:
        """The wait before retry number `retry`, counted from 0."""
        whole = min(self.delay_ms_max, self.first_delay_ms * 2**retry)
        return random.uniform(whole / 2, whole)


class RetryingObjectStore(WrappingObjectStore):
    """Repeats by `policy`; the last failure is raised. `sleep` takes seconds, as asyncio.sleep does."""

    def __init__(
        self,
        inner: ObjectStore,
        *,
        policy: RetryPolicy | None = None,
        random: Random,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        super().__init__(inner)
        self._policy = policy if policy is not None else RetryPolicy()
        self._random = random
        self._sleep = sleep
        self.retry_count = 0

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        retry = 0
        while True:
            try:
                return await attempt()
            except ObjectStoreUnavailableError as error:
                await self._wait(call, retry, error)
            retry += 1

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """See ObjectStore."""
        call, retry, last = StoreCall(verb=Verb.LIST, key=prefix), 0, start_after
        while True:
            try:
                async for info in self._inner.list(prefix, start_after=last):
                    last, retry = info.key, 0
                    yield info
                return
            except ObjectStoreUnavailableError as error:
                await self._wait(call, retry, error)
            retry += 1

    async def _wait(self, call: StoreCall, retry: int, error: ObjectStoreUnavailableError) -> None:
        """Sleep before the next attempt, or raise `error` when there is none."""
        if isinstance(error, ObjectStoreRefusedError) or retry + 1 >= self._policy.attempts_max:
            raise error
        delay_ms = self._policy.delay_ms(retry, self._random)
        self.retry_count += 1
        logger.debug("store retry verb=%s key=%s retry=%d delay_ms=%d: %s", call.verb, call.key, retry, delay_ms, error)
        await self._sleep(delay_ms / 1000)
