"""Timer wheel: for each tick, the units of the timer log that are due then.

File: timerwheel; slots of 32 bytes, slot i for every tick that is i modulo their number; sparse:

    int64 tick (time / precision) | int64 first unit | int64 last unit | int32 count | int32 magic, 0

A slot that holds another tick is empty: it is left from a turn before. From the last unit the slot's units are chained
backwards; recall markers count -1.

Invariants
  - A slot is within one sector, so a power cut leaves an old one or a new one.
  - What the file holds of a slot lags behind: changed slots are in memory for two rounds. A round seals those that
    changed since the round before, and writes those that the round before has sealed, whose units a durable checkpoint
    covers by then. So no slot in the file ever points behind the checkpoint, and recovery only has to add.
Memory: the slots changed in two rounds; nothing is mapped.
Owner: the loop thread, save `sync`.
Source: TimerWheel.java, Slot.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import struct

import msgspec

from thermocline.remoting.errors import CorruptDataError
from thermocline.store.files import Disk, DiskFile
from thermocline.timers.sync_site import TimerSyncSite

SLOT = struct.Struct(
    ">q"  # tick: time / precision
    "q"  # position of the first unit
    "q"  # position of the last unit
    "i"  # count
    "i"  # magic, unused
)
assert SLOT.size == 32, "on-disk format shared with Apache RocketMQ"
SLOT_BYTES = SLOT.size

SCAN_SLOTS = 2_048
SCAN_SLOTS_MIN = 4
"""Where messages are many the next slot is near; where there are none, the steps soon grow."""
_EMPTY_SCAN = bytes(SCAN_SLOTS * SLOT_BYTES)


class WheelSlot(msgspec.Struct, frozen=True, gc=False):
    """The units of one tick."""

    tick: int
    first_position: int
    last_position: int
    count: int


class TimerWheel:
    """The slots. Times are ms and multiples of the precision."""

    def __init__(self, file: DiskFile, *, slot_count: int, precision_ms: int) -> None:
        """Use `open`."""
        self._file = file
        self._slot_count = slot_count
        self._precision_ms = precision_ms
        self._changed: dict[int, WheelSlot] = {}
        self._sealed: dict[int, WheelSlot] = {}
        self._writing: dict[int, WheelSlot] = {}
        self._unwritten: list[int] = []

    @classmethod
    def open(cls, disk: Disk, path: str, *, slot_count: int, precision_ms: int) -> TimerWheel:
        """Open the wheel. One that is not `usable` is made, empty."""
        is_usable = usable(disk, path, slot_count=slot_count)
        file = disk.open(path, create=True, random_access=True)
        wheel = cls(file, slot_count=slot_count, precision_ms=precision_ms)
        if not is_usable:
            wheel.clear()
        return wheel

    def clear(self) -> None:
        """Empty every slot."""
        self._changed.clear()
        self._sealed.clear()
        self._writing.clear()
        self._file.truncate(0)
        self._file.truncate(self._slot_count * SLOT_BYTES)

    def close(self) -> None:
        """Close the file; nothing is written here. Idempotent."""
        self._file.close()

    # -- slots -----------------------------------------------------------------------------------------------------

    def slot(self, time_ms: int) -> WheelSlot | None:
        """The slot of this time; None when it is empty."""
        tick = time_ms // self._precision_ms
        index = tick % self._slot_count
        slot = self._changed.get(index) or self._sealed.get(index) or self._writing.get(index)
        if slot is None:
            slot = _decode(self._file.read_at(SLOT_BYTES, index * SLOT_BYTES))
        return slot if slot.tick == tick else None

    def put(self, time_ms: int, *, first_position: int, last_position: int, count: int) -> None:
        """Set the slot of this time; whatever it held of another time is forgotten."""
        assert 0 <= first_position <= last_position
        tick = time_ms // self._precision_ms
        self._changed[tick % self._slot_count] = WheelSlot(tick, first_position, last_position, count)

    def add(self, time_ms: int, position: int, *, count: int) -> None:
        """Put the unit at `position`, which is chained to the slot's last one, into the slot of this time."""
        slot = self.slot(time_ms)
        if slot is None:
            self.put(time_ms, first_position=position, last_position=position, count=count)
        else:
            assert slot.last_position < position
            self.put(time_ms, first_position=slot.first_position, last_position=position, count=slot.count + count)

    def add_again(self, time_ms: int, position: int, *, count: int) -> None:
        """`add` for recovery: the slot may have the unit already. It is written anew in either case, since what a
        process that died has left in the page cache may never reach the disk."""
        slot = self.slot(time_ms)
        if slot is None or slot.last_position < position:
            self.add(time_ms, position, count=count)
        else:
            self._changed[slot.tick % self._slot_count] = slot

    def next_occupied(self, start_ms: int, end_ms: int, *, slots_max: int) -> int:
        """The first time in [start, end) whose slot is not empty; else how far was looked, at most `slots_max`."""
        precision_ms, slot_count = self._precision_ms, self._slot_count
        tick = start_ms // precision_ms
        end = min(end_ms // precision_ms, tick + slots_max)
        scan_slots = SCAN_SLOTS_MIN
        while tick < end:
            index = tick % slot_count
            count = min(end - tick, slot_count - index, scan_slots)
            scan_slots = min(scan_slots * 8, SCAN_SLOTS)
            data = self._file.read_at(count * SLOT_BYTES, index * SLOT_BYTES)
            found = tick + count
            if data != _EMPTY_SCAN[: len(data)]:
                for number, (slot_tick, _, _, _, _) in enumerate(SLOT.iter_unpack(data)):
                    if slot_tick == tick + number:
                        found = slot_tick
                        break
            # A slot in memory counts more than the same in the file, but only ever replaces one of a turn before.
            for slots in (self._changed, self._sealed, self._writing):
                found = self._first_of(slots, tick, found)
            if found < tick + count:
                return found * precision_ms
            tick += count
        return max(start_ms, end * precision_ms)

    def _first_of(self, slots: dict[int, WheelSlot], start: int, end: int) -> int:
        """The first tick in [start, end) that is among these slots, else `end`."""
        if len(slots) < end - start:
            return min((slot.tick for slot in slots.values() if start <= slot.tick < end), default=end)
        for tick in range(start, end):
            slot = slots.get(tick % self._slot_count)
            if slot is not None and slot.tick == tick:
                return tick
        return end

    # -- rounds ----------------------------------------------------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        """Whether the file lacks anything."""
        return bool(self._changed or self._sealed or self._writing)

    def begin_round(self, *, was_covered: bool) -> None:
        """Seal what has changed. `was_covered`: the round before is durable, so what it sealed may be written."""
        if was_covered:
            self._writing = self._writing | self._sealed if self._writing else self._sealed
            self._sealed = self._changed
        else:
            self._sealed |= self._changed
        self._changed = {}
        self._unwritten = list(self._writing)

    def write(self, slots_max: int) -> bool:
        """Write some of the slots of this round; whether all are written.

        Raises:
            DiskFullError: There is no room; the same call may work later.
        """
        unwritten = self._unwritten
        for _ in range(min(slots_max, len(unwritten))):
            index = unwritten[-1]
            slot = self._writing[index]
            data = SLOT.pack(slot.tick, slot.first_position, slot.last_position, slot.count, 0)
            self._file.write_at(data, index * SLOT_BYTES)
            unwritten.pop()
        return not unwritten

    def sync(self) -> None:
        """Make what was written durable. Helper thread. OSError when the disk fails."""
        self._file.sync(site=TimerSyncSite.WHEEL_FILE)

    def end_round(self) -> None:
        """The written slots are durable."""
        assert not self._unwritten
        self._writing = {}


def usable(disk: Disk, path: str, *, slot_count: int) -> bool:
    """Whether there is a wheel of this length."""
    return disk.exists(path) and disk.size_bytes(path) == slot_count * SLOT_BYTES


def _decode(data: bytes) -> WheelSlot:
    if len(data) != SLOT_BYTES:
        raise CorruptDataError("timer wheel is cut short", size_bytes=len(data))
    tick, first_position, last_position, count, _magic = SLOT.unpack(data)
    return WheelSlot(tick, first_position, last_position, count)
