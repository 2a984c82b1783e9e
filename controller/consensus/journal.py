"""Journal: the log, the vote and the snapshot of one controller, durable before a message depends on them.

Folder (`controllerStorePath`), three files and a lock:

    log        batches, one a flush: int32 CRC-32 of the rest, int32 size of what follows, then changes of
                 int8 kind, int64 index, int64 term, int32 size of the command, command
                 kind 1  an entry
                 kind 2  entries from this index on are gone; term and size are 0
    vote       JSON: term, votedFor, starts, group, node, nodes; replaced as a whole
    snapshot   int32 CRC-32 of the rest, then MessagePack: the two last entries that it covers, and the tables

PySyncObj changes the log in memory, entry by entry; `flush` writes what differs from the disk and syncs it once. The
node flushes before each message that it sends and before it counts its own entries (library.py). An entry that is cut
off and put back between two flushes is never off the disk. The vote is durable when `setCurrentTerm` returns.

Crash: a torn batch at the end of the log is cut off; it was not synced, so no message was sent for it. A bad batch with
another one behind it is corruption. A snapshot is durable before the entries that it covers are dropped, and a start
drops them again if a crash came between.
Owner: the controller's event loop.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterable
from typing import Any, TypeAlias

import msgspec

from thermocline.controller.consensus.raft_library import LibraryJournal
from thermocline.remoting.errors import CorruptDataError, SettingError
from thermocline.store.files import Disk, DiskFile, make_durable_directory, replace_file

Entry: TypeAlias = tuple[bytes, int, int]
"""Command, index, term: as PySyncObj has it."""

HEAD = struct.Struct(
    ">I"  # CRC-32 of everything behind it
    "I"  # bytes behind this head
)
assert HEAD.size == 8
LOG_SITE, VOTE_SITE, SNAPSHOT_SITE = "controller-log", "controller-vote", "controller-snapshot"
"""Places of syncs, by which a test switches one off."""
CHANGE = struct.Struct(">bqqI")  # kind, index, term, bytes of the command
KIND_ENTRY, KIND_TRUNCATE = 1, 2
CHECKSUM = struct.Struct(">I")
SIZE = struct.Struct(">I")


class Vote(msgspec.Struct, kw_only=True, rename="camel"):
    """What a node must not forget. `starts` rises at each start, so that peers know older messages."""

    group: str
    node: str
    nodes: tuple[str, ...]
    term: int = 0
    voted_for: str | None = None
    starts: int = 0


class SnapshotFile(msgspec.Struct, kw_only=True):
    """A snapshot. `before_last`, `last`: entries that it covers; PySyncObj compares both with its log."""

    before_last: Entry
    last: Entry
    tables: bytes


class Journal(LibraryJournal):  # type: ignore[misc] # PySyncObj has no types
    """See the module. Names of methods are PySyncObj's."""

    def __init__(
        self, disk: Disk, folder: str, *, group: str, node: str, nodes: Collection[str], start_floor: int
    ) -> None:
        """Open the folder, or make it.

        `nodes`: all of the group. `start_floor`: the least number of this start, such as the time in ms.

        Raises:
            CorruptDataError: A file cannot be what this node wrote.
            SettingError: The folder is another node's, or the group had other nodes.
            UnavailableError: Another process has it open.
        """
        self._disk = disk
        self._folder = folder
        make_durable_directory(disk, folder)
        self._unlock = disk.lock(f"{folder}/lock")
        try:
            self._vote = self._load_vote(Vote(group=group, node=node, nodes=tuple(sorted(nodes))))
            self._vote.starts = max(self._vote.starts + 1, start_floor)
            self._save_vote()
            self._entries: list[Entry] = []
            self._durable: list[Entry] = []
            self._changed_from = 0
            """Below this place `_entries` and `_durable` are equal."""
            self._is_rewrite_due = False
            self.snapshot = self._load_snapshot()
            self._file, self._end = self._load_log()
        except BaseException:
            self._unlock()
            raise

    @property
    def starts(self) -> int:
        """The number of this start."""
        return self._vote.starts

    # -- the vote ------------------------------------------------------------------------------------------------------

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:  # noqa: N802, N803
        """Durable on return."""
        self._vote.term, self._vote.voted_for = term, votedForNodeId
        self._save_vote()

    def getCurrentTerm(self) -> int:  # noqa: N802
        """The term of the last vote."""
        return self._vote.term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802
        """The node that has this node's vote in that term."""
        return self._vote.voted_for

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:  # noqa: N802, N803
        """Not kept: after a start the leader tells it again."""

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        """The least there is."""
        return 1

    # -- entries -------------------------------------------------------------------------------------------------------

    def __getitem__(self, item: Any) -> Any:
        return self._entries[item]

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append an entry."""
        assert not self._entries or idx == self._entries[-1][1] + 1, "entries have consecutive numbers"
        self._entries.append((command, idx, term))

    def clear(self) -> None:
        """Drop all entries."""
        self._entries = []
        self._changed_from = 0
        self._is_rewrite_due = True

    def deleteEntriesFrom(self, entryFrom: int) -> None:  # noqa: N802, N803
        """Drop entries from this place in the list on."""
        del self._entries[entryFrom:]
        self._changed_from = min(self._changed_from, entryFrom)

    def deleteEntriesTo(self, entryTo: int) -> None:  # noqa: N802, N803
        """Drop entries before this place in the list."""
        if entryTo > 0:
            self._entries = self._entries[entryTo:]
            self._changed_from = 0
            self._is_rewrite_due = True

    def flush(self) -> None:
        """Make the log durable as it is.

        Raises:
            OSError, DiskFullError: It may not be; the journal must not be used any more.
        """
        if self._is_rewrite_due:
            self._rewrite()
            return
        start = self._changed_from
        shared = min(len(self._durable), len(self._entries))
        while start < shared and self._durable[start] == self._entries[start]:
            start += 1
        changes = []
        if start < len(self._durable):
            changes.append(CHANGE.pack(KIND_TRUNCATE, self._durable[start][1], 0, 0))
        changes += map(_entry_bytes, self._entries[start:])
        if changes:
            data = _batch(changes)
            self._file.write_at(data, self._end)
            self._file.sync(site=LOG_SITE)
            self._end += len(data)
            self._durable[start:] = self._entries[start:]
        self._changed_from = len(self._durable)

    def save_snapshot(self, snapshot: SnapshotFile) -> None:
        """Replace the snapshot, durable on return."""
        replace_file(
            self._disk,
            f"{self._folder}/snapshot",
            encode_snapshot(snapshot),
            keep_backup=False,
            file_site=SNAPSHOT_SITE,
            directory_site=SNAPSHOT_SITE,
        )
        self.snapshot = snapshot

    def _destroy(self) -> None:
        """Close the files; PySyncObj calls it."""
        self._file.close()
        self._unlock()

    # -- files ---------------------------------------------------------------------------------------------------------

    def _rewrite(self) -> None:
        path = f"{self._folder}/log"
        data = _batch(map(_entry_bytes, self._entries))
        self._file.close()
        replace_file(self._disk, path, data, keep_backup=False, file_site=LOG_SITE, directory_site=LOG_SITE)
        self._file, self._end = self._disk.open(path), len(data)
        self._durable = list(self._entries)
        self._changed_from = len(self._durable)
        self._is_rewrite_due = False

    def _load_vote(self, fresh: Vote) -> Vote:
        path = f"{self._folder}/vote"
        if not self._disk.exists(path):
            if self._disk.exists(f"{self._folder}/log"):
                raise CorruptDataError("a controller's folder has a log and no vote", path=self._folder)
            return fresh
        try:
            vote = msgspec.json.decode(self._disk.read(path), type=Vote)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CorruptDataError(f"the vote of a controller cannot be read: {error}", path=path) from error
        if (vote.group, vote.node) != (fresh.group, fresh.node):
            raise SettingError(
                f"controllerStorePath belongs to node {vote.node} of group {vote.group}", path=self._folder
            )
        if vote.nodes != fresh.nodes:
            raise SettingError(
                f"the nodes of a group are fixed at its first start; they are {' '.join(vote.nodes)}", path=self._folder
            )
        return vote

    def _save_vote(self) -> None:
        replace_file(
            self._disk,
            f"{self._folder}/vote",
            msgspec.json.encode(self._vote),
            keep_backup=False,
            file_site=VOTE_SITE,
            directory_site=VOTE_SITE,
        )

    def _load_snapshot(self) -> SnapshotFile | None:
        path = f"{self._folder}/snapshot"
        if not self._disk.exists(path):
            return None
        return decode_snapshot(self._disk.read(path), path=path)

    def _load_log(self) -> tuple[DiskFile, int]:
        path = f"{self._folder}/log"
        if not self._disk.exists(path):
            file = self._disk.open(path, create=True)
            file.sync()
            self._disk.sync_directory(self._folder)
            return file, 0
        entries, end = _read_log(self._disk.read(path), path)
        file = self._disk.open(path)
        if end < file.size_bytes:
            file.truncate(end)
            file.sync()
        self._entries, self._durable, self._changed_from = entries, list(entries), len(entries)
        if self.snapshot is not None:
            self._drop_covered(self.snapshot)
        return file, end

    def _drop_covered(self, snapshot: SnapshotFile) -> None:
        """PySyncObj drops the whole log unless it begins with the two entries of the snapshot."""
        place = snapshot.before_last[1] - self._entries[0][1] if self._entries else -1
        if place > 0 and self._entries[place : place + 2] == [snapshot.before_last, snapshot.last]:
            self.deleteEntriesTo(place)


def encode_snapshot(snapshot: SnapshotFile) -> bytes:
    """A snapshot as it is in its file, and as a peer is sent it."""
    body = msgspec.msgpack.encode(snapshot)
    return CHECKSUM.pack(zlib.crc32(body)) + body


def decode_snapshot(data: bytes, *, path: str) -> SnapshotFile:
    """What `encode_snapshot` was given.

    Raises:
        CorruptDataError: They are other bytes; `path` says where from.
    """
    body = data[CHECKSUM.size :]
    if data[: CHECKSUM.size] != CHECKSUM.pack(zlib.crc32(body)):
        raise CorruptDataError("the checksum of a controller's snapshot is wrong", path=path)
    try:
        return msgspec.msgpack.decode(body, type=SnapshotFile)
    except msgspec.DecodeError as error:
        raise CorruptDataError(f"the snapshot of a controller cannot be read: {error}", path=path) from error


def _batch(changes: Iterable[bytes]) -> bytes:
    body = b"".join(changes)
    sized = SIZE.pack(len(body)) + body
    return CHECKSUM.pack(zlib.crc32(sized)) + sized


def _entry_bytes(entry: Entry) -> bytes:
    command, index, term = entry
    return CHANGE.pack(KIND_ENTRY, index, term, len(command)) + command


def _read_log(data: bytes, path: str) -> tuple[list[Entry], int]:
    """The entries, and where the whole batches end."""
    entries: list[Entry] = []
    position = 0
    while (end := _batch_end(data, position)) is not None:
        _replay(entries, data[position + HEAD.size : end], path)
        position = end
    if any(_batch_end(data, start) is not None for start in range(position + 1, len(data))):
        raise CorruptDataError("a part of a controller's log is damaged", path=path, position=position)
    return entries, position


def _batch_end(data: bytes, start: int) -> int | None:
    """Where the batch that begins here ends; None if none does."""
    if start + HEAD.size > len(data):
        return None
    checksum, size_bytes = HEAD.unpack_from(data, start)
    end: int = start + HEAD.size + size_bytes
    if end > len(data) or zlib.crc32(data[start + CHECKSUM.size : end]) != checksum:
        return None
    return end


def _replay(entries: list[Entry], body: bytes, path: str) -> None:
    position = 0
    while position < len(body):
        kind, index, term, size_bytes = CHANGE.unpack_from(body, position)
        position += CHANGE.size
        command = body[position : position + size_bytes]
        position += size_bytes
        if kind == KIND_TRUNCATE:
            while entries and entries[-1][1] >= index:
                entries.pop()
        elif kind != KIND_ENTRY or (entries and index != entries[-1][1] + 1):
            raise CorruptDataError("a controller's log cannot be read", path=path, kind=kind, index=index)
        else:
            entries.append((command, index, term))
