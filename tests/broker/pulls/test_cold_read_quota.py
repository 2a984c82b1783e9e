"""The cold read quota: who has read enough waits for the next window."""

from __future__ import annotations

import asyncio

import pytest

from tests.clock import Clock
from tests.virtual_loop import run_virtually
from thermocline.broker.pulls.cold_read_quota import SHOWN_MS, THRESHOLDS_MAX, WINDOW_MS, ColdReadQuota
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.remoting.errors import BrokerBusyError, InvalidParameterError

START_MS = 1_700_000_000_000


def quota_of(clock: Clock, *, enabled: bool = True, threshold: int = 1_000, in_all: int = 5_000) -> ColdReadQuota:
    config = BrokerConfig(cold_flow_control=enabled, cold_read_threshold=threshold, cold_read_threshold_global=in_all)
    return ColdReadQuota(config=lambda: config, clock=clock)


def test_a_group_at_its_threshold_waits_until_the_window_ends() -> None:
    clock = Clock()
    quota = quota_of(clock)
    quota.add("busy", 999)
    assert not quota.is_used_up("busy")
    quota.add("busy", 1)
    assert quota.is_used_up("busy")
    assert not quota.is_used_up("other")
    clock.now_ms += WINDOW_MS
    assert not quota.is_used_up("busy")
    assert quota.all_bytes == 0


def test_a_read_that_waits_goes_on_when_the_window_ends() -> None:
    async def wait() -> float:
        loop = asyncio.get_running_loop()
        config = BrokerConfig(cold_flow_control=True, cold_read_threshold=1_000)
        quota = ColdReadQuota(config=lambda: config, clock=lambda: START_MS + round(loop.time() * 1_000))
        quota.add("busy", 1_000)
        await quota.wait("busy")
        return loop.time() * 1_000

    assert run_virtually(wait) == pytest.approx(WINDOW_MS, abs=1)


def test_all_groups_together_have_a_threshold_too() -> None:
    quota = quota_of(Clock())
    for number in range(6):
        quota.add(f"group{number}", 900)
    assert quota.is_used_up("group0")
    assert not quota.is_used_up("one that reads nothing")


def test_what_tools_read_neither_waits_nor_counts() -> None:
    """As in RocketMQ: an operator looks at messages while a group that replays years uses up what all may read."""
    quota = quota_of(Clock())
    for group in ("TOOLS_CONSUMER", "CID_RMQ_SYS_anything"):
        quota.add(group, 1 << 30)
        assert not quota.is_used_up(group)
    assert quota.all_bytes == 0
    quota.add("busy", 5_000)
    assert quota.is_used_up("busy")
    assert not quota.is_used_up("TOOLS_CONSUMER")


def test_an_operators_threshold_stands_above_the_common_one() -> None:
    quota = quota_of(Clock())
    quota.set_thresholds({"busy": 10})
    quota.add("busy", 10)
    assert quota.is_used_up("busy")
    quota.remove_threshold("busy")
    assert not quota.is_used_up("busy")
    quota.remove_threshold("never had one")


def test_thresholds_of_operators_have_a_bound() -> None:
    """One request could give as many groups a threshold as fit into a frame, and each further one as many more."""
    quota = quota_of(Clock())
    quota.set_thresholds({f"g{number}": 1 for number in range(THRESHOLDS_MAX)})
    quota.set_thresholds({"g0": 2})
    for more in ({"one more": 1}, {f"h{number}": 1 for number in range(THRESHOLDS_MAX)}):
        with pytest.raises(BrokerBusyError):
            quota.set_thresholds(more)
    with pytest.raises(InvalidParameterError):
        quota.set_thresholds({"g" * 121: 1})
    assert len(quota.thresholds) == THRESHOLDS_MAX
    quota.remove_threshold("g0")
    quota.set_thresholds({"one more": 1})


def test_nothing_waits_while_it_is_switched_off() -> None:
    quota = quota_of(Clock(), enabled=False)
    quota.add("busy", 1 << 30)
    assert not quota.is_used_up("busy")
    assert quota.groups()["busy"].window_bytes == 1 << 30


def test_a_group_is_shown_for_a_minute_after_its_last_read() -> None:
    clock = Clock()
    quota = quota_of(clock)
    quota.add("busy", 10)
    clock.now_ms += WINDOW_MS
    assert quota.groups()["busy"].window_bytes == 0
    clock.now_ms += SHOWN_MS
    assert quota.groups() == {}


async def test_a_reader_goes_on_with_the_next_window() -> None:
    clock = Clock()
    quota = quota_of(clock)
    quota.add("busy", 1_000)
    waiting = asyncio.create_task(quota.wait("busy"))
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
    clock.now_ms += WINDOW_MS
    await asyncio.wait_for(quota.wait("busy"), 1)
