"""Offsets: three kinds of places, each with a type of its own for the type checker.

    QueueOffset      a message's place in its queue, counted in messages
    PhysicalOffset   a record's place in the commit log, counted in bytes from the start of the whole log
    SegmentOffset    a place in one cold object, counted in bytes (tiered/objects/segment_offset.py)

Rules
  - At run time each of them is `int`: formats, headers, arrays and speed are those of `int`.
  - An offset is accepted where an `int` is wanted. An `int`, or an offset of another kind, is not accepted where an
    offset is wanted, and `==` between two kinds is an error: mypy reports each (typing_tests/mixing_offsets.py).
  - `offset + distance` and `offset - distance` are offsets of the same kind; the difference of two is an `int`. This is
    why they are classes and not `typing.NewType`, with which a sum is an `int` and each step needs a conversion.
  - The sum of two offsets, and the difference of two kinds, cannot be used. Only `<` and `>` between two kinds are not
    reported.
  - A number is converted where it is unpacked, decoded or assigned, and nowhere else. What `struct` unpacks needs no
    conversion, as its type is `Any`; any other number is converted by a call, `QueueOffset(number)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, TypeVar, cast, overload

if TYPE_CHECKING:

    class NoOffset:
        """The sum of two offsets, or the difference of two kinds: it has no meaning, so every use of it is an error."""

    class Offset(int):
        """Base class of the three kinds."""

        def __new__(cls, number: int, /) -> Self:
            """Convert a number."""

        @overload
        def __add__(self, other: Offset, /) -> NoOffset: ...  # type: ignore[overload-overlap]
        @overload
        def __add__(self, distance: int, /) -> Self: ...
        def __add__(self, distance: int, /) -> object:
            """Return the offset `distance` behind this one."""

        def __radd__(self, distance: int, /) -> Self:
            """Return the offset `distance` behind this one."""

        @overload
        def __sub__(self, other: Self, /) -> int: ...  # type: ignore[overload-overlap]  # each offset is an `int`, too
        @overload
        def __sub__(self, other: Offset, /) -> NoOffset: ...  # type: ignore[overload-cannot-match,overload-overlap]
        @overload
        def __sub__(self, other: int, /) -> Self: ...
        def __sub__(self, other: int, /) -> object:
            """Return the distance to another offset, or the offset that many places in front of this one."""

    class QueueOffset(Offset):
        """A message's place in its queue, counted in messages."""

    class PhysicalOffset(Offset):
        """A record's place in the commit log, counted in bytes from the start of the whole log."""

else:
    Offset = QueueOffset = PhysicalOffset = int

QUEUE_START = QueueOffset(0)
"""The start of every queue, and the end of an empty one."""

LOG_START = PhysicalOffset(0)
"""The start of every commit log; as an end offset: nothing was put."""

NO_QUEUE_OFFSET = QueueOffset(-1)
"""In a field for a queue offset: there is none."""

NO_PHYSICAL_OFFSET = PhysicalOffset(-1)
"""In a field for a physical offset: there is none."""

AnyOffset = TypeVar("AnyOffset", bound=Offset)


def offset_range(start: AnyOffset, end: AnyOffset) -> Sequence[AnyOffset]:
    """Return the offsets [start, end), in order; it is a `range`."""
    return cast(Sequence[AnyOffset], range(start, end))
