"""Slave books: the sessions that a master's port gives its slaves, and the gate of puts that counts their reports.

    PlainBook         RocketMQ's protocol without names: puts wait for so many slaves, if for any
    ControlledBook    under a controller: slaves have numbers, and may join the SyncStateSet

Owner: the loop thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from thermocline.remoting.errors import ProtocolError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.replication import (
    AutoSwitchMasterSession,
    Confirmations,
    Epochs,
    MasterSession,
    ReplicationSettings,
    SyncStateSet,
)
from thermocline.store.log import CommitLog


class SlaveBook(Protocol):
    """What MasterPort asks of one."""

    @property
    def puts_wait(self) -> bool:
        """Whether a put is answered only when slaves have it."""
        ...

    def make_session(self, now_ms: int) -> MasterSession:
        """Of a connection that begins."""
        ...

    def opened(self, id_: int, host: str) -> None:
        """A connection has been accepted."""
        ...

    def closed(self, id_: int, session: MasterSession) -> None:
        """A connection has ended."""
        ...

    def received(self, id_: int, session: MasterSession, now_ms: int) -> None:
        """A slave has sent something.

        Raises:
            ProtocolError: It cannot be a slave of this master.
        """
        ...

    def began_empty(self, id_: int, session: MasterSession, offset: PhysicalOffset) -> None:
        """A slave that had nothing gets the log from here on."""
        ...

    def reported(self, id_: int, session: MasterSession, now_ms: int) -> None:
        """A slave has reported."""
        ...

    def replica_id(self, session: MasterSession) -> int | None:
        """A slave's number, if it has one."""
        ...


class PlainBook:
    """See the module's header."""

    def __init__(
        self,
        log: CommitLog,
        settings: ReplicationSettings,
        confirmations: Confirmations | None,
        empty_start: Callable[[], PhysicalOffset | None],
    ) -> None:
        """`confirmations`: None if no put waits for slaves."""
        self._log = log
        self._settings = settings
        self._confirmations = confirmations
        self._empty_start = empty_start

    @property
    def puts_wait(self) -> bool:
        """See SlaveBook."""
        return self._confirmations is not None

    def make_session(self, now_ms: int) -> MasterSession:
        """See SlaveBook."""
        return MasterSession(self._log, self._settings, now_ms=now_ms, empty_start=self._empty_start)

    def opened(self, id_: int, host: str) -> None:
        """See SlaveBook."""
        if self._confirmations is not None:
            self._confirmations.connected(id_, host)

    def closed(self, id_: int, session: MasterSession) -> None:
        """See SlaveBook."""
        if self._confirmations is not None:
            self._confirmations.disconnected(id_)

    def received(self, id_: int, session: MasterSession, now_ms: int) -> None:
        """See SlaveBook."""

    def began_empty(self, id_: int, session: MasterSession, offset: PhysicalOffset) -> None:
        """See SlaveBook."""
        if self._confirmations is not None:
            self._confirmations.began_at(offset)

    def reported(self, id_: int, session: MasterSession, now_ms: int) -> None:
        """See SlaveBook."""
        if self._confirmations is not None:
            self._confirmations.reported(id_, session.confirmed_offset)

    def replica_id(self, session: MasterSession) -> int | None:
        """See SlaveBook."""
        return None


class ControlledBook:
    """One epoch's. See the module's header."""

    def __init__(
        self,
        log: CommitLog,
        settings: ReplicationSettings,
        sync_state_set: SyncStateSet | None,
        epochs: Epochs,
        *,
        empty_start: Callable[[], PhysicalOffset | None] = lambda: None,
    ) -> None:
        """`sync_state_set`: None while this broker is not the master: slaves that come all the same are sent away.
        `epochs`: of the log, the master's own last."""
        self._log = log
        self._settings = settings
        self._set = sync_state_set
        self._epochs = epochs
        self._empty_start = empty_start
        self._greeted: dict[int, int] = {}
        """Connections that have introduced themselves, and the slaves' numbers."""

    @property
    def puts_wait(self) -> bool:
        """See SlaveBook."""
        return self._set is not None and self._set.puts_wait

    def make_session(self, now_ms: int) -> MasterSession:
        """See SlaveBook."""
        return AutoSwitchMasterSession(
            self._log,
            self._epochs,
            self._settings,
            confirm_offset=lambda: LOG_START if self._set is None else self._set.confirm_offset,
            now_ms=now_ms,
            empty_start=self._empty_start,
        )

    def opened(self, id_: int, host: str) -> None:
        """See SlaveBook."""

    def closed(self, id_: int, session: MasterSession) -> None:
        """See SlaveBook."""
        replica_id = self._greeted.pop(id_, None)
        if replica_id is not None and self._set is not None:
            self._set.disconnected(replica_id, id_)

    def received(self, id_: int, session: MasterSession, now_ms: int) -> None:
        """See SlaveBook."""
        assert isinstance(session, AutoSwitchMasterSession)
        slave = session.slave
        if slave is None or id_ in self._greeted:
            return
        if self._set is None:
            raise ProtocolError("this broker is not the master", replica_id=slave.replica_id)
        if slave.replica_id == self._set.own_id:
            raise ProtocolError("a slave has the master's own number", replica_id=slave.replica_id)
        self._greeted[id_] = slave.replica_id
        self._set.connected(slave.replica_id, id_, is_learner=slave.is_learner, now_ms=now_ms)

    def began_empty(self, id_: int, session: MasterSession, offset: PhysicalOffset) -> None:
        """See SlaveBook."""
        if self._set is not None:
            self._set.began_at(self._greeted[id_], id_, offset)

    def reported(self, id_: int, session: MasterSession, now_ms: int) -> None:
        """See SlaveBook."""
        if self._set is not None:
            self._set.reported(self._greeted[id_], id_, session.confirmed_offset, now_ms=now_ms)

    def replica_id(self, session: MasterSession) -> int | None:
        """See SlaveBook."""
        assert isinstance(session, AutoSwitchMasterSession)
        return None if session.slave is None else session.slave.replica_id
