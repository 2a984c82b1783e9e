"""OffsetLine: the position of a stream, as Spark stores it in the query's checkpoint.

    {"incarnations": {"orders": {"broker-a": 7}}, "queues": {"orders": {"broker-a/0": 1200}},
     "startingTimestamp": 1767225600000, "version": 1}

`queues` holds the next offset of each queue. A queue without an entry is read from its oldest message at the time
when its first batch is planned: every queue of a stream that starts at `earliest`, and queues and brokers that are
added later. `incarnations` names the incarnation of the topic to which a broker's offsets belong.
`startingTimestamp` is the store time that the query was begun with, 0 when with none: what a restarted query is given
does not count. A line from before it was written down has none; then the option counts.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetLine:
    """See the module's header. Keys: (topic, queue) and (topic, broker name)."""

    offsets: Mapping[tuple[str, QueueName], QueueOffset] = field(default_factory=dict)
    incarnations: Mapping[tuple[str, str], int] = field(default_factory=dict)
    starting_ms: int | None = None

    def json(self) -> dict[str, Any]:
        """The JSON that Spark stores; the same for the same line."""
        queues: dict[str, dict[str, int]] = {}
        for (topic, queue), offset in self.offsets.items():
            queues.setdefault(topic, {})[f"{queue.broker_name}/{queue.queue_id}"] = offset
        incarnations: dict[str, dict[str, int]] = {}
        for (topic, broker_name), incarnation in self.incarnations.items():
            incarnations.setdefault(topic, {})[broker_name] = incarnation
        starting = {} if self.starting_ms is None else {"startingTimestamp": self.starting_ms}
        return {"incarnations": _sorted(incarnations), "queues": _sorted(queues), **starting, "version": VERSION}

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
                starting_ms=int(value["startingTimestamp"]) if "startingTimestamp" in value else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptDataError("the checkpoint holds no offsets of this data source", found=value) from error


def _sorted(table: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    return {name: dict(sorted(members.items())) for name, members in sorted(table.items())}


def _queue(name: str) -> QueueName:
    broker_name, _, queue_id = name.rpartition("/")
    return QueueName(broker_name, int(queue_id))
