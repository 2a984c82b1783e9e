"""Fault injection: the object store as it is on a bad day, for tests of whatever stands above it.

A plan is asked before every call with the call's number, counted from 0, and answers with what shall go wrong. A crash
is a BaseException: nothing above may handle it, and from then on every call of this store crashes.

What a network may do to a request, all of which a caller sees as "no answer" or not at all
    UNREACHED      never carried out                             LOST_ANSWER   carried out
    LATE           carried out when its caller has given it up   TWICE         answered, and carried out once more later
LATE and TWICE are on their way for `late_by` calls more, or until `arrive` is awaited, which may be long after the
process that sent them has died. STALE answers from the past: a listing as it was before the last writes, an object as
it was before it was replaced. What was created is never unseen by a get: that would be a store that loses what it
acknowledged.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from enum import Enum
from random import Random

from thermocline.remoting.errors import MQError, ObjectStoreUnavailableError
from thermocline.tiered.objects import Data, ObjectInfo, ObjectStore
from thermocline.tiered.wrappers.store_history import StoreHistory
from thermocline.tiered.wrappers.wrapping import Result, StoreCall, Verb, WrappingObjectStore


class ProcessCrash(BaseException):
    """The process died here."""


class Fault(Enum):
    """What happens to one call."""

    NONE = "carried out"
    UNREACHED = "not carried out, UnavailableError"
    LOST_ANSWER = "carried out, UnavailableError"
    CRASH_BEFORE = "the process dies before the call"
    CRASH_AFTER = "the process dies after the call was carried out"
    LATE = "UnavailableError, and carried out later"
    TWICE = "carried out, and once more later"
    STALE = "a read: answered from the past"
    SLEEP_BEFORE = "the caller sleeps before the call"
    SLEEP_AFTER = "the caller sleeps after the call was carried out"


FaultPlan = Callable[[int, StoreCall], Fault]


def crash_at(step: int, fault: Fault) -> FaultPlan:
    """A plan under which everything works until call number `step`, which ends in `fault`."""
    return lambda number, _call: fault if number == step else Fault.NONE


def unreliable(random: Random, *, probability: float) -> FaultPlan:
    """A plan under which calls are unreached or lose their answer, each with half of `probability`."""

    def plan(_number: int, _call: StoreCall) -> Fault:
        draw = random.random()
        if draw < probability / 2:
            return Fault.UNREACHED
        return Fault.LOST_ANSWER if draw < probability else Fault.NONE

    return plan


def _crash() -> None:
    raise ProcessCrash


async def _no_sleep() -> None:
    raise AssertionError("this plan needs a sleep")


class FaultInjectingObjectStore(WrappingObjectStore):
    """Does to each call what `plan` says. `step_count` is how many calls there have been."""

    def __init__(
        self,
        inner: ObjectStore,
        plan: FaultPlan,
        *,
        crash: Callable[[], None] = _crash,
        sleep: Callable[[], Awaitable[None]] = _no_sleep,
        late_by: int = 2,
        history: StoreHistory | None = None,
    ) -> None:
        """`crash` ends the process, or raises in its place; it does not return. `sleep`: for SLEEP_BEFORE and
        SLEEP_AFTER. `late_by`: how many calls behind it a late one arrives. `history`: the store's, so that
        STALE has something to answer with; all that write to it share one."""
        super().__init__(inner)
        self._plan = plan
        self._crash = crash
        self._sleep = sleep
        self._late_by = late_by
        self._crashed = False
        self._late: list[tuple[int, Callable[[], Awaitable[object]]]] = []
        self._history = history
        self.step_count = 0

    @property
    def late_count(self) -> int:
        """How many calls are still on their way."""
        return len(self._late)

    async def arrive(self) -> None:
        """Carry out all delayed calls, of any caller."""
        late, self._late = self._late, []
        for _, attempt in late:
            with contextlib.suppress(MQError):
                await attempt()

    async def put(self, key: str, data: Data) -> None:
        """See ObjectStore."""
        if self._history is not None:
            await self._history.note_replacing(key)
        await super().put(key, bytes(data))

    async def create_if_absent(self, key: str, data: Data) -> None:
        """See ObjectStore."""
        await super().create_if_absent(key, bytes(data))

    async def get(self, key: str) -> bytes:
        """See ObjectStore."""

        async def attempt() -> bytes:
            return await self._inner.get(key)

        async def stale_attempt() -> bytes:
            before = self._history.before(key) if self._history is not None else None
            return before if before is not None else await self._inner.get(key)

        return await self._around(StoreCall(verb=Verb.GET, key=key), attempt, stale_attempt)

    async def delete(self, key: str) -> None:
        """See ObjectStore."""
        await self._note_deleted((key,))
        await super().delete(key)

    async def delete_many(self, keys: Iterable[str]) -> None:
        """See ObjectStore."""
        all_keys = tuple(keys)
        await self._note_deleted(all_keys)
        await super().delete_many(all_keys)

    async def _around(
        self,
        call: StoreCall,
        attempt: Callable[[], Awaitable[Result]],
        stale_attempt: Callable[[], Awaitable[Result]] | None = None,
    ) -> Result:
        fault = await self._before(call, attempt)
        if fault is Fault.STALE and stale_attempt is not None:
            attempt = stale_attempt
        try:
            result = await attempt()
        except MQError:
            await self._after(call, fault)
            raise
        if self._history is not None and call.verb in (Verb.PUT, Verb.CREATE_IF_ABSENT):
            self._history.note_created(call.key)
        await self._after(call, fault)
        return result

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """See ObjectStore; a lost answer or crash comes after the first key."""
        call = StoreCall(verb=Verb.LIST, key=prefix)
        fault = await self._before(call, None)
        if fault is Fault.STALE and self._history is not None:
            there = {info.key: info async for info in self._inner.list(prefix, start_after=start_after)}
            for info in self._history.listed(there, prefix, start_after).values():
                yield info
            return
        async for info in self._inner.list(prefix, start_after=start_after):
            yield info
            await self._after(call, fault)
        await self._after(call, fault)

    async def _note_deleted(self, keys: tuple[str, ...]) -> None:
        if self._history is None:
            return
        for key in keys:
            await self._history.note_deleting(key)

    async def _before(self, call: StoreCall, attempt: Callable[[], Awaitable[object]] | None) -> Fault:
        if self._crashed:
            self._die()
        await self._arrive_due()
        if self._crashed:
            self._die()
        fault = self._plan(self.step_count, call)
        self.step_count += 1
        if fault is Fault.CRASH_BEFORE:
            self._die()
        if fault is Fault.SLEEP_BEFORE:
            await self._sleep()
        if fault in (Fault.LATE, Fault.TWICE) and attempt is not None:
            self._late.append((self.step_count + self._late_by, attempt))
        if fault in (Fault.UNREACHED, Fault.LATE):
            raise ObjectStoreUnavailableError(f"injected: {fault.value}", verb=call.verb, key=call.key)
        return fault

    async def _after(self, call: StoreCall, fault: Fault) -> None:
        if fault is Fault.CRASH_AFTER:
            self._die()
        if fault is Fault.SLEEP_AFTER:
            await self._sleep()
        if fault is Fault.LOST_ANSWER:
            raise ObjectStoreUnavailableError("injected: answer lost", verb=call.verb, key=call.key)

    async def _arrive_due(self) -> None:
        due = [attempt for step, attempt in self._late if step <= self.step_count]
        if due:
            self._late = [(step, attempt) for step, attempt in self._late if step > self.step_count]
            for attempt in due:
                with contextlib.suppress(MQError):
                    await attempt()

    def _die(self) -> None:
        self._crashed = True
        self._crash()
        raise ProcessCrash
