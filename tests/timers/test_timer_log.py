"""The timer log: RocketMQ's layout, what is read back, where it may be cut."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulated_disk import SimulatedDisk
from tests.timers.timer_parts import LOG_FILE_BYTES, UNITS_PER_FILE
from thermocline.remoting.errors import CorruptDataError, DiskFullError
from thermocline.store.files.disk import Disk
from thermocline.timers.timer_log import UNIT_BYTES, TimerLog

ROOT = "/store/timerlog"


def open_log(disk: Disk) -> TimerLog:
    return TimerLog.open(disk, ROOT, file_bytes=LOG_FILE_BYTES)


def new_log(disk: Disk | None = None) -> TimerLog:
    log = open_log(disk or SimulatedDisk())
    log.start(0)
    return log


def append(log: TimerLog, number: int, *, previous: int = -1) -> int:
    return log.append(
        previous_position=previous,
        magic=1,
        base_ms=1_795_248_584_000,
        slot_ms=1_795_248_585_000,
        physical_offset=56_368 + number,
        record_bytes=355,
        topic_hash=1_217_058_149,
        deliver_ms=1_795_248_585_586,
    )


def test_a_unit_is_laid_out_as_rocketmq_lays_it_out() -> None:
    """The first unit that an official 5.5.0 broker wrote into the golden store, and our time in the reserved field."""
    disk = SimulatedDisk()
    log = new_log(disk)
    append(log, 0)
    log.write()
    assert disk.read(f"{ROOT}/00000000000000000000")[:UNIT_BYTES] == bytes.fromhex(
        "00000034ffffffffffffffff00000001000001a1fd277540000003e8000000000000dc3000000163488ad565000001a1fd277b72"
    )


def test_units_are_read_back_before_and_after_they_are_written() -> None:
    log = new_log()
    positions = [append(log, number) for number in range(50)]
    for _ in range(2):
        assert [log.unit(position).physical_offset for position in positions] == [56_368 + n for n in range(50)]
        assert [unit.position for unit in log.units(0, log.append_position)] == positions
        log.write()


def test_a_file_ends_with_a_blank_where_no_unit_fits() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    positions = [append(log, number) for number in range(2 * UNITS_PER_FILE + 1)]
    assert positions[UNITS_PER_FILE - 1] == (UNITS_PER_FILE - 1) * UNIT_BYTES
    assert positions[UNITS_PER_FILE] == LOG_FILE_BYTES
    assert positions[-1] == 2 * LOG_FILE_BYTES
    log.write()
    first = disk.read(f"{ROOT}/00000000000000000000")
    end = UNITS_PER_FILE * UNIT_BYTES
    assert first[end : end + 16] == (LOG_FILE_BYTES - end).to_bytes(4, "big") + bytes(8) + bytes.fromhex("cbd43194")
    assert disk.list_directory(ROOT) == [f"{number * LOG_FILE_BYTES:020d}" for number in range(3)]


def test_a_chain_is_walked_backwards_across_files() -> None:
    log = new_log()
    last = -1
    for number in range(100):
        last = append(log, number, previous=last)
    log.write()
    numbers = []
    while last >= 0:
        unit = log.unit(last)
        numbers.append(unit.physical_offset - 56_368)
        last = unit.previous_position
    assert numbers == list(range(99, -1, -1))


def test_a_log_opened_at_an_offset_continues_there_and_drops_later_records() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    positions = [append(log, number) for number in range(60)]
    log.write()
    log.close()
    log = open_log(disk)
    log.start(positions[25])
    assert log.append_position == positions[25]
    assert len(disk.list_directory(ROOT)) == 2
    assert not any(disk.read(f"{ROOT}/{LOG_FILE_BYTES:020d}")[positions[25] - LOG_FILE_BYTES :])
    assert append(log, 1_000) == positions[25]
    log.write()
    assert [unit.physical_offset - 56_368 for unit in log.units(0, log.append_position)] == [*range(25), 1_000]


@pytest.mark.parametrize("end", [UNITS_PER_FILE * UNIT_BYTES, LOG_FILE_BYTES])
def test_the_end_of_a_file_is_the_start_of_the_next(end: int) -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(30):
        append(log, number)
    log.write()
    log = open_log(disk)
    log.start(end)
    assert log.append_position == LOG_FILE_BYTES
    assert append(log, 7) == LOG_FILE_BYTES
    log.write()
    assert log.unit(LOG_FILE_BYTES).physical_offset == 56_375


def test_the_end_by_rocketmqs_rule_is_the_first_place_without_a_unit() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(30):
        append(log, number)
    log.write()
    log = open_log(disk)
    assert log.first_impossible(0) == LOG_FILE_BYTES + 11 * UNIT_BYTES
    assert open_log(SimulatedDisk()).first_impossible(0) == 0


def test_a_full_disk_keeps_units_in_memory_until_there_is_room() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    disk.is_full = True
    position = append(log, 1)
    with pytest.raises(DiskFullError):
        log.write()
    assert log.unit(position).physical_offset == 56_369
    disk.is_full = False
    assert log.write() == log.append_position
    assert log.unit(position).physical_offset == 56_369


def test_memory_for_units_is_bounded() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    disk.is_full = True
    count = 0
    while log.make_room():
        append(log, count)
        count += 1
    assert 30 * 1024 <= count * UNIT_BYTES <= 33 * 1024
    disk.is_full = False
    assert log.make_room()
    assert log.write() == log.append_position


def test_files_that_are_forgotten_are_removed_afterwards() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    positions = [append(log, number) for number in range(70)]
    log.write()
    log.forget_before(positions[45])
    assert log.start_position == 2 * LOG_FILE_BYTES
    assert len(disk.list_directory(ROOT)) == 4
    log.delete_forgotten()
    assert len(disk.list_directory(ROOT)) == 2
    assert log.unit(positions[45]).physical_offset == 56_368 + 45


def test_clearing_never_uses_a_position_twice() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(30):
        append(log, number)
    log.write()
    log = open_log(disk)
    log.clear(100)
    assert log.append_position == 2 * LOG_FILE_BYTES
    log.clear(5 * LOG_FILE_BYTES + 1)
    assert append(log, 1) == 6 * LOG_FILE_BYTES
    log.write()
    assert disk.list_directory(ROOT) == [f"{6 * LOG_FILE_BYTES:020d}"]


def test_synced_units_survive_a_power_cut() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(25):
        append(log, number)
    end = log.write()
    disk.sync_directory("/store")
    disk.sync_directory("/")
    log.take_unsynced().sync()
    for number in range(25, 60):
        append(log, number)
    log.write()
    survivor = open_log(disk.after_power_cut(Random(1), kept_share=0))
    survivor.start(end)
    assert [unit.physical_offset - 56_368 for unit in survivor.units(0, end)] == list(range(25))


def test_a_file_of_another_length_or_a_missing_one_is_an_error() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(70):
        append(log, number)
    log.write()
    disk.remove(f"{ROOT}/{LOG_FILE_BYTES:020d}")
    with pytest.raises(CorruptDataError, match="missing"):
        open_log(disk)
    with pytest.raises(CorruptDataError, match="impossible timer log file"):
        TimerLog.open(disk, ROOT, file_bytes=LOG_FILE_BYTES // 2)


def test_files_before_and_after_the_wanted_range_are_removed() -> None:
    """Whatever a power cut has left of them: here one in front of a gap, one behind another, and one half made."""
    disk = SimulatedDisk()
    log = new_log(disk)
    positions = [append(log, number) for number in range(120)]
    log.write()
    for number in (1, 5):
        disk.remove(f"{ROOT}/{number * LOG_FILE_BYTES:020d}")
    disk.open(f"{ROOT}/{6 * LOG_FILE_BYTES:020d}").truncate(10)
    log = TimerLog.open(disk, ROOT, file_bytes=LOG_FILE_BYTES, start=positions[40], end=positions[80])
    assert not log.has_gap
    log.start(positions[80])
    assert [unit.position for unit in log.units(positions[40], positions[80])] == positions[40:80]
    assert len(disk.list_directory(ROOT)) == 3


def test_a_gap_in_the_wanted_range_is_an_error() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    positions = [append(log, number) for number in range(120)]
    log.write()
    disk.remove(f"{ROOT}/{3 * LOG_FILE_BYTES:020d}")
    assert TimerLog.open(disk, ROOT, file_bytes=LOG_FILE_BYTES, start=positions[40], end=positions[80]).has_gap


def test_a_file_that_rocketmq_had_just_begun_is_removed() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    append(log, 1)
    log.write()
    disk.open(f"{ROOT}/{LOG_FILE_BYTES:020d}", create=True)
    assert open_log(disk).files_end == LOG_FILE_BYTES


def test_an_invalid_unit_is_an_error() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    append(log, 1)
    append(log, 2)
    log.write()
    disk.corrupt(f"{ROOT}/{0:020d}", 52, bytes(4))
    log = open_log(disk)
    log.start(104)
    with pytest.raises(CorruptDataError, match="no timer log unit"):
        log.unit(52)
