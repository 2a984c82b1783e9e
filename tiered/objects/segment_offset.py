"""SegmentOffset: a place in one cold object (segment, pack or index object), in bytes.

One of the three kinds of offsets that the type checker keeps apart; the rules are in `remoting/offsets.py`. A position
within a part of an object is counted from the part's start and stays `int`: `part.start + position` is the place in the
object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from thermocline.remoting.offsets import Offset

if TYPE_CHECKING:

    class SegmentOffset(Offset):
        """A place in one cold object, counted in bytes from its start."""

else:
    SegmentOffset = Offset

OBJECT_START = SegmentOffset(0)
"""The start of every object."""
