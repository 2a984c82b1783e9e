"""Each wrapper's effect: counts, retries within bounds, spacing, and faults where the test requests them.

Covers `tiered/stores/memory/memory_object_store.py`, `tiered/wrappers/fault_injection.py`,
`tiered/wrappers/metering.py`, `tiered/wrappers/retrying.py`, `tiered/wrappers/store_history.py`.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from thermocline.remoting.errors import ObjectNotFoundError, ObjectStoreUnavailableError
from thermocline.tiered.objects.errors import AlreadyExistsError, ObjectStoreRefusedError
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import (
    Fault,
    FaultInjectingObjectStore,
    MeteringObjectStore,
    ProcessCrash,
    RetryingObjectStore,
    RetryPolicy,
    StoreCall,
    StoreHistory,
    StoreLimits,
    StoreRates,
    ThrottlingObjectStore,
    Verb,
)
from thermocline.tiered.wrappers.fault_injection import crash_at


class FakeTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.slept_ms: list[float] = []

    def clock_ms(self) -> float:
        return self.now_ms

    async def sleep(self, seconds: float) -> None:
        self.slept_ms.append(seconds * 1000)
        self.now_ms += seconds * 1000
        await asyncio.sleep(0)


async def test_metering_counts_requests_and_bytes() -> None:
    store = MeteringObjectStore(MemoryObjectStore())
    await store.put("a", b"12345")
    await store.create_if_absent("b", b"12")
    with pytest.raises(AlreadyExistsError):
        await store.create_if_absent("b", b"12")
    await store.get("a")
    await store.get_range("a", start=1, end=3)
    await store.get_suffix("a", size_bytes=4)
    with pytest.raises(ObjectNotFoundError):
        await store.head("c")
    assert [info.key async for info in store.list("")] == ["a", "b"]
    counters = store.counters.copy()
    assert (counters.sent_bytes, counters.received_bytes) == (5 + 2 + 2, 5 + 2 + 4)
    assert (counters.request_count, counters.put_count) == (8, 3)
    assert not counters.errors  # both were answered
    await store.delete("a")
    assert store.counters.since(counters).requests == {Verb.DELETE: 1}
    await store.delete_many([])
    assert store.counters.since(counters).request_count == 1


async def test_metering_counts_failures() -> None:
    store = MeteringObjectStore(FaultInjectingObjectStore(MemoryObjectStore(), lambda _number, _call: Fault.UNREACHED))
    with pytest.raises(ObjectStoreUnavailableError):
        await store.put("a", b"12345")
    assert store.counters.errors == {Verb.PUT: 1}


async def test_a_listing_counts_its_pages() -> None:
    memory = MemoryObjectStore()
    for number in range(2_000):
        await memory.put(f"{number:05}", b"")
    store = MeteringObjectStore(memory)
    assert len([info async for info in store.list("")]) == 2_000
    assert store.counters.requests[Verb.LIST] == 2


async def test_retries_wait_longer_each_time_and_give_up() -> None:
    time = FakeTime()
    faulty = FaultInjectingObjectStore(MemoryObjectStore(), lambda _number, _call: Fault.UNREACHED)
    policy = RetryPolicy(attempts_max=5, first_delay_ms=100, delay_ms_max=300)
    store = RetryingObjectStore(faulty, policy=policy, random=Random(1), sleep=time.sleep)
    with pytest.raises(ObjectStoreUnavailableError):
        await store.get("a")
    assert faulty.step_count == 5
    assert store.retry_count == 4
    bounds = [(50, 100), (100, 200), (150, 300), (150, 300)]
    assert all(low <= slept <= high for slept, (low, high) in zip(time.slept_ms, bounds, strict=True))


async def test_permanent_errors_are_not_retried() -> None:
    class Refusing(MemoryObjectStore):
        async def get(self, key: str) -> bytes:
            raise ObjectStoreRefusedError(key=key)

    time = FakeTime()
    store = RetryingObjectStore(Refusing(), random=Random(1), sleep=time.sleep)
    with pytest.raises(ObjectStoreRefusedError):
        await store.get("a")
    with pytest.raises(ObjectNotFoundError):
        await store.head("a")
    assert time.slept_ms == []


async def test_a_repeated_create_meets_its_first_attempt() -> None:
    memory = MemoryObjectStore()
    faulty = FaultInjectingObjectStore(memory, crash_at(0, Fault.LOST_ANSWER))
    store = RetryingObjectStore(faulty, random=Random(1), sleep=FakeTime().sleep)
    with pytest.raises(AlreadyExistsError):
        await store.create_if_absent("a", b"mine")
    assert await memory.get("a") == b"mine"


async def test_a_listing_goes_on_where_it_was_cut_off() -> None:
    memory = MemoryObjectStore()
    for number in range(50):
        await memory.put(f"{number:03}", b"")

    def plan(number: int, _call: StoreCall) -> Fault:
        return [Fault.UNREACHED, Fault.LOST_ANSWER, Fault.LOST_ANSWER, Fault.NONE][min(number, 3)]

    store = RetryingObjectStore(FaultInjectingObjectStore(memory, plan), random=Random(1), sleep=FakeTime().sleep)
    assert [info.key async for info in store.list("")] == [f"{number:03}" for number in range(50)]


def throttled(time: FakeTime, limits: StoreLimits, *, burst_ms: int = 0) -> tuple[ThrottlingObjectStore, StoreRates]:
    rates = StoreRates(limits)
    store = ThrottlingObjectStore(
        MemoryObjectStore(), rates=rates, clock_ms=time.clock_ms, sleep=time.sleep, burst_ms=burst_ms
    )
    return store, rates


async def test_throttling_spaces_requests_and_bytes() -> None:
    time = FakeTime()
    store, _ = throttled(
        time,
        StoreLimits(
            write_bytes_per_second=1_000,
            write_requests_per_second=10,
            read_bytes_per_second=500,
            read_requests_per_second=5,
        ),
    )
    for number in range(5):
        await store.put(f"{number}", b"x" * 10)
    assert time.now_ms == pytest.approx(400)  # the first passes at once, then ten a second
    await store.put("large", b"x" * 5_000)
    await store.delete("4")
    assert time.now_ms == pytest.approx(5_400)
    await store.get_range("large", start=0, end=10)
    assert time.now_ms == pytest.approx(5_400), "reads do not wait for writes"
    await store.head("large")
    assert time.now_ms == pytest.approx(5_600)
    await store.get("large")  # its size is known only afterwards
    before = time.now_ms
    await store.head("large")
    assert time.now_ms - before == pytest.approx(10_000, abs=220)


async def test_throttling_lets_a_burst_through_after_a_pause() -> None:
    time = FakeTime()
    store, _ = throttled(time, StoreLimits(write_requests_per_second=10), burst_ms=500)
    time.now_ms = 10_000
    for number in range(6):
        await store.put(f"{number}", b"")
    assert time.now_ms == 10_000
    await store.put("6", b"")
    assert time.now_ms == pytest.approx(10_100)


async def test_limits_change_while_the_store_is_open() -> None:
    time = FakeTime()
    store, rates = throttled(time, StoreLimits())
    for number in range(100):
        await store.put(f"{number}", b"x" * 1_000)
    assert time.now_ms == 0
    rates.set(StoreLimits(write_bytes_per_second=1_000))
    await store.put("a", b"x" * 1_000)
    await store.put("b", b"x" * 1_000)
    assert time.now_ms == pytest.approx(1_000), "what passed before there was a limit does not count"
    rates.set(StoreLimits())
    await store.put("c", b"x" * 1_000)
    assert time.now_ms == pytest.approx(1_000), "and no request waits for a removed limit"


async def test_faults_happen_where_requested() -> None:
    memory = MemoryObjectStore()
    store = FaultInjectingObjectStore(memory, crash_at(1, Fault.UNREACHED))
    await store.put("a", b"")
    with pytest.raises(ObjectStoreUnavailableError):
        await store.put("b", b"")
    await store.put("c", b"")
    assert set(memory.objects) == {"a", "c"}
    store = FaultInjectingObjectStore(memory, crash_at(0, Fault.CRASH_AFTER))
    with pytest.raises(ProcessCrash):
        await store.put("d", b"")
    with pytest.raises(ProcessCrash):
        await store.get("d")
    assert "d" in memory.objects
    store = FaultInjectingObjectStore(memory, crash_at(0, Fault.CRASH_BEFORE))
    with pytest.raises(ProcessCrash):
        await store.put("e", b"")
    assert "e" not in memory.objects
    store = FaultInjectingObjectStore(memory, crash_at(0, Fault.CRASH_AFTER))
    with pytest.raises(ProcessCrash):
        await store.get("not there")


async def test_a_late_call_arrives_behind_its_retry() -> None:
    memory = MemoryObjectStore()
    store = FaultInjectingObjectStore(memory, crash_at(0, Fault.LATE), late_by=1)
    with pytest.raises(ObjectStoreUnavailableError):
        await store.put("a", b"first")
    assert "a" not in memory.objects
    await store.put("a", b"second")
    assert memory.objects["a"] == b"second"
    await store.head("a")
    assert memory.objects["a"] == b"first"
    assert store.late_count == 0


async def test_a_late_create_loses_against_its_retry() -> None:
    memory = MemoryObjectStore()
    store = FaultInjectingObjectStore(memory, crash_at(0, Fault.LATE), late_by=1)
    with pytest.raises(ObjectStoreUnavailableError):
        await store.create_if_absent("a", b"first")
    await store.create_if_absent("a", b"second")
    await store.arrive()
    assert memory.objects["a"] == b"second"


async def test_a_request_in_flight_outlives_its_sender() -> None:
    """A call that is carried out twice, the second time when the process is long dead."""
    memory = MemoryObjectStore()
    faults = [Fault.TWICE, Fault.CRASH_BEFORE]
    store = FaultInjectingObjectStore(memory, lambda number, _call: faults[number], late_by=100)
    await store.delete("a")
    with pytest.raises(ProcessCrash):
        await store.put("b", b"")
    await memory.put("a", b"of another writer")
    assert store.late_count == 1
    await store.arrive()
    assert memory.objects == {}


async def test_stale_answers_are_of_the_past_but_lose_nothing() -> None:
    memory = MemoryObjectStore()
    await memory.put("old", b"")
    stale_from = 4

    def plan(number: int, _call: StoreCall) -> Fault:
        return Fault.STALE if number >= stale_from else Fault.NONE

    store = FaultInjectingObjectStore(memory, plan, history=StoreHistory(memory))
    await store.put("hint", b"1")
    await store.put("hint", b"2")
    await store.create_if_absent("new", b"x")
    await store.delete("old")
    assert [info.key async for info in store.list("")] == ["hint", "old"]
    assert await store.get("hint") == b"1"
    assert await store.get("new") == b"x", "what was created is seen"


async def test_a_call_sleeps_on_either_side() -> None:
    memory = MemoryObjectStore()
    seen: list[bool] = []

    async def sleep() -> None:
        seen.append("a" in memory.objects)

    for fault in (Fault.SLEEP_BEFORE, Fault.SLEEP_AFTER):
        await memory.delete("a")
        await FaultInjectingObjectStore(memory, crash_at(0, fault), sleep=sleep).put("a", b"")
    assert seen == [False, True]


async def test_a_crash_may_be_a_real_one() -> None:
    """The function that ends the process is called instead, before anything is raised."""
    ends: list[str] = []
    store = FaultInjectingObjectStore(
        MemoryObjectStore(), crash_at(0, Fault.CRASH_BEFORE), crash=lambda: ends.append("here")
    )
    with pytest.raises(ProcessCrash):
        await store.get("a")
    assert ends == ["here"]
