"""What a task holds of the live part, against a broker that answers as ours does: 32 messages, or 256 KiB, or one."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from tests.spark.sample_records import record
from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.records.record_heads import read_heads
from thermocline.spark.streaming.pull_windows import (
    ROUND_BYTES_MAX,
    WINDOW_OFFSETS,
    WINDOWS_MAX,
    PullWindow,
    PullWindows,
)

ANSWER_BYTES_MAX = 256 << 10
ANSWER_COUNT_MAX = 32


class Puller:
    """Pulls the waiting windows by turns, one answer each, and keeps count."""

    def __init__(self, records: Sequence[bytes | None], random: Random) -> None:
        """`records`: by offset; None where there is none any more."""
        self._records = records
        self._random = random
        self.pulls = 0
        self.held_bytes_max = 0

    def fill(self, windows: PullWindows, waiting: list[PullWindow]) -> None:
        """Until no window waits."""
        while unfinished := [window for window in waiting if window.is_waiting]:
            self._pull(self._random.choice(unfinished))
            self.held_bytes_max = max(self.held_bytes_max, windows.held_bytes)

    def _pull(self, window: PullWindow) -> None:
        self.pulls += 1
        answer: list[bytes] = []
        for offset in range(window.position, len(self._records)):
            found = self._records[offset]
            if found is None:
                if not answer:
                    window.skip_to(offset + 1)
                    return
                continue  # a run of records goes on behind what has left its middle
            too_large = answer and sum(map(len, answer)) + len(found) > ANSWER_BYTES_MAX
            if too_large or len(answer) == min(ANSWER_COUNT_MAX, window.end - window.position):
                break
            answer.append(found)
        window.add(b"".join(answer))


def read_all(windows: PullWindows, puller: Puller) -> tuple[list[int], list[int]]:
    """The offsets that came and those that did not, in the order in which they were taken."""
    came: list[int] = []
    missing: list[int] = []
    while not windows.is_done:
        puller.fill(windows, windows.waiting())
        taken = windows.drain()
        assert taken
        for pulled in taken:
            missing += [offset for span in pulled.missing for offset in range(*span)]
            offsets = [
                offset for body in pulled.bodies for offset in read_heads(body).integers("queue_offset").tolist()
            ]
            assert pulled.first_offset == (offsets[0] if offsets else None)
            came += offsets
    assert windows.held_bytes == 0
    return came, missing


def records(sizes: Sequence[int]) -> list[bytes | None]:
    return [record(offset, bytes(size)) for offset, size in enumerate(sizes)]


MIXES = {
    "large in front of small": [900_000] * 40 + [200] * 2_000,
    "small in front of large": [200] * 2_000 + [900_000] * 40,
    "large ones among small ones": [900_000 if offset % 60 == 7 else 150 for offset in range(2_400)],
    "all of a middling size": [20_000] * 1_500,
    "one": [50],
}


@pytest.mark.parametrize("said_bytes", [0, 300, 900_000])
@pytest.mark.parametrize("name", sorted(MIXES))
def test_every_offset_once_in_order_and_no_more_held_than_the_bound(name: str, said_bytes: int) -> None:
    stored = records(MIXES[name])
    puller = Puller(stored, Random(said_bytes))
    came, missing = read_all(PullWindows(0, len(stored), record_bytes=said_bytes), puller)
    assert came == list(range(len(stored)))
    assert missing == []
    answer_bytes = max(ANSWER_BYTES_MAX, *(len(each or b"") for each in stored))
    assert puller.held_bytes_max <= ROUND_BYTES_MAX + WINDOWS_MAX * answer_bytes
    assert puller.held_bytes_max <= sum(len(each or b"") for each in stored)
    # None is pulled twice; where a window ends, an answer is cut.
    assert puller.pulls <= answers_one_by_one(stored) * 3 // 2


def answers_one_by_one(stored: Sequence[bytes | None]) -> int:
    count, size, messages = 0, 0, 0
    for each in stored:
        if not messages or messages == ANSWER_COUNT_MAX or size + len(each or b"") > ANSWER_BYTES_MAX:
            count, size, messages = count + 1, 0, 0
        size, messages = size + len(each or b""), messages + 1
    return count


def test_small_messages_are_pulled_in_many_windows_and_large_ones_in_few() -> None:
    small, large = PullWindows(0, 10_000, record_bytes=300), PullWindows(0, 10_000, record_bytes=1 << 20)
    assert [window.end for window in small.waiting()] == [WINDOW_OFFSETS * count for count in range(1, WINDOWS_MAX + 1)]
    assert [window.end for window in large.waiting()] == [1, 2, 3, 4]
    assert len(PullWindows(0, 10_000, record_bytes=100 << 20).waiting()) == 1


def test_missing_offsets_are_reported_in_their_place() -> None:
    stored = [
        each if offset % 97 and not 500 <= offset < 700 else None for offset, each in enumerate(records([80] * 1_000))
    ]
    puller = Puller(stored, Random(1))
    came, missing = read_all(PullWindows(100, 900, record_bytes=0), puller)
    assert came == [offset for offset in range(100, 900) if stored[offset] is not None]
    assert missing == [offset for offset in range(100, 900) if stored[offset] is None]


def test_other_offsets_than_requested_are_refused() -> None:
    window = PullWindow(position=5, end=9)
    with pytest.raises(CorruptDataError, match=r"other offsets than requested offset=5 found=\[4\]"):
        window.add(record(4))
    with pytest.raises(CorruptDataError, match="other offsets"):
        window.add(b"")
