"""FrameBuffer: frames decompressed end to end into one buffer, which is used again for the next batch.

Fresh memory is dear: each of its pages is a fault, together as much work as zstd's own. A frame that is copied here and
freed at once comes from memory that is there already. The decoder copies what it keeps, so the buffer is free again as
soon as a batch is decoded.
"""

from __future__ import annotations

from thermocline.tiered.segments import decompress


class FrameBuffer:
    """Holds the frames of one batch. Views from it are good until the next `clear`."""

    __slots__ = ("_buffer", "_ends")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._ends = [0]

    @property
    def size_bytes(self) -> int:
        """Bytes of all frames."""
        return self._ends[-1]

    @property
    def records(self) -> memoryview:
        """The records of all frames, end to end."""
        return memoryview(self._buffer)[: self._ends[-1]]

    def records_of(self, index: int) -> memoryview:
        """The records of one frame, counted from 0."""
        return memoryview(self._buffer)[self._ends[index] : self._ends[index + 1]]

    def add(self, stored: bytes | memoryview, *, raw_bytes: int) -> None:
        """Decompress one zstd frame behind those that are there.

        Raises:
            FrameChecksumError, SegmentFormatError: It is damaged; nothing was added.
        """
        content = decompress(stored, raw_bytes=raw_bytes)
        start = self._ends[-1]
        end = start + raw_bytes
        if end > len(self._buffer):
            larger = bytearray(max(end, 2 * len(self._buffer)))  # not resized: views of the old one may be about
            larger[:start] = memoryview(self._buffer)[:start]
            self._buffer = larger
        memoryview(self._buffer)[start:end] = content
        self._ends.append(end)

    def clear(self) -> None:
        """Start the next batch."""
        self._ends = [0]
