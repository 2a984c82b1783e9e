"""Everything at once by official Java and Go clients, a consumer process of each language killed in the middle, and the
broker at another moment: nothing acknowledged is lost, order is kept, and nothing is repeated without a cause.

Who sends and who consumes: load_mix.py. What is allowed, exactly: load_rules.py.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clock import now_ms
from tests.fixtures_tools import have
from tests.interop.go_agent import built_agent
from tests.interop.killable_broker import KillableBroker
from tests.interop.load_check import check_load
from tests.interop.load_cluster import LoadCluster, load_cluster
from tests.interop.load_mix import POP_INVISIBLE_MS
from tests.interop.load_progress import LoadProgress
from tests.interop.load_rules import Events, Outage
from tooling.official_rocketmq import OfficialSoftware

pytestmark = [
    pytest.mark.java,
    pytest.mark.go,
    pytest.mark.crash,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("mixed-load"),
]

SEED = 20_261_124
QUICK_S, FULL_S, SOAK_S = 15, 60, 600
DRAIN_TIMEOUT_S = 180.0
"""Clients may take 30 s to say that they are there again, and a lock of a dead consumer holds for 60 s."""
QUIET_S = POP_INVISIBLE_MS / 1_000 + 3


@pytest.mark.full
def test_everything_at_once_survives_kills(
    tmp_path: Path, case_count: Callable[..., int], official_software: OfficialSoftware
) -> None:
    have(built_agent)
    with load_cluster(official_software, tmp_path) as (cluster, broker):
        progress = LoadProgress(cluster)
        begun, events = run_load(cluster, broker, seconds=case_count(quick=QUICK_S, full=FULL_S, soak=SOAK_S))
        progress.drain(timeout_s=DRAIN_TIMEOUT_S, quiet_s=QUIET_S)
        check_load(cluster, progress, begun, events)
        broker.check_log()


def run_load(cluster: LoadCluster, broker: KillableBroker, *, seconds: int) -> tuple[dict[str, int], Events]:
    """Send for so long, with both kills on the way; how many messages each producer has begun to send."""
    chance = random.Random(SEED)
    consumers_started_ms = now_ms()
    cluster.start_consumers(waits_for_locks=seconds >= SOAK_S)
    cluster.start_producers()
    start_s = time.monotonic()
    sleep_until(start_s + seconds * chance.uniform(0.3, 0.4))
    consumers_killed_ms = now_ms()
    cluster.kill_victims()
    sleep_until(start_s + seconds * chance.uniform(0.6, 0.7))
    broker_killed_ms = now_ms()
    broker.kill()
    broker.start()
    broker_back_ms = now_ms()
    sleep_until(start_s + seconds)
    return cluster.finish_producers(), Events(
        consumers_started_ms=consumers_started_ms,
        consumers_killed_ms=consumers_killed_ms,
        outages=[Outage(killed_ms=broker_killed_ms, back_ms=broker_back_ms)],
    )


def sleep_until(moment_s: float) -> None:
    """The load is what takes time here."""
    time.sleep(max(0.0, moment_s - time.monotonic()))
