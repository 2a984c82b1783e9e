"""Read-ahead cursors: how many frames to fetch ahead of each sequential reader.

A reader is a consumer group on one queue. Its window starts at zero, doubles each time the reader continues into
another frame, and returns to zero when it jumps. Bounded: the least recently used cursors are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from thermocline.remoting.offsets import NO_QUEUE_OFFSET, QueueOffset

CURSOR_COUNT_MAX = 4096
WINDOW_FRAMES_MAX = 16

CursorKey = tuple[str, str, int, int]
"""Group, topic, incarnation, queue id."""


class Cursor(msgspec.Struct):
    """The reader's next offset after its last read, and its window in frames."""

    next_offset: QueueOffset = NO_QUEUE_OFFSET
    frame_key: tuple[str, int] | None = None
    window_frames: int = 0


class ReadAhead:
    """All cursors of one cold reader."""

    def __init__(self, *, window_frames_max: int = WINDOW_FRAMES_MAX, cursor_count_max: int = CURSOR_COUNT_MAX) -> None:
        self._window_frames_max = window_frames_max
        self._cursor_count_max = cursor_count_max
        self._cursors: OrderedDict[CursorKey, Cursor] = OrderedDict()

    def start(self, key: CursorKey, offset: QueueOffset) -> Cursor:
        """The cursor for a read at `offset`."""
        cursor = self._cursors.get(key)
        if cursor is None:
            cursor = self._cursors[key] = Cursor()
            if len(self._cursors) > self._cursor_count_max:
                self._cursors.popitem(last=False)
        self._cursors.move_to_end(key)
        if offset != cursor.next_offset:
            cursor.window_frames, cursor.frame_key = 0, None
        return cursor

    def enter(self, cursor: Cursor, frame_key: tuple[str, int]) -> bool:
        """Note the frame that is read now; True when it is a new one, so that frames should be fetched ahead."""
        if cursor.frame_key == frame_key:
            return False
        if cursor.frame_key is not None:
            cursor.window_frames = min(max(1, cursor.window_frames * 2), self._window_frames_max)
        cursor.frame_key = frame_key
        return cursor.window_frames > 0
