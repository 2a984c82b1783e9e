"""ReadAhead: windows double while a reader continues, a jump closes them, and the cursors are bounded."""

from __future__ import annotations

from thermocline.remoting.offsets import QueueOffset
from thermocline.tiered.reading.read_ahead import CursorKey, ReadAhead


def key(group: str) -> CursorKey:
    return group, "T", 0, 0


def read(ahead: ReadAhead, group: str, frame: int, *, offset: int, count: int = 10) -> int:
    """One read of `count` messages in a frame; the reader's window after it."""
    cursor = ahead.start(key(group), QueueOffset(offset))
    ahead.enter(cursor, ("segment", frame))
    cursor.next_offset = QueueOffset(offset + count)
    return cursor.window_frames


def test_a_window_doubles_up_to_its_bound_and_closes_at_a_jump() -> None:
    ahead = ReadAhead(window_frames_max=4)
    assert [read(ahead, "G", frame, offset=10 * frame) for frame in range(5)] == [0, 1, 2, 4, 4]
    assert read(ahead, "G", 0, offset=0) == 0


def test_reads_of_one_frame_fetch_ahead_once() -> None:
    ahead = ReadAhead()
    cursor = ahead.start(key("G"), QueueOffset(0))
    entered = [ahead.enter(cursor, ("segment", frame)) for frame in (0, 0, 1, 1, 2)]
    assert entered == [False, False, True, False, True]


def test_the_least_recently_used_cursor_is_forgotten() -> None:
    ahead = ReadAhead(cursor_count_max=2)
    for group in ("A", "B"):
        for frame in range(3):
            read(ahead, group, frame, offset=10 * frame)
    assert read(ahead, "A", 3, offset=30) == 4
    read(ahead, "C", 0, offset=0)
    assert read(ahead, "A", 4, offset=40) == 8, "A was used after B"
    assert read(ahead, "B", 3, offset=30) == 0, "B begins anew"
