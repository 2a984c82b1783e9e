"""What the hot process and the tier process tell each other about the bucket: limits, losses, and whether it answers.

Over the real socket between them, also to a tier process that is started again.

Covers `broker/cold/cold_state.py`, `broker/helpers/helper_protocol.py`, `broker/tier_process/hot_state.py`,
`broker/tier_process/ledger_opening.py`, `broker/tier_process/tier_account.py`,
`broker/tier_process/tier_indexing.py`, `broker/tier_process/tier_process.py`, `broker/tier_process/tier_reads.py`,
`broker/tier_process/tier_work.py`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tests.boundary.whole_broker import WholeBroker
from tests.crash import wire
from tests.crash.bucket import newest
from tests.waiting import until
from thermocline.broker.cold.cold_state import ColdState
from thermocline.broker.cold.dropped_ranges import DroppedRange
from thermocline.broker.stats.metrics_page import MetricsPage
from thermocline.remoting.errors import ObjectStoreUnavailableError
from thermocline.remoting.response_code import ResponseCode
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.catalog.ledger_entry import QueueHole
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.stores.object_store_url import ObjectStoreOptions
from thermocline.tiered.wrappers.wrapping import Result, StoreCall, WrappingObjectStore

TOPIC = "Steam"
MESSAGES = 60
DEADLINE_S = 20.0
MIB = 1 << 20


class AbsentStore(WrappingObjectStore):
    """Gives no answer while `is_away()`."""

    def __init__(self, inner: ObjectStore, is_away: Callable[[], bool]) -> None:
        super().__init__(inner)
        self._is_away = is_away

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        if self._is_away():
            raise ObjectStoreUnavailableError("the test has taken it away", key=call.key)
        return await attempt()


class BrokerWithAbsentStore(WholeBroker):
    """A whole broker whose bucket may go away."""

    is_away = False

    async def _open_crashing_store(self, url: str, options: ObjectStoreOptions) -> ObjectStore:
        return AbsentStore(await super()._open_crashing_store(url, options), lambda: self.is_away)

    @property
    def tier_config(self) -> TierConfig:
        """As it started."""
        return self._tier_config


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for a socket."""
    path = Path(tempfile.mkdtemp(prefix="tc-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
async def broker(folder: Path) -> AsyncIterator[BrokerWithAbsentStore]:
    broker = BrokerWithAbsentStore(folder)
    await broker.start()
    await wire.make_topic(broker.connection, TOPIC, queues=1)
    for start in range(0, MESSAGES, 10):
        bodies = [(f"{number}/".encode().ljust(200, b"."), "") for number in range(start, start + 10)]
        await wire.send_batch(broker.connection, TOPIC, 0, bodies)
    yield broker
    broker.is_away = False
    await broker.stop(is_crash=False)
    await broker.remove_objects()


async def test_limits_and_budgets_count_at_once_and_for_the_next_tier_process(broker: BrokerWithAbsentStore) -> None:
    changed = replace(
        broker.tier_config,
        read_budget_bytes=7 * MIB,
        upload_budget_bytes=8 * MIB,
        spool_bytes=9 * MIB,
        read_requests_per_second_max=100,
    )
    broker.cold.follow(changed)
    await until(lambda: broker.tier_role.budgets.reads.bytes_max == 7 * MIB)
    assert broker.tier_role.rates.reads.ms_per_request == 10
    first = broker.tier_role
    await broker.stop_tier()
    await broker.start_tier()
    assert broker.tier_role is not first
    budgets = broker.tier_role.budgets
    assert [budgets.reads.bytes_max, budgets.uploads.bytes_max, budgets.spool.bytes_max] == [7 * MIB, 8 * MIB, 9 * MIB]
    assert broker.tier_role.rates.reads.ms_per_request == 10


async def test_a_dropped_range_is_declared_where_no_object_holds_it(broker: BrokerWithAbsentStore) -> None:
    """And not sealed any more; what was committed after all is no hole."""
    dropped = DroppedRange(
        topic=TOPIC,
        incarnation=broker.store.incarnations.find(TOPIC).id,
        queue_id=0,
        start_offset=0,
        end_offset=25,
        dropped_ms=broker.clock(),
    )
    await broker.report()
    broker.cold.dropped([dropped])
    parts = broker.parts
    page = MetricsPage(
        settings=parts.base.settings,
        store=parts.base.store,
        topics=parts.tables.topics,
        offsets=parts.tables.offsets,
        stats=parts.base.stats,
        remaining=parts.reads.remaining,
        hub=broker._hub,
        helpers=list,
        committed_offset=lambda: None,
        is_fenced=lambda: False,
        dropped=lambda: [dropped],
        limits=parts.base.limits,
        quotas=parts.tables.quotas,
    )
    parts.base.limits.refused("longPollsMax", address="10.0.0.1:5", detail="for the page")
    assert b'\nthermocline_limit_refused_total{limit="longPollsMax"} 1\n' in await page.text()
    assert b"\nthermocline_dropped_messages 25\n" in await page.text()
    (segment,) = await wire.seal(broker.connection, TOPIC)
    assert segment["messages"] == MESSAGES - 25
    entry = (await newest(broker.objects)).topics[TOPIC]
    assert entry.holes == (QueueHole(0, 0, 25),)
    broker.cold.dropped([msgspec.structs.replace(dropped, end_offset=40)])
    await wire.seal(broker.connection)
    assert (await newest(broker.objects)).topics[TOPIC].holes == (QueueHole(0, 0, 25),)


async def test_a_bucket_that_is_away_is_known_and_asks_readers_to_come_back(broker: BrokerWithAbsentStore) -> None:
    await wire.seal(broker.connection)
    broker.clock.now_ms += 1_000
    await broker.delete_local_files()
    assert broker.cold.health().state is ColdState.SERVING
    broker.is_away = True
    pulled = await wire.pull(broker.connection, TOPIC, 0, 0)
    assert (pulled.code, pulled.next_offset) == (ResponseCode.SYSTEM_BUSY, 0)
    await until(lambda: broker.cold.health().state is ColdState.DEGRADED)
    health = broker.cold.health()
    assert health.is_impaired
    assert health.since_ms == broker.clock()
    assert "the test has taken it away" in health.reason
    status = await wire.tier_status(broker.connection)
    assert status["cold"]["state"] == "degraded"
    hot = await wire.read_queue(broker.connection, TOPIC, 0, start=MESSAGES - 5, end=MESSAGES)
    assert len(hot) == 5
    broker.is_away = False
    assert (await wire.pull(broker.connection, TOPIC, 0, 0)).code == ResponseCode.SUCCESS
    await until(lambda: broker.cold.health().state is ColdState.SERVING)
    await broker.stop_tier()
    assert broker.cold.health().state is ColdState.AWAY
    await broker.start_tier()
    assert broker.cold.health().state is ColdState.SERVING


async def test_a_place_is_not_reported_empty_before_the_cut_is_known(
    broker: BrokerWithAbsentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tier process that has just started does not know yet which of its records are visible."""
    await wire.seal(broker.connection)
    broker.clock.now_ms += 1_000
    await broker.delete_local_files()
    assert broker.store.commit_log.min_offset > 0
    first = await wire.view(broker.connection, 0)
    await broker.stop_tier()
    with monkeypatch.context() as patched:
        patched.setattr(broker, "report", _say_nothing)
        await broker.start_tier()
        with pytest.raises(wire.Refused) as refused:
            await wire.view(broker.connection, 0)
        assert refused.value.code == ResponseCode.SYSTEM_BUSY
    await broker.report()
    assert (await wire.view(broker.connection, 0)).body == first.body
    with pytest.raises(wire.Refused, match="can not find message by the offset, 1"):
        await wire.view(broker.connection, 1)


async def _say_nothing() -> None:
    """In place of a report."""
