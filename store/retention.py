"""Retention: which local files may go, and their going.

A log file goes when it is old enough or the disk is too full, AND nothing needs it any more:
  - every message in it that the cold tier is to hold is committed there (`committed_offset`),
  - the index has read it (`index_offset`), and no part holds it (`held_offset`: delayed messages, which go once they
    are due, and popped ones: `awaited_offset`; `timers_offset`: messages that wait for a time, `transactions_offset`:
    open transactions, both of which can be put again elsewhere: `wanted_offset`),
  - what has taken its place is durable: the log is flushed up to its end before a file is unlinked, as the copy of a
    message that was delivered, or a check point that was put anew, may have ended the hold a moment ago,
  - the log is flushed past it, and queue files, queue ends, incarnations and cuts are durable past it: no queue starts
    again at zero because its files are gone.
The tail file stays always. At most ten files go in one round, the oldest first.

Age: last written to longer ago than `file_reserved_ms`, and it is one of the hours for deleting, or the disk is over
`disk_used_ratio_max`. Over `disk_used_ratio_force` age does not count, if
`clean_forcibly` is set. Over `disk_used_ratio_refuse` sends are refused,
too, unless what goes in this round brings the disk back under it: the log is paused until room has come back, since a
broker that cannot delete must not fill the disk. Who may lose messages instead asks `drop_border`, and gives `plan` a
gate that lets them go.

`plan` (loop thread) raises the minimum of the log, and with it of every queue, at once: no read begins below it from
then on. `execute` (helper thread) unlinks. A read that is under way keeps its mapped slices.
Queue files whose units all lie below the queue's minimum go too, some queues a round, never the newest of a queue, and
only when that minimum is durable: recovery must not take them for lost.
Source: DefaultMessageStore.CleanCommitLogService, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.config import StoreConfig
from thermocline.store.derived_sync import DerivedRounds
from thermocline.store.files import Disk, MappedFile
from thermocline.store.log import CommitLog
from thermocline.store.queues import ConsumeQueue, ConsumeQueueTable

logger = logging.getLogger(__name__)

DISK_NEARLY_FULL = "the disk is nearly full"
QUEUES_PER_ROUND = 500

QueueFile = tuple[ConsumeQueue, str]
"""A queue and the path of one of its files: another queue may come to have a file of the same path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionGate:
    """Physical offsets below which a part does not need the local log any more; None: the part is not there."""

    committed_offset: PhysicalOffset | None = None
    index_offset: PhysicalOffset | None = None
    held_offset: PhysicalOffset | None = None
    timers_offset: PhysicalOffset | None = None
    transactions_offset: PhysicalOffset | None = None

    @property
    def offset(self) -> PhysicalOffset:
        """The least of them."""
        return min(self.named_offsets().values(), default=PhysicalOffset(1 << 62))

    def named_offsets(self) -> dict[str, PhysicalOffset]:
        """Each part that is there, by name."""
        named = {
            "committed": self.committed_offset,
            "index": self.index_offset,
            "held": self.held_offset,
            "timers": self.timers_offset,
            "transactions": self.transactions_offset,
        }
        return {name: offset for name, offset in named.items() if offset is not None}


class FileVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Why a log file is still there. `held_by`: what of RetentionGate needs it, `flush` or `recovery`; empty when
    nothing does. `old_at_ms`: when local retention lets it go, None for the newest file, which stays always."""

    file_name: str
    end_offset: PhysicalOffset
    held_by: tuple[str, ...]
    old_at_ms: int | None
    is_time: bool

    def goes(self, *, now_ms: int) -> bool:
        """Whether nothing keeps it."""
        return not self.held_by and self.old_at_ms is not None and self.old_at_ms < now_ms and self.is_time


def verdict_of(files: Sequence[FileVerdict], physical_offset: PhysicalOffset, *, now_ms: int) -> FileVerdict:
    """Why the local log still holds an offset, at or behind its minimum, of what `verdicts` says of all files: the
    oldest file that does not go holds up all behind it."""
    return next(each for each in files if not each.goes(now_ms=now_ms) or physical_offset < each.end_offset)


class RetentionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The files to unlink; they have no readers any more."""

    log_file_count: int
    queue_files: tuple[QueueFile, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.log_file_count and not self.queue_files


class Retention:
    """Decides on the loop thread; `execute` runs in a helper thread."""

    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        *,
        log: CommitLog,
        queues: ConsumeQueueTable,
        rounds: DerivedRounds,
    ) -> None:
        """`rounds`: how far what is derived is durable."""
        self._disk = disk
        self._config = config
        self._log = log
        self._queues = queues
        self._rounds = rounds
        self._round: Iterator[ConsumeQueue] = iter(())
        # Out of the log but not yet off the disk. Oldest first whatever happens: a hole would be taken for a lost file.
        self._doomed: deque[MappedFile] = deque()
        self._executing = threading.Lock()
        # Queue files that may go once a round that began after this one is committed.
        self._waiting_files: list[QueueFile] = []
        self._waiting_for_round = 0

    def follow(self, config: StoreConfig) -> None:
        """Decide by these settings from the next plan on; folders and file sizes stay as they were."""
        self._config = config

    def is_under_pressure(self) -> bool:
        """Whether the disk is fuller than it should be. A system call: some microseconds."""
        return self.used_ratio() > self._config.disk_used_ratio_max

    def used_ratio(self) -> float:
        """How full the log's file system is, 0 to 1. A system call: some microseconds."""
        total_bytes = self._disk.total_bytes(self._config.commit_log_path)
        free_bytes = self._disk.free_bytes(self._config.commit_log_path)
        return 1 - free_bytes / total_bytes if total_bytes else 0.0

    def plan(self, gate: RetentionGate, *, now_ms: int, hour: int | None) -> RetentionPlan:
        """Choose what goes, and raise the minimums. `hour`: of the day, for `delete_when_hours`; None: any of them."""
        used_ratio = self.used_ratio()
        min_offset = self._new_minimum(gate, used_ratio, now_ms=now_ms, hour=hour)
        assert min_offset <= max(self._log.min_offset, gate.offset), "no part of the gate needs what goes"
        files = self._log.raise_minimum(min_offset) if min_offset > self._log.min_offset else []
        self._pause_or_resume(used_ratio, freed_bytes=(len(files) + len(self._doomed)) * self._log.file_bytes)
        if files:
            self._queues.files.log_min_offset = self._log.min_offset
            logger.info("log minimum raised min_offset=%d files=%d used_ratio=%.3f", min_offset, len(files), used_ratio)
        self._doomed.extend(files)
        return RetentionPlan(log_file_count=len(self._doomed), queue_files=self._ripe_queue_files())

    def wanted_offset(self, gate: RetentionGate, *, now_ms: int, hour: int | None) -> PhysicalOffset:
        """The deletion offset now, ignoring holders that can append their records again."""
        others = replace(gate, timers_offset=None, transactions_offset=None)
        return self._new_minimum(others, self.used_ratio(), now_ms=now_ms, hour=hour)

    def awaited_offset(self, gate: RetentionGate, *, now_ms: int, hour: int | None) -> PhysicalOffset:
        """The deletion offset now, ignoring all messages that wait in the log."""
        others = replace(gate, held_offset=None, timers_offset=None, transactions_offset=None)
        return self._new_minimum(others, self.used_ratio(), now_ms=now_ms, hour=hour)

    def drop_border(self, gate: RetentionGate) -> PhysicalOffset | None:
        """Below which file border files would have to go, whether or not the cold tier has them, for sends to be taken;
        None when the disk has room, or when what it has committed is enough, or others hold the files."""
        used_ratio, ratio_max = self.used_ratio(), self._config.disk_used_ratio_refuse
        if gate.committed_offset is None or used_ratio <= ratio_max:
            return None
        excess_bytes = (used_ratio - ratio_max) * self._disk.total_bytes(self._config.commit_log_path)
        file_count = int(excess_bytes // self._log.file_bytes) + 1
        limit = min(replace(gate, committed_offset=None).offset, self._log.flush_offset, self._rounds.recovery_offset)
        border = self._log.min_offset
        for file in list(self._log.files)[:-1][: min(file_count, self._config.delete_files_max)]:
            if file.end_offset > limit:
                break
            border = file.end_offset
        return border if border > max(self._log.min_offset, gate.committed_offset) else None

    def verdicts(self, gate: RetentionGate, *, now_ms: int, hour: int) -> Iterator[FileVerdict]:
        """Of each log file, the oldest first, why it is still there; of the ones behind it, that it is counts too."""
        config, offsets = self._config, gate.named_offsets()
        offsets |= {"flush": self._log.flush_offset, "recovery": self._rounds.recovery_offset}
        used_ratio = self.used_ratio()
        is_time = not config.delete_when_hours or hour in config.delete_when_hours
        is_time = is_time or used_ratio > config.disk_used_ratio_max
        *files, newest = self._log.files
        for file in files:
            modified_ms = self._disk.modified_ms(f"{self._log.files.directory}/{file.name}")
            old_at_ms = modified_ms + config.file_reserved_ms
            if config.clean_forcibly and used_ratio > config.disk_used_ratio_force:
                old_at_ms = min(old_at_ms, now_ms)
            yield FileVerdict(
                file_name=file.name,
                end_offset=file.end_offset,
                held_by=tuple(name for name, offset in offsets.items() if offset < file.end_offset),
                old_at_ms=old_at_ms,
                is_time=is_time,
            )
        yield FileVerdict(
            file_name=newest.name, end_offset=newest.end_offset, held_by=(), old_at_ms=None, is_time=is_time
        )

    def execute(self, plan: RetentionPlan) -> None:
        """Unlink the files of this plan, and files that an earlier plan failed to unlink. Helper thread.

        Raises:
            StoreClosedError: The log's flush failed; nothing is unlinked before a restart.
            OSError: The disk failed; the rest goes with the next plan, or after a restart.
        """
        with self._executing:
            if self._doomed:
                self._log.flush()
            while self._doomed:
                assert self._doomed[0].end_offset <= self._log.min_offset, "no reader finds the file"
                self._log.delete_file(self._doomed[0])
                self._doomed.popleft()
            for queue, path in plan.queue_files:
                # A topic that was made anew since then has files of the same names.
                if self._queues.find(queue.topic, queue.queue_id) is queue:
                    with contextlib.suppress(FileNotFoundError):  # an earlier plan had it, too
                        self._disk.remove(path)

    def remove_queues(self, topic: str) -> None:
        """Unlink the files of the queues of a deleted topic, which the table has forgotten. Any thread.

        Never while a plan is carried out: what that is about to unlink must be gone before the topic is made anew.
        """
        with self._executing, self._queues.files.removal:
            self._disk.remove_tree(f"{self._config.consume_queue_path}/{topic}")

    def _new_minimum(self, gate: RetentionGate, used_ratio: float, *, now_ms: int, hour: int | None) -> PhysicalOffset:
        """The file border below which all goes."""
        config = self._config
        limit = min(gate.offset, self._log.flush_offset, self._rounds.recovery_offset)
        is_time = hour is None or not config.delete_when_hours or hour in config.delete_when_hours
        by_age = is_time or used_ratio > config.disk_used_ratio_max
        by_force = config.clean_forcibly and used_ratio > config.disk_used_ratio_force
        min_offset = self._log.min_offset
        for file in list(self._log.files)[:-1][: config.delete_files_max]:
            is_old = (
                now_ms - self._disk.modified_ms(f"{self._log.files.directory}/{file.name}") > config.file_reserved_ms
            )
            if file.end_offset > limit or not (by_force or (by_age and is_old)):
                break
            min_offset = file.end_offset
        return min_offset

    def _pause_or_resume(self, used_ratio: float, *, freed_bytes: int) -> None:
        """`freed_bytes`: what is to be unlinked right now."""
        total_bytes = self._disk.total_bytes(self._config.commit_log_path)
        used_ratio -= freed_bytes / total_bytes if total_bytes else 0.0
        if used_ratio > self._config.disk_used_ratio_refuse:
            if self._log.unwanted_refusal is None:
                logger.error("sends are refused used_ratio=%.3f", used_ratio)
                self._log.pause(DISK_NEARLY_FULL)
        elif self._log.refusal == DISK_NEARLY_FULL:
            logger.warning("sends are taken again used_ratio=%.3f", used_ratio)
            self._log.resume()

    def _ripe_queue_files(self) -> tuple[QueueFile, ...]:
        """Queue files that may go now. Those found in one round wait until the queues' minimums are durable."""
        files: tuple[QueueFile, ...] = ()
        if self._rounds.committed >= self._waiting_for_round:
            files = tuple(self._waiting_files)
            self._waiting_files = self._queue_files()
            self._waiting_for_round = self._rounds.begun + 1
        return files

    def _queue_files(self) -> list[QueueFile]:
        """Files below the minimum of the next queues in turn that have more than one."""
        files: list[QueueFile] = []
        units_per_file = self._queues.files.units_per_file
        for _ in range(QUEUES_PER_ROUND):
            queue = next(self._round, None)
            if queue is None:
                self._round = iter([each for each in self._queues if each.next_offset > units_per_file])
                break
            if self._queues.find(queue.topic, queue.queue_id) is not queue:
                continue  # deleted with its topic since the round began
            if queue.min_offset >= units_per_file:
                files += [(queue, path) for path in self._queues.files.delete_before(queue, queue.min_offset)]
        return files
