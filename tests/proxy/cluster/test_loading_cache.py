"""Values that are loaded at their first use, kept while they are used, and bounded."""

from __future__ import annotations

import asyncio

import pytest

from tests.waiting import until
from thermocline.proxy.cluster import loading_cache
from thermocline.proxy.cluster.loading_cache import LoadingCache
from thermocline.remoting.errors import BrokerBusyError, MQError, TopicNotFoundError, UnavailableError


class Loaded:
    def __init__(self, *, entries_max: int = 10) -> None:
        self.now_ms = 0.0
        self.loads: list[str] = []
        self.error: MQError | None = None
        self.gate: asyncio.Future[None] | None = None
        self.cache: LoadingCache[str] = LoadingCache(
            self._load, refresh_ms=20, expiry_ms=300, entries_max=entries_max, clock_ms=lambda: self.now_ms
        )

    async def _load(self, name: str) -> str:
        self.loads.append(name)
        if self.gate is not None:
            await self.gate
        if self.error is not None:
            raise self.error
        return f"{name}{len(self.loads)}"


async def test_a_value_is_loaded_once_for_callers_at_the_same_time() -> None:
    loaded = Loaded()
    assert await asyncio.gather(*(loaded.cache.get("a") for _ in range(5))) == ["a1"] * 5
    assert await loaded.cache.get("a") == "a1"


async def test_an_old_value_is_given_and_loaded_anew() -> None:
    loaded = Loaded()
    await loaded.cache.get("a")
    loaded.now_ms = 20
    assert await loaded.cache.get("a") == "a1"
    await until(lambda: loaded.cache.values() == ["a2"])
    assert await loaded.cache.get("a") == "a2"


async def test_what_cannot_be_loaded_stays_until_it_expires() -> None:
    loaded = Loaded()
    await loaded.cache.get("a")
    loaded.error = UnavailableError("away")
    loaded.now_ms = 299
    assert await loaded.cache.get("a") == "a1"
    loaded.now_ms = 300
    with pytest.raises(UnavailableError):
        await loaded.cache.get("a")


async def test_what_does_not_exist_any_more_is_dropped() -> None:
    loaded = Loaded()
    await loaded.cache.get("a")
    loaded.error = TopicNotFoundError("gone")
    loaded.now_ms = 20
    await loaded.cache.get("a")
    await until(lambda: len(loaded.cache) == 0)
    with pytest.raises(TopicNotFoundError):
        await loaded.cache.get("a")


async def test_the_value_that_was_used_least_recently_leaves_a_full_cache() -> None:
    loaded = Loaded(entries_max=2)
    await loaded.cache.get("a")
    await loaded.cache.get("b")
    await loaded.cache.get("a")
    await loaded.cache.get("c")
    assert loaded.cache.values() == ["a1", "c3"]
    loaded.cache.drop("a")
    assert len(loaded.cache) == 1


async def test_loads_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading_cache, "LOADS_MAX", 2)
    loaded = Loaded()
    loaded.gate = asyncio.get_running_loop().create_future()
    waiting = [asyncio.create_task(loaded.cache.get(name)) for name in ("a", "b")]
    await until(lambda: len(loaded.loads) == 2)
    with pytest.raises(BrokerBusyError):
        await loaded.cache.get("c")
    await loaded.cache.close()
    assert all(
        isinstance(result, asyncio.CancelledError) for result in await asyncio.gather(*waiting, return_exceptions=True)
    )


async def test_confirmed_values_are_as_old_as_their_confirmation() -> None:
    loaded = Loaded()
    await loaded.cache.get("a")
    loaded.now_ms = 10
    await loaded.cache.get("b")
    loaded.cache.confirm(since_ms=9, at_ms=295)
    loaded.now_ms = 300
    assert await loaded.cache.get("b") == "b2"
    assert loaded.loads == ["a", "b"]
    assert await loaded.cache.get("a") == "a3"
    assert loaded.cache.peek("b") == "b2"
    assert loaded.cache.peek("c") is None
    assert "b" in loaded.cache


async def test_a_value_is_as_old_as_the_beginning_of_its_load() -> None:
    loaded = Loaded()
    loaded.gate = asyncio.get_running_loop().create_future()
    first = asyncio.create_task(loaded.cache.get("a"))
    await until(lambda: loaded.loads == ["a"])
    loaded.now_ms = 299
    loaded.gate.set_result(None)
    await first
    loaded.now_ms = 300
    assert await loaded.cache.get("a") == "a2"
