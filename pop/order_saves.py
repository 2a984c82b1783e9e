"""OrderSaves: from which order record on the log must be kept, because the order table's file lacks it.

Follows the saves of the table: see store/state/table_changes.py. Belongs to the loop thread.
"""

from __future__ import annotations

from collections.abc import Iterator

from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.store.state import TableChanges


class OrderSaves:
    """Per revive queue, the first order record that no durable file has, as (revive offset, physical offset)."""

    def __init__(self, changes: TableChanges) -> None:
        self._changes = changes
        self._floors: dict[int, tuple[QueueOffset, PhysicalOffset]] = {}
        self._saving: dict[int, tuple[QueueOffset, PhysicalOffset]] = {}

    @property
    def is_unsaved(self) -> bool:
        """Whether the file lacks a change of the table."""
        return self._changes.is_unsaved

    def add_record(self, revive_queue_id: int, revive_offset: QueueOffset, physical_offset: PhysicalOffset) -> None:
        """Note an order record that was put into the log; those of one queue come in the order of their offsets."""
        self._floors.setdefault(revive_queue_id, (revive_offset, physical_offset))

    def begin_save(self) -> None:
        """Note that the table is encoded now, to be written. Records of an earlier save that failed count as well."""
        self._changes.begin_save()
        for revive_queue_id, floor in self._floors.items():
            self._saving[revive_queue_id] = min(self._saving.get(revive_queue_id, floor), floor)
        self._floors.clear()

    def end_save(self) -> None:
        """Note that what was encoded since `begin_save` is durable."""
        self._changes.end_save()
        self._saving.clear()

    def floors(self, revive_queue_id: int) -> list[tuple[QueueOffset, PhysicalOffset]]:
        """Of one queue: before the save under way, and of it."""
        return [floors[revive_queue_id] for floors in (self._floors, self._saving) if revive_queue_id in floors]

    def physical_offsets(self) -> Iterator[PhysicalOffset]:
        """From where on the log must be kept, of each queue."""
        for floors in (self._floors, self._saving):
            for _, physical_offset in floors.values():
                yield physical_offset
