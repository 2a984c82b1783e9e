"""Mutations: replication with one of its rules taken away, for the time of a `with`. Each has to be noticed.

rule that is taken away                               found by      where the rule is
an empty slave confirms no put from before its file   holders       Confirmations.began_at
as many slaves as are needed                          confirmed     Confirmations
a slave's dead connection does not count              holders       Confirmations.connected
late sends are answered                               unanswered    Confirmations.expire
a send waits for its own flush, too                   holders       StoredGate.wait
a part of a record goes with its connection           or refused    LogCopy.restart
a slave's log takes nothing else                      order         CommitLog.refuse_all
a silent master is given up                           behind        SlaveSession.is_silent
a silent slave is given up                            behind        MasterSession.is_silent
an empty log begins at a file's border                behind        MasterSession (first report)
sealing follows the slaves                            bucket        MessageStore.seal_offset
a slave that lags keeps the reader's offset           back          replica_reads.slave_answer
followed offsets are durable                          offsets       OffsetsFollower, ConfigPersister
a SYNC_FLUSH slave reports what is durable            kept          links/slave_link.py, as in plain_node.py

rule of the operator (docs/replicas.md)               found by
a master that lost its power is compared first        behind
the longest log becomes the master                    fork
a broker that was not asked gets an empty store       behind

"or refused": an assertion or a typed error of the product ends the run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from unittest.mock import patch

from tests.replication.simulation import plain_node
from tests.replication.simulation.plain_node import PlainNode
from tests.replication.simulation.plain_set import PlainSet
from thermocline.broker.pulls.replica_reads import ReadState
from thermocline.broker.state_files import ConfigPersister
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.replication import Confirmations, LogCopy, MasterSession, SlaveSession
from thermocline.store.log import CommitLog, StoredGate
from thermocline.store.log.flush_service import FlushCallback
from thermocline.store.message_store import MessageStore

Rule = Callable[[], AbstractContextManager[object]]


def _nothing(*_arguments: object, **_named: object) -> None:
    """In place of a method."""


def _replaced(owner: type, name: str, replacement: object) -> Rule:
    return lambda: patch.object(owner, name, replacement)


@contextlib.contextmanager
def one_slave_fewer() -> Iterator[None]:
    """One slave fewer than are needed confirms a put; none is never enough."""
    original = Confirmations._confirm

    def reported(gate: Confirmations, connection_id: int, offset: PhysicalOffset) -> None:
        slave = gate._slaves[connection_id]
        slave.offset, slave.is_doubtful = offset, False
        original(gate, max(each.offset for each in gate._slaves.values()))

    with patch.object(Confirmations, "reported", reported):
        yield


@contextlib.contextmanager
def dead_connections_count() -> Iterator[None]:
    """A connection counts until it ends."""
    original = Confirmations.connected

    def connected(gate: Confirmations, connection_id: int, host: str) -> None:
        original(gate, connection_id, f"{host} {connection_id}")

    with patch.object(Confirmations, "connected", connected):
        yield


def _wait_for_replicas_alone(gate: StoredGate, offset: PhysicalOffset, callback: FlushCallback, *, now_ms: int) -> None:
    if gate.replicas is not None:
        gate.replicas.wait(offset, callback, deadline_ms=now_ms + gate.replicas.timeout_ms)
    else:
        gate._flush.wait(offset, callback, deadline_ms=now_ms + gate._flush_timeout_ms)


@contextlib.contextmanager
def empty_slave_begins_anywhere() -> Iterator[None]:
    """An empty slave gets the log from its end on."""
    original = MasterSession._reported

    def reported(session: MasterSession, offset: PhysicalOffset) -> None:
        was_first = session.next_offset is None
        original(session, offset)
        if was_first and session.was_empty:
            session.next_offset = session._log.append_offset

    with patch.object(MasterSession, "_reported", reported):
        yield


def _own_end(_state: ReadState, code: int, *, offset: QueueOffset, next_offset: QueueOffset) -> tuple[int, QueueOffset]:
    """What a broker that is alone answers."""
    return code, next_offset


async def _save_nothing(_persister: ConfigPersister, _name: str) -> None:
    """In place of a write."""


MUTATIONS: dict[str, Rule] = {
    "an empty slave confirms no put from before its file": _replaced(Confirmations, "began_at", _nothing),
    "as many slaves as are needed": one_slave_fewer,
    "a slave's dead connection does not count": dead_connections_count,
    "late sends are answered": _replaced(Confirmations, "expire", _nothing),
    "a send waits for its own flush, too": _replaced(StoredGate, "wait", _wait_for_replicas_alone),
    "a part of a record goes with its connection": _replaced(LogCopy, "restart", _nothing),
    "a slave's log takes nothing else": _replaced(CommitLog, "refuse_all", _nothing),
    "a silent master is given up": _replaced(SlaveSession, "is_silent", lambda _session, _now_ms: False),
    "a silent slave is given up": _replaced(MasterSession, "is_silent", lambda _session, _now_ms: False),
    "an empty log begins at a file's border": empty_slave_begins_anywhere,
    "sealing follows the slaves": _replaced(
        MessageStore, "seal_offset", property(lambda store: store.commit_log.flush_offset)
    ),
    "a slave that lags keeps the reader's offset": lambda: patch.object(plain_node, "slave_answer", _own_end),
    "followed offsets are durable": _replaced(ConfigPersister, "save_changed", _save_nothing),
    "a SYNC_FLUSH slave reports what is durable": _replaced(
        PlainNode, "stored_offset", property(lambda node: node.end_offset)
    ),
    "operator: a master that lost its power is compared first": _replaced(
        PlainSet, "_compares_logs", lambda _set: False
    ),
    "operator: the longest log becomes the master": _replaced(
        PlainSet, "_choose", lambda _set, asked: min(asked, key=lambda node: node.end_offset)
    ),
    "operator: a broker that was not asked gets an empty store": _replaced(PlainSet, "_have_emptied", _nothing),
}
