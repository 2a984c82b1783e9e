"""TableChanges: whether the file of a table lacks any change of it.

    table changes      add()
    file is written    begin_save(), the content is encoded, written and synced, end_save()

What changes while the file is being written stays unsaved, and so does everything when the write fails: `end_save` is
not called then. Encoding itself changes nothing here, so a table may be encoded to be shown.
"""

from __future__ import annotations


class TableChanges:
    """One table's. Belongs to the loop that changes the table; at most one save at a time."""

    __slots__ = ("_count", "_saved_count", "_saving_count")

    def __init__(self) -> None:
        self._count = 0
        self._saving_count = 0
        self._saved_count = 0

    @property
    def is_unsaved(self) -> bool:
        """Whether the file lacks a change."""
        return self._count != self._saved_count

    def add(self) -> None:
        """Note that the table has changed."""
        self._count += 1

    def begin_save(self) -> None:
        """Note that the table is encoded now, to be written."""
        self._saving_count = self._count

    def end_save(self) -> None:
        """Note that what was encoded since `begin_save` is durable."""
        assert self._saved_count <= self._saving_count <= self._count
        self._saved_count = self._saving_count
