"""Fault injection: the object store as it is on a bad day, for tests of whatever stands above it.

A plan is asked before every call with the call's number, counted from 0, and answers with what shall go wrong. A crash
is a BaseException: nothing above may handle it, and from then on every call of this store crashes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from enum import Enum
from random import Random

from thermocline.remoting.errors import MQError, ObjectStoreUnavailableError
from thermocline.tiered.object_store import ObjectInfo, ObjectStore
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


class FaultInjectingObjectStore(WrappingObjectStore):
    """Does to each call what `plan` says. `step_count` is how many calls there have been."""

    def __init__(self, inner: ObjectStore, plan: FaultPlan) -> None:
        super().__init__(inner)
        self._plan = plan
        self._crashed = False
        self.step_count = 0

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        fault = self._before(call)
        try:
            result = await attempt()
        except MQError:
            self._after(call, fault)
            raise
        self._after(call, fault)
        return result

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """See ObjectStore; a lost answer or crash comes after the first key."""
        call = StoreCall(verb=Verb.LIST, key=prefix)
        fault = self._before(call)
        async for info in self._inner.list(prefix, start_after=start_after):
            yield info
            self._after(call, fault)
        self._after(call, fault)

    def _before(self, call: StoreCall) -> Fault:
        if self._crashed:
            raise ProcessCrash
        fault = self._plan(self.step_count, call)
        self.step_count += 1
        if fault is Fault.CRASH_BEFORE:
            self._crashed = True
            raise ProcessCrash
        if fault is Fault.UNREACHED:
            raise ObjectStoreUnavailableError("injected: not carried out", verb=call.verb, key=call.key)
        return fault

    def _after(self, call: StoreCall, fault: Fault) -> None:
        if fault is Fault.CRASH_AFTER:
            self._crashed = True
            raise ProcessCrash
        if fault is Fault.LOST_ANSWER:
            raise ObjectStoreUnavailableError("injected: answer lost", verb=call.verb, key=call.key)
