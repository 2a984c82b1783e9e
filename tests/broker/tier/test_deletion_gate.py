"""DeletionGate: what each part of a broker still needs of the local log, and who may let files go under pressure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.popping import TOPIC, PopClient
from thermocline.broker.helpers import Fenced, HelperHub, IndexLink
from thermocline.broker.helpers.helper_protocol import CatalogTable, HelloReply
from thermocline.broker.tier import DropOldest, Fence, TierLink
from thermocline.broker.tier.deletion_gate import DeletionGate
from thermocline.store.retention import RetentionGate
from thermocline.tiered.budgets.tier_config import TierConfig


@dataclass
class Dropper:
    """Notes the gates that it is asked to relax."""

    asked: list[RetentionGate] = field(default_factory=list)

    async def relax(self, gate: RetentionGate) -> RetentionGate:
        self.asked.append(gate)
        return RetentionGate()


class World:
    def __init__(self, broker: DataBroker) -> None:
        self.broker = broker
        store = broker.store
        settings = HelloReply(
            store=store.config, tier=TierConfig(), store_uuid="u", cluster_name="c", broker_name="b", was_clean=True
        )
        hub = HelperHub(generation=1, build_id=1, settings=settings)

        async def flushed() -> int:
            return store.commit_log.flush_offset

        async def unregister() -> None:
            """There is no NameServer."""

        self.index = IndexLink(hub, flushed=flushed, timeout_ms=1)
        self.tier = TierLink(
            hub, incarnation_of=lambda topic: 0, timeout_ms=1, on_connected=lambda: None, on_fenced=lambda fenced: None
        )
        refusal: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.fence = Fence(store.commit_log, refusal=refusal, unregister=unregister)
        self.dropper = Dropper()

    def gate(self, *, cold: Any = None, drops: bool = True, **slave: Any) -> DeletionGate:
        due = self.broker.parts.due
        return DeletionGate(
            delays=due.delays,
            timers=due.timers,
            transactions=due.transactions,
            pops=self.broker.parts.pops.store,
            cold=cold or self.tier,
            index=self.index,
            fence=self.fence,
            drop_oldest=cast("DropOldest", self.dropper) if drops else None,
            **slave,
        )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        yield World(broker)


async def test_the_cold_tier_counts_as_far_as_it_has_committed(world: World) -> None:
    assert world.gate().now().committed_offset == 0, "it was not heard of yet"
    world.tier.apply_table(CatalogTable(sequence=1, version=3, committed_offset=700, ranges=[]))
    now = world.gate().now()
    assert (now.committed_offset, now.index_offset) == (700, 0)
    without = world.gate(cold=world.broker.parts.base.cold).now()
    assert without.committed_offset is None, "there is none"
    world.fence.close(Fenced(reason="taken over"))
    assert world.gate().now().committed_offset == 0, "a fenced broker deletes nothing"
    assert world.gate(cold=world.broker.parts.base.cold).now().committed_offset is None


async def test_popped_and_delayed_messages_hold_the_log(world: World) -> None:
    """The first of either."""
    client, store = PopClient(world.broker), world.broker.store
    client.send(b"a")
    gate = world.gate()
    assert gate.now().held_offset is None
    delayed = store.commit_log.append_offset
    client.send(b"later", DELAY="3")
    assert gate.now().held_offset == delayed
    client.pop()
    popped = world.broker.parts.pops.store.held_offset
    assert popped is not None
    assert popped > delayed, "the check point is behind it"
    assert gate.now().held_offset == delayed
    world.broker.clock.now_ms += 3_600_000
    world.broker.parts.due.delays.deliver_slice()
    assert gate.now().held_offset == popped


async def test_a_slave_keeps_what_its_master_needs_and_the_bucket_lacks(world: World) -> None:
    """Its own delayed messages count for nothing: the master delivers them."""
    client = PopClient(world.broker)
    client.send(b"later", DELAY="3")
    world.tier.apply_table(CatalogTable(sequence=1, version=3, committed_offset=700, ranges=[]))
    now = world.gate(is_slave=True, held_at_master=lambda: 300).now()
    assert (now.committed_offset, now.held_offset, now.timers_offset) == (700, 300, None)
    assert now.offset == 0, "the index"
    without = world.gate(cold=world.broker.parts.base.cold, is_slave=True).now()
    assert (without.committed_offset, without.held_offset) == (None, None)


async def test_an_empty_slave_needs_what_waits_and_what_the_bucket_lacks(world: World) -> None:
    client, store = PopClient(world.broker), world.broker.store
    assert world.gate(cold=world.broker.parts.base.cold).lacking_offset() is None, "there is no cold tier"
    assert world.gate().lacking_offset() == 0, "it was not heard of yet"
    client.send(b"a")
    end = store.commit_log.append_offset
    world.tier.apply_table(CatalogTable(sequence=1, version=3, committed_offset=end + 10_000, ranges=[]))
    assert world.gate().waiting_offset() == world.gate().lacking_offset() == end, "timers have read all there is"
    world.tier.apply_table(CatalogTable(sequence=2, version=4, committed_offset=end + 10_000, ranges=[]))
    client.send(b"later", DELAY="3")
    client.send(b"b")
    assert world.gate().lacking_offset() == world.gate().waiting_offset() == end


async def test_pressure_lets_files_go_unless_fenced(world: World) -> None:
    gate = RetentionGate(committed_offset=5)
    assert await world.gate(drops=False).relax(gate) is gate
    assert await world.gate().relax(gate) == RetentionGate()
    assert world.dropper.asked == [gate]
    world.fence.close(Fenced(reason="taken over"))
    assert await world.gate().relax(gate) is gate
    assert world.dropper.asked == [gate]
