"""Consumer offsets: how far each group has consumed each queue.

File: config/consumerOffset.json, Apache RocketMQ's:
    {"dataVersion":{...},"groupTopicMap":{group:[topic]},"offsetTable":{"topic@group":{queueId:offset}},
     "pullOffsetTable":{"topic@group":{queueId:offset}}}
with integer keys unquoted as RocketMQ writes them (both forms are read); `groupTopicMap` is derived and not read back.
One member more, `popLogOffset`, once something was popped: the end of the log when the file was made. Check points of
POP behind it are newer than the file (pop/pop_store.py). And one of groups that were handed over, `handOffs`:
{group:[receipt id]}, the newest last: so both the offsets and that they were set are durable at once. RocketMQ passes
these over, and leaves them out when it writes.

Three tables, all by "topic@group" and queue id
  - offsets: the next offset to consume, as consumers commit it. On disk, every few seconds and at the stop: after a
    crash a group repeats what it consumed since. The log is made durable first: after a power cut no offset is behind
    its queue's end, where it would skip what comes next.
  - pull offsets: the next offset after what was handed out last, for `consumerProgress`. Written along with the
    offsets; nothing is written for them alone.
  - resets: the offset that an operator moved a group to, until the group receives it. The answer to its next pull is
    "offset moved"; until then commits are refused, as they are older. In memory only: the committed offset is moved at
    once, so a restart starts the group there all the same.

Bound: clients make at most `pairs_max` pairs of topic and group (`check_room`, and `commit_pull`, which passes over
those beyond). What the broker itself commits is never refused: an offset that it needs is not lost.
A commit below the stored offset is accepted, as RocketMQ accepts it: the group consumes again on purpose.
Owner: the hot process's event loop. The persister calls `encode`; pieces that did not change stay encoded.
Source: broker/offset/ConsumerOffsetManager.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from thermocline.broker.state_files import VersionCounter
from thermocline.remoting import json_dialect
from thermocline.remoting.bodies import DataVersion
from thermocline.remoting.connections import LimitCounts
from thermocline.remoting.errors import (
    BrokerBusyError,
    CorruptDataError,
    InvalidRequestError,
    PermissionDeniedError,
)
from thermocline.remoting.handles import REVIVE_GROUP
from thermocline.remoting.offsets import LOG_START, PhysicalOffset, QueueOffset
from thermocline.remoting.topic_validation import TRANSACTION_GROUP
from thermocline.store.state import TableChanges

logger = logging.getLogger(__name__)

FILE_NAME = "consumerOffset.json"
PAIRS_MAX = 500_000
"""The setting's default."""
HAND_OFFS_KEPT = 8
"""Receipts remembered of each group: one that is older has long been superseded."""
NOTHING_DONE = QueueOffset(-1)
PROGRESS_GROUPS = frozenset({REVIVE_GROUP, TRANSACTION_GROUP})
"""Their offsets are the progress of POP in the revive topic, and of transactions in half and op messages: for the next
start, what is before them has ended. So no client sets them (`check_writable`)."""


class _OffsetFile(msgspec.Struct, rename="camel"):
    offset_table: dict[str, dict[int, QueueOffset]] = {}
    pull_offset_table: dict[str, dict[int, QueueOffset]] = {}
    data_version: DataVersion | None = None
    pop_log_offset: PhysicalOffset | None = None
    hand_offs: dict[str, list[str]] = {}


class OffsetReplacement:
    """Offsets of all groups in place of those of `present`, put together entry by entry."""

    def __init__(self, present: ConsumerOffsets) -> None:
        self._present = present
        self.offsets: dict[str, dict[int, QueueOffset]] = {}
        self.encoded: dict[str, bytes] = {}
        self.topics_of: dict[str, set[str]] = {}
        self.groups_of: dict[str, set[str]] = {}

    def add(self, key: str, entry: bytes, decode: Callable[[], dict[int, QueueOffset]]) -> bool:
        """Add the offsets of `topic@group`; False when they differ from those of `present`.

        `entry`: as JSON, `"topic@group":{0:1}`; `decode` is called only where it differs.

        Raises:
            InvalidRequestError: They cannot be decoded.
        """
        present = self._present.offsets_of(key)
        if present is not None and self._present.encoded(key) == entry:
            self._put(key, dict(present), entry)  # a copy: consumers may commit to `present` meanwhile
            return True
        table = decode()
        self._put(key, table, encode_entry(key, table))
        return table == present

    def keep_missing(self) -> Iterator[None]:
        """Add what only the table in place has, step by step."""
        for key, table in self._present.tables():
            if key not in self.offsets:
                self._put(key, dict(table), encode_entry(key, table))
            yield

    def _put(self, key: str, table: dict[int, QueueOffset], entry: bytes) -> None:
        topic, separator, group = key.partition("@")
        if not separator:
            logger.warning("consumer offset without a group passed over key=%s", key)
            return
        self.offsets[key], self.encoded[key] = table, entry
        self.topics_of.setdefault(group, set()).add(topic)
        self.groups_of.setdefault(topic, set()).add(group)


class ConsumerOffsets:
    """The offsets of all groups."""

    def __init__(
        self,
        *,
        clock: Callable[[], int],
        version_step: int = 500,
        pairs_max: Callable[[], int] = lambda: PAIRS_MAX,
        limits: LimitCounts | None = None,
    ) -> None:
        """`version_step`: commits between two data versions, so that replicas do not copy the table for each.
        `limits`: where refusals by limits are counted."""
        assert version_step > 0
        self._offsets: dict[str, dict[int, QueueOffset]] = {}
        self._pull_offsets: dict[str, dict[int, QueueOffset]] = {}
        self._resets: dict[str, dict[int, QueueOffset]] = {}
        self._hand_offs: dict[str, list[str]] = {}
        self._groups_of: dict[str, set[str]] = {}
        self._topics_of: dict[str, set[str]] = {}
        self._encoded: dict[str, bytes] = {}
        self._encoded_pulls: dict[str, bytes] = {}
        self._version = VersionCounter(clock)
        self._version_step = version_step
        self._pairs_max = pairs_max
        self._limits = limits or LimitCounts()
        self._commits_until_version = version_step
        self.changes = TableChanges()
        self.pop_log_offset: PhysicalOffset | None = None
        """The log offset up to which the loaded file includes pops: 0 without a file; None when RocketMQ wrote it."""
        self.followed_log_offset: PhysicalOffset | None = None
        """The same of offsets that a master has given; None while this broker has no master."""

    def has_pair(self, topic: str, group: str) -> bool:
        """Whether the group has an offset of the topic."""
        return f"{topic}@{group}" in self._offsets

    def check_room(self, topic: str, group: str, *, address: str) -> None:
        """Pass a pair of topic and group that has offsets, or for which there is room. `address`: the client's.

        Raises:
            BrokerBusyError: There are too many pairs.
            PermissionDeniedError: See `check_writable`.
        """
        self.check_writable(group)
        if not self.has_pair(topic, group) and len(self._offsets) >= self._pairs_max():
            self._limits.refused(
                "consumerOffsetPairsMax", address=address, detail=f"offset refused, group={group[:255]}"
            )
            raise BrokerBusyError("too many groups have consumed too many topics", topic=topic, group=group)

    def check_writable(self, group: str) -> None:
        """Pass a group whose offsets clients may set.

        Raises:
            PermissionDeniedError: They are the broker's own progress.
        """
        if group in PROGRESS_GROUPS:
            raise PermissionDeniedError("the offsets of this group are the broker's own", group=group)

    # -- consumers -----------------------------------------------------------------------------------------------------

    def commit(self, topic: str, group: str, queue_id: int, offset: QueueOffset) -> None:
        """Store where the group goes on. The hot path: two dictionary look-ups. Below 0 means that there is none."""
        if offset < 0:
            return
        key = f"{topic}@{group}"
        table = self._offsets.get(key)
        if table is None:
            table = self._add_key(key, topic, group)
        table[queue_id] = offset
        self._changed(key)

    def query(self, topic: str, group: str, queue_id: int) -> QueueOffset | None:
        """The group's next offset: a pending reset first, then the committed one; None without either."""
        key = f"{topic}@{group}"
        reset = self._resets.get(key)
        if reset is not None and queue_id in reset:
            return reset[queue_id]
        table = self._offsets.get(key)
        return None if table is None else table.get(queue_id)

    def commit_pull(self, topic: str, group: str, queue_id: int, offset: QueueOffset) -> None:
        """Remember the offset after what was handed out last."""
        key = f"{topic}@{group}"
        table = self._pull_offsets.get(key)
        if table is None:
            if len(self._pull_offsets) >= self._pairs_max():
                return
            table = self._pull_offsets[key] = {}
        table[queue_id] = offset
        self._encoded_pulls.pop(key, None)

    def query_pull(self, topic: str, group: str, queue_id: int) -> QueueOffset | None:
        """The offset after the last message handed out since the start; without one, the committed offset."""
        table = self._pull_offsets.get(f"{topic}@{group}")
        offset = None if table is None else table.get(queue_id)
        return self.query(topic, group, queue_id) if offset is None else offset

    # -- resets --------------------------------------------------------------------------------------------------------

    def assign_reset(self, topic: str, group: str, queue_id: int, offset: QueueOffset) -> None:
        """Move a group: its offset at once, its members with their next pull."""
        assert queue_id >= 0
        assert offset >= 0
        self.commit(topic, group, queue_id, offset)
        self._resets.setdefault(f"{topic}@{group}", {})[queue_id] = offset

    def has_reset(self, topic: str, group: str, queue_id: int) -> bool:
        """Whether a reset waits for the group's next pull, so that commits are stale."""
        return bool(self._resets) and queue_id in self._resets.get(f"{topic}@{group}", {})

    def take_reset(self, topic: str, group: str, queue_id: int) -> QueueOffset | None:
        """Return and remove the pending reset, as the caller sends it to the group now; None when there is none."""
        if not self._resets:
            return None
        key = f"{topic}@{group}"
        table = self._resets.get(key)
        if table is None:
            return None
        offset = table.pop(queue_id, None)
        if not table:
            del self._resets[key]
        return offset

    # -- handing over --------------------------------------------------------------------------------------------------

    def hand_over(self, group: str, receipt_id: str, places: Iterable[tuple[str, int, QueueOffset]]) -> None:
        """Move a group to (topic, queue id, offset) all at once, and remember by whose word. Pending resets end."""
        for topic, queue_id, offset in places:
            assert offset >= 0
            self.take_reset(topic, group, queue_id)
            self.commit(topic, group, queue_id, offset)
        self._hand_offs[group] = [*self._hand_offs.get(group, ()), receipt_id][-HAND_OFFS_KEPT:]
        self._version.bump()
        self.changes.add()

    def was_handed_over(self, group: str, receipt_id: str) -> bool:
        """Whether this receipt has been applied to the group."""
        return receipt_id in self._hand_offs.get(group, ())

    # -- tools ---------------------------------------------------------------------------------------------------------

    def topics_of(self, group: str) -> set[str]:
        """The topics of which the group has an offset."""
        return set(self._topics_of.get(group, ()))

    def groups_of(self, topic: str) -> set[str]:
        """The groups that have an offset of the topic."""
        return set(self._groups_of.get(topic, ()))

    def of_group(self, topic: str, group: str) -> Mapping[int, QueueOffset]:
        """Offsets by queue id."""
        return dict(self._offsets.get(f"{topic}@{group}", {}))

    def items(self) -> Iterator[tuple[str, str, int, QueueOffset]]:
        """All offsets: topic, group, queue id, offset."""
        for key, table in self._offsets.items():
            topic, _, group = key.partition("@")
            for queue_id, offset in table.items():
                yield topic, group, queue_id, offset

    @property
    def data_version(self) -> DataVersion:
        """The version of the table."""
        return self._version.current

    @property
    def hand_offs(self) -> Mapping[str, list[str]]:
        """Group -> ids of the receipts that were applied to it."""
        return self._hand_offs

    @property
    def pair_count(self) -> int:
        """How many pairs of topic and group have offsets."""
        return len(self._offsets)

    def offsets_of(self, key: str) -> dict[int, QueueOffset] | None:
        """The offsets of `topic@group`, as they are now and will be; None when there are none."""
        return self._offsets.get(key)

    def tables(self) -> list[tuple[str, dict[int, QueueOffset]]]:
        """The same of every `topic@group`."""
        return list(self._offsets.items())

    def clone(self, topic: str, source_group: str, target_group: str) -> None:
        """Give a group the offsets that another has; nothing happens when that has none."""
        source = self._offsets.get(f"{topic}@{source_group}")
        if source is None:
            return
        key = f"{topic}@{target_group}"
        if key not in self._offsets:
            self._add_key(key, topic, target_group)
        self._offsets[key] = dict(source)
        self._changed(key)

    def forget(self, topic: str, group: str, queue_id: int) -> None:
        """Forget the committed offset of one queue."""
        key = f"{topic}@{group}"
        table = self._offsets.get(key)
        if table is not None and table.pop(queue_id, None) is not None:
            self._changed(key)

    def remove_group(self, group: str) -> None:
        """Forget a group's offsets, pending resets included, and who moved it."""
        if self._hand_offs.pop(group, None) is not None:
            self.changes.add()
        for topic in self.topics_of(group):
            self._remove_key(f"{topic}@{group}", topic, group)
        for key in [key for key in self._pull_offsets if key.partition("@")[2] == group]:
            self._remove_pulls(key)

    def remove_topic(self, topic: str) -> None:
        """Forget every group's offsets of a topic."""
        for group in self.groups_of(topic):
            self._remove_key(f"{topic}@{group}", topic, group)
        for key in [key for key in self._pull_offsets if key.partition("@")[0] == topic]:
            self._remove_pulls(key)

    # -- file ----------------------------------------------------------------------------------------------------------

    def encode(self, *, pop_log_offset: PhysicalOffset | None = None, has_pulls: bool = True) -> bytes:
        """The file's content, with the log's end if given. Only what changed since the last call is encoded anew.

        `has_pulls`: False leaves pull offsets out. A slave of RocketMQ 5.5 cannot read an answer that has any.
        """
        groups = {group: sorted(topics) for group, topics in self._topics_of.items()}
        return (
            b'{"dataVersion":%s,\n"groupTopicMap":%s,\n"offsetTable":{\n%s\n},\n%s%s"pullOffsetTable":{\n%s\n}}'
        ) % (
            self._version.text(),
            msgspec.json.encode(groups),
            _encode_table(self._offsets, self._encoded),
            b"" if pop_log_offset is None else b'"popLogOffset":%d,\n' % pop_log_offset,
            b'"handOffs":%s,\n' % msgspec.json.encode(self._hand_offs) if self._hand_offs else b"",
            _encode_table(self._pull_offsets, self._encoded_pulls) if has_pulls else b"",
        )

    def replace(
        self,
        replacement: OffsetReplacement,
        *,
        version: DataVersion,
        hand_offs: Mapping[str, list[str]],
        log_offset: PhysicalOffset,
    ) -> None:
        """Take over, all at once, what a master has. Pull offsets and pending resets are this broker's own.

        `log_offset`: the master's log was no shorter when it answered: the offsets include all pops below it.
        """
        self._offsets, self._encoded = replacement.offsets, replacement.encoded
        self._topics_of, self._groups_of = replacement.topics_of, replacement.groups_of
        self._hand_offs = dict(hand_offs)
        self._version.current = version
        self.followed_log_offset = log_offset
        self.changes.add()

    def take_further(self, other: ConsumerOffsets, *, had: Callable[[str, int, QueueOffset], bool]) -> int:
        """Take over each offset that is further in another table of the same log; how many there are.

        `had(topic, queue id, offset)`: whether the other broker had the messages from that offset of this table on;
        where not, its offset may be behind messages that the group never got. The progress of POP and of transactions
        begins at the queue's start without an offset.
        """
        count = 0
        for topic, group, queue_id, offset in other.items():
            present = self._offsets.get(f"{topic}@{group}", {}).get(queue_id)
            if present is None and group in PROGRESS_GROUPS:
                present = NOTHING_DONE
            if offset >= 0 and (present is None or (present < offset and had(topic, queue_id, present))):
                self.commit(topic, group, queue_id, offset)
                count += 1
        if count:
            self._version.bump()
        return count

    def encoded(self, key: str) -> bytes | None:
        """The offsets of `topic@group` as the file has them; None when they have changed since it was written."""
        return self._encoded.get(key)

    def load(self, data: bytes | None) -> None:
        """Load a file's content.

        Raises:
            CorruptDataError: It is not what RocketMQ or we write.
        """
        if data is None:
            self.pop_log_offset = LOG_START
            return
        try:
            file = json_dialect.loads_file_as(data, _OffsetFile)
        except InvalidRequestError as error:
            raise CorruptDataError("consumer offsets cannot be read", file=FILE_NAME, reason=str(error)) from error
        for key, table in file.offset_table.items():
            topic, separator, group = key.partition("@")
            if not separator:
                logger.warning("consumer offset without a group passed over key=%s", key)
                continue
            self._add_key(key, topic, group).update(table)
        self._pull_offsets = file.pull_offset_table
        self.pop_log_offset = file.pop_log_offset
        self._hand_offs = file.hand_offs
        if file.data_version is not None:
            self._version.current = file.data_version
        if self.pop_log_offset is None:
            self.changes.add()  # the sooner it is written, the sooner it is known

    # -- inside --------------------------------------------------------------------------------------------------------

    def _changed(self, key: str) -> None:
        self._encoded.pop(key, None)
        self.changes.add()
        self._commits_until_version -= 1
        if self._commits_until_version == 0:
            self._commits_until_version = self._version_step
            self._version.bump()

    def _add_key(self, key: str, topic: str, group: str) -> dict[int, QueueOffset]:
        table: dict[int, QueueOffset] = {}
        self._offsets[key] = table
        self._topics_of.setdefault(group, set()).add(topic)
        self._groups_of.setdefault(topic, set()).add(group)
        return table

    def _remove_key(self, key: str, topic: str, group: str) -> None:
        self._offsets.pop(key, None)
        self._resets.pop(key, None)
        self._remove_pulls(key)
        self._encoded.pop(key, None)
        self.changes.add()
        for table, name, other in ((self._topics_of, group, topic), (self._groups_of, topic, group)):
            names = table.get(name)
            if names is not None:
                names.discard(other)
                if not names:
                    del table[name]

    def _remove_pulls(self, key: str) -> None:
        self._pull_offsets.pop(key, None)
        self._encoded_pulls.pop(key, None)


def _encode_table(table: Mapping[str, Mapping[int, QueueOffset]], encoded: dict[str, bytes]) -> bytes:
    """Entries of a table, those that are not in `encoded` yet encoded now."""
    for key, offsets in table.items():
        if key not in encoded:
            encoded[key] = encode_entry(key, offsets)
    return b",\n".join(encoded.values())


def encode_entry(key: str, offsets: Mapping[int, QueueOffset]) -> bytes:
    """The offsets of `topic@group` as a member of a table."""
    pairs = ",".join(f"{queue_id}:{offset}" for queue_id, offset in offsets.items())
    return b"%s:{%s}" % (msgspec.json.encode(key), pairs.encode())
