"""Recovery report: data restored from the bucket and data lost, for the operator who has lost a disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from thermocline.remoting.topic_validation import SCHEDULE_TOPIC, is_internal_topic
from thermocline.tiered.state import StateSnapshot
from thermocline.tiered.state import snapshot as names


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """One topic: messages in the bucket that a reader gets, messages that the snapshot counted and are not there, and
    messages that were committed and whose object is damaged or gone. `expired_count`: messages that are still in the
    bucket but hidden from readers; None: they could not be separated, and are among the committed ones."""

    topic: str
    committed_count: int
    known_lost_count: int
    quarantined_count: int = 0
    expired_count: int | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """See the module's header. `captured_ms`: when the state was saved; `unfinished`: internal topics that held work,
    with the number of messages that waited there where that is known; `skipped`: newer states that are damaged."""

    root: str
    version: int
    epoch: int
    captured_ms: int
    recovered_ms: int
    topics: tuple[TopicReport, ...]
    unfinished: Mapping[str, int | None]
    skipped: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """The printed text."""
        age_s = max(0, self.recovered_ms - self.captured_ms) / 1_000
        yield f"recovered root={self.root} epoch={self.epoch} version={self.version} state_age_s={age_s:.0f}"
        for key in self.skipped:
            yield (
                f"skipped={key} is damaged; this is the state saved before it: groups may get again what they had"
                " consumed since, and changes since then of topics, groups and times to live are undone where the"
                " ledger does not have them"
            )
        for topic in self.topics:
            quarantined = f" quarantined={topic.quarantined_count}" if topic.quarantined_count else ""
            expired = "" if topic.expired_count == 0 else f" expired={_number(topic.expired_count)}"
            yield (
                f"topic={topic.topic} committed={topic.committed_count} lost={topic.known_lost_count}"
                f"{quarantined}{expired}"
            )
        for name, count in sorted(self.unfinished.items()):
            yield f"unfinished={name} lost={_number(count)}"
        yield (
            f"not counted: what was acknowledged in the {age_s:.0f} s after the state was saved and never reached the"
            " bucket; none of its offsets is given out again"
        )


def _number(count: int | None) -> str:
    return "unknown" if count is None else str(count)


def unfinished_work(snapshot: StateSnapshot) -> dict[str, int | None]:
    """Internal topics that ever had a message: what waited in them was on the disk alone."""
    delays: Mapping[str, Any] = snapshot.documents.get(names.DELAY_OFFSETS, {}).get("offsetTable", {})
    found: dict[str, int | None] = {}
    for topic in snapshot.topics:
        if not is_internal_topic(topic.topic) or not any(end.end_offset for end in topic.ends):
            continue
        if topic.topic == SCHEDULE_TOPIC:
            ends = {end.queue_id + 1: end.end_offset for end in topic.ends}
            found[topic.topic] = sum(max(0, end - int(delays.get(str(level), 0))) for level, end in ends.items())
        else:
            found[topic.topic] = None
    return found
