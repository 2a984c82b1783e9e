"""FlushGate: one sync in flight, which answers all waiting callers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import draft, open_store
from thermocline.store.files.sync_site import SyncSite
from thermocline.store.log.flush_service import FlushGate, run_in_executor
from thermocline.store.log.message_draft import PutStatus
from thermocline.store.message_store import MessageStore


class Thread:
    """A helper thread that runs its job when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], int], Callable[[BaseException | None], None]]] = []

    def run(self, job: Callable[[], int], done: Callable[[BaseException | None], None]) -> None:
        self.jobs.append((job, done))

    def work(self) -> None:
        job, done = self.jobs.pop(0)
        try:
            job()
        except Exception as error:  # noqa: BLE001 - handed on, as an executor does
            done(error)
        else:
            done(None)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def store(disk: SimulatedDisk) -> Iterator[MessageStore]:
    store = open_store(disk)
    yield store
    disk.fail_syncs.clear()
    if not store.commit_log.is_failed:
        store.close()


def test_who_waits_during_a_flush_is_answered_by_the_next(disk: SimulatedDisk, store: MessageStore) -> None:
    thread, answers = Thread(), list[str]()
    gate = FlushGate(store.commit_log, thread.run)

    def wait(name: str) -> None:
        gate.wait(store.put(draft()).end_offset, lambda status: answers.append(f"{name} {status.value}"))

    disk.sync_counts.clear()
    wait("a")
    assert len(thread.jobs) == 1
    thread.work()
    assert answers == ["a PUT_OK"]
    wait("b")
    job, done = thread.jobs.pop()
    job()
    wait("c")  # appended behind the flush that is about to be reported
    wait("d")
    assert not thread.jobs
    done(None)
    assert answers == ["a PUT_OK", "b PUT_OK"]
    thread.work()
    assert answers[2:] == ["c PUT_OK", "d PUT_OK"]
    assert not thread.jobs
    assert gate.waiting_count == 0
    assert disk.sync_counts[SyncSite.LOG_FLUSH] == 3


def test_durable_records_need_no_flush(store: MessageStore) -> None:
    thread, answers = Thread(), list[PutStatus]()
    gate = FlushGate(store.commit_log, thread.run)
    end_offset = store.put(draft()).end_offset
    store.commit_log.flush()
    gate.wait(end_offset, answers.append)
    assert answers == [PutStatus.PUT_OK]
    assert not thread.jobs


def test_a_failed_flush_acknowledges_nothing(disk: SimulatedDisk, store: MessageStore) -> None:
    thread, answers = Thread(), list[PutStatus]()
    gate = FlushGate(store.commit_log, thread.run)
    for _ in range(3):
        gate.wait(store.put(draft()).end_offset, answers.append)
    disk.fail_syncs.add(SyncSite.LOG_FLUSH)
    thread.work()
    assert answers == [PutStatus.SERVICE_NOT_AVAILABLE] * 3
    disk.fail_syncs.clear()
    gate.wait(store.commit_log.append_offset, answers.append)
    thread.work()
    assert answers == [PutStatus.SERVICE_NOT_AVAILABLE] * 4
    assert store.commit_log.flush_offset == 0


def test_a_wait_that_takes_too_long_is_an_error(store: MessageStore) -> None:
    thread, answers = Thread(), list[str]()
    gate = FlushGate(store.commit_log, thread.run)
    for name, deadline_ms in (("a", 100), ("b", 200)):
        end_offset = store.put(draft()).end_offset
        gate.wait(
            end_offset, lambda status, name=name: answers.append(f"{name} {status.value}"), deadline_ms=deadline_ms
        )
    gate.expire(99)
    assert answers == []
    gate.expire(100)
    assert answers == ["a FLUSH_DISK_TIMEOUT"]
    thread.work()
    assert answers == ["a FLUSH_DISK_TIMEOUT", "b PUT_OK"]


async def test_on_a_loop_with_a_thread(disk: SimulatedDisk, store: MessageStore) -> None:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as executor:
        store.flush.use(run_in_executor(loop, executor))
        disk.sync_counts.clear()
        futures: list[asyncio.Future[PutStatus]] = []
        for _ in range(50):
            future: asyncio.Future[PutStatus] = loop.create_future()
            store.flush.wait(store.put(draft()).end_offset, future.set_result)
            futures.append(future)
        assert set(await asyncio.gather(*futures)) == {PutStatus.PUT_OK}
        assert disk.sync_counts[SyncSite.LOG_FLUSH] < 20
