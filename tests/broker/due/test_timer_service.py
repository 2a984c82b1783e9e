"""Timed messages go to their topics when their time has come, whatever the store says in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.control_broker import ControlBroker, control_broker
from tests.broker.timing import bodies_in, deliver_all, open_timers, put_timed, records_in, timer_service
from tests.clock import Clock
from tests.simulated_disk import SimulatedDisk
from thermocline.broker.due.timer_service import REFUSED_PAUSE_MS, REST_MS_MAX
from thermocline.remoting.errors import CorruptDataError, MessageTooLargeError, ServiceUnavailableError
from thermocline.remoting.topic_validation import TIMER_TOPIC
from thermocline.store.retention import DISK_NEARLY_FULL
from thermocline.timers.set_back import SET_BACK_MS

LOG_FILE_BYTES = 1 << 20


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    async with control_broker(tmp_path) as broker:
        await broker.create_topic("T")
        yield broker


def rounds(broker: ControlBroker) -> None:
    while open_timers(broker.parts).run_round():
        continue


async def test_a_message_comes_within_its_time(broker: ControlBroker) -> None:
    service = timer_service(broker.parts)
    put_timed(broker.parts, b"in two seconds", 2_000)
    deliver_all(service)
    broker.clock.now_ms += 1_999
    deliver_all(service)
    assert bodies_in(broker.parts, "T", 1) == []
    broker.clock.now_ms += 21
    deliver_all(service)
    [record] = records_in(broker.parts, "T", 1)
    assert record.body == b"in two seconds"
    assert record.store_timestamp_ms == broker.clock.now_ms
    queue = broker.parts.base.store.queues.find("T", 1)
    assert broker.arrived == [queue]  # waiting pulls are woken
    stats = broker.parts.base.stats
    assert stats.view("TOPIC_PUT_NUMS", "T") is not None
    assert (stats.rates.timer_enqueued, stats.rates.timer_delivered) == (1, 1)


async def test_it_rests_until_the_next_message_is_due(broker: ControlBroker) -> None:
    service = timer_service(broker.parts)
    assert deliver_all(service) == REST_MS_MAX
    for number in range(500):
        put_timed(broker.parts, b"%d" % number, 1_500)
    assert service.deliver_slice() == 0
    assert deliver_all(service) == REST_MS_MAX
    broker.clock.now_ms += 1_000
    assert deliver_all(service) == 500
    broker.clock.now_ms += 499
    assert deliver_all(service) == 1
    broker.clock.now_ms += 1
    while not bodies_in(broker.parts, "T", 1):
        assert service.deliver_slice() == 0
    assert service.deliver_slice() == 0
    assert deliver_all(service) == 500
    assert bodies_in(broker.parts, "T", 1) == [b"%d" % number for number in range(500)]


async def test_a_store_that_refuses_is_asked_again(broker: ControlBroker, caplog: pytest.LogCaptureFixture) -> None:
    service, log = timer_service(broker.parts), broker.parts.base.store.commit_log
    put_timed(broker.parts, b"a", 1_000)
    put_timed(broker.parts, b"bb", 1_000)
    deliver_all(service)
    log.pause("for now")
    broker.clock.now_ms += 3_000
    for _ in range(3):
        assert deliver_all(service) == REFUSED_PAUSE_MS
    assert bodies_in(broker.parts, "T", 1) == []
    assert caplog.text.count("timed messages cannot be put now") == 1
    log.resume()
    assert deliver_all(service) == REST_MS_MAX
    assert bodies_in(broker.parts, "T", 1) == [b"a", b"bb"]


async def test_a_message_that_can_never_be_put_does_not_stop_those_behind_it(
    broker: ControlBroker, caplog: pytest.LogCaptureFixture
) -> None:
    service = timer_service(broker.parts)
    put_timed(broker.parts, b"nowhere", 5_000, topic="no/folder")
    put_timed(broker.parts, b"somewhere", 5_000)
    deliver_all(service)
    broker.clock.now_ms += 10_000
    assert deliver_all(service) == REST_MS_MAX
    assert bodies_in(broker.parts, "T", 1) == [b"somewhere"]
    assert open_timers(broker.parts).status().pending_count == 0
    assert "timed message dropped kind=deliver topic=no/folder" in caplog.text


async def test_a_smaller_limit_loses_nothing_that_was_accepted(tmp_path: Path) -> None:
    clock = Clock()
    async with control_broker(tmp_path, clock=clock, message_bytes_max=100) as broker:
        await broker.create_topic("T")
        put_timed(broker.parts, b"x" * 100, 5_000)
    async with control_broker(tmp_path, clock=clock, message_bytes_max=50) as broker:
        with pytest.raises(MessageTooLargeError):
            put_timed(broker.parts, b"x" * 100, 5_000)
        clock.now_ms += 10_000
        deliver_all(timer_service(broker.parts))
        assert bodies_in(broker.parts, "T", 1) == [b"x" * 100]


async def test_messages_of_a_deleted_topic_do_not_come_back_with_its_name(broker: ControlBroker) -> None:
    service = timer_service(broker.parts)
    put_timed(broker.parts, b"earlier life", 2_000)
    await broker.parts.tables.topics.delete("T")
    await broker.create_topic("T")
    put_timed(broker.parts, b"this life", 2_000)
    deliver_all(service)
    broker.clock.now_ms += 5_000
    deliver_all(service)
    assert bodies_in(broker.parts, "T", 1) == [b"this life"]


async def test_a_clean_stop_repeats_nothing(tmp_path: Path) -> None:
    clock = Clock()
    async with control_broker(tmp_path, clock=clock) as broker:
        await broker.create_topic("T")
        for number in range(4):
            put_timed(broker.parts, b"%d" % number, 1_000 + 1_000 * number)
        service = timer_service(broker.parts)
        deliver_all(service)
        clock.now_ms += 2_500
        deliver_all(service)
        assert bodies_in(broker.parts, "T", 1) == [b"0", b"1"]
    async with control_broker(tmp_path, clock=clock) as broker:
        clock.now_ms += 5_000
        deliver_all(timer_service(broker.parts))
        assert bodies_in(broker.parts, "T", 1) == [b"0", b"1", b"2", b"3"]


async def test_the_task_delivers_by_itself(broker: ControlBroker) -> None:
    put_timed(broker.parts, b"x", 1_000)
    broker.clock.now_ms += 3_000
    broker.housekeeping.start()
    async with asyncio.timeout(5):
        while bodies_in(broker.parts, "T", 1) != [b"x"]:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.001)
    await broker.housekeeping.close()


async def test_a_message_that_is_stored_ends_the_rest(broker: ControlBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thermocline.broker.due.timer_service.REST_MS_MAX", 1 << 30)
    broker.clock.now_ms -= SET_BACK_MS  # until the open tick is over, nothing is due
    broker.housekeeping.start()
    timers = open_timers(broker.parts)
    async with asyncio.timeout(5):
        while timers.has_more:  # noqa: ASYNC110 - until it rests
            await asyncio.sleep(0.001)
        assert timers.idle_ms > SET_BACK_MS - 2_000
        for number in range(3):
            put_timed(broker.parts, b"%d" % number, 60_000)
            while timers.status().enqueued_count <= number:  # noqa: ASYNC110 - until it has looked
                await asyncio.sleep(0.001)
    await broker.housekeeping.close()


# -- a full disk -------------------------------------------------------------------------------------------------------


def fill(broker: ControlBroker) -> None:
    """Let the log go on in another file."""
    start = broker.parts.base.store.commit_log.files.last
    while broker.parts.base.store.commit_log.files.last is start:
        broker.put("T", 0, bytes(64 << 10))


async def test_on_a_full_disk_pending_messages_are_copied_so_that_their_file_can_go(broker: ControlBroker) -> None:
    parts, service = broker.parts, timer_service(broker.parts)
    log, timers = parts.base.store.commit_log, open_timers(parts)
    put_timed(broker.parts, b"far", 86_400_000)
    fill(broker)
    deliver_all(service)
    rounds(broker)
    log.pause(DISK_NEARLY_FULL)
    timers.release_below(LOG_FILE_BYTES)
    with pytest.raises(ServiceUnavailableError):
        broker.put("T")
    assert deliver_all(service) == REST_MS_MAX
    rounds(broker)
    assert timers.held_offset >= LOG_FILE_BYTES
    assert log.refusal == DISK_NEARLY_FULL
    log.resume()
    broker.clock.now_ms += 86_401_000
    deliver_all(service)
    assert bodies_in(parts, "T", 1) == [b"far"]


async def test_on_a_full_disk_due_messages_are_delivered_if_their_file_is_to_be_deleted(broker: ControlBroker) -> None:
    """Otherwise the broker would wait for room, and the room for the broker."""
    parts, service = broker.parts, timer_service(broker.parts)
    log, timers = parts.base.store.commit_log, open_timers(parts)
    put_timed(broker.parts, b"due", 1_000)
    put_timed(broker.parts, b"behind", 86_400_000)
    fill(broker)
    deliver_all(service)
    rounds(broker)
    broker.clock.now_ms += 3_000
    log.pause(DISK_NEARLY_FULL)
    assert deliver_all(service) == REFUSED_PAUSE_MS  # no release waits for the file
    timers.release_below(LOG_FILE_BYTES)
    assert deliver_all(service) == REST_MS_MAX
    rounds(broker)
    assert bodies_in(parts, "T", 1) == [b"due"]
    assert timers.held_offset >= LOG_FILE_BYTES
    waiting = len(records_in(parts, TIMER_TOPIC))
    with pytest.raises(ServiceUnavailableError):
        put_timed(broker.parts, b"refused", 1_000)
    assert len(records_in(parts, TIMER_TOPIC)) == waiting


# -- damage ------------------------------------------------------------------------------------------------------------


async def test_a_damaged_timer_log_stops_deliveries_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("thermocline.broker.due.timer_service.DAMAGED_PAUSE_MS", 1)
    disk = SimulatedDisk()
    async with control_broker("/store", disk=disk) as broker:
        await broker.create_topic("T")
        service = timer_service(broker.parts)
        put_timed(broker.parts, b"x", 5_000)
        deliver_all(service)
        rounds(broker)
        [name] = disk.list_directory("/store/timerlog")
        disk.corrupt(f"/store/timerlog/{name}", 0, bytes(52))
        broker.clock.now_ms += 10_000
        with pytest.raises(CorruptDataError):
            deliver_all(service)
        task = asyncio.create_task(service.run())
        async with asyncio.timeout(5):
            while caplog.text.count("timed messages are not delivered") < 2:  # noqa: ASYNC110 - it only logs
                await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait([task])
        assert broker.put("T").queue_offset == 0  # the broker goes on without them
