"""Three brokers of one replica set with real stores on simulated disks, a controller, and a network between them.

Everything happens in steps that a seed chooses: bytes and requests are delivered in pieces, late or never; processes
die, machines lose their power, masters are replaced while they live, and go on without knowing.

The controller here is a table: it elects any broker of the SyncStateSet that runs, so that each of them has to do.
Sends wait for all of the SyncStateSet, and for their own flush.

Checked
  - A message that was acknowledged is in the log of every broker of the controller's SyncStateSet, at its place.
  - Bytes below a master's confirm offset, which consumers may have read, are the same for ever.
  - No two masters of one epoch; a log has no more than what its epochs tell.
  - At the end, when everything works again: all logs are the same, byte by byte, and so are their queues.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random

import msgspec

from tests.clock import Clock
from tests.replication.replica_pair import bytes_of
from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import ROOT, draft, open_store, records_of
from thermocline.remoting.errors import MQError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.replication.auto_switch_codec import SlaveHandshake
from thermocline.replication.auto_switch_master import AutoSwitchMasterSession
from thermocline.replication.auto_switch_slave import AutoSwitchSlaveSession
from thermocline.replication.epoch_file import EpochFile, StaleEpochError
from thermocline.replication.log_copy import LogCopy
from thermocline.replication.replication_settings import ReplicationSettings
from thermocline.replication.sync_state_set import Members, SyncStateSet
from thermocline.store.index.index_service import IndexService
from thermocline.store.log.message_draft import PutResult, PutStatus
from thermocline.store.message_store import MessageStore
from thermocline.store.truncation import truncate_store

SETTINGS = ReplicationSettings(transfer_bytes_max=700, heartbeat_interval_ms=50, silence_ms_max=2_000)
TIMEOUT_MS = 3_000
LAG_MS_MAX = 400
CATCH_UP_ROUNDS = 3_000


class SetState(msgspec.Struct, frozen=True):
    """What a controller says."""

    master_id: int
    master_epoch: int
    members: Members
    set_epoch: int


class Change(msgspec.Struct, frozen=True):
    """A master asks for another set."""

    master_id: int
    master_epoch: int
    set_epoch: int
    members: Members


class Connection:
    """A slave's connection, with what is under way in it."""

    def __init__(self, id_: int, master: SetBroker, slave: SetBroker, now_ms: int) -> None:
        self.id = id_
        self.master = master
        self.slave = slave
        self.to_slave = bytearray()
        self.to_master = bytearray()
        sync_state_set = master.sync_state_set
        assert sync_state_set is not None
        log = slave.store.commit_log
        self.master_session = AutoSwitchMasterSession(
            master.store.commit_log,
            master.epoch_file.epochs,
            SETTINGS,
            confirm_offset=lambda: sync_state_set.confirm_offset,
            now_ms=now_ms,
        )
        self.slave_session = AutoSwitchSlaveSession(
            slave.epoch_file,
            SETTINGS,
            SlaveHandshake(slave.id, begins_with_last_file=False, is_learner=slave.is_learner),
            min_offset=log.min_offset,
            end_offset=log.append_offset,
            now_ms=now_ms,
        )
        self.to_master += self.slave_session.greeting


class SetBroker:
    """One broker."""

    def __init__(self, id_: int, clock: Clock, *, is_learner: bool) -> None:
        self.id = id_
        self.clock = clock
        self.is_learner = is_learner
        self.disk = SimulatedDisk()
        self.is_up = True
        self.known_set: SetState | None = None
        """What it has last heard of the controller."""
        self.sync_state_set: SyncStateSet | None = None
        """While it takes itself for the master."""
        self.copy: LogCopy | None = None
        self.confirm_offset = LOG_START
        self.unflushed: list[PutResult] = []
        self.start()

    def start(self) -> None:
        self.store: MessageStore = open_store(self.disk, clock=self.clock)
        log = self.store.commit_log
        self.epoch_file = EpochFile(self.disk, ROOT)
        self.epoch_file.settle(min_offset=log.min_offset, end_offset=log.append_offset)
        self.is_up = True

    def stop(self) -> None:
        """The process is gone, the role with it."""
        self.is_up = False
        self.known_set = self.sync_state_set = self.copy = None
        self.confirm_offset = LOG_START
        self.unflushed = []

    def become_master(self, state: SetState) -> None:
        """StaleEpochError: It has to wait for another epoch."""
        log = self.store.commit_log
        self.epoch_file.begin_as_master(state.master_epoch, log.append_offset)
        last = self.epoch_file.epochs.last
        assert last is not None
        self.end_role()
        self.sync_state_set = SyncStateSet(
            self.id,
            members=state.members,
            set_epoch=state.set_epoch,
            epoch_start=last.start_offset,
            confirm_offset=min(self.confirm_offset, log.append_offset),
            log_end=lambda: log.append_offset,
            acks_needed=lambda: None,
            timeout_ms=lambda: TIMEOUT_MS,
            lag_ms_max=lambda: LAG_MS_MAX,
        )

    def become_slave(self) -> None:
        self.end_role()
        self.copy = LogCopy(self.store)

    def end_role(self) -> None:
        if self.sync_state_set is not None:
            self.sync_state_set.close()
            self.sync_state_set = None
        if self.copy is not None:
            self.copy.end()
            self.copy = None
        self.unflushed = []

    def cut(self, connection: Connection) -> None:
        """Cut the log where it parts from the master's."""
        alignment = connection.slave_session.alignment
        assert alignment is not None
        end_offset = truncate_store(self.store, self.disk, alignment.end_offset, cut_derived=self.cut_index)
        assert end_offset == alignment.end_offset, "logs part at a border between records"
        self.epoch_file.cut(alignment)

    def cut_index(self, end_offset: PhysicalOffset) -> None:
        IndexService.open(
            self.disk, self.store.config, log_end_offset=end_offset, was_clean=True, clock=self.clock
        ).close()


class ReplicaSet:
    """One run."""

    def __init__(self, seed: int, *, learner: bool = False) -> None:
        self.random = Random(seed)
        self.clock = Clock(1_000_000)
        self.brokers = [SetBroker(id_, self.clock, is_learner=learner and id_ == 3) for id_ in (1, 2, 3)]
        self.state = SetState(1, 1, frozenset({1}), 1)
        self.epochs_begun: dict[int, int] = {}
        self.changes: list[Change] = []
        self.answers: list[tuple[Change, SetState, bool]] = []
        """Answers under way: the question, what the controller has then, whether it has granted it."""
        self.connections: list[Connection] = []
        self.connection_ids = itertools.count(1)
        self.promised: list[tuple[PutResult, bytes]] = []
        self.statuses: list[PutStatus] = []
        self.refusals: list[str] = []
        self.read = bytearray()
        """What consumers may have read, from the log's start on."""
        self.cuts = 0
        self.elections = 0
        self.settle()

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do anything that may happen."""
        steps = (
            *((self.put, 28), (self.send, 25), (self.deliver, 25), (self.deliver_reports, 15), (self.report, 15)),
            *((self.flush, 30), (self.pass_time, 10), (self.sync_queues, 2), (self.connect, 30), (self.break_one, 2)),
            *((self.exchange_any, 30), (self.refresh, 15), (self.ask, 15), (self.decide, 15), (self.answer, 15)),
            *((self.lose_request, 2), (self.kill, 1), (self.cut_power, 1), (self.restart, 10), (self.elect, 2)),
        )
        (step,) = self.random.choices([each for each, _ in steps], [weight for _, weight in steps])
        step()
        self.check_read()

    def put(self) -> None:
        """Any broker that takes itself for the master takes a send."""
        broker = self.any_broker(lambda each: each.sync_state_set is not None)
        if broker is None:
            return
        random = self.random
        topic, queue_id = random.choice(("orders", "bills", "a" * 100)), random.randrange(2)
        body = random.randbytes(random.choice((0, 10, 200, 900)))
        broker.unflushed.append(broker.store.put(draft(topic, queue_id, body, properties=b"KEYS\x01k\x02")))

    def flush(self) -> None:
        broker = self.any_broker(lambda each: each.is_up)
        if broker is None:
            return
        broker.store.commit_log.flush()
        gate = broker.sync_state_set
        if gate is None:
            return
        flushed, broker.unflushed = broker.unflushed, []
        for result in flushed:
            self.wait(broker, gate, result)

    def wait(self, broker: SetBroker, gate: SyncStateSet, result: PutResult) -> None:
        data = bytes_of(broker.store, result.physical_offset, result.end_offset)

        def stored(status: PutStatus) -> None:
            self.statuses.append(status)
            if status is PutStatus.PUT_OK:
                self.promised.append((result, data))
                self.check_promised([(result, data)])

        gate.wait(result.end_offset, stored, deadline_ms=self.clock.now_ms + TIMEOUT_MS)

    def send(self) -> None:
        connection = self.any_connection()
        if connection is not None:
            self.send_one(connection)

    def send_one(self, connection: Connection) -> None:
        connection.to_slave += connection.master_session.take_reply()
        try:
            transfer = connection.master_session.next_transfer(now_ms=self.clock.now_ms)
        except MQError as error:
            self.refuse(connection, error)
            return
        if transfer is not None:
            connection.to_slave += transfer.head
            if transfer.size_bytes:
                connection.to_slave += connection.master.store.commit_log.record_view(
                    transfer.offset, transfer.size_bytes
                )

    def deliver(self) -> None:
        connection = self.any_connection()
        if connection is not None and connection.to_slave:
            self.deliver_to_slave(connection, self.random.randint(1, len(connection.to_slave)))

    def deliver_to_slave(self, connection: Connection, size_bytes: int) -> None:
        data = bytes(connection.to_slave[:size_bytes])
        del connection.to_slave[:size_bytes]
        slave, session = connection.slave, connection.slave_session
        assert slave.copy is not None
        try:
            for offset, part in session.receive(data, now_ms=self.clock.now_ms):
                slave.copy.receive(offset, part)
        except MQError as error:
            self.refuse(connection, error)
            return
        if session.must_cut:
            self.cuts += 1
            self.end(connection)
            slave.cut(connection)
            self.check_promised(self.promised)
            return
        slave.confirm_offset = min(session.confirm_offset, slave.store.commit_log.append_offset)

    def report(self) -> None:
        connection = self.any_connection()
        if connection is not None:
            self.report_of(connection)

    def report_of(self, connection: Connection) -> None:
        log = connection.slave.store.commit_log
        frame = connection.slave_session.report(log.flush_offset, now_ms=self.clock.now_ms)
        if frame is not None:
            connection.to_master += frame

    def deliver_reports(self) -> None:
        connection = self.any_connection()
        if connection is not None and connection.to_master:
            self.deliver_to_master(connection, self.random.randint(1, len(connection.to_master)))

    def deliver_to_master(self, connection: Connection, size_bytes: int) -> None:
        data = bytes(connection.to_master[:size_bytes])
        del connection.to_master[:size_bytes]
        session, members, now_ms = connection.master_session, connection.master.sync_state_set, self.clock.now_ms
        assert members is not None
        had_slave, had_report = session.slave is not None, session.next_offset is not None
        try:
            has_report = session.receive(data, now_ms=now_ms)
        except MQError as error:
            self.refuse(connection, error)
            return
        slave = session.slave
        if slave is None:
            return
        if not had_slave:
            members.connected(slave.replica_id, connection.id, is_learner=slave.is_learner, now_ms=now_ms)
        if has_report:
            if not had_report and session.was_empty and session.next_offset is not None:
                members.began_at(slave.replica_id, connection.id, session.next_offset)
            members.reported(slave.replica_id, connection.id, session.confirmed_offset, now_ms=now_ms)

    def pass_time(self) -> None:
        self.clock.now_ms += self.random.randrange(200)
        for broker in self.brokers:
            if broker.sync_state_set is not None:
                broker.sync_state_set.expire(self.clock.now_ms)
        for connection in list(self.connections):
            if connection.master_session.is_silent(self.clock.now_ms):
                self.end(connection)

    def sync_queues(self) -> None:
        for broker in self.brokers:
            if broker.is_up:
                broker.store.tick()
                broker.store.sync_derived()

    def connect(self) -> None:
        slave = self.any_broker(lambda each: each.copy is not None)
        if slave is None or slave.known_set is None or any(each.slave is slave for each in self.connections):
            return
        master = self.broker(slave.known_set.master_id)
        if master.sync_state_set is None:
            return
        slave.store.commit_log.flush()  # the first report says where the master goes on
        self.connections.append(Connection(next(self.connection_ids), master, slave, self.clock.now_ms))

    def break_one(self) -> None:
        connection = self.any_connection()
        if connection is not None:
            self.end(connection)

    def end(self, connection: Connection) -> None:
        self.connections.remove(connection)
        if connection.slave.copy is not None:
            connection.slave.copy.restart()
        slave, members = connection.master_session.slave, connection.master.sync_state_set
        if slave is not None and members is not None:
            members.disconnected(slave.replica_id, connection.id)

    def refuse(self, connection: Connection, error: MQError) -> None:
        self.refusals.append(str(error))
        self.end(connection)

    # -- the controller ------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """A broker asks the controller who its master is."""
        broker = self.any_broker(lambda each: each.is_up)
        if broker is not None:
            self.tell(broker)

    def tell(self, broker: SetBroker) -> None:
        state, before = self.state, broker.known_set
        if before is not None and before.master_epoch == state.master_epoch:
            if broker.sync_state_set is not None:
                broker.sync_state_set.adopt(state.members, state.set_epoch)
            return
        if state.master_id == broker.id:
            if broker.is_learner:
                return
            self.end_all(broker)
            try:
                broker.become_master(state)
            except StaleEpochError:
                return
            assert self.epochs_begun.setdefault(state.master_epoch, broker.id) == broker.id
        else:
            self.end_all(broker)
            broker.become_slave()
        broker.known_set = state

    def ask(self) -> None:
        """A master asks for another set, if it wants one."""
        broker = self.any_broker(lambda each: each.sync_state_set is not None)
        if broker is not None:
            self.ask_for(broker)

    def ask_for(self, broker: SetBroker) -> None:
        members = broker.sync_state_set
        assert members is not None
        assert broker.known_set is not None
        wanted = members.wanted(now_ms=self.clock.now_ms)
        if wanted is not None:
            members.asked(wanted)
            self.changes.append(Change(broker.id, broker.known_set.master_epoch, members.set_epoch, wanted))

    def decide(self) -> None:
        """The controller decides about a request, in their order."""
        if not self.changes:
            return
        change, state = self.changes.pop(0), self.state
        is_of_master = (change.master_id, change.master_epoch) == (state.master_id, state.master_epoch)
        if is_of_master and change.set_epoch == state.set_epoch and change.members != state.members:
            self.state = msgspec.structs.replace(state, members=change.members, set_epoch=state.set_epoch + 1)
            self.answers.append((change, self.state, True))
            self.check_promised(self.promised)
        else:
            self.answers.append((change, state, False))

    def answer(self) -> None:
        """An answer reaches a master, if it is the one that has asked."""
        if not self.answers:
            return
        change, state, is_granted = self.answers.pop(self.random.randrange(len(self.answers)))
        broker = self.broker(change.master_id)
        members, known_set = broker.sync_state_set, broker.known_set
        if members is None or known_set is None or known_set.master_epoch != change.master_epoch:
            return
        if is_granted:
            members.adopt(state.members, state.set_epoch)
        elif change.members not in [each.members for each in self.changes]:
            members.refused(change.members, state.set_epoch)

    def lose_request(self) -> None:
        lost = self.random.choice((self.changes, self.answers))
        if lost:
            lost.pop(self.random.randrange(len(lost)))

    def elect(self) -> None:
        """The controller replaces the master, dead or alive."""
        candidates = [each for each in self.brokers if each.is_up and each.id in self.state.members]
        if candidates:
            self.elections += 1
            chosen = self.random.choice(candidates)
            self.state = SetState(
                chosen.id, self.state.master_epoch + 1, frozenset({chosen.id}), self.state.set_epoch + 1
            )

    # -- failures ------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        broker = self.any_broker(lambda each: each.is_up)
        if broker is not None:
            self.end_all(broker)
            broker.stop()
            broker.disk.revive()

    def cut_power(self) -> None:
        broker = self.any_broker(lambda each: each.is_up)
        if broker is not None:
            self.end_all(broker)
            broker.stop()
            broker.disk = broker.disk.after_power_cut(self.random)

    def restart(self) -> None:
        broker = self.any_broker(lambda each: not each.is_up)
        if broker is not None:
            broker.start()
            self.check_promised(self.promised)

    def end_all(self, broker: SetBroker) -> None:
        for connection in [each for each in self.connections if broker in (each.master, each.slave)]:
            self.end(connection)

    # -- at the end ----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let everything work until all are the same."""
        self.changes.clear()
        self.answers.clear()
        for broker in self.brokers:
            if not broker.is_up:
                broker.start()
        for round_ in range(CATCH_UP_ROUNDS):
            master = self.broker(self.state.master_id)
            if master.sync_state_set is None and round_ % 10 == 9:
                self.elect()
            for broker in self.brokers:
                self.tell(broker)
                broker.store.commit_log.flush()
            for _ in self.brokers:
                self.connect()
            self.clock.now_ms += SETTINGS.heartbeat_interval_ms
            for connection in list(self.connections):
                self.exchange(connection)
            for broker in self.brokers:
                if broker.sync_state_set is not None:
                    self.ask_for(broker)
                    self.decide()
                    self.answer()
            expected = frozenset(each.id for each in self.brokers if not each.is_learner)
            ends = {each.store.commit_log.append_offset for each in self.brokers}
            if self.state.members == expected and len(ends) == 1 and len(self.connections) == 2:
                return
        raise AssertionError(f"the set does not settle: {self.state} {self.refusals[-3:]}")

    def exchange_any(self) -> None:
        connection = self.any_connection()
        if connection is not None:
            self.exchange(connection)

    def exchange(self, connection: Connection) -> None:
        self.report_of(connection)
        if connection in self.connections and connection.to_master:
            self.deliver_to_master(connection, len(connection.to_master))
        for _ in range(20):
            if connection in self.connections:
                self.send_one(connection)
        if connection in self.connections and connection.to_slave:
            self.deliver_to_slave(connection, len(connection.to_slave))

    # -- checks --------------------------------------------------------------------------------------------------------

    def check_promised(self, promised: list[tuple[PutResult, bytes]]) -> None:
        """What was acknowledged is on each broker that an election may choose."""
        for broker in self.brokers:
            if not broker.is_up or broker.id not in self.state.members:
                continue
            for result, data in promised:
                assert broker.store.commit_log.append_offset >= result.end_offset, f"broker {broker.id} lacks a message"
                assert bytes_of(broker.store, result.physical_offset, result.end_offset) == data

    def check_read(self) -> None:
        """What a consumer may have read from a master stays."""
        for broker in self.brokers:
            members = broker.sync_state_set
            if members is None:
                continue
            confirm_offset, read = members.confirm_offset, self.read
            # What is not flushed may go with the power; then it was not to be read.
            end = min(confirm_offset, broker.store.commit_log.flush_offset)
            start = max(0, min(end, len(read)) - 2_000)
            data = bytes_of(broker.store, start, end)
            assert data[: len(read) - start] == bytes(read[start:end])
            if end > len(read):
                read += data[len(read) - start :]

    def check_same(self) -> None:
        """All logs are the same, and all queues."""
        first, *others = (broker.store for broker in self.brokers)
        end = first.commit_log.append_offset
        original = bytes_of(first, 0, end)
        assert original[: len(self.read)] == bytes(self.read)
        for store in others:
            assert bytes_of(store, 0, end) == original
            assert {(each.topic, each.queue_id) for each in store.queues if each.next_offset} == {
                (each.topic, each.queue_id) for each in first.queues if each.next_offset
            }
            for queue in store.queues:
                same = first.queues.find(queue.topic, queue.queue_id)
                bodies = [] if same is None else [record.body for record in records_of(first, same)]
                assert [record.body for record in records_of(store, queue)] == bodies
        self.check_promised(self.promised)

    # -- inside --------------------------------------------------------------------------------------------------------

    def broker(self, id_: int) -> SetBroker:
        return self.brokers[id_ - 1]

    def any_broker(self, condition: Callable[[SetBroker], bool]) -> SetBroker | None:
        fitting = [each for each in self.brokers if condition(each)]
        return self.random.choice(fitting) if fitting else None

    def any_connection(self) -> Connection | None:
        return self.random.choice(self.connections) if self.connections else None
