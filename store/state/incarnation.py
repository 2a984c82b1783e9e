"""Incarnations: a topic name that is deleted and made again starts clean.

File: config/topicIncarnation.json (with `.bak`)

    {"lastId": 7, "incarnationTable": {"orders": {"id": 7, "startOffset": 96, "deleted": false, "expiredBeforeMs": 0}},
     "recordedIds": {"orders": 3}}                                    only where there are such ids

What was made since the file was written is in thermocline/topicBirths (topic_births.py).

Each creation gives a topic the next id and the log's append offset as its start. Records below the start belong to an
older incarnation: dispatch, recovery, sealing and key lookup ignore them.

Rules
  - Durable before use: a creation before the topic's first message, a deletion before it is answered.
  - A topic without an entry (made by Apache RocketMQ, or a system topic) is live from the log's start, with id 0.
  - `expired_before_ms` only rises: what a topic's TTL has once made invisible stays so.
  - At a slave a topic's queues are there before the topic, and a master may count by other ids: the id changes, the
    life goes on. Queue ends (queue_ends.py) are another file. While a life goes on, they keep the id that they had for
    it, its recorded id; the table accepts both ids. So a stop between the two files drops no queue. A life that a slave
    begins anew from its master's log has a recorded id before it has an id: `~id` of the life before.
Owner: the loop thread. `save` writes at once; a persister may write `encode()` to the same file instead.
Lines of time: create -> save -> put; delete -> save -> answer, then the queues' files go.
"""

from __future__ import annotations

import msgspec

from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.store.files import Disk, SyncSite, read_with_backup, replace_file


class Incarnation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One life of a topic name."""

    id: int = 0
    start_offset: PhysicalOffset = LOG_START
    """Physical offset at which it began."""
    deleted: bool = False
    expired_before_ms: int = 0
    """Records with a store time below it are not visible."""


class IncarnationTable(msgspec.Struct, rename="camel", omit_defaults=True):
    """The file, and what a broker tells its slaves, which pass over the recorded ids."""

    last_id: int
    incarnation_table: dict[str, Incarnation]
    recorded_ids: dict[str, int] = {}
    """By topic, where queue ends may have another id than the topic."""

    @classmethod
    def decode(cls, data: bytes | memoryview) -> IncarnationTable:
        """The table in a text. Raises ValueError if it is none."""
        try:
            table = msgspec.json.decode(data, type=cls)
        except msgspec.DecodeError as error:
            raise ValueError("no table of incarnations") from error
        if any(each.id > table.last_id for each in table.incarnation_table.values()):
            raise ValueError("an incarnation is newer than the newest")
        return table


FROM_THE_START = Incarnation()


class TopicIncarnations:
    """The present incarnation of every topic that ever was created or deleted here."""

    def __init__(
        self,
        *,
        last_id: int = 0,
        table: dict[str, Incarnation] | None = None,
        recorded_ids: dict[str, int] | None = None,
    ) -> None:
        self._last_id = last_id
        self._table = table if table is not None else {}
        self._recorded_ids = recorded_ids if recorded_ids is not None else {}

    @classmethod
    def load(cls, disk: Disk, path: str) -> TopicIncarnations:
        """Read the file, or its backup when it is missing; empty when there is neither.

        Raises:
            CorruptDataError: What is there is not ours.
        """
        for candidate, data in read_with_backup(disk, path):
            try:
                state = IncarnationTable.decode(data)
            except ValueError as error:
                raise CorruptDataError("the incarnation table is damaged", path=candidate, reason=str(error)) from error
            return cls(last_id=state.last_id, table=state.incarnation_table, recorded_ids=state.recorded_ids)
        return cls()

    def save(self, disk: Disk, path: str) -> None:
        """Write the table; durable on return."""
        replace_file(
            disk,
            path,
            self.encode(),
            keep_backup=True,
            file_site=SyncSite.INCARNATION_FILE,
            directory_site=SyncSite.INCARNATION_DIRECTORY,
        )

    @property
    def last_id(self) -> int:
        """The newest incarnation's id."""
        return self._last_id

    @property
    def topics(self) -> list[str]:
        """Every name that ever was created or deleted here."""
        return list(self._table)

    def encode(self) -> bytes:
        """The file's content."""
        return msgspec.json.encode(
            IncarnationTable(last_id=self._last_id, incarnation_table=self._table, recorded_ids=self._recorded_ids)
        )

    def find(self, topic: str) -> Incarnation:
        """The topic's present incarnation, or its last one when it is deleted."""
        return self._table.get(topic, FROM_THE_START)

    def is_live(self, topic: str, physical_offset: PhysicalOffset) -> bool:
        """Whether a record at this offset belongs to the topic as it is now."""
        incarnation = self._table.get(topic)
        return incarnation is None or (not incarnation.deleted and incarnation.start_offset <= physical_offset)

    def is_deleted(self, topic: str) -> bool:
        """Whether the topic was deleted and not made again."""
        incarnation = self._table.get(topic)
        return incarnation is not None and incarnation.deleted

    @property
    def deleted_topics(self) -> list[str]:
        """Topics that were deleted and not made again."""
        return [topic for topic, incarnation in self._table.items() if incarnation.deleted]

    # -- what queue ends say -------------------------------------------------------------------------------------------

    def recorded_id(self, topic: str) -> int:
        """The id for the topic's queues in queue ends."""
        recorded_id = self._recorded_ids.get(topic)
        return self.find(topic).id if recorded_id is None else recorded_id

    def is_recorded_as(self, topic: str, recorded_id: int) -> bool:
        """Whether queue ends with this id tell of the topic's present life."""
        present = self.find(topic)
        return not present.deleted and recorded_id in (present.id, self.recorded_id(topic))

    def found_recorded(self, topic: str, recorded_id: int) -> None:
        """Queue ends have this id for the present life: they keep it."""
        assert self.is_recorded_as(topic, recorded_id)
        self._keep_recorded(topic, recorded_id)

    def settle_recorded(self, disk: Disk, path: str) -> None:
        """Have queue ends get the topics' ids from now on, the only ones that releases before this rule accept. The
        table is durable on return, if any has another one.

        Raises:
            OSError, DiskFullError: It is not, and queue ends keep the ids that they had.
        """
        if self._recorded_ids:
            self.save(disk, path)
            self._recorded_ids = {}

    def begin_anew(self, topic: str) -> None:
        """A life that follows a durable deletion has queues before its id comes, by `follow` or `create`."""
        assert self.is_deleted(topic)
        self._recorded_ids[topic] = ~self.find(topic).id

    def _keep_recorded(self, topic: str, recorded_id: int) -> None:
        if recorded_id == self.find(topic).id:
            self._recorded_ids.pop(topic, None)
        else:
            self._recorded_ids[topic] = recorded_id

    # -- incarnations --------------------------------------------------------------------------------------------------

    def create(self, topic: str, *, start_offset: PhysicalOffset, has_queues: bool = False) -> Incarnation:
        """Begin a new life of this name at the log's append offset. One that is live by an entry goes on.

        `has_queues`: of a name without an entry, whose records another broker has made.
        """
        present = self._table.get(topic)
        if present is not None and not present.deleted:
            return present
        assert present is None or present.id <= self._last_id, "ids rise from one incarnation to the next"
        assert present is None or present.start_offset <= start_offset, "it begins behind the one before"
        self._last_id += 1
        incarnation = Incarnation(id=self._last_id, start_offset=start_offset)
        self._table[topic] = incarnation
        if present is None and has_queues:
            self._recorded_ids[topic] = FROM_THE_START.id
        return incarnation

    def adopt(self, topic: str, incarnation: Incarnation, *, recorded_id: int | None = None) -> None:
        """A life of this name that began after the file was written; see topic_births.py."""
        assert incarnation.id >= self.find(topic).id, "ids rise from one incarnation to the next"
        self._last_id = max(self._last_id, incarnation.id)
        self._table[topic] = incarnation
        self._keep_recorded(topic, incarnation.id if recorded_id is None else recorded_id)

    def follow(self, topic: str, incarnation: Incarnation) -> None:
        """Take over the life that this name has at the master of this replica, by its id there. A life that is not
        deleted here goes on."""
        present = self.find(topic)
        recorded_id = self._recorded_ids.get(topic, incarnation.id if present.deleted else present.id)
        self._last_id = max(self._last_id, incarnation.id)
        self._table[topic] = msgspec.structs.replace(
            incarnation, expired_before_ms=max(incarnation.expired_before_ms, present.expired_before_ms)
        )
        self._keep_recorded(topic, recorded_id)

    def delete(self, topic: str, *, next_start: PhysicalOffset | None = None) -> Incarnation:
        """End the current incarnation of this name.

        `next_start`: the lowest offset of the next one's records, if it begins at another broker; it takes the place of
        the start, which counts no more.
        """
        present = self.find(topic)
        start_offset = present.start_offset if next_start is None else max(next_start, present.start_offset)
        deleted = msgspec.structs.replace(present, deleted=True, start_offset=start_offset)
        self._table[topic] = deleted
        self._recorded_ids.pop(topic, None)
        return deleted

    def begin_at_latest(self, append_offset: PhysicalOffset) -> bool:
        """Lower the start of incarnations to the log's end; True if one was above it, and the table must be saved.

        A creation is durable at once, the log before it perhaps not: after a power cut new messages may get offsets
        below the start. Everything at or behind the log's end is gone, so the start may come down to it.
        """
        late = [topic for topic, incarnation in self._table.items() if incarnation.start_offset > append_offset]
        for topic in late:
            self._table[topic] = msgspec.structs.replace(self._table[topic], start_offset=append_offset)
        return bool(late)

    def expire_before(self, topic: str, store_timestamp_ms: int) -> Incarnation:
        """Hide the topic's records with a store time below this, for good; a lower value changes nothing."""
        present = self.find(topic)
        if store_timestamp_ms <= present.expired_before_ms:
            return present
        cut = msgspec.structs.replace(present, expired_before_ms=store_timestamp_ms)
        self._table[topic] = cut
        return cut
