"""Everything at once by official Java and Go clients, a consumer process of each language killed in the middle, and the
broker at another moment: nothing acknowledged is lost, order is kept, and nothing is repeated without a cause.

Who sends and who consumes: load_mix.py. What is allowed, exactly: load_rules.py.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clock import now_ms
from tests.fixtures_tools import have
from tests.interop.go_agent import built_agent
from tests.interop.load_cluster import LoadCluster, load_cluster
from tests.interop.load_journal import JournalTail, Received
from tests.interop.load_mix import GROUPS, POP_INVISIBLE_MS, TOPICS
from tests.interop.load_progress import LoadProgress
from tests.interop.load_rules import Events, GroupReceptions, StoredMessages, describe
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

logger = logging.getLogger(__name__)


@pytest.mark.full
def test_everything_at_once_survives_kills(
    tmp_path: Path, case_count: Callable[..., int], official_software: OfficialSoftware
) -> None:
    have(built_agent)
    with load_cluster(official_software, tmp_path) as cluster:
        progress = LoadProgress(cluster)
        begun, events = run_load(cluster, seconds=case_count(quick=QUICK_S, full=FULL_S, soak=SOAK_S))
        progress.drain(timeout_s=DRAIN_TIMEOUT_S, quiet_s=QUIET_S)
        check(cluster, progress, begun, events)


def run_load(cluster: LoadCluster, *, seconds: int) -> tuple[dict[str, int], Events]:
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
    cluster.broker.kill()
    cluster.broker.start()
    broker_back_ms = now_ms()
    sleep_until(start_s + seconds)
    return cluster.finish_producers(), Events(
        consumers_started_ms=consumers_started_ms,
        consumers_killed_ms=consumers_killed_ms,
        broker_killed_ms=broker_killed_ms,
        broker_back_ms=broker_back_ms,
    )


def sleep_until(moment_s: float) -> None:
    """The load is what takes time here."""
    time.sleep(max(0.0, moment_s - time.monotonic()))


def check(cluster: LoadCluster, progress: LoadProgress, begun: dict[str, int], events: Events) -> None:
    """Everything, by the rules; logs the figures."""
    tails = [JournalTail(cluster.journal_topic(topic)) for topic in TOPICS]
    stored = StoredMessages(
        (Received.read(line) for tail in tails for line in tail.new_lines()), progress.sent, begun, events
    )
    log_sent(progress, begun, events)
    logger.info("stored: %s", describe(stored.check()))
    for group in GROUPS:
        receptions = GroupReceptions(group, progress.received[group.name], stored, events)
        found = receptions.check()
        if group.is_orderly:
            found["went back"] = receptions.check_order()
        logger.info("%s: %s", group.name, describe(found))
        assert found["messages"], group.name
    cluster.broker.check_log()


def log_sent(progress: LoadProgress, begun: dict[str, int], events: Events) -> None:
    outcomes = [sent for of_producer in progress.sent.values() for sent in of_producer.values()]
    acknowledged = [sent for sent in outcomes if sent.is_acknowledged]
    again_ms = min(sent.answered_ms for sent in acknowledged if sent.sent_ms >= events.broker_back_ms)
    logger.info(
        "sent: %d, acknowledged %d, failed %d, without an outcome %d; broker away for %d ms, sends for %d ms",
        sum(begun.values()),
        len(acknowledged),
        len(outcomes) - len(acknowledged),
        sum(begun.values()) - len(outcomes),
        events.broker_back_ms - events.broker_killed_ms,
        again_ms - events.broker_killed_ms,
    )
