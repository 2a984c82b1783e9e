"""TrafficRecord: messages and bytes received per topic and minute, in the last hour; the input of forecasts.

    row of a topic     messages and bytes of each minute, in a ring of MINUTES
    minute             counted from the record's start; the current one is not part of a window unless it is the first

Bounded: TOPICS_MAX rows, some 1 KiB each; further topics share one row, which is forecast as one topic. The row of a
topic without messages for an hour is reused. Belongs to the tier process's loop, which counts the units that it reads
anyway; an idle broker costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt

TOPICS_MAX = 20_000
MINUTES = 60
MINUTE_MS = 60_000
OTHER_TOPICS = ""
"""The shared row of topics without a row of their own; no topic has an empty name."""
_FIRST_ROWS = 64

Counts = npt.NDArray[np.int64]


class TopicTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """One topic in a window: messages and bytes (as the log holds them) of each minute, oldest first."""

    topic: str
    messages: Counts
    raw_bytes: Counts


class TrafficWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The messages received during `elapsed_ms`; topics without any are omitted."""

    elapsed_ms: int
    topics: tuple[TopicTraffic, ...]

    @property
    def raw_bytes(self) -> int:
        """Of all topics."""
        return sum(int(each.raw_bytes.sum()) for each in self.topics)


class TrafficRecord:
    """See the module's header. `clock`: milliseconds since 1970."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.started_ms = clock()
        self._rows: dict[str, int] = {}
        self._messages: Counts = np.zeros((_FIRST_ROWS, MINUTES), np.int64)
        self._raw_bytes: Counts = np.zeros((_FIRST_ROWS, MINUTES), np.int64)
        self._minute = 0
        self._dropped_minute = 0

    def note(self, topic: str, *, messages: int, raw_bytes: int) -> None:
        """Count messages and bytes of a topic in the current minute."""
        self._advance()
        row = self._rows.get(topic)
        if row is None:
            row = self._new_row(topic)
        column = self._minute % MINUTES
        self._messages[row, column] += messages
        self._raw_bytes[row, column] += raw_bytes

    def window(self) -> TrafficWindow:
        """The whole minutes of the last hour; in the first minute, that minute so far."""
        self._advance()
        if self._minute == 0:
            columns = [0]
            elapsed_ms = max(1, self._clock() - self.started_ms)
        else:
            # The current minute takes one column.
            count = min(self._minute, MINUTES - 1)
            columns = [minute % MINUTES for minute in range(self._minute - count, self._minute)]
            elapsed_ms = count * MINUTE_MS
        topics = [
            TopicTraffic(topic=topic, messages=messages, raw_bytes=self._raw_bytes[row, columns])
            for topic, row in self._rows.items()
            if (messages := self._messages[row, columns]).any()
        ]
        return TrafficWindow(elapsed_ms=elapsed_ms, topics=tuple(topics))

    def _advance(self) -> None:
        """Clear the columns of minutes that have begun since the last call."""
        minute = max(self._minute, (self._clock() - self.started_ms) // MINUTE_MS)
        passed = min(minute - self._minute, MINUTES)
        if passed:
            columns = [each % MINUTES for each in range(minute - passed + 1, minute + 1)]
            self._messages[:, columns] = 0
            self._raw_bytes[:, columns] = 0
            self._minute = minute

    def _new_row(self, topic: str) -> int:
        if self._is_full() and self._dropped_minute != self._minute:
            self._dropped_minute = self._minute
            self._drop_silent()
        if self._is_full():
            if len(self._rows) >= TOPICS_MAX:
                return self._rows.setdefault(OTHER_TOPICS, len(self._rows))
            self._messages = np.concatenate([self._messages, np.zeros_like(self._messages)])
            self._raw_bytes = np.concatenate([self._raw_bytes, np.zeros_like(self._raw_bytes)])
        return self._rows.setdefault(topic, len(self._rows))

    def _is_full(self) -> bool:
        """The last row is kept for OTHER_TOPICS."""
        return len(self._rows) >= min(TOPICS_MAX, len(self._messages) - 1)

    def _drop_silent(self) -> None:
        """Drop the rows of topics without messages for an hour, and close the gaps."""
        kept = [(topic, row) for topic, row in self._rows.items() if self._messages[row].any()]
        rows = [row for _, row in kept]
        for counts in (self._messages, self._raw_bytes):
            counts[: len(rows)] = counts[rows]
            counts[len(rows) :] = 0
        self._rows = {topic: number for number, (topic, _) in enumerate(kept)}
