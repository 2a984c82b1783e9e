"""What is logged of an object store that goes away: a line when it does, one now and then, one when it is back.

Covers `tiered/wrappers/wrapping.py`.
"""

from __future__ import annotations

import contextlib
import logging

import pytest

from tests.clock import Clock
from tests.tiered.cost.metered_tier import MeteredTier, Sender
from thermocline.remoting.errors import ObjectNotFoundError, ObjectStoreUnavailableError
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import Fault, FaultInjectingObjectStore, StoreCall
from thermocline.tiered.wrappers.outage import SETTLED_MS, OutageWatch, OutageWatchingObjectStore

MINUTE_MS = 60_000
ERROR = ObjectStoreUnavailableError("no route")


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage().partition(":")[0]) for record in caplog.records]


def test_a_line_when_it_begins_now_and_then_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock(4_000_000_000_000)
    watch = OutageWatch(clock)
    watch.answered()
    assert watch.since_ms is None
    for _ in range(25 * 60):
        watch.failed(ERROR)
        clock.now_ms += 1_000
    assert watch.since_ms == 4_000_000_000_000
    watch.answered()
    watch.answered()
    assert (watch.since_ms, watch.last_error) == (None, "")
    assert lines(caplog) == [
        ("WARNING", "object store does not answer; what needs it waits until it does"),
        ("WARNING", "object store still does not answer away_s=600 failed_calls=601"),
        ("WARNING", "object store still does not answer away_s=1200 failed_calls=1201"),
        ("INFO", "object store answers again away_s=1500 failed_calls=1500"),
    ]


def test_each_outage_of_a_store_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock(4_000_000_000_000)
    watch = OutageWatch(clock)
    for _ in range(200):
        watch.failed(ERROR)
        clock.now_ms += 2_000
        watch.answered()
        clock.now_ms += 3_000
    assert [level for level, _ in lines(caplog)] == ["WARNING", "INFO"]
    watch.failed(ERROR)
    clock.now_ms += SETTLED_MS
    watch.failed(ERROR)
    watch.answered()
    assert [level for level, _ in lines(caplog)] == ["WARNING", "INFO"] * 2, "this one lasts"
    clock.now_ms += SETTLED_MS
    watch.failed(ERROR)
    assert lines(caplog)[-1][0] == "WARNING"


async def test_each_call_tells_the_watch() -> None:
    is_away = False
    watch = OutageWatch(Clock(4_000_000_000_000))
    faulty = FaultInjectingObjectStore(
        MemoryObjectStore(), lambda number, call: Fault.UNREACHED if is_away else Fault.NONE
    )
    store: ObjectStore = OutageWatchingObjectStore(faulty, watch, check_key="hint")
    await store.put("a", b"1")
    is_away = True
    for attempt in (store.get("a"), store.put("b", b"2"), store.delete("a")):
        with pytest.raises(ObjectStoreUnavailableError):
            await attempt
        assert watch.since_ms is not None
    is_away = False
    with pytest.raises(ObjectNotFoundError):
        await store.get("c")
    assert watch.since_ms is None, "not found is an answer"
    is_away = True
    with pytest.raises(ObjectStoreUnavailableError):
        _ = [info async for info in store.list("")]
    assert watch.since_ms is not None
    is_away = False
    async for info in store.list(""):
        assert (info.key, watch.since_ms) == ("a", None), "the first object is an answer"
    assert watch.since_ms is None


async def test_each_change_is_notified_and_a_check_finds_the_store_again() -> None:
    is_away = True
    clock, changes = Clock(4_000_000_000_000), list[tuple[int | None, str]]()
    watch = OutageWatch(clock, on_change=lambda watch: changes.append((watch.since_ms, watch.last_error)))
    faulty = FaultInjectingObjectStore(
        MemoryObjectStore(), lambda number, call: Fault.UNREACHED if is_away else Fault.NONE
    )
    store = OutageWatchingObjectStore(faulty, watch, check_key="hint")
    await store.check()
    assert faulty.step_count == 0, "no request has failed yet"
    for _ in range(3):
        with pytest.raises(ObjectStoreUnavailableError):
            await store.get("a")
        with pytest.raises(ObjectStoreUnavailableError):
            await store.check()
    ((since_ms, reason),) = changes
    assert since_ms == clock.now_ms
    assert "injected" in reason
    is_away = False
    await store.check()  # an answer, though there is no such object
    assert changes == [(since_ms, reason), (None, "")]
    steps = faulty.step_count
    await store.check()
    assert faulty.step_count == steps


async def test_half_an_hour_without_a_store_is_a_handful_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Rounds and merges go on trying all the while, as their loops do; nothing of it is an error, nothing is lost."""
    senders = {f"t{number}": Sender(per_minute=20, ttl_ms=10 * MINUTE_MS if number else None) for number in range(8)}
    away_from_ms = away_until_ms = 0

    def plan(number: int, call: StoreCall) -> Fault:
        return Fault.UNREACHED if away_from_ms <= tier.hot.now_ms < away_until_ms else Fault.NONE

    watch = OutageWatch(lambda: tier.hot.now_ms)
    store = OutageWatchingObjectStore(FaultInjectingObjectStore(MemoryObjectStore(), plan), watch, check_key="hint")
    tier = MeteredTier(senders, step_ms=5_000, store=store)
    config = TierConfig(
        cold_url="memory://away", seal_age_ms=MINUTE_MS, grace_ms=5 * MINUTE_MS, merge_fan_in=2, sweep_interval_ms=5_000
    )
    async with tier.opened(config) as service:
        await tier.run(10)
        caplog.clear()
        caplog.set_level(logging.INFO)
        away_from_ms = tier.hot.now_ms
        away_until_ms = away_from_ms + 30 * MINUTE_MS
        failed_before = tier.meter.totals.errors.total()
        while tier.hot.now_ms < away_until_ms:
            with contextlib.suppress(ObjectStoreUnavailableError):
                await tier.step()
        assert tier.meter.totals.errors.total() - failed_before > 50
        await tier.run(5)
        warnings = [(level, text) for level, text in lines(caplog) if level != "INFO"]
        assert [level for level, _ in warnings] == ["WARNING"] * 3
        assert sum("answers again" in text for _, text in lines(caplog)) == 1
        waiting = [progress.first_waiting_ms for progress in service.backlog.topics.values()]
        oldest_ms = min(first_ms for first_ms in waiting if first_ms is not None)
        assert tier.hot.now_ms - oldest_ms <= 2 * MINUTE_MS, "what waited is in the bucket"
