"""Journals: what clients under load note in files, which outlive a `kill -9` of the client.

One line an event, fields separated by tabs; times are of the wall clock, in ms.

    producers    number, sent, answered, due (0: at once), outcome ("SEND_OK", another status, or what was thrown)
    consumers    received, "taken" or "refused", topic, queue id, queue offset, reconsume times, stored,
                 bytes of the body, name of the message
    readers      as consumers: what is in a topic, in the order of its queues

A consumer's line is written before its listener returns, so each message counted as consumed has its line.
A line without its end is of a listener that never returned: it does not count. Writers: `java/interop/Journal.java`,
`go/journal.go`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SEND_OK = "SEND_OK"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What became of one message that a producer sent."""

    number: int
    sent_ms: int
    answered_ms: int
    due_ms: int
    outcome: str

    @property
    def is_acknowledged(self) -> bool:
        """Whether the producer's answer says that the broker stored it."""
        return self.outcome == SEND_OK

    @classmethod
    def read(cls, line: str) -> Sent:
        number, sent_ms, answered_ms, due_ms, outcome = line.split("\t")
        return cls(
            number=int(number),
            sent_ms=int(sent_ms),
            answered_ms=int(answered_ms),
            due_ms=int(due_ms),
            outcome=outcome,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message as a consumer got it once, or as it is in its topic."""

    received_ms: int
    is_taken: bool
    topic: str
    queue_id: int
    queue_offset: int
    reconsume_times: int
    store_ms: int
    body_bytes: int
    name: str

    @classmethod
    def read(cls, line: str) -> Received:
        received_ms, verdict, topic, queue_id, queue_offset, reconsume_times, store_ms, body_bytes, name = line.split(
            "\t"
        )
        return cls(
            received_ms=int(received_ms),
            is_taken=verdict == "taken",
            topic=topic,
            queue_id=int(queue_id),
            queue_offset=int(queue_offset),
            reconsume_times=int(reconsume_times),
            store_ms=int(store_ms),
            body_bytes=int(body_bytes),
            name=name,
        )


class JournalTail:
    """A journal that is still written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def new_lines(self) -> list[str]:
        """The whole lines since the last call; none while there is no file."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._position)
            whole = file.read().rpartition(b"\n")
        self._position += len(whole[0]) + len(whole[1])
        return whole[0].decode().splitlines()
