"""State capture: collects a broker's state from its files and its tier process, for a snapshot in the bucket.

The hot process supplies only the popped messages in flight, before the files are read and once more after
(state_rounds.py). Its state files are durable before their changes are answered, or written within seconds (offsets),
and are in the page cache that both processes share.

Documents of unchanged files are kept, not read again. On the loop: the queues' ends, one dictionary lookup each. In a
thread: files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from thermocline.broker.state import PoppedOffsets, document_paths, hold_back, read_document
from thermocline.remoting.offsets import QUEUE_START, PhysicalOffset, QueueOffset
from thermocline.store.config import StoreConfig
from thermocline.store.files import Disk
from thermocline.store.state import TopicIncarnations, load_origin, read_births, take_births, with_born
from thermocline.tiered.sealing import SealBacklog
from thermocline.tiered.state import TOPICS, QueueEnd, TopicState

FileMark = tuple[int, int]
"""When a file was last written to, and its size."""
SETTLED_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEnds:
    """The end of every queue, as of a place in the log: every record below it is counted."""

    log_offset: PhysicalOffset
    topics: Mapping[str, tuple[int, tuple[QueueEnd, ...]]]
    """Topic -> incarnation and ends."""


class Captured(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a snapshot, without its writer and its reserved offsets."""

    log_offset: PhysicalOffset
    new_queue_offset: QueueOffset
    last_incarnation: int
    topics: tuple[TopicState, ...]
    documents: dict[str, Any]


def queue_ends(backlog: SealBacklog) -> QueueEnds:
    """The queues' ends in the tier process now."""
    return QueueEnds(
        log_offset=backlog.reported_offset,
        topics={
            topic: (
                progress.incarnation,
                tuple(
                    QueueEnd(queue_id, max(queue.end_offset, queue.cold_end))
                    for queue_id, queue in sorted(progress.queues.items())
                ),
            )
            for topic, progress in sorted(backlog.topics.items())
        },
    )


class StateCapture:
    """Reads one store's files. Used by one thread at a time."""

    def __init__(self, disk: Disk, config: StoreConfig, *, clock: Callable[[], int]) -> None:
        self._disk = disk
        self._clock = clock
        self._config = config
        self._paths = document_paths(config)
        self._kept: dict[str, tuple[FileMark | None, Any]] = {}
        origin = load_origin(disk, config.origin_path)
        self._new_queue_offset = origin.new_queue_offset if origin is not None else QUEUE_START

    def capture(self, ends: QueueEnds, *, popped: PoppedOffsets) -> Captured:
        """The state now.

        Raises:
            CorruptDataError: A state file cannot be read.
        """
        births = read_births(self._disk, self._config.topic_births_path)  # before the tables that take them over
        incarnations = TopicIncarnations.load(self._disk, self._config.incarnation_path)
        born = take_births(births, incarnations)
        topics: list[TopicState] = []
        for topic in sorted({*ends.topics, *incarnations.topics}):
            incarnation = incarnations.find(topic)
            ended_id, queues = ends.topics.get(topic, (incarnation.id, ()))
            topics.append(
                TopicState(
                    topic=topic,
                    incarnation=incarnation.id,
                    start_offset=incarnation.start_offset,
                    deleted=incarnation.deleted,
                    expired_before_ms=incarnation.expired_before_ms,
                    ends=queues if ended_id == incarnation.id and not incarnation.deleted else (),
                )
            )
        documents = {name: document for name in self._paths if (document := self._document(name)) is not None}
        if born:
            file = documents.get(TOPICS, {})
            documents[TOPICS] = {**file, "topicConfigTable": with_born(file.get("topicConfigTable", {}), born)}
        return Captured(
            log_offset=ends.log_offset,
            new_queue_offset=self._new_queue_offset,
            last_incarnation=incarnations.last_id,
            topics=tuple(topics),
            documents=hold_back(documents, popped),
        )

    def _document(self, name: str) -> Any:
        mark = self._mark(self._paths[name])
        kept = self._kept.get(name)
        # A file that is being replaced has no mark: it is read, from its backup.
        if kept is not None and mark is not None and kept[0] == mark:
            return kept[1]
        document = read_document(self._disk, self._paths[name], name)
        # A file as young as its time stamp is coarse may be written again and look the same.
        is_settled = mark is not None and mark[0] + SETTLED_MS < self._clock()
        self._kept[name] = mark if is_settled else None, document
        return document

    def _mark(self, path: str) -> FileMark | None:
        try:
            return self._disk.modified_ms(path), self._disk.size_bytes(path)
        except FileNotFoundError:
            return None
