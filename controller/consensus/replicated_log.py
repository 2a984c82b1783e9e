"""Replicated log: PySyncObj's Raft on our files and our connections, with the rules that it leaves out.

    log = ReplicatedLog(...)     opens the folder; the tables are those of the snapshot
    log.tick()                   time passes; to be called every TICK_MS, and after what follows
    log.receive(sender, message) a message of a peer
    log.propose(command, done)   done(result) once it is committed and applied here, done(None) if it was given up

PySyncObj decides who leads, which entries are committed, and what each peer is sent. Its files and its sockets are not
used: the files are not synced, and the sockets carry pickles (docs/adr/0057-consensus-of-controllers.md has what was
measured). What is added
  - Nothing is sent, and no own proposal is counted, before the log is durable.
  - An answer of a follower counts only in the term that it was given in.
  - A leader's message cuts off entries only where it has others in their place. PySyncObj cuts the log at each
    message, also at one that was overtaken by a later one, and so takes back what it has confirmed.
  - A piece of a snapshot commits nothing: the receiver's log may differ from the leader's. A snapshot of entries that
    the log has replaces nothing.
  - Snapshots are bounded, checked and durable before the log is cut.
Private methods of PySyncObj are replaced by their mangled names, so its version is pinned.

Nothing in here waits: time and messages come from outside (consensus_node.py). Owner: the controller's event loop.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Collection
from typing import Any

from thermocline.controller.consensus.journal import Entry, Journal, SnapshotFile, decode_snapshot, encode_snapshot
from thermocline.controller.consensus.peer_messages import (
    ENTRIES_BYTES_MAX,
    PIECE_BYTES,
    Message,
    NextIndex,
    from_library,
    to_library,
)
from thermocline.controller.consensus.raft_library import (
    FAIL_REASON,
    SERIALIZER_STATE,
    Node,
    SyncObjConf,
    Transport,
    syncobj,
)
from thermocline.remoting.errors import CorruptDataError

logger = logging.getLogger(__name__)

COMMAND_BYTES_MAX = 256 << 10
SNAPSHOT_BYTES_MAX = 256 << 20
COMPACT_ENTRIES = 2_000
"""A snapshot is made when the log has more entries."""
COMPACT_S = 10 * 60
PROPOSALS_MAX = 1_000
TICK_MS = 50
REGULAR = b"\0"

syncobj.createJournal = lambda journal: journal  # PySyncObj names a file here, and opens it itself


class Timing:
    """Seconds. A leader that hears no majority steps down before another one can be elected."""

    HEARTBEAT_S = 0.2
    ELECTION_MIN_S = 1.0
    ELECTION_MAX_S = 2.0
    STEP_DOWN_S = 0.9
    ALONE_MIN_S, ALONE_MAX_S, ALONE_HEARTBEAT_S = 0.1, 0.2, 0.03


class ReplicatedLog:
    """See the module."""

    def __init__(
        self,
        journal: Journal,
        *,
        node: str,
        peers: Collection[str],
        apply: Callable[[bytes], object],
        encode_tables: Callable[[], bytes],
        restore_tables: Callable[[bytes], None],
        send: Callable[[str, Message], None],
        compact_entries: int = COMPACT_ENTRIES,
    ) -> None:
        """`peers`: the other nodes. `send` may drop what it is given.

        Raises:
            CorruptDataError: The snapshot cannot be read.
        """
        self._journal = journal
        self._snapshots = _Snapshots(journal, encode_tables, restore_tables)
        self._nodes = {name: _Peer(name) for name in peers}
        self._transport = _Transport(journal, send)
        alone = not peers
        configuration = SyncObjConf(
            autoTick=False,
            commandsQueueSize=PROPOSALS_MAX,
            raftMinTimeout=Timing.ALONE_MIN_S if alone else Timing.ELECTION_MIN_S,
            raftMaxTimeout=Timing.ALONE_MAX_S if alone else Timing.ELECTION_MAX_S,
            appendEntriesPeriod=Timing.ALONE_HEARTBEAT_S if alone else Timing.HEARTBEAT_S,
            leaderFallbackTimeout=Timing.STEP_DOWN_S,
            appendEntriesBatchSizeBytes=ENTRIES_BYTES_MAX,
            logCompactionMinEntries=compact_entries,
            logCompactionMinTime=COMPACT_S,
            commandsWaitLeader=False,
            dynamicMembershipChange=False,
            journalFile=journal,
            fullDumpFile="",
            serializer=_never,
            deserializer=_never,
        )
        self._library = _Library(
            _Peer(node),
            list(self._nodes.values()),
            conf=configuration,
            transport=self._transport,
            apply=apply,
            snapshots=self._snapshots,
        )
        self._transport.library = self._library

    @property
    def term(self) -> int:
        """The term that this node is in."""
        return int(self._library.raftCurrentTerm)

    @property
    def is_leader(self) -> bool:
        """Whether this node takes itself for the leader."""
        return bool(self._library._isLeader())

    @property
    def leader(self) -> str | None:
        """The node that this one takes for the leader."""
        found = self._library._getLeader()
        return None if found is None else str(found.id)

    @property
    def entry_count(self) -> int:
        """Entries in the log."""
        return len(self._journal)

    @property
    def applied_index(self) -> int:
        """The last entry that the tables contain."""
        return int(self._library.raftLastApplied)

    def tick(self) -> None:
        """Let time pass: apply committed entries, send new ones.

        Raises:
            OSError, DiskFullError, CorruptDataError: The node cannot go on.
        """
        self._journal.flush()
        last = self._journal[-1]
        self._library.doTick()
        self._journal.flush()
        if self._journal[-1] is not last:  # a tick appends proposals after it has counted and sent
            self._library.send_entries()
            self._library.doTick()

    def receive(self, sender: str, message: Message) -> None:
        """Take a message of a peer."""
        self._library.receive(self._nodes[sender], message)

    def propose(self, command: bytes, done: Callable[[object | None], None]) -> None:
        """Append a command if this node leads. `done` is called once, perhaps much later, and perhaps at once."""
        assert len(command) <= COMMAND_BYTES_MAX
        self._library._applyCommand(
            REGULAR + command, lambda result, reason: done(result if reason == FAIL_REASON.SUCCESS else None)
        )

    def connected(self, peer: str) -> None:
        """Messages to this peer may arrive from now on."""
        self._transport._onNodeConnected(self._nodes[peer])

    def disconnected(self, peer: str) -> None:
        """Messages to this peer do not arrive any more."""
        self._transport._onNodeDisconnected(self._nodes[peer])

    def close(self) -> None:
        """Close the files."""
        self._library.destroy()


class _Peer(Node):  # type: ignore[misc] # PySyncObj has no types
    """A node whose place in a set does not depend on the process: a seed replays a run."""

    def __hash__(self) -> int:
        return zlib.crc32(self.id.encode())


class _Library(syncobj.SyncObj):  # type: ignore[misc] # PySyncObj has no types
    """SyncObj with its own files, sockets and pickles replaced; see the module."""

    def __init__(
        self, node: Node, peers: list[Node], *, apply: Callable[[bytes], object], snapshots: _Snapshots, **options: Any
    ) -> None:
        self._apply = apply
        self._snapshots = snapshots
        self._journal = snapshots.journal
        super().__init__(node, peers, **options)
        self._SyncObj__serializer = snapshots
        self._SyncObj__needLoadDumpFile = False
        if snapshots.exists:
            self._SyncObj__loadDumpFile(clearJournal=False)

    def receive(self, sender: Node, message: Message) -> None:
        """Pass a message on, unless a rule of the module forbids it."""
        is_stale = isinstance(message, NextIndex) and message.term != self.raftCurrentTerm
        received = to_library(message)
        if not is_stale and not self._cuts_without_conflict(received):
            self._SyncObj__onMessageReceived(sender, received)

    def send_entries(self) -> None:
        """Send what is new at once, if this node leads."""
        if self._isLeader():
            self._SyncObj__sendAppendEntries()

    def _cuts_without_conflict(self, message: dict[str, Any]) -> bool:
        """Whether this node has all that the message has, and more behind it."""
        first, last = self._journal[0][1], self._journal[-1][1]
        previous = message.get("prevLogIdx", -1)
        if previous < first or previous + len(message["entries"]) >= last:
            return False
        place = previous - first
        present = [entry[1:] for entry in self._journal[place : place + 1 + len(message["entries"])]]
        return present == [(previous, message["prevLogTerm"]), *(entry[1:] for entry in message["entries"])]

    def _SyncObj__doApplyCommand(self, command: bytes) -> object:  # noqa: N802
        return self._apply(command[1:]) if command[:1] == REGULAR else None

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:  # noqa: N802, N803
        super()._SyncObj__loadDumpFile(clearJournal=clearJournal)
        self._snapshots.check()


class _Transport(Transport):  # type: ignore[misc] # PySyncObj has no types
    """Gives PySyncObj's messages to the node, after the log is durable."""

    library: _Library

    def __init__(self, journal: Journal, send: Callable[[str, Message], None]) -> None:
        super().__init__(None, None, [])
        self._journal = journal
        self._send = send

    def send(self, node: Node, message: dict[str, Any]) -> bool:
        sent = from_library(message, term=self.library.raftCurrentTerm)
        if sent is None:
            return False
        self._journal.flush()
        self._send(node.id, sent)
        return True


class _Snapshots:
    """In place of PySyncObj's Serializer; names of methods are its."""

    def __init__(
        self, journal: Journal, encode_tables: Callable[[], bytes], restore_tables: Callable[[bytes], None]
    ) -> None:
        self.journal = journal
        self._encode_tables = encode_tables
        self._restore_tables = restore_tables
        self._made: int | None = None
        self._sent: dict[Node, tuple[bytes, int]] = {}
        """Peer -> the snapshot that it is sent, and how many bytes of it."""
        self._received: bytearray | None = None
        self._failure: CorruptDataError | None = None

    @property
    def exists(self) -> bool:
        """Whether there is one."""
        return self.journal.snapshot is not None

    def check(self) -> None:
        """Raise what PySyncObj has caught and logged."""
        if self._failure is not None:
            raise self._failure

    def checkSerializing(self) -> tuple[int, int | None]:  # noqa: N802
        made, self._made = self._made, None
        return (SERIALIZER_STATE.NOT_SERIALIZING if made is None else SERIALIZER_STATE.SUCCESS), made

    def serialize(self, data: tuple[object, Entry, Entry, object], first_index: int) -> None:
        self.journal.save_snapshot(SnapshotFile(before_last=data[2], last=data[1], tables=self._encode_tables()))
        self._sent.clear()
        self._made = first_index

    def deserialize(self) -> tuple[None, Entry, Entry, tuple[()]]:
        snapshot = self.journal.snapshot
        assert snapshot is not None
        try:
            self._restore_tables(snapshot.tables)
        except CorruptDataError as error:
            self._failure = error
            raise
        return None, snapshot.last, snapshot.before_last, ()

    def getTransmissionData(self, peer: Node) -> tuple[bytes, bool, bool] | None:  # noqa: N802
        if peer not in self._sent:
            if self.journal.snapshot is None:
                return None
            self._sent[peer] = encode_snapshot(self.journal.snapshot), 0
        data, start = self._sent[peer]
        piece = data[start : start + PIECE_BYTES]
        if piece:
            self._sent[peer] = data, start + len(piece)
        else:
            del self._sent[peer]
        return piece, start == 0, not piece

    def setTransmissionData(self, piece: tuple[bytes, bool, bool] | None) -> bool:  # noqa: N802
        if piece is None:
            return False
        data, is_first, is_last = piece
        if is_first:
            self._received = bytearray()
        if self._received is None or len(self._received) + len(data) > SNAPSHOT_BYTES_MAX:
            self._received = None
            return False
        self._received += data
        if not is_last:
            return False
        whole, self._received = bytes(self._received), None
        try:
            snapshot = decode_snapshot(whole, path="of the leader")
        except CorruptDataError as error:
            logger.error("the snapshot of the leading controller is not used: %s", error)
            return False
        if self._has_all_of(snapshot):
            return False
        self.journal.save_snapshot(snapshot)
        return True

    def _has_all_of(self, snapshot: SnapshotFile) -> bool:
        """Whether the log reaches as far: what it has behind the snapshot would be lost."""
        index, first = snapshot.last[1], self.journal[0][1]
        if index < first:
            return True
        return index <= self.journal[-1][1] and bool(self.journal[index - first][1:] == snapshot.last[1:])

    def cancelTransmisstion(self, peer: Node) -> None:  # noqa: N802
        self._sent.pop(peer, None)


def _never(*_arguments: object) -> None:
    raise AssertionError("snapshots are made by _Snapshots")
