"""Offsets: three kinds of numbers that name a place, each of a type of its own for the type checker.

    QueueOffset      a message's place in its queue, counted in messages
    PhysicalOffset   a record's place in the commit log, counted in bytes from the start of the whole log
    SegmentOffset    a place in one cold object, in bytes (tiered/objects/segment_offset.py)

Rules
  - At run time each of them is `int`: formats, headers, arrays and speed stay as they are.
  - An offset passes where an `int` is wanted. Neither an `int` nor an offset of another kind passes where an offset is
    wanted, and two kinds cannot be compared by `==`: mypy reports the mix-up (typing_tests/mixing_offsets.py).
  - `offset + distance` and `offset - distance` are offsets of the same kind, the difference of two is an `int`. With
    `typing.NewType` the sums would be `int`, and each step in a queue would need a call that converts it.
  - A number becomes an offset where it is unpacked, decoded or given out, and nowhere else. What `struct` unpacks needs
    no conversion (its type is `Any`); elsewhere it is `QueueOffset(number)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, TypeVar, cast, overload

if TYPE_CHECKING:

    class Offset(int):
        """Base of the kinds of offsets; no value is only that."""

        def __new__(cls, number: int, /) -> Self:
            """Convert a number."""

        def __add__(self, distance: int, /) -> Self:
            """The place that far behind."""

        def __radd__(self, distance: int, /) -> Self:
            """The same."""

        @overload
        def __sub__(self, other: Self, /) -> int: ...  # type: ignore[overload-overlap]  # a narrower `int` is an offset
        @overload
        def __sub__(self, other: int, /) -> Self: ...
        def __sub__(self, other: int, /) -> int:
            """How far another place is, or the place that far in front."""

    class QueueOffset(Offset):
        """A message's place in its queue, counted in messages."""

    class PhysicalOffset(Offset):
        """A record's place in the commit log, counted in bytes from the start of the whole log."""

else:
    Offset = QueueOffset = PhysicalOffset = int

QUEUE_START = QueueOffset(0)
"""Where every queue begins."""

LOG_START = PhysicalOffset(0)
"""Where every commit log begins."""

NO_QUEUE_OFFSET = QueueOffset(-1)
"""Where a field says so: no offset."""

NO_PHYSICAL_OFFSET = PhysicalOffset(-1)
"""The same, of the log."""

AnyOffset = TypeVar("AnyOffset", bound=Offset)


def offset_range(start: AnyOffset, end: AnyOffset) -> Sequence[AnyOffset]:
    """The offsets [start, end), one after the other: a `range`."""
    return cast(Sequence[AnyOffset], range(start, end))
