"""SyncStateSet: the brokers that an election may choose from, as their master keeps it; and puts that wait for them.

    report of a slave -> it has caught up         -> `wanted`: the set with it       -> the controller is asked
    time              -> it lags, or has gone     -> `wanted`: the set without it    -> the controller is asked
    the answer        -> `adopt` or `refused`     -> the set, and the confirm offset

Rules
  - The set is what the controller has said last. A change that was requested may be in force, whether its answer
    comes or not: until the controller has refused it and still has the same set, or answers with a later one, its
    brokers count as well.
    The confirm offset is what all brokers of all these sets have, a count of brokers in sync that of the largest.
  - A slave joins when it has everything below the confirm offset and has reached the present epoch: then no put that
    was answered is missing from it. A slave that began empty joins when its first byte is confirmed, too, whatever
    connections it has had since. A learner never joins.
  - A slave that the controllers do not take (it is not registered, or they do not hear it) keeps no other from joining
    or leaving: it is requested by itself, and only while nothing else has to change.
  - A slave leaves when its connection has ended, or it has not caught up for `lag_ms_max`. It has caught up at the time
    at which the log ended where its report says; a log that does not grow leaves no slave behind.
  - A slave leaves when it reports less than is confirmed: a power cut has taken back what it had. It joins again when
    it has that.
  - While a broker of the set is not connected, or has not reported yet, the confirm offset stays as it is: what it has
    is not known. It never goes back.
  - RocketMQ's master counts a slave as caught up when everything is sent, and one that has not reported as having all.
  - With fewer brokers in sync than `least_in_sync` puts wait, and the caller takes no more of them. RocketMQ's master
    answers those that it has taken when the set shrinks.
  - A slave is one number, whatever its connections: the last one that introduces itself counts.
  - Bound: the slaves that are connected (haConnectionsMax), and BEGAN_MAX that were; ATTEMPTS_MAX changes without an
    answer, then one of them is requested again.
Belongs to the loop thread, or to a simulation.
Source: store/ha/autoswitch/AutoSwitchHAService.java, GroupTransferService.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.replication.waiting_puts import WaitingPuts
from thermocline.store.log import FlushCallback, PutStatus
from thermocline.store.read_limit import ReadLimit

ATTEMPTS_MAX = 4
BEGAN_MAX = 64

Members = frozenset[int]


def _ignore(has_enough: bool) -> None:
    """Puts are taken however few brokers are in sync."""


class _Slave(msgspec.Struct):
    connection_id: int
    is_learner: bool
    caught_up_ms: int
    began_offset: PhysicalOffset = LOG_START
    """An empty slave's first byte; it lacks what is before."""
    offset: PhysicalOffset | None = None
    """None before its first report."""
    sample_offset: PhysicalOffset = LOG_START
    sample_ms: int = 0
    """Where the log ended at some time. When the slave has reached it, it has caught up with that time."""
    not_taken_ms: int | None = None
    """When a set that it was to join was refused for one of its brokers; None: not since it joined last."""


class SyncStateSet:
    """One master's, of one of its epochs. A ReplicaGate (store/log/stored_gate.py)."""

    def __init__(
        self,
        own_id: int,
        *,
        members: Members,
        set_epoch: int,
        epoch_start: PhysicalOffset,
        confirm_offset: PhysicalOffset,
        log_end: Callable[[], PhysicalOffset],
        acks_needed: Callable[[], int | None],
        timeout_ms: Callable[[], int],
        lag_ms_max: Callable[[], int],
        least_in_sync: Callable[[], int] = lambda: 1,
        on_enough: Callable[[bool], None] = _ignore,
    ) -> None:
        """
        `members`, `set_epoch`: as the controller has answered.
        `epoch_start`: where this master's epoch begins in its log.
        `confirm_offset`: what this broker has last known as confirmed.
        `acks_needed`: how many brokers have to have a put, this one among them; None: all of the set.
        `least_in_sync`: with fewer brokers in sync no more puts are to be taken, and where a put waits for all of the
        set, none is answered. `on_enough`: called with False when there are fewer, with True when there are enough.
        """
        assert own_id in members
        assert confirm_offset <= log_end()
        self.own_id = own_id
        self.members = members
        self.set_epoch = set_epoch
        self._epoch_start = epoch_start
        self._log_end = log_end
        self._acks_needed = acks_needed
        self._timeout_ms = timeout_ms
        self._lag_ms_max = lag_ms_max
        self._least_in_sync = least_in_sync
        self._on_enough = on_enough
        self._has_enough = True
        self._attempts: list[Members] = []
        """Sets that were requested, and may be in force."""
        self._slaves: dict[int, _Slave] = {}
        self._began: dict[int, PhysicalOffset] = {}
        """First bytes of slaves that began empty, and were disconnected before those were confirmed."""
        self._began_last = LOG_START
        """The last of those that found no room there; it counts for all that are not in it."""
        self._confirm_offset = confirm_offset
        self._acknowledged_offset = confirm_offset
        self._waiting = WaitingPuts()
        self.read_limit = ReadLimit(lambda: self.confirm_offset)
        """For the store, where no message is to be read that not all brokers of the set have."""
        self._count_in_sync()

    # -- what holds ------------------------------------------------------------------------------------------------

    @property
    def confirm_offset(self) -> PhysicalOffset:
        """The log below it is on every broker that an election may choose."""
        end_offset = self._log_end()
        for member in self._possible_members() - {self.own_id}:
            slave = self._slaves.get(member)
            if slave is None or slave.offset is None:
                return self._confirm_offset
            end_offset = min(end_offset, slave.offset)
        self._confirm_offset = max(self._confirm_offset, end_offset)
        return self._confirm_offset

    @property
    def puts_wait(self) -> bool:
        """Whether a put is answered only when slaves have it."""
        return self._acks_needed() != 1

    @property
    def confirmed_offset(self) -> PhysicalOffset:
        """See ReplicaGate: puts below it are on as many brokers as they have to be."""
        needed = self._acks_needed()
        if needed is None:
            if self.in_sync_count >= self._least_in_sync():
                self._acknowledged_offset = max(self._acknowledged_offset, self.confirm_offset)
        else:
            offsets = [
                slave.offset for slave in self._slaves.values() if self._counts(slave) and slave.offset is not None
            ]
            offsets.append(self._log_end())
            if len(offsets) >= needed:
                offsets.sort(reverse=True)
                self._acknowledged_offset = max(self._acknowledged_offset, offsets[needed - 1])
        return self._acknowledged_offset

    @property
    def in_sync_count(self) -> int:
        """How many brokers are in sync, this one among them: of a requested set, if that is larger."""
        return max(map(len, (self.members, *self._attempts)))

    def has_all(self, broker_id: int | None) -> bool:
        """Whether a slave has reported the log's end; None: whether all others of the set have."""
        others = self._possible_members() - {self.own_id} if broker_id is None else {broker_id}
        end_offset = self._log_end()
        reported = [slave.offset if (slave := self._slaves.get(other)) is not None else None for other in others]
        return all(offset is not None and offset >= end_offset for offset in reported)

    def tell_enough(self) -> None:
        """Repeat to `on_enough` whether enough brokers are in sync."""
        self._on_enough(self._has_enough)

    @property
    def timeout_ms(self) -> int:
        """How long a put may wait."""
        return self._timeout_ms()

    def wait(self, offset: PhysicalOffset, callback: FlushCallback, *, deadline_ms: int) -> None:
        """See ReplicaGate."""
        if offset <= self.confirmed_offset:
            callback(PutStatus.PUT_OK)
        else:
            self._waiting.add(offset, callback, deadline_ms=deadline_ms)

    def expire(self, now_ms: int) -> None:
        """See ReplicaGate."""
        self._waiting.expire(now_ms)

    def close(self) -> None:
        """This broker is no master any more; see WaitingPuts."""
        self._waiting.close()
        self.read_limit.end()

    # -- slaves ----------------------------------------------------------------------------------------------------

    def connected(self, replica_id: int, connection_id: int, *, is_learner: bool, now_ms: int) -> None:
        """A slave has introduced itself."""
        before = self._slaves.get(replica_id)
        self._slaves[replica_id] = _Slave(
            connection_id,
            is_learner,
            now_ms if before is None else before.caught_up_ms,
            began_offset=self._began.pop(replica_id, self._began_last) if before is None else before.began_offset,
            sample_offset=self._log_end(),
            sample_ms=now_ms,
            not_taken_ms=None if before is None else before.not_taken_ms,
        )

    def began_at(self, replica_id: int, connection_id: int, offset: PhysicalOffset) -> None:
        """An empty slave gets the log from here on."""
        slave = self._slave(replica_id, connection_id)
        if slave is not None:
            slave.began_offset = offset

    def reported(self, replica_id: int, connection_id: int, offset: PhysicalOffset, *, now_ms: int) -> None:
        """A slave has the log below this offset."""
        slave = self._slave(replica_id, connection_id)
        if slave is None:
            return
        slave.offset = offset
        self._sample(slave, now_ms)
        self._release()

    def disconnected(self, replica_id: int, connection_id: int) -> None:
        """A slave's connection has ended. Idempotent."""
        slave = self._slave(replica_id, connection_id)
        if slave is not None:
            del self._slaves[replica_id]
            if slave.began_offset > min(self.confirm_offset, self.confirmed_offset):
                if len(self._began) < BEGAN_MAX:
                    self._began[replica_id] = slave.began_offset
                else:
                    self._began_last = max(self._began_last, slave.began_offset)

    def _slave(self, replica_id: int, connection_id: int) -> _Slave | None:
        """A slave, if it counts by this connection."""
        slave = self._slaves.get(replica_id)
        return slave if slave is not None and slave.connection_id == connection_id else None

    def _counts(self, slave: _Slave) -> bool:
        """Whether its reports count for puts that wait: it lacks none of this epoch that is not acknowledged yet."""
        return not slave.is_learner and slave.began_offset <= max(self._acknowledged_offset, self._epoch_start)

    def _sample(self, slave: _Slave, now_ms: int) -> None:
        end_offset = self._log_end()
        if slave.offset is None or slave.offset < slave.sample_offset:
            return
        slave.caught_up_ms = now_ms if slave.offset >= end_offset else slave.sample_ms
        slave.sample_offset, slave.sample_ms = end_offset, now_ms

    # -- changes ---------------------------------------------------------------------------------------------------

    def wanted(self, *, now_ms: int) -> Members | None:
        """The set to request from the controller now; None: the present one is right.

        The caller marks it as `asked` before the request can reach a controller.
        """
        self._count_in_sync()
        for slave in self._slaves.values():
            self._sample(slave, now_ms)
        wanted = self._wanted_members(now_ms)
        if wanted != self.members and (wanted in self._attempts or len(self._attempts) < ATTEMPTS_MAX):
            return wanted
        # A change whose answer did not come is requested again, until it is known.
        return self._attempts[0] if self._attempts else None

    def _wanted_members(self, now_ms: int) -> Members:
        confirm_offset = self.confirm_offset
        current = {
            replica_id: slave
            for replica_id, slave in self._slaves.items()
            if now_ms - slave.caught_up_ms <= self._lag_ms_max()
        }
        joining = {
            replica_id: slave
            for replica_id, slave in current.items()
            if replica_id not in self.members and self._may_join(slave, confirm_offset)
        }
        lossy = {id_ for id_, slave in current.items() if slave.offset is not None and slave.offset < confirm_offset}
        staying = {self.own_id, *((current.keys() & self.members) - lossy)}
        wanted = frozenset(staying.union(id_ for id_, slave in joining.items() if slave.not_taken_ms is None))
        doubtful = [(slave.not_taken_ms, id_) for id_, slave in joining.items() if slave.not_taken_ms is not None]
        return wanted | {min(doubtful)[1]} if doubtful and wanted == self.members else wanted

    def asked(self, members: Members) -> None:
        """A request for this set is made, with the present `set_epoch`."""
        assert self.own_id in members
        if members not in self._attempts:
            assert len(self._attempts) < ATTEMPTS_MAX
            self._attempts.append(members)

    def refused(self, members: Members, set_epoch: int) -> None:
        """The controller has refused this set, and then answered with this `set_epoch`; no request for the same set is
        under way any more.

        A refusal by itself tells nothing: an earlier request for the same set, whose answer was lost, may have been the
        one that was granted, and the epoch of the set says so.
        """
        if set_epoch == self.set_epoch and members in self._attempts:
            self._attempts.remove(members)
            self._release()

    def not_taken(self, members: Members, *, now_ms: int) -> None:
        """The controller has refused this set as it does not have one of the brokers, or does not hear it."""
        for replica_id in members - self.members:
            slave = self._slaves.get(replica_id)
            if slave is not None:
                slave.not_taken_ms = now_ms

    def adopt(self, members: Members, set_epoch: int) -> None:
        """The controller's set, from any answer of this master's epoch. An answer that is older changes nothing.

        In one epoch of the set brokers only go: when an operator has them forgotten (CLEAN_BROKER_DATA), the epoch
        stays as it is.
        """
        if set_epoch < self.set_epoch or (set_epoch == self.set_epoch and not members < self.members):
            return
        assert self.own_id in members, "the set of a master has it"
        for replica_id in members & self._slaves.keys():
            self._slaves[replica_id].not_taken_ms = None
        if set_epoch == self.set_epoch:
            self.members = members
            self._release()
            return
        # Changes that were requested with an earlier epoch are refused from now on.
        self.members, self.set_epoch, self._attempts = members, set_epoch, []
        self._release()

    def _may_join(self, slave: _Slave, confirm_offset: PhysicalOffset) -> bool:
        return (
            not slave.is_learner
            and slave.offset is not None
            and slave.offset >= max(confirm_offset, self._epoch_start)
            and slave.began_offset <= confirm_offset
        )

    def _possible_members(self) -> Members:
        return self.members.union(*self._attempts)

    def _count_in_sync(self) -> None:
        has_enough = self.in_sync_count >= self._least_in_sync()
        if has_enough != self._has_enough:
            self._has_enough = has_enough
            self._on_enough(has_enough)

    def _release(self) -> None:
        self._count_in_sync()
        self._waiting.release(self.confirmed_offset)
        self.read_limit.advanced()
