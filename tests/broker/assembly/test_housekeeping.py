"""Periodic tasks of a broker beside its requests, and the files that a clean stop writes.

Covers `broker/assembly/base.py`, `broker/assembly/due.py`, `broker/assembly/recurring.py`,
`broker/pops/pop_setup.py`.
"""

import asyncio
import threading
from pathlib import Path

import pytest

from tests.broker.control_broker import ControlBroker, control_broker
from thermocline.broker.due import transaction_counts
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.broker.tables.creation_limits import MINUTE_MS
from thermocline.pop.order_info import make_order_info
from thermocline.remoting.bodies import HeartbeatData, MessageQueue, ProducerData
from thermocline.remoting.bodies.hand_off import HandOffBody
from thermocline.remoting.errors import DiskFullError, GroupHeldError, TopicNotFoundError, UnavailableError
from thermocline.remoting.json_dialect import loads


def refuse(source: str, target: str) -> None:
    raise DiskFullError("no room left on the disk", path=target)


def offsets_on_disk(broker: ControlBroker) -> dict[str, dict[int, int]]:
    path = f"{broker.parts.base.store.config.config_path}/consumerOffset.json"
    table: dict[str, dict[int, int]] = loads(broker.parts.base.disk.read(path))["offsetTable"]
    return table


async def test_offsets_that_could_not_be_written_are_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with control_broker(tmp_path) as broker:
        broker.parts.tables.offsets.commit("T", "G", 0, 7)
        with monkeypatch.context() as patch:
            patch.setattr(broker.parts.base.disk, "rename", refuse)
            await broker.housekeeping.step()
            assert broker.parts.tables.offsets.changes.is_unsaved
            with pytest.raises(UnavailableError):
                await broker.housekeeping.save()
            assert broker.parts.tables.offsets.changes.is_unsaved
        broker.clock.now_ms += 5_000
        await broker.housekeeping.step()
        assert offsets_on_disk(broker) == {"T@G": {0: 7}}


async def test_counts_that_could_not_be_written_are_written_with_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with control_broker(tmp_path) as broker:
        base = broker.parts.base
        broker.parts.due.transaction_counts.add("T", 3)
        with monkeypatch.context() as patch:
            patch.setattr(base.disk, "rename", refuse)
            with pytest.raises(UnavailableError):
                await broker.housekeeping.save()
        await broker.housekeeping.save()
        path = f"{base.store.config.config_path}/{transaction_counts.FILE_NAME}"
        assert b'"T":{"count":3,' in base.disk.read(path)


async def test_a_bug_in_one_step_does_not_end_recurring_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("thermocline.broker.assembly.housekeeping.STEP_MS", 1)
    async with control_broker(tmp_path) as broker:
        steps = 0
        done = asyncio.Event()

        async def fail() -> None:
            nonlocal steps
            steps += 1
            if steps == 3:
                done.set()
            raise ValueError("a bug")

        monkeypatch.setattr(broker.housekeeping, "step", fail)
        broker.housekeeping.start()
        await asyncio.wait_for(done.wait(), timeout=5)
        await broker.housekeeping.close()
        await broker.housekeeping.close()
    assert "housekeeping failed" in caplog.text


async def test_statistics_are_sampled_and_locks_dropped(tmp_path: Path) -> None:
    async with control_broker(tmp_path) as broker:
        parts = broker.parts
        parts.base.stats.add_put("T", 100, 1)
        await broker.housekeeping.step()
        broker.clock.now_ms += 10_000
        await broker.housekeeping.step()
        assert parts.base.stats.topic_put_per_second("T") == 10.0


async def test_order_infos_of_what_is_gone_are_dropped(tmp_path: Path) -> None:
    async with control_broker(tmp_path) as broker:
        await broker.create_topic("T", queues=2)
        tables, orders = broker.parts.tables, broker.parts.pops.store.orders
        assert tables.groups.find_or_create("G") is not None
        info = make_order_info((0,), pop_time_ms=broker.clock(), invisible_ms=1, attempt_id=None, previous=None)
        for place in (("T", "G", 1), ("T", "G", 2), ("T", "gone", 0), ("gone", "G", 0)):
            orders.put(*place, info)
        await broker.housekeeping.step()
        assert len(orders) == 4, "members of a group are given time to come back after a start"
        broker.clock.now_ms += 300_000
        await broker.housekeeping.step()
        assert [(topic, group, queue_id) for topic, group, queue_id, _ in orders.items()] == [("T", "G", 1)]
        await tables.groups.delete("G")
        broker.clock.now_ms += 300_000
        await broker.housekeeping.step()
        assert len(orders) == 0


async def test_recurring_work_goes_on_when_the_wall_clock_is_set_back(tmp_path: Path) -> None:
    """Offsets are written, dead clients expire, and so do the locks of an orderly consumer that is gone."""
    async with control_broker(tmp_path) as broker:
        tables = broker.parts.tables
        client = await broker.connect()
        heartbeat = HeartbeatData(client_id="c", producer_data_set=[ProducerData(group_name="P")])
        assert (await broker.ask(34, body=heartbeat.encode(), connection=client)).code == 0
        queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)
        assert tables.locks.lock("G", [queue], "gone") == [queue]
        await broker.housekeeping.step()
        broker.clock.set_back(3_600_000)
        tables.offsets.commit("T", "G", 0, 7)
        broker.clock.now_ms += 5_000
        await broker.housekeeping.step()
        assert offsets_on_disk(broker) == {"T@G": {0: 7}}
        broker.clock.now_ms += 115_001
        assert tables.locks.lock("G", [queue], "here") == [queue]
        await broker.housekeeping.step()
        assert tables.clients.producers("P") == []


async def test_limits_of_a_minute_and_holds_end_when_the_wall_clock_is_set_back(tmp_path: Path) -> None:
    """The store's clock stands still for as long."""
    config = BrokerConfig(listen_host="127.0.0.1", address_auto_topics_max=1)
    async with control_broker(tmp_path, config=config) as broker:
        tables = broker.parts.tables

        async def make_topic(name: str) -> None:
            await tables.topics.ensure(name, queue_count=1, address="10.0.0.1:5")

        await make_topic("T0")
        tables.holds.hold(HandOffBody(group="G", receipt_id="r", topics=[]))
        broker.clock.set_back(3_600_000)
        with pytest.raises(TopicNotFoundError):
            await make_topic("T1")
        with pytest.raises(GroupHeldError):
            tables.holds.check("G")
        broker.clock.now_ms += MINUTE_MS
        await make_topic("T1")
        tables.holds.check("G")


async def test_a_save_waits_for_the_one_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state snapshot asks for a save beside the one that recurs: what it finds then is durable, and order infos count
    as saved only by the write that has them."""
    async with control_broker(tmp_path) as broker:
        offsets, disk, loop = broker.parts.tables.offsets, broker.parts.base.disk, asyncio.get_running_loop()
        begun, held, rename = asyncio.Event(), threading.Event(), disk.rename

        def slow_rename(source: str, target: str) -> None:
            loop.call_soon_threadsafe(begun.set)
            held.wait(timeout=30)
            rename(source, target)

        monkeypatch.setattr(disk, "rename", slow_rename)
        offsets.commit("T", "G", 0, 7)
        first = asyncio.ensure_future(broker.housekeeping.step())
        await begun.wait()
        assert offsets.changes.is_unsaved, "it is encoded, and not durable yet"
        second = asyncio.ensure_future(broker.housekeeping.save())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not second.done()
        held.set()
        await second
        assert offsets_on_disk(broker) == {"T@G": {0: 7}}
        await first
