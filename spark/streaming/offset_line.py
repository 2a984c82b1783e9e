"""OffsetLine: the position of a stream, as Spark stores it in the query's checkpoint.

    {"batch": {"orders": {"broker-a/0": [1000, 512]}}, "incarnations": {"orders": {"broker-a": 7}},
     "queues": {"orders": {"broker-a/0": 1200}}, "startingTimestamp": 1767225600000, "version": 1}

`queues` holds the next offset of each queue. A queue without an entry is read from its oldest message at the time
when its first batch is planned: every queue of a stream that starts at `earliest`, and queues and brokers that are
added later. `incarnations` names the incarnation of the topic to which a broker's offsets belong.
`batch` is about the batch that ends here: of each queue that it moves the offset where it starts, and about how many
bytes a record has. Spark stores no line for the beginning of a query. It asks for one again after a restart, and by
then `latest` is elsewhere; so the first batch starts where this says. Tasks are cut by it, the same in each plan.
`startingTimestamp` is the store time that the query was begun with, 0 when with none: what a restarted query is given
does not count. A line from before one of these two was written down lacks it; then the option, or the line before,
counts.

Rules
  - Spark compares offsets as strings: keys are sorted, numbers are integers, nothing is there twice.
  - Offsets only rise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from thermocline.remoting.errors import CorruptDataError, InvalidRequestError
from thermocline.remoting.offsets import QueueOffset
from thermocline.spark.reading.source_options import QueueName

VERSION = 1


@dataclass(frozen=True, slots=True)
class QueueMove:
    """How a batch moves a queue: the offset where it starts, and about how many bytes each of its records has."""

    start: QueueOffset
    record_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetLine:
    """See the module's header. Keys: (topic, queue) and (topic, broker name)."""

    offsets: Mapping[tuple[str, QueueName], QueueOffset] = field(default_factory=dict)
    incarnations: Mapping[tuple[str, str], int] = field(default_factory=dict)
    batch: Mapping[tuple[str, QueueName], QueueMove] = field(default_factory=dict)
    starting_ms: int | None = None

    def json(self) -> dict[str, Any]:
        """The JSON that Spark stores; the same for the same line."""
        queues: dict[str, dict[str, int]] = {}
        for (topic, queue), offset in self.offsets.items():
            queues.setdefault(topic, {})[_text(queue)] = offset
        moves: dict[str, dict[str, list[int]]] = {}
        for (topic, queue), move in self.batch.items():
            moves.setdefault(topic, {})[_text(queue)] = [move.start, move.record_bytes]
        incarnations: dict[str, dict[str, int]] = {}
        for (topic, broker_name), incarnation in self.incarnations.items():
            incarnations.setdefault(topic, {})[broker_name] = incarnation
        return {
            **({"batch": _sorted(moves)} if moves else {}),
            "incarnations": _sorted(incarnations),
            "queues": _sorted(queues),
            **({} if self.starting_ms is None else {"startingTimestamp": self.starting_ms}),
            "version": VERSION,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> OffsetLine:
        """Back from what Spark has kept.

        Raises:
            CorruptDataError: It is no line of this data source.
            InvalidRequestError: A later version has written it.
        """
        try:
            version = value["version"]
            if version != VERSION:
                raise InvalidRequestError(
                    "another version has written this checkpoint", version=version, supported=VERSION
                )
            return cls(
                offsets={
                    (topic, _queue(name)): QueueOffset(int(offset))
                    for topic, queues in value["queues"].items()
                    for name, offset in queues.items()
                },
                incarnations={
                    (topic, broker_name): int(incarnation)
                    for topic, brokers in value["incarnations"].items()
                    for broker_name, incarnation in brokers.items()
                },
                batch={
                    (topic, _queue(name)): QueueMove(QueueOffset(int(start)), max(1, int(record_bytes)))
                    for topic, moves in value.get("batch", {}).items()
                    for name, (start, record_bytes) in moves.items()
                },
                starting_ms=int(value["startingTimestamp"]) if "startingTimestamp" in value else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptDataError("the checkpoint holds no offsets of this data source", found=value) from error


def _sorted(table: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: dict(sorted(members.items())) for name, members in sorted(table.items())}


def _text(queue: QueueName) -> str:
    return f"{queue.broker_name}/{queue.queue_id}"


def _queue(name: str) -> QueueName:
    broker_name, _, queue_id = name.rpartition("/")
    return QueueName(broker_name, int(queue_id))
