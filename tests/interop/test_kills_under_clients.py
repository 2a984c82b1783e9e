"""The masters of a set under our controllers are killed one after the other while official Java and Go clients and our
SDK send and consume: nothing acknowledged is lost, and nothing is stored or received twice without a cause.

A cold tier is at work; the bucket is sound at the end. The clients send everything: batches, ordered, delayed, timed
and transactional messages (load_mix.py); what is allowed is in load_rules.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.clock import now_ms
from tests.crash.test_controlled_kills import check_bucket
from tests.fixtures_tools import have
from tests.interop.controlled_brokers import PROBE, WAITS_FOR_ALL, ControlledBrokers, controlled_brokers
from tests.interop.go_agent import built_agent
from tests.interop.load_check import check_load
from tests.interop.load_cluster import BROKER_SETTINGS, SURVIVOR, LoadCluster, load_clients
from tests.interop.load_mix import GROUPS, POP_INVISIBLE_MS, PRODUCERS
from tests.interop.load_progress import LoadProgress
from tests.interop.load_rules import Events, Outage
from tests.interop.replica_brokers import TOPIC, Load
from tests.waiting import wait_until
from thermocline.broker.replicas.followed_table import PERIOD_MS
from thermocline.client import ConsumeFromWhere, PushConsumer, ReceivedMessage
from tooling.official_rocketmq import OfficialSoftware

pytestmark = [pytest.mark.java, pytest.mark.go, pytest.mark.crash, pytest.mark.timeout(1_200)]

SETTINGS = {
    **BROKER_SETTINGS,
    **WAITS_FOR_ALL,
    "fileReservedTime": "0.1",  # 6 min: a broker that is killed comes back before its master has let go of the log
}
PLANS = tuple(
    replace(plan, rate=plan.rate / 2, more={**plan.more, "poll_namesrv_ms": 2_000})  # else Java takes 30 s to follow
    for plan in PRODUCERS
)
NOT_POP = tuple(group for group in GROUPS if not group.is_pop)
BROKERS = frozenset({1, 2, 3})
GO_TIMEOUT_S = 90.0
"""The Go client fetches routes every 30 s, and nothing makes it do so sooner."""
DRAIN_TIMEOUT_S = 240.0
QUIET_S = POP_INVISIBLE_MS / 1_000 + 3

logger = logging.getLogger(__name__)


@pytest.mark.full
def test_masters_are_killed_under_all_clients(
    tmp_path: Path, case_count: Callable[..., int], official_software: OfficialSoftware
) -> None:
    have(built_agent)
    cold_url = (tmp_path / "bucket").as_uri()
    with (
        controlled_brokers(tmp_path, controllers=3, coldUrl=cold_url, **SETTINGS) as found,
        load_clients(
            official_software, tmp_path, namesrv=found.namesrv, plans=PLANS, groups=NOT_POP, parts=(SURVIVOR,)
        ) as cluster,
    ):
        found.start(len(BROKERS))
        found.wait_for(set(BROKERS))
        found.make_topic()
        progress, sdk = LoadProgress(cluster), SdkClients(found.namesrv)
        started_ms = now_ms()
        cluster.start_consumers(waits_for_locks=True)
        cluster.start_producers()
        with sdk.running():
            outages = [
                kill_master(found, cluster, progress, sdk, number)
                for number in range(case_count(quick=1, full=3, soak=200))
            ]
        begun = cluster.finish_producers()
        away_s = [(outage.back_ms - outage.killed_ms) / 1_000 for outage in outages]
        logger.info("every queue is writable after, in s: median %.2f, %s", statistics.median(away_s), sorted(away_s))
        progress.drain(timeout_s=DRAIN_TIMEOUT_S, quiet_s=QUIET_S)
        events = Events(consumers_started_ms=started_ms, consumers_killed_ms=None, outages=outages, noted_ms=PERIOD_MS)
        check_load(cluster, progress, begun, events)
        sdk.check()
        found.check_logs(set())
        asyncio.run(check_bucket(found.brokers[found.wait_for(set(BROKERS))].address, cold_url))
        found.check()


def kill_master(
    found: ControlledBrokers, cluster: LoadCluster, progress: LoadProgress, sdk: SdkClients, number: int
) -> Outage:
    """Kill the master, and return when the set is whole again. After every second kill each client has sent since."""
    master = found.wait_for(set(BROKERS))
    sdk.load.wait_for(200)
    killed_ms = now_ms()
    found.brokers[master].kill()
    found.wait_writable()
    outage = Outage(killed_ms=killed_ms, back_ms=now_ms())
    found.wait_for(set(BROKERS) - {master}, not_master=master)
    if not number % 2:
        for plan in cluster.plans:
            wait_until(
                lambda plan=plan: has_sent_since(progress, plan.name, outage.back_ms),
                what=f"{plan.name} sends again",
                timeout_s=GO_TIMEOUT_S,
            )
        logger.info("kill %d: all clients send after %.1f s", number, (now_ms() - killed_ms) / 1_000)
    found.brokers[master].start()
    found.wait_for(set(BROKERS))
    return outage


def has_sent_since(progress: LoadProgress, producer: str, since_ms: int) -> bool:
    progress.read()
    newest = reversed(progress.sent[producer].values())
    return any(sent.is_acknowledged and sent.sent_ms >= since_ms for sent, _ in zip(newest, range(100), strict=False))


class SdkClients:
    """A producer and a push consumer of our SDK."""

    def __init__(self, namesrv: str) -> None:
        self.load = Load(namesrv, pause_s=0.02)
        self._namesrv = namesrv
        self._received: Counter[bytes] = Counter()
        self._offsets: Counter[tuple[int, int]] = Counter()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Send and consume. At the end, wait until all that was acknowledged is consumed."""
        consumer = PushConsumer(
            group="sdk", namesrv=self._namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        )
        consumer.subscribe(TOPIC)
        consumer.register_listener(self._listen)
        with consumer:
            with self.load.running():
                yield
            wait_until(lambda: self.load.acknowledged <= self._received.keys(), what="the SDK's consumer has all")

    def _listen(self, messages: Sequence[ReceivedMessage], context: object) -> None:
        for message in messages:
            if message.body == PROBE:
                continue
            self._received[message.body] += 1
            self._offsets[message.queue.queue_id, message.queue_offset] += 1

    def check(self) -> None:
        """Each body is stored once: the producer sends nothing twice."""
        assert len(self._offsets) == len(self._received), "a message is stored twice"
        repeated = self._offsets.total() - len(self._offsets)
        logger.info(
            "SDK: %d acknowledged, %d failed, %d received, %d of them again",
            len(self.load.acknowledged),
            self.load.failed_count,
            self._received.total(),
            repeated,
        )
