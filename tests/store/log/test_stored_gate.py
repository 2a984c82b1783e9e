"""When a put counts as stored: in the log, durable, on other brokers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import draft, open_store, small_config
from thermocline.replication.confirmations import Confirmations
from thermocline.store.config.store_config import FlushDiskType
from thermocline.store.log.message_draft import PutStatus
from thermocline.store.message_store import MessageStore


def store_of(flush: FlushDiskType, *, waits_for_slave: bool) -> tuple[MessageStore, Confirmations]:
    store = open_store(SimulatedDisk(), small_config(flush_disk_type=flush))
    confirmations = Confirmations(slaves_needed=1, timeout_ms=lambda: 3_000)
    confirmations.connected(1, "a")
    if waits_for_slave:
        store.stored.replicas = confirmations
    return store, confirmations


@pytest.mark.parametrize("flush", FlushDiskType)
@pytest.mark.parametrize("waits_for_slave", [False, True])
def test_a_put_is_stored_when_all_that_was_promised_has_happened(flush: FlushDiskType, waits_for_slave: bool) -> None:
    store, confirmations = store_of(flush, waits_for_slave=waits_for_slave)
    gate, answers = store.stored, list[PutStatus]()
    flushes: list[tuple[Callable[[], int], Callable[[BaseException | None], None]]] = []
    store.flush.use(lambda job, done: flushes.append((job, done)))
    assert gate.waits == (waits_for_slave or flush is FlushDiskType.SYNC_FLUSH)
    end = store.put(draft()).end_offset
    gate.wait(end, answers.append, now_ms=0)
    assert bool(answers) is not gate.waits
    assert gate.is_stored(end, flush_offset=store.commit_log.flush_offset) is not gate.waits
    confirmations.reported(1, end)
    assert bool(answers) is (flush is FlushDiskType.ASYNC_FLUSH)
    for job, done in flushes or [(store.commit_log.flush, lambda _: None)]:
        job()
        done(None)
    assert answers == [PutStatus.PUT_OK]
    assert gate.is_stored(end, flush_offset=store.commit_log.flush_offset)


def test_a_slave_that_is_late_is_told_as_such() -> None:
    store, _ = store_of(FlushDiskType.ASYNC_FLUSH, waits_for_slave=True)
    answers = list[PutStatus]()
    store.stored.wait(store.put(draft()).end_offset, answers.append, now_ms=1_000)
    store.stored.expire(3_999)
    assert answers == []
    store.stored.expire(4_000)
    assert answers == [PutStatus.FLUSH_SLAVE_TIMEOUT]


def test_sealing_follows_what_is_durable_and_confirmed() -> None:
    store, confirmations = store_of(FlushDiskType.ASYNC_FLUSH, waits_for_slave=True)
    first = store.put(draft()).end_offset
    confirmations.reported(1, first)
    assert store.seal_offset == 0
    store.commit_log.flush()
    assert store.seal_offset == first
    store.put(draft())
    store.commit_log.flush()
    assert store.seal_offset == first
