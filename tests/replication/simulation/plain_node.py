"""Plain node: a broker that replicates without a controller; store, sessions, gates and tables are the product's.

What replication/links/ does with sockets is done here with the virtual network's connections, step by step the same:
the first report after a flush, `began_at` before the first report counts, a reconnection after RECONNECT_MS, heartbeats
and the end of silent connections by the machine's steady clock. A flush takes its time and comes back later.
Consumer offsets follow by the product's MetadataFollower, with its OffsetsFollower; requests are answered as the
broker's processor does (43 GET_ALL_CONSUMER_OFFSET), over the virtual network. Other tables are not followed here:
they need a whole broker (tests/broker/replicas/).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tests.replication.replica_pair import bytes_of
from tests.replication.simulation.history import History, Message, ViolationError
from tests.replication.simulation.virtual_network import Connection, Network
from tests.replication.simulation.virtual_world import Machine, World
from tests.simulated_disk import PowerCut, SimulatedDisk
from tests.store.store_parts import draft, open_store, small_config
from thermocline.broker.pulls.replica_reads import ReadState, slave_answer
from thermocline.broker.replicas import MetadataFollower, OffsetsFollower
from thermocline.broker.replicas.log_bound import LogBound
from thermocline.broker.state_files import ConfigPersister
from thermocline.broker.tables import consumer_offsets
from thermocline.broker.tables.consumer_offsets import ConsumerOffsets
from thermocline.remoting.bodies import KVTable
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import MQError, UnavailableError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import MessageRecord, iterate_records
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.replication import Confirmations, LogCopy, MasterSession, ReplicationSettings, SlaveSession
from thermocline.store.config.store_config import FlushDiskType
from thermocline.store.log.message_draft import GetStatus, PutStatus
from thermocline.store.message_store import MessageStore

SETTINGS = ReplicationSettings(transfer_bytes_max=1_500, heartbeat_interval_ms=500, silence_ms_max=2_000)
TIMEOUT_MS = 1_000
"""slaveTimeout."""
FLUSH_MS_MAX = 1_000
"""Two flushes, one after the other, take no longer: a send waits for slaves after its own flush."""
RECONNECT_MS = 400
TICK_MS = 125
STEP_MS = 250
FOLLOW_MS = 1_000
"""How often consumer offsets are followed: shorter than in the product, as a run is."""
PIPE_BYTES = 6_000
CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
"""Others are PULL_NOT_FOUND (broker/pulls/pull_finder.py)."""


class SetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What all brokers of a set have in their configuration."""

    slaves_needed: int
    """inSyncReplicas - 1 with SYNC_MASTER; 0: ASYNC_MASTER."""
    flush: FlushDiskType
    slave_read: bool


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """What the nodes of a run share."""

    world: World
    network: Network
    history: History
    settings: SetSettings
    nodes: dict[str, PlainNode]
    power_failed: Callable[[str], None]
    """Called with the machine's name when its power is cut in a step."""


class PlainNode:
    """A ReplicaNode."""

    def __init__(self, site: Site, name: str) -> None:
        self.site = site
        self.name = name
        self.machine = Machine(site.world, name)
        self.disk = SimulatedDisk()
        self.first_offset = LOG_START
        """Where its log begins, also while no process runs."""
        self.reported_offset = LOG_START
        self.told_offset = LOG_START
        """What it has reported to the present master process at most, whatever became of its disk."""
        self.told_start = LOG_START
        """Where its log began then."""
        self.followed: dict[tuple[str, str, int], QueueOffset] = {}
        """Consumer offsets that a master has given, and that are durable here."""
        self.failures: list[str] = []
        self.is_outdated = False
        """Whether it may have what the present master never had: its disk is to be emptied."""
        self.store: MessageStore | None = None
        self.confirmations: Confirmations | None = None
        self.copy: LogCopy | None = None
        self.offsets: ConsumerOffsets
        self.master: str | None = None
        self.served: dict[int, _MasterEnd] = {}
        self.link: _SlaveEnd | None = None
        self._checked_offset = LOG_START
        self._is_dialling = False
        self._expired_ms = 0
        """When sends that have waited too long were answered last."""

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """See ReplicaNode."""
        return self.store is not None

    @property
    def is_master(self) -> bool:
        """See ReplicaNode."""
        return self.store is not None and self.copy is None

    @property
    def start_offset(self) -> PhysicalOffset:
        """See ReplicaNode."""
        return self.opened.commit_log.min_offset

    @property
    def end_offset(self) -> PhysicalOffset:
        """See ReplicaNode."""
        return self.opened.commit_log.append_offset

    @property
    def opened(self) -> MessageStore:
        """The store of a process that runs."""
        assert self.store is not None
        return self.store

    @property
    def waits_for_flush(self) -> bool:
        """Whether what counts is durable."""
        return self.site.settings.flush is FlushDiskType.SYNC_FLUSH

    @property
    def stored_offset(self) -> PhysicalOffset:
        """Up to where it has the log, as it would report it."""
        return self.opened.commit_log.flush_offset if self.waits_for_flush else self.end_offset

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self, *, is_master: bool, master: str | None) -> None:
        """See ReplicaNode."""
        assert self.store is None
        self.machine.is_on = True
        self.master = master
        self._on(lambda: self._open(is_master=is_master))

    def kill(self) -> None:
        """See ReplicaNode."""
        for end in self._connections():
            end.connection.close(self.name)
        self._end()
        self.disk.revive()

    def break_connections(self) -> None:
        """All its connections are dead, and neither end has seen that yet."""
        for end in self._connections():
            end.connection.break_silently()

    def cut_power(self) -> None:
        """See ReplicaNode."""
        for end in self._connections():
            end.connection.vanish(self.name)
        self._end()
        self.machine.is_on = False
        self.disk = self.disk.after_power_cut(self.site.world.random)

    def empty_disk(self) -> None:
        """See ReplicaNode."""
        assert self.store is None
        self.disk = SimulatedDisk()
        self.reported_offset = self.first_offset = LOG_START
        self.followed = {}
        self.is_outdated = False
        self.site.history.holder_lost(self.name, from_offset=0)

    def outdated(self) -> None:
        """Nothing that it has counts any more."""
        self.is_outdated = True
        self.reported_offset = LOG_START

    def follow(self, master: str | None) -> None:
        """A slave's operator names another master, or for a while none."""
        self.master = master
        if self.link is not None:
            self.link.close("another master is named")

    def _open(self, *, is_master: bool) -> None:
        settings, world = self.site.settings, self.site.world
        config = small_config(flush_disk_type=settings.flush)
        store = self.store = open_store(self.disk, config, clock=self.machine.wall_ms)
        store.flush.use(self._flush_later)
        self.first_offset = store.commit_log.min_offset
        self._check_kept(store)
        self._open_offsets(store)
        if not is_master:
            self.copy = LogCopy(store)
            self._checked_offset = store.commit_log.min_offset
            self._check_copy()
            self._tick_slave()
            world.later(world.random.randrange(FOLLOW_MS), self._follow_offsets, machine=self.machine)
        else:
            for node in self.site.nodes.values():
                node.told_offset = LOG_START
            if settings.slaves_needed:
                self.confirmations = store.stored.replicas = Confirmations(
                    slaves_needed=settings.slaves_needed, timeout_ms=lambda: TIMEOUT_MS
                )
            self._tick_master()
            world.later(FOLLOW_MS, self._save_offsets, machine=self.machine)
        self._tick_store()

    def _check_kept(self, store: MessageStore) -> None:
        end_offset = store.commit_log.append_offset
        if end_offset >= self.reported_offset:
            return
        if self.waits_for_flush:
            raise ViolationError("kept", f"{self.name} has reported {self.reported_offset}, and ends at {end_offset}")
        self.site.history.holder_lost(self.name, from_offset=end_offset)
        self.reported_offset = end_offset

    def _open_offsets(self, store: MessageStore) -> None:
        self.offsets = ConsumerOffsets(clock=self.machine.wall_ms)
        self._persister = ConfigPersister(self.disk)
        self._persister.open(
            store.config.config_path, consumer_offsets.FILE_NAME, self.offsets, changes=self.offsets.changes
        )
        for (topic, group, queue_id), followed in self.followed.items():
            present = self.offsets.query(topic, group, queue_id)
            if present is None or present < followed:
                raise ViolationError("offsets", f"{self.name} has {present} of {group}, and had followed {followed}")
        table = OffsetsFollower(self.offsets, self._persister, log_end=lambda: self.end_offset)
        table.bound = LogBound(lambda: self.end_offset, period_ms=FOLLOW_MS, wait_ms=0)
        self._follower = MetadataFollower(
            [table],
            client=_InProcessClient(self),  # type: ignore[arg-type] # what MasterMetadata calls
            master_address=lambda: self.master,
            clock=self.machine.wall_ms,
        )

    def _end(self) -> None:
        self.machine.life += 1
        self.machine.frozen_until_ms = 0
        self.store = self.copy = self.confirmations = None
        self.served = {}
        self.link = None
        self._is_dialling = False

    def _connections(self) -> list[_MasterEnd | _SlaveEnd]:
        return [*self.served.values(), *([] if self.link is None else [self.link])]

    def _on(self, step: Callable[[], None]) -> None:
        """Make a step of the process, which a power cut may end."""
        try:
            step()
        except PowerCut:
            self._power_failed()

    def _power_failed(self) -> None:
        self.site.world.note(f"{self.name}: power cut in a step")
        self.cut_power()
        self.site.power_failed(self.name)

    def later(self, delay_ms: int, step: Callable[[], None]) -> None:
        """Have the process make a step later."""
        self.site.world.later(delay_ms, lambda: self._on(step), machine=self.machine)

    def _flush_later(self, job: Callable[[], int], done: Callable[[BaseException | None], None]) -> None:
        random = self.site.world.random

        def run() -> None:
            try:
                job()
            except (MQError, OSError) as error:
                done(error)
            else:
                done(None)

        self.later(random.choice((1, 2, 5, 30)) if random.random() < 0.98 else 400, run)

    def _tick_store(self) -> None:
        store = self.opened
        store.tick()
        self._expired_ms = self.machine.steady_ms()
        store.stored.expire(self._expired_ms)
        if self.site.world.chance(0.2):
            store.sync_derived()
        if not self.waits_for_flush:
            store.flush.flush()
        self.later(STEP_MS, self._tick_store)

    # -- master --------------------------------------------------------------------------------------------------------

    def put(self, topic: str, queue_id: int, body: bytes, *, waits: bool) -> None:
        """See ReplicaNode."""
        self._on(lambda: self._put(topic, queue_id, body, waits=waits))

    def _put(self, topic: str, queue_id: int, body: bytes, *, waits: bool) -> None:
        store, history, world = self.opened, self.site.history, self.site.world
        try:
            result = store.put(draft(topic, queue_id, body, properties=b"TAGS\x01a\x02"))
        except MQError as error:
            world.note(f"{self.name}: send refused: {type(error).__name__}")
            return
        message = Message(result.physical_offset, result.end_offset, (topic, queue_id), result.queue_offset, body)
        history.put(message, bytes_of(store, len(history.log), result.end_offset))
        world.note(
            f"{self.name}: put {topic} {queue_id} {result.queue_offset} [{result.physical_offset}, {result.end_offset})"
        )
        self._send_soon()
        if not waits:
            return
        life, began_ms, cuts = self.machine.life, world.now_ms, history.cuts
        answers: list[PutStatus] = []

        def stored(status: PutStatus) -> None:
            answers.append(status)
            world.note(f"{self.name}: {result.end_offset} is {status.value}")
            if status is PutStatus.PUT_OK and self.site.settings.slaves_needed:
                assert cuts == history.cuts, "a master that is none any more does not answer"
                self._check_holders(result.physical_offset, result.end_offset)

        deadline_ms = self.machine.steady_ms() + TIMEOUT_MS

        def check_answered() -> None:
            if answers or self.machine.life != life:
                return
            thawed_ms = world.now_ms - self.machine.frozen_until_ms
            if self._expired_ms >= deadline_ms + FLUSH_MS_MAX and thawed_ms > FLUSH_MS_MAX:
                waited_ms = world.now_ms - began_ms
                raise ViolationError("unanswered", f"{self.name} has not answered a send for {waited_ms} ms")
            world.later(STEP_MS, check_answered, machine=self.machine)

        store.stored.wait(result.end_offset, stored, now_ms=self.machine.steady_ms())
        world.later(TIMEOUT_MS, check_answered, machine=self.machine)

    def _check_holders(self, physical_offset: int, end_offset: int) -> None:
        """A send has been answered: as many brokers as were requested have the message."""
        if self.waits_for_flush and self.opened.commit_log.flush_offset < end_offset:
            raise ViolationError("holders", f"{self.name} answers for {end_offset} before it is on its own disk")
        informed = [
            node
            for node in self.site.nodes.values()
            if node is not self and node.told_offset >= end_offset and node.told_start <= physical_offset
        ]
        if len(informed) < self.site.settings.slaves_needed:
            names = [node.name for node in informed]
            raise ViolationError("holders", f"{end_offset} is answered as stored; of slaves only {names} have had it")
        holders = {node.name for node in informed if node.reported_offset >= end_offset}
        self.reported_offset = max(self.reported_offset, PhysicalOffset(end_offset))
        # A slave may have lost its disk since its report.
        self.site.history.promise("lost", end_offset, {*holders, self.name}, losses=len(informed) - len(holders))

    def check_confirmed(self) -> None:
        """Enough slaves have had all below the confirmed offset; no more may be in the bucket."""
        store, history = self.opened, self.site.history
        if self.confirmations is None:
            return
        confirmed = self.confirmations.confirmed_offset
        informed = [node for node in self.site.nodes.values() if node is not self and node.told_offset >= confirmed]
        if confirmed and len(informed) < self.site.settings.slaves_needed:
            raise ViolationError(
                "confirmed", f"{confirmed}, which of slaves only {[node.name for node in informed]} had"
            )
        seal_offset = store.seal_offset
        if seal_offset > store.commit_log.flush_offset:
            raise ViolationError("bucket", f"{seal_offset} may be sealed, and is not durable")
        if seal_offset > history.sealed_offset:
            history.sealed_offset = seal_offset
            had = [node for node in self.site.nodes.values() if node is not self and node.told_offset >= seal_offset]
            if len(had) < self.site.settings.slaves_needed:
                raise ViolationError(
                    "bucket", f"{seal_offset} may be sealed; of slaves only {[n.name for n in had]} had it"
                )
            holders = {node.name for node in had if node.reported_offset >= seal_offset}
            history.promise("bucket", seal_offset, {*holders, self.name}, losses=len(had) - len(holders))

    def accept(self, connection: Connection, slave: str) -> _MasterEnd | None:
        """A slave connects."""
        if not self.is_master:
            return None
        session = MasterSession(self.opened.commit_log, SETTINGS, now_ms=self.machine.steady_ms())
        end = self.served[connection.number] = _MasterEnd(self, connection, session)
        if self.confirmations is not None:
            self.confirmations.connected(connection.number, slave)
        return end

    def _send_soon(self) -> None:
        for end in list(self.served.values()):
            end.send()

    def _tick_master(self) -> None:
        now_ms = self.machine.steady_ms()
        for end in list(self.served.values()):
            if end.session.is_silent(now_ms):
                end.close("it is silent")
            else:
                end.send()
        self.later(TICK_MS, self._tick_master)

    # -- slave ---------------------------------------------------------------------------------------------------------

    def _tick_slave(self) -> None:
        link = self.link
        if link is not None:
            if link.session.is_silent(self.machine.steady_ms()):
                link.close("the master is silent")
            else:
                link.report()
        elif self.master is not None and not self._is_dialling:
            self._is_dialling = True
            if self.waits_for_flush:
                self.opened.flush.wait(self.end_offset, lambda _: self._dial())
            else:
                self._dial()
        self.later(TICK_MS, self._tick_slave)

    def _dial(self) -> None:
        if self.master is None:
            self._is_dialling = False
            return
        master = self.site.nodes[self.master]

        def opened(connection: Connection | None) -> _SlaveEnd | None:
            if connection is None or self.copy is None or self.master != master.name:
                self.later(RECONNECT_MS, self._redial)
                return None
            self._is_dialling = False
            self.copy.restart()
            session = SlaveSession(SETTINGS, end_offset=self.copy.end_offset, now_ms=self.machine.steady_ms())
            self.link = _SlaveEnd(self, connection, session)
            self.site.world.note(f"{self.name}: follows {master.name} from {self.copy.end_offset}")
            self.later(0, self.link.report)
            return self.link

        self.site.network.connect(self.machine, master.machine, lambda found: master.accept(found, self.name), opened)

    def _redial(self) -> None:
        self._is_dialling = False

    def link_ended(self) -> None:
        """The connection to the master is over."""
        self.link = None
        if self.copy is not None:
            self.copy.restart()
        self._is_dialling = True
        self.later(RECONNECT_MS, self._redial)

    def _check_copy(self) -> None:
        """Compare what has come with the master's log."""
        start, end = self._checked_offset, self.end_offset
        if self.is_outdated:
            return
        self.first_offset = self.start_offset
        start = max(start, self.start_offset)
        if self.link is None:  # at a start: of a former master the last send may have been cut off, and be there
            end = min(end, PhysicalOffset(len(self.site.history.log)))
        self.site.history.check_bytes(self.name, PhysicalOffset(start), bytes_of(self.opened, start, end))
        self._checked_offset = end

    async def _follow_offsets(self) -> None:
        self.site.world.later(STEP_MS, self._follow_offsets, machine=self.machine)
        life = self.machine.life
        try:
            await self._follower.step()
        except PowerCut:
            self._power_failed()
        if self.machine.life == life:
            status = self._follower.status()[0]
            if not status.error and status.followed_ms is not None:
                self.followed = {(topic, group, queue): offset for topic, group, queue, offset in self.offsets.items()}

    async def _save_offsets(self) -> None:
        self.site.world.later(FOLLOW_MS, self._save_offsets, machine=self.machine)
        try:
            await self._persister.save_changed(consumer_offsets.FILE_NAME)
        except PowerCut:
            self._power_failed()
            return
        self.followed = {(topic, group, queue): offset for topic, group, queue, offset in self.offsets.items()}

    # -- readers -------------------------------------------------------------------------------------------------------

    def pull(
        self, topic: str, queue_id: int, offset: QueueOffset, *, count_max: int
    ) -> tuple[int, QueueOffset, list[MessageRecord]]:
        """See ReplicaNode."""
        result = self.opened.get(topic, queue_id, offset, count_max=count_max, bytes_max=1 << 20)
        code = int(CODES.get(result.status, ResponseCode.PULL_NOT_FOUND))
        next_offset = result.next_begin_offset
        queue = self.opened.queues.find(topic, queue_id)
        if result.status is GetStatus.OFFSET_OVERFLOW_BADLY and queue is not None and offset <= queue.next_offset:
            code = int(ResponseCode.PULL_NOT_FOUND)  # not flushed yet, but at a slave from which it was read
        if code == ResponseCode.PULL_NOT_FOUND:
            next_offset = offset  # nothing is there yet
        if not self.is_master:
            state = ReadState(slave_read=True, is_slave=True, has_master=self.master is not None)
            code, next_offset = slave_answer(state, code, offset=offset, next_offset=next_offset)
        records = [record for buffer in result.buffers for record in iterate_records(buffer)]
        return code, QueueOffset(next_offset), records


class _MasterEnd:
    """The master's end of a slave's connection, as links/master_port.py has it."""

    def __init__(self, node: PlainNode, connection: Connection, session: MasterSession) -> None:
        self.connection = connection
        self.session = session
        self._node = node

    def received(self, data: bytes) -> None:
        """Bytes have come."""
        self._node._on(lambda: self._received(data))

    def _received(self, data: bytes) -> None:
        node, session = self._node, self.session
        confirmations, was_first = node.confirmations, session.next_offset is None
        try:
            has_report = session.receive(data, now_ms=node.machine.steady_ms())
        except MQError as error:
            node.failures.append(str(error))
            self.close(f"refused: {type(error).__name__}")
            return
        if not has_report:
            return
        if was_first:
            assert session.next_offset is not None
            if session.was_empty and confirmations is not None:
                confirmations.began_at(session.next_offset)
            self.send()
        if confirmations is not None and self.connection.number in node.served:
            confirmations.reported(self.connection.number, session.confirmed_offset)
            node.check_confirmed()

    def closed(self, reason: str) -> None:
        """The connection is over."""
        self._forget(reason)

    def close(self, reason: str) -> None:
        """End it from here."""
        self.connection.close(self._node.name)
        self._forget(reason)

    def send(self) -> None:
        """Send what the network takes now."""
        node, log = self._node, self._node.opened.commit_log
        while self.connection.waiting_bytes(node.name) < PIPE_BYTES:
            try:
                transfer = self.session.next_transfer(now_ms=node.machine.steady_ms())
            except MQError as error:
                node.failures.append(str(error))
                self.close(f"refused: {type(error).__name__}")
                return
            if transfer is None:
                return
            data = bytes(log.record_view(transfer.offset, transfer.size_bytes)) if transfer.size_bytes else b""
            self.connection.send(node.name, transfer.head + data)

    def _forget(self, reason: str) -> None:
        node = self._node
        if node.served.pop(self.connection.number, None) is not None:
            node.site.world.note(f"{node.name}: connection {self.connection.number} ends: {reason}")
            if node.confirmations is not None:
                node.confirmations.disconnected(self.connection.number)


class _SlaveEnd:
    """The slave's end, as links/slave_link.py has it."""

    def __init__(self, node: PlainNode, connection: Connection, session: SlaveSession) -> None:
        self.connection = connection
        self.session = session
        self._node = node

    def received(self, data: bytes) -> None:
        """Bytes have come."""
        self._node._on(lambda: self._received(data))

    def _received(self, data: bytes) -> None:
        node, copy = self._node, self._node.copy
        if node.link is not self or copy is None:
            return
        try:
            for offset, part in self.session.receive(data, now_ms=node.machine.steady_ms()):
                copy.receive(offset, part)
        except MQError as error:
            node.failures.append(str(error))
            self.close(f"refused: {type(error).__name__}")
            return
        node._check_copy()
        if node.waits_for_flush:
            node.opened.flush.wait(node.end_offset, lambda _: self.report())
        else:
            self.report()

    def report(self) -> None:
        """Report what is new, if this is still the connection."""
        node = self._node
        if node.link is not self:
            return
        frame = self.session.report(node.stored_offset, now_ms=node.machine.steady_ms())
        if frame is not None and not node.is_outdated:
            node.reported_offset = max(node.reported_offset, node.stored_offset)
            if node.stored_offset >= node.told_offset:
                node.told_offset, node.told_start = node.stored_offset, node.first_offset
        if frame is not None:
            self.connection.send(node.name, frame)

    def closed(self, reason: str) -> None:
        """The connection is over."""
        if self._node.link is self:
            self._node.site.world.note(f"{self._node.name}: connection to the master ends: {reason}")
            self._node.link_ended()

    def close(self, reason: str) -> None:
        """End it from here."""
        self.connection.close(self._node.name)
        self.closed(reason)


class _InProcessClient:
    """What MasterMetadata needs of a RemotingClient; the address is a machine's name."""

    def __init__(self, node: PlainNode) -> None:
        self._node = node

    async def request(self, address: str, command: RemotingCommand, *, timeout_ms: int) -> RemotingCommand:
        """Ask a master for its consumer offsets, or where its log ends."""
        node = self._node
        master = node.site.nodes[address]
        if not master.is_master or master.machine.is_frozen or not node.site.network.both_pass(node.name, address):
            raise UnavailableError("no answer", address=address, timeout_ms=timeout_ms)
        if command.code == RequestCode.GET_BROKER_RUNTIME_INFO:
            table = KVTable(table={"commitLogMaxOffset": str(master.end_offset)})
            return RemotingCommand.response(command, body=table.encode())
        assert command.code == RequestCode.GET_ALL_CONSUMER_OFFSET
        return RemotingCommand.response(command, body=master.offsets.encode())

    def disconnect(self, address: str) -> None:
        """There is no connection to close."""
