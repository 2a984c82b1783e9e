"""Log reservation: sends stop in front of what a recovery might give out again, and go on when more is reserved."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import draft, open_store
from thermocline.broker.state.log_reservation import REFUSAL, LogReservation, encode_ceiling, reserve_bytes
from thermocline.remoting.errors import CorruptDataError, ServiceUnavailableError
from thermocline.store.config.store_config import StoreConfig


def test_sends_stop_in_front_of_the_ceiling_and_go_on_behind_the_next_snapshot() -> None:
    store = open_store(SimulatedDisk())
    saves: list[None] = []
    reservation = LogReservation(store.commit_log, reserve_bytes=4_000, request_save=lambda: saves.append(None))
    reservation.check()
    store.put(draft(body=b"nothing is promised yet"))
    reservation.saved(store.commit_log.append_offset + 1_001)
    reservation.check()
    store.put(draft(body=b"below"))
    reservation.check()
    assert store.commit_log.refusal == REFUSAL
    with pytest.raises(ServiceUnavailableError):
        store.put(draft(body=b"too near"))
    reservation.saved(store.commit_log.append_offset + 4_000)
    store.put(draft(body=b"again"))
    assert len(saves) == 2
    store.close()


def test_who_else_has_paused_the_log_resumes_it() -> None:
    store = open_store(SimulatedDisk())
    reservation = LogReservation(store.commit_log, reserve_bytes=4_000, request_save=lambda: None)
    store.commit_log.pause("no room")
    reservation.saved(1 << 40)
    assert store.commit_log.refusal == "no room"
    reservation.ceiling = 0
    reservation.check()
    assert store.commit_log.refusal == "no room"
    store.commit_log.resume()
    store.close()


def test_the_ceiling_outlives_a_restart_and_never_comes_down() -> None:
    store = open_store(SimulatedDisk())
    reservation = LogReservation(store.commit_log, reserve_bytes=4_000, request_save=lambda: None)
    reservation.load(None)
    assert reservation.ceiling is None
    reservation.load(encode_ceiling(70_000))
    reservation.saved(60_000)
    assert reservation.encode() == b'{"logCeiling":70000}'
    with pytest.raises(CorruptDataError):
        reservation.load(b"{")
    store.close()


def test_by_default_the_disk_is_the_limit(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    config = StoreConfig(root_path="/store", log_file_bytes=1 << 20)
    disk.make_directory("/store")
    assert reserve_bytes(disk, config, configured=123) == 123
    assert reserve_bytes(disk, config, configured=0) == disk.total_bytes("/store") + (2 << 20)
