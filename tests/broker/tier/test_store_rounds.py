"""What recurs for the store's sake: timers made durable, and local files that wait for them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.broker.control_broker import ControlBroker, control_broker
from tests.broker.timing import bodies_in, deliver_all, open_timers, put_timed, timer_service
from tests.clock import Clock
from thermocline.broker.helpers.shared_page import SharedPage
from thermocline.broker.tier import store_rounds
from thermocline.broker.tier.store_rounds import IDLE_TICK_MS, QUEUE_FILES_AHEAD_MAX, TICK_MS, StoreRounds
from thermocline.remoting.topic_validation import TIMER_TOPIC
from thermocline.store.derived_sync import DerivedSync
from thermocline.store.files.disk import RealDisk
from thermocline.store.retention import DISK_NEARLY_FULL, RetentionGate
from thermocline.timers.timer_round import TimerRound

LOG_FILE_BYTES = 1 << 20
GONE_AT_ONCE = {"log_file_bytes": LOG_FILE_BYTES, "file_reserved_ms": -(1 << 50), "delete_when_hours": ()}
"""Whatever the age of a file, which the real disk tells by another clock than the test's."""
DAY_MS = 86_400_000


@asynccontextmanager
async def rounds_of(broker: ControlBroker, folder: Path) -> AsyncIterator[StoreRounds]:
    """The rounds of a broker, which the test drives."""
    parts = broker.parts
    timers = open_timers(parts)
    page = SharedPage.create(folder / "page", generation=1, build_id=1)
    rounds = StoreRounds(
        parts.base.store,
        retention=parts.base.store.retention,
        page=page,
        clock=broker.clock,
        gate=lambda: RetentionGate(
            held_offset=parts.due.delays.earliest_undelivered_offset(), timers_offset=timers.held_offset
        ),
        index_timestamp_ms=lambda: 0,
        on_tick=lambda _pressure: None,
        timers=timers,
        on_awaited=parts.due.delays.release_below,
    )
    try:
        yield rounds
    finally:
        await rounds.close()
        page.close()


def fill(broker: ControlBroker, files: int) -> None:
    """Let the log go on in another file."""
    log = broker.parts.base.store.commit_log
    end_offset = log.files.last.base_offset + files * LOG_FILE_BYTES
    while log.append_offset < end_offset:
        broker.put("Other", 0, bytes(64 << 10))


async def test_a_log_that_does_not_grow_is_looked_at_less_often(tmp_path: Path) -> None:
    async with control_broker(tmp_path / "store") as broker, rounds_of(broker, tmp_path) as rounds:
        rests_ms = [rounds.tick_rest_ms(), rounds.tick_rest_ms()]
        broker.put("T", 0, b"x")
        rests_ms += [rounds.tick_rest_ms(), rounds.tick_rest_ms()]
        assert rests_ms == [TICK_MS, IDLE_TICK_MS, TICK_MS, IDLE_TICK_MS]


async def test_files_of_new_queues_are_not_made_on_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends wait for the loop, and a file with its folder is hundreds of microseconds."""
    makers: set[int] = set()
    make_directory = RealDisk.make_directory

    def note(disk: RealDisk, path: str) -> None:
        makers.add(threading.get_ident())
        make_directory(disk, path)

    async with control_broker(tmp_path / "store") as broker, rounds_of(broker, tmp_path) as rounds:
        store = broker.parts.base.store
        monkeypatch.setattr(RealDisk, "make_directory", note)
        for number in range(2 * QUEUE_FILES_AHEAD_MAX):
            broker.put(f"New{number}", 0, b"x")
        await rounds._tick()
        await rounds.sync_derived()
        assert store.recovery_offset == store.commit_log.append_offset
        assert makers
        assert threading.get_ident() not in makers
        for number in range(2 * QUEUE_FILES_AHEAD_MAX):
            queue = store.queues.find(f"New{number}", 0)
            assert queue is not None
            assert not queue.tail
            assert store.queues.files.base_positions(f"New{number}", 0) == [0]
            assert queue.unit(0).size_bytes > 0


async def test_queue_files_are_written_for_a_twentieth_of_the_loops_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round of 200 seconds: the next one begins 4 000 after the beginning of this one."""
    loop, passed_s = asyncio.get_running_loop(), 0
    loop_time, advance = loop.time, DerivedSync.advance

    def advance_slowly(sync: DerivedSync) -> bool:
        nonlocal passed_s
        passed_s += 100  # there are two: the second finds nothing more
        return advance(sync)

    async with control_broker(tmp_path / "store") as broker, rounds_of(broker, tmp_path) as rounds:
        store = broker.parts.base.store
        monkeypatch.setattr(loop, "time", lambda: loop_time() + passed_s)
        monkeypatch.setattr(DerivedSync, "advance", advance_slowly)
        broker.put("T", 0, b"first")
        await rounds._sync_derived_if_due()
        synced = store.recovery_offset
        assert synced == store.commit_log.append_offset
        assert passed_s == 200
        broker.put("T", 0, b"second")
        for pause_s, is_due in ((3_000, False), (790, False), (110, True)):
            passed_s += pause_s
            await rounds._sync_derived_if_due()
            assert (store.recovery_offset > synced) is is_due


async def test_a_round_of_many_queues_lets_requests_in_between_and_waits_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses_s: list[float] = []
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        pauses_s.append(seconds)
        await real_sleep(0)

    async with control_broker(tmp_path / "store") as broker, rounds_of(broker, tmp_path) as rounds:
        store = broker.parts.base.store
        for number in range(3):
            broker.put(f"T{number}", 0, b"x")
        monkeypatch.setattr(store, "begin_derived_sync", partial(store.begin_derived_sync, queues_per_slice=1))
        monkeypatch.setattr(store_rounds.asyncio, "sleep", sleep)
        await rounds.sync_derived()
        assert store.recovery_offset == store.commit_log.append_offset
    assert len(pauses_s) >= 3, "one for each queue"
    assert set(pauses_s) == {0}


async def test_the_progress_of_timers_is_durable_after_a_round(tmp_path: Path) -> None:
    async with control_broker(tmp_path / "store") as broker, rounds_of(broker, tmp_path) as rounds:
        timers = open_timers(broker.parts)
        put_timed(broker.parts, b"timed", 60_000)
        deliver_all(timer_service(broker.parts))
        assert timers.checkpoint.queue_offset == 0
        await rounds.sync_timers()
        assert timers.checkpoint.queue_offset == 1
        assert broker.parts.base.store.commit_log.flush_offset > 0


async def test_a_round_that_is_cancelled_counts_if_it_came_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clean stop cancels the task while the helper thread writes the checkpoint: no failure of the disk."""
    async with control_broker(tmp_path / "store") as broker, rounds_of(broker, tmp_path) as rounds:
        timers = open_timers(broker.parts)
        put_timed(broker.parts, b"timed", 60_000)
        deliver_all(timer_service(broker.parts))
        entered, may_go_on = threading.Event(), threading.Event()
        real_commit: Callable[[TimerRound], None] = TimerRound.commit

        def commit(timer_round: TimerRound) -> None:
            entered.set()
            assert may_go_on.wait(10)
            real_commit(timer_round)

        monkeypatch.setattr(TimerRound, "commit", commit)
        task = asyncio.create_task(rounds.sync_timers())
        await asyncio.to_thread(entered.wait, 10)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        may_go_on.set()
        await asyncio.wait([task])
        assert task.cancelled()
        assert timers.failure is None
        assert timers.checkpoint.queue_offset == 1


async def test_idle_timers_keep_no_file(tmp_path: Path) -> None:
    async with control_broker(tmp_path / "store", **GONE_AT_ONCE) as broker, rounds_of(broker, tmp_path) as rounds:
        fill(broker, 3)
        await rounds.sync_timers()
        await rounds.sync_derived()
        await rounds.run_retention()
        log = broker.parts.base.store.commit_log
        assert log.min_offset == log.files.last.base_offset > 0


async def test_expired_files_go_on_request_whatever_hour_of_the_day_it_is(tmp_path: Path) -> None:
    """All of them, more than a round deletes."""
    later = {**GONE_AT_ONCE, "delete_when_hours": ((time.localtime().tm_hour + 12) % 24,), "delete_files_max": 2}
    async with control_broker(tmp_path / "store", **later) as broker, rounds_of(broker, tmp_path) as rounds:
        fill(broker, 5)
        await rounds.sync_timers()
        await rounds.sync_derived()
        log = broker.parts.base.store.commit_log
        await rounds.run_retention()
        assert log.min_offset == 0
        await rounds.delete_expired()
        assert log.min_offset == log.files.last.base_offset == 5 * LOG_FILE_BYTES


async def test_a_file_goes_when_its_waiting_messages_are_stored_anew(tmp_path: Path) -> None:
    clock = Clock()
    async with (
        control_broker(tmp_path / "store", clock=clock, **GONE_AT_ONCE) as broker,
        rounds_of(broker, tmp_path) as rounds,
    ):
        parts = broker.parts
        log, service = parts.base.store.commit_log, timer_service(parts)
        put_timed(broker.parts, b"far", DAY_MS)
        fill(broker, 3)
        deliver_all(service)
        await rounds.sync_derived()
        await rounds.sync_timers()
        await rounds.run_retention()
        assert log.min_offset == 0  # held, and the timers are asked to let go
        deliver_all(service)
        queue = parts.base.store.queues.find(TIMER_TOPIC, 0)
        assert queue is not None
        assert queue.next_offset == 2  # stored anew
        await rounds.run_retention()
        assert log.min_offset == 0  # not before that is durable
        await rounds.sync_derived()
        await rounds.sync_timers()
        await rounds.run_retention()
        assert log.min_offset >= 2 * LOG_FILE_BYTES
        clock.now_ms += DAY_MS + 1_000
        deliver_all(service)
        assert bodies_in(parts, "T", 1) == [b"far"]


async def test_on_a_full_disk_a_delayed_message_is_delivered_if_its_file_is_to_be_deleted(tmp_path: Path) -> None:
    """Otherwise the broker would wait for room, and the room for the broker."""
    async with control_broker(tmp_path / "store", **GONE_AT_ONCE) as broker, rounds_of(broker, tmp_path) as rounds:
        parts = broker.parts
        log, delays = parts.base.store.commit_log, parts.due.delays
        broker.put("SCHEDULE_TOPIC_XXXX", 0, b"due", REAL_TOPIC="T", REAL_QID="1", DELAY="1")
        fill(broker, 3)
        broker.put("SCHEDULE_TOPIC_XXXX", 1, b"in the newest file", REAL_TOPIC="T", REAL_QID="1", DELAY="2")
        await rounds.sync_derived()
        await rounds.sync_timers()
        await rounds.run_retention()
        assert log.min_offset == 0
        log.pause(DISK_NEARLY_FULL)
        broker.clock.now_ms += 60_000
        assert not delays.deliver_slice()
        assert bodies_in(parts, "T", 1) == [b"due"], "no file waits for the other one"
        assert log.refusal == DISK_NEARLY_FULL
        await rounds.sync_derived()
        await rounds.sync_timers()
        await rounds.run_retention()
        assert log.min_offset == 3 * LOG_FILE_BYTES


async def test_timers_are_not_released_for_messages_of_a_delay_level(tmp_path: Path) -> None:
    async with control_broker(tmp_path / "store", **GONE_AT_ONCE) as broker, rounds_of(broker, tmp_path) as rounds:
        parts = broker.parts
        broker.put("SCHEDULE_TOPIC_XXXX", 17, REAL_TOPIC="T", REAL_QID="0", DELAY="18")
        put_timed(broker.parts, b"timed", DAY_MS)
        fill(broker, 3)
        service = timer_service(parts)
        deliver_all(service)
        await rounds.sync_derived()
        await rounds.sync_timers()
        await rounds.run_retention()
        deliver_all(service)
        queue = parts.base.store.queues.find(TIMER_TOPIC, 0)
        assert queue is not None
        assert queue.next_offset == 1
        assert parts.base.store.commit_log.min_offset == 0
