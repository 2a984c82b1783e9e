"""State files and the log over a power cut: no file counts as done what the log has lost."""

from __future__ import annotations

from random import Random

import pytest

from tests.broker.control_broker import ControlBroker, control_broker
from tests.clock import Clock
from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import open_store
from thermocline.broker.due import delay_service
from thermocline.broker.state_files.config_persister import ConfigPersister
from thermocline.broker.state_files.log_first import log_is_durable
from thermocline.broker.tables import consumer_offsets
from thermocline.remoting.errors import UnavailableError
from thermocline.store.files.sync_site import SyncSite


def put_delayed(broker: ControlBroker) -> None:
    broker.put("SCHEDULE_TOPIC_XXXX", 0, b"delayed", REAL_TOPIC="T", REAL_QID="0", DELAY="1")


def end_of(broker: ControlBroker, topic: str) -> int:
    queue = broker.parts.base.store.queues.find(topic, 0)
    return 0 if queue is None else queue.next_offset


async def test_a_delayed_message_is_not_lost_with_its_delivered_copy() -> None:
    disk, clock = SimulatedDisk(), Clock()
    async with control_broker("/store", disk=disk, clock=clock) as broker:
        await broker.create_topic("T")
        put_delayed(broker)
        broker.parts.base.store.commit_log.flush()
        clock.now_ms += 1_000
        broker.parts.due.delays.deliver_slice()
        assert end_of(broker, "T") == 1
        await broker.parts.tables.persister.save(delay_service.FILE_NAME)
        survivor = disk.after_power_cut(Random(1), kept_share=0.0)
    async with control_broker("/store", disk=survivor, clock=clock) as broker:
        broker.parts.due.delays.deliver_slice()
        assert end_of(broker, "T") == 1


async def test_an_offset_is_not_behind_what_a_power_cut_has_left() -> None:
    """The group would never get the next messages of the queue."""
    disk, clock = SimulatedDisk(), Clock()
    async with control_broker("/store", disk=disk, clock=clock) as broker:
        await broker.create_topic("T")
        broker.put("T")
        broker.parts.base.store.commit_log.flush()
        broker.put("T")
        broker.parts.tables.offsets.commit("T", "G", 0, 2)
        await broker.parts.tables.persister.save(consumer_offsets.FILE_NAME)
        survivor = disk.after_power_cut(Random(1), kept_share=0.0)
    async with control_broker("/store", disk=survivor, clock=clock) as broker:
        offset = broker.parts.tables.offsets.query("T", "G", 0)
        assert offset is not None
        assert offset <= end_of(broker, "T")


async def test_what_cannot_be_flushed_is_not_counted() -> None:
    disk = SimulatedDisk()
    log, persister = open_store(disk).commit_log, ConfigPersister(disk)
    persister.register("file", "/store/file", lambda: b"{}", durable_first=lambda: log_is_durable(log))
    await persister.save("file")
    disk.remove("/store/file")
    log.append(b"not flushed")
    disk.fail_syncs.add(SyncSite.LOG_FLUSH)
    with pytest.raises(UnavailableError):
        await persister.save("file")
    assert not disk.exists("/store/file")
    await persister.close()
