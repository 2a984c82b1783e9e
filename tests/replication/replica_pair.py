"""A master and a slave with real stores on simulated disks, and a network between them that a seed decides about.

Every byte between the two ends passes through two queues of bytes, from which any number is delivered at a time. The
connection may break at any byte, each process may die, the slave's machine may lose its power.

Checked at every step
  - the slave's log is the master's, byte by byte, up to its end;
  - a message that was acknowledged as confirmed is in the slave's log, also after each of its restarts.
"""

from __future__ import annotations

from random import Random

from tests.clock import Clock
from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import draft, open_store, records_of
from thermocline.remoting.errors import MQError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.replication.confirmations import Confirmations
from thermocline.replication.log_copy import LogCopy
from thermocline.replication.master_session import MasterSession
from thermocline.replication.replication_settings import ReplicationSettings
from thermocline.replication.slave_session import SlaveSession
from thermocline.store.log.message_draft import PutResult, PutStatus
from thermocline.store.message_store import MessageStore

SETTINGS = ReplicationSettings(transfer_bytes_max=700, heartbeat_interval_ms=50, silence_ms_max=2_000)
TIMEOUT_MS = 3_000
BODY_BYTES_MAX = 900


class ReplicaPair:
    """One run."""

    def __init__(self, seed: int, *, reports_flushed: bool = True) -> None:
        self.random = Random(seed)
        self.clock = Clock(1_000_000)
        self.reports_flushed = reports_flushed
        self.answers: list[PutStatus] = []
        self.refusals: list[str] = []
        self.promised: list[PutResult] = []
        self.connections = 0
        self.lacking_offset: PhysicalOffset | None = None
        """From where on an empty slave needs the log."""
        self.checked_offset = PhysicalOffset(0)
        self.master_session: MasterSession | None = None
        self.slave_session: SlaveSession | None = None
        self.to_slave = bytearray()
        self.to_master = bytearray()
        self.ghost: tuple[int, MasterSession, bytearray] | None = None
        """A connection that the slave has given up, and the master has not noticed yet."""
        self.master_disk = SimulatedDisk()
        self.slave_disk = SimulatedDisk()
        self.confirmations = self._confirmations()
        self.master = open_store(self.master_disk, clock=self.clock)
        for _ in range(self.random.randrange(4)):
            self.put()
        self.start_slave()

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do anything that may happen."""
        steps = (
            *((self.put, 12), (self.send, 30), (self.deliver, 30), (self.deliver_reports, 15), (self.report, 10)),
            *((self.hear_ghost, 4), (self.lay_ghost, 1)),
            *((self.flush_slave, 8), (self.pass_time, 8), (self.sync_queues, 2), (self.cut, 2), (self.connect, 8)),
            *((self.kill_slave, 1), (self.cut_slaves_power, 1), (self.kill_master, 1)),
        )
        (step,) = self.random.choices([each for each, _ in steps], [weight for _, weight in steps])
        step()
        self.check()

    def put(self) -> None:
        random = self.random
        topic, queue_id = random.choice(("orders", "bills", "a" * 100)), random.randrange(3)
        body = random.randbytes(random.choice((0, 10, 200, BODY_BYTES_MAX)))
        result = self.master.put(draft(topic, queue_id, body, properties=b"TAGS\x01a\x02"))

        def stored(status: PutStatus) -> None:
            self.answers.append(status)
            if status is PutStatus.PUT_OK:
                self.promised.append(result)

        self.confirmations.wait(result.end_offset, stored, deadline_ms=self.clock.now_ms + TIMEOUT_MS)

    def send(self) -> None:
        """Let the master send one frame."""
        if self.master_session is None:
            return
        try:
            transfer = self.master_session.next_transfer(now_ms=self.clock.now_ms)
        except MQError as error:
            self.refuse(error)
            return
        if transfer is not None:
            self.to_slave += transfer.head
            if transfer.size_bytes:
                self.to_slave += self.master.commit_log.record_view(transfer.offset, transfer.size_bytes)

    def deliver(self, size_bytes: int | None = None) -> None:
        """Let the slave get some bytes."""
        if self.slave_session is None or not self.to_slave:
            return
        count = self.random.randint(1, len(self.to_slave)) if size_bytes is None else size_bytes
        data = bytes(self.to_slave[:count])
        del self.to_slave[:count]
        for offset, part in self.slave_session.receive(data, now_ms=self.clock.now_ms):
            self.copy.receive(offset, part)

    def report(self) -> None:
        """Let the slave report what it has, if that is due."""
        if self.slave_session is None:
            return
        log = self.slave.commit_log
        stored_offset = log.flush_offset if self.reports_flushed else log.append_offset
        frame = self.slave_session.report(stored_offset, now_ms=self.clock.now_ms)
        if frame is not None:
            self.to_master += frame

    def deliver_reports(self, size_bytes: int | None = None) -> None:
        """Let the master get some bytes."""
        if self.master_session is None or not self.to_master:
            return
        count = self.random.randint(1, len(self.to_master)) if size_bytes is None else size_bytes
        data = bytes(self.to_master[:count])
        del self.to_master[:count]
        try:
            was_first = self.master_session.next_offset is None
            if self.master_session.receive(data, now_ms=self.clock.now_ms):
                if was_first and self.master_session.was_empty and self.master_session.next_offset is not None:
                    self.confirmations.began_at(self.master_session.next_offset)
                self.confirmations.reported(self.connections, self.master_session.confirmed_offset)
        except MQError as error:
            self.refuse(error)

    def flush_slave(self) -> None:
        self.slave.commit_log.flush()

    def sync_queues(self) -> None:
        for store in (self.master, self.slave):
            store.tick()
            store.sync_derived()

    def pass_time(self) -> None:
        self.clock.now_ms += self.random.randrange(200)
        self.confirmations.expire(self.clock.now_ms)
        for session in (self.master_session, self.slave_session):
            if session is not None and session.is_silent(self.clock.now_ms):
                self.cut()

    def cut(self) -> None:
        """Break the connection, wherever both ends are. The master may notice it later, or never."""
        if self.master_session is not None:
            self.lay_ghost()
            self.ghost = (self.connections, self.master_session, bytearray(self.to_master))
            if self.random.random() < 0.5:
                self.lay_ghost()
        self.master_session = self.slave_session = None
        self.to_slave.clear()
        self.to_master.clear()
        self.copy.restart()

    def hear_ghost(self) -> None:
        """Let the master get bytes of a connection that the slave has given up."""
        if self.ghost is None:
            return
        connection_id, session, data = self.ghost
        count = self.random.randint(0, len(data))
        received = bytes(data[:count])
        del data[:count]
        if received and session.receive(received, now_ms=self.clock.now_ms):
            self.confirmations.reported(connection_id, session.confirmed_offset)

    def lay_ghost(self) -> None:
        """Let the master notice that the slave has given a connection up."""
        if self.ghost is not None:
            self.confirmations.disconnected(self.ghost[0])
            self.ghost = None

    def connect(self) -> None:
        if self.slave_session is not None:
            return
        now_ms = self.clock.now_ms
        self.connections += 1
        if self.reports_flushed:
            self.flush_slave()  # as the link does: the first report says where the master goes on
        self.confirmations.connected(self.connections, "10.0.0.3")
        self.master_session = MasterSession(
            self.master.commit_log, SETTINGS, now_ms=now_ms, empty_start=lambda: self.lacking_offset
        )
        self.slave_session = SlaveSession(SETTINGS, end_offset=self.copy.end_offset, now_ms=now_ms)
        self.report()

    def start_slave(self) -> None:
        self.slave = open_store(self.slave_disk, clock=self.clock)
        self.check_promised()
        self.copy = LogCopy(self.slave)

    def kill_slave(self) -> None:
        self.cut()
        self.slave_disk.revive()
        self.start_slave()

    def cut_slaves_power(self) -> None:
        if not self.reports_flushed:
            return
        self.cut()
        self.slave_disk = self.slave_disk.after_power_cut(self.random)
        self.start_slave()

    def kill_master(self) -> None:
        self.cut()
        self.lay_ghost()
        self.master_disk.revive()
        self.confirmations = self._confirmations()
        self.master = open_store(self.master_disk, clock=self.clock)

    def refuse(self, error: MQError) -> None:
        self.refusals.append(str(error))
        self.cut()
        self.lay_ghost()

    def catch_up(self) -> None:
        """Let everything work for as long as it takes."""
        for _ in range(10_000):
            self.connect()
            self.flush_slave()
            self.clock.now_ms += SETTINGS.heartbeat_interval_ms
            self.report()
            self.deliver_reports(len(self.to_master))
            self.send()
            self.deliver(len(self.to_slave))
            if self.slave.commit_log.append_offset == self.master.commit_log.append_offset:
                return
        raise AssertionError("the slave does not catch up")

    # -- checks --------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """The slave has the master's bytes."""
        log = self.slave.commit_log
        self.check_promised()
        start = self.checked_offset if log.min_offset <= self.checked_offset <= log.append_offset else log.min_offset
        assert bytes_of(self.slave, start, log.append_offset) == bytes_of(self.master, start, log.append_offset)
        self.checked_offset = log.append_offset

    def check_promised(self) -> None:
        """The slave has each message that was acknowledged as confirmed."""
        log = self.slave.commit_log
        for result in self.promised:
            assert log.min_offset <= result.physical_offset
            assert result.end_offset <= log.append_offset

    def check_whole(self) -> None:
        """The same for the whole log, blanks included, and each queue has what the master's has from there on."""
        log = self.slave.commit_log
        self.checked_offset = PhysicalOffset(0)
        self.check()
        for queue in self.slave.queues:
            original = self.master.queues.find(queue.topic, queue.queue_id)
            assert original is not None
            assert queue.next_offset == original.next_offset
            copied = [record.body for record in records_of(self.slave, queue)]
            expected = [
                record.body for record in records_of(self.master, original) if record.physical_offset >= log.min_offset
            ]
            assert copied == expected

    def _confirmations(self) -> Confirmations:
        return Confirmations(slaves_needed=1, timeout_ms=lambda: TIMEOUT_MS)


def bytes_of(store: MessageStore, start: int, end: int) -> bytes:
    """Bytes of a store's log."""
    return b"".join(
        bytes(file.view[max(start - file.base_offset, 0) : min(end, file.end_offset) - file.base_offset])
        for file in store.commit_log.files.between(PhysicalOffset(start), PhysicalOffset(end))
    )
