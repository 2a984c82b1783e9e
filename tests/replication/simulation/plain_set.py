"""Plain set: one run of a replica set without a controller: brokers, clients, faults and an operator, by one seed.

The operator does what docs/replicas.md says
  - A master whose process ends is started again as the master.
  - A master whose machine has lost its power or its disk, or that is not there for FAILED_MS: the operator ends its
    process, takes the connections to it from all slaves, asks all brokers that are there where their logs end, and
    makes the one with the longest log the master, but only if no more brokers are missing than the set can
    lose. Those that were not asked are ended as well, and need an empty store before they start again; so do
    those whose log ends before the new master's begins.
  - A planned switch: the master is stopped, and is asked too.
Sizes: sets of two to four brokers, `slaves_needed` of 0 to 2; producers with and without WAIT; each reader reads at the
master and, with slaveReadEnable, at slaves, and commits where it is to the master.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.replication.replica_pair import bytes_of
from tests.replication.simulation.history import History, Message, QueueKey, ViolationError
from tests.replication.simulation.plain_node import PlainNode, SetSettings, Site
from tests.replication.simulation.virtual_network import Network
from tests.replication.simulation.virtual_world import World
from tests.store.store_parts import records_of
from tests.virtual_loop import run_virtually
from thermocline.remoting.offsets import LOG_START, PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import BLANK, MAGIC_BLANK
from thermocline.store.config.store_config import FlushDiskType

FAULTS_MS = 16_000
QUIET_MS = 9_000
"""After the faults: more than reconnecting, catching up and following tables take."""
OPERATOR_MS = 300
FAILED_MS = 2_500
OPERATOR = "operator"
CLIENTS = "clients"
TOPICS = ("orders", "bills", "a" * 60)
QUEUES = 2
GROUPS = ("billing", "audit")
BODY_SIZES = (0, 20, 120, 120, 700)
FAULTS = {
    "kill": 5,
    "kill silently": 3,
    "cut power": 3,
    "cut power in a step": 2,
    "lose disk": 1,
    "freeze": 4,
    "cut": 4,
    "cut one way": 4,
    "slow": 2,
    "heal": 6,
    "clock": 2,
    "switch": 1,
}


class Reader:
    """A consumer of one group, which reads all queues in turn."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.offsets: dict[QueueKey, QueueOffset] = {}
        self.cuts: dict[QueueKey, QueueOffset] = {}
        """Of queues whose end was lost: how far back the reader may be sent."""


class PlainSet:
    """See the module."""

    def __init__(self, seed: int) -> None:
        world = self.world = World(seed)
        random = world.random
        slaves = random.choice((1, 1, 2, 2, 3))
        self.settings = SetSettings(
            slaves_needed=random.choice([count for count in (0, 1, 1, 2) if count <= slaves]),
            flush=random.choice((FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH)),
            slave_read=random.random() < 0.7,
        )
        self.history = History(self.settings.slaves_needed)
        self.network = Network(world)
        self.nodes: dict[str, PlainNode] = {}
        site = Site(
            world=world,
            network=self.network,
            history=self.history,
            settings=self.settings,
            nodes=self.nodes,
            power_failed=self._power_failed,
        )
        for number in range(slaves + 1):
            self.nodes[f"b{number}"] = PlainNode(site, f"b{number}")
        self.master = "b0"
        self.readers = [Reader(group) for group in GROUPS]
        self.missing_since: dict[str, int] = {}
        self.needs_empty: set[str] = set()
        self.has_failed = False
        """The operator replaces the master."""
        self.promotions = 0
        self.is_faulty = self.is_sending = True
        world.note(f"{len(self.nodes)} brokers {self.settings}")

    async def run(self) -> None:
        """One run.

        Raises:
            ViolationError: A promise was broken.
        """
        world = self.world
        for node in self.nodes.values():
            is_master = node.name == self.master
            node.start(is_master=is_master, master=None if is_master else self.master)
        world.later(1, self._send)
        world.later(50, self._read)
        world.later(OPERATOR_MS, self._operate)
        world.later(world.random.randrange(1_500), self._fault)
        await world.run_until(FAULTS_MS)
        self._heal()
        await world.run_until(FAULTS_MS + QUIET_MS // 3)
        self.is_sending = False
        await world.run_until(FAULTS_MS + QUIET_MS)
        self._check_end()

    # -- clients -------------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        if not self.is_sending:
            return
        world, random = self.world, self.world.random
        world.later(random.choice((1, 5, 40, 90)), self._send)
        name = self.master
        if world.chance(0.02):
            name = random.choice(list(self.nodes))  # an old route
        node = self.nodes[name]
        if not self._reaches(CLIENTS, name) or node.machine.is_frozen:
            return
        body = random.randbytes(random.choice(BODY_SIZES))
        node.put(random.choice(TOPICS), random.randrange(QUEUES), body, waits=not world.chance(0.2))

    def _read(self) -> None:
        if not self.is_sending:
            return
        world, random = self.world, self.world.random
        world.later(random.choice((20, 60)), self._read)
        reader = random.choice(self.readers)
        name = self.master
        if self.settings.slave_read and world.chance(0.5):
            name = random.choice(list(self.nodes))
        node = self.nodes[name]
        if self.has_failed:
            return
        if self._reaches(CLIENTS, name) and not node.machine.is_frozen and name not in self.needs_empty:
            self._pull(reader, node, (random.choice(TOPICS), random.randrange(QUEUES)))

    def _pull(self, reader: Reader, node: PlainNode, queue: QueueKey) -> None:
        topic, queue_id = queue
        offset = reader.offsets.get(queue)
        if offset is None:
            offset = node.offsets.query(topic, reader.group, queue_id) or QueueOffset(0)
        _, next_offset, records = node.pull(topic, queue_id, offset, count_max=8)
        expected = offset
        for record in records:
            self.history.check_read(node.name, queue, record)
            if record.queue_offset < expected:
                raise ViolationError("order", f"{node.name} serves {queue} {record.queue_offset} behind {expected}")
            expected = QueueOffset(record.queue_offset + 1)
        if next_offset < offset and next_offset < reader.cuts.get(queue, offset):
            raise ViolationError("back", f"{node.name} sends a reader of {queue} from {offset} to {next_offset}")
        if next_offset != offset:
            reader.cuts.pop(queue, None)
        reader.offsets[queue] = next_offset
        if node.is_master:
            node.offsets.commit(topic, reader.group, queue_id, next_offset)

    def _reaches(self, client: str, name: str) -> bool:
        return self.nodes[name].is_up and self.network.both_pass(client, name)

    # -- faults --------------------------------------------------------------------------------------------------------

    def _fault(self) -> None:
        if not self.is_faulty:
            return
        world, random = self.world, self.world.random
        world.later(random.randrange(100, 1_600), self._fault)
        (fault,) = random.choices(list(FAULTS), list(FAULTS.values()))
        name = self.master if world.chance(0.4) else random.choice(list(self.nodes))
        node = self.nodes[name]
        world.note(f"fault: {fault} {name}")
        others = [other for other in (*self.nodes, OPERATOR, CLIENTS) if other != name]
        match fault:
            case "kill" | "kill silently" if node.is_up:
                if fault == "kill silently":
                    node.break_connections()
                node.kill()
                world.later(random.randrange(50, 1_500), lambda: self._come_back(name))
            case "cut power" if node.is_up:
                self._cut_power(node)
            case "cut power in a step" if node.is_up:
                node.disk.cut_at_step = node.disk.step_count + random.randrange(1, 12)
            case "lose disk" if self._may_lose_disk(node):
                self._cut_power(node)
                node.empty_disk()
            case "freeze":
                node.machine.frozen_until_ms = world.now_ms + random.choice((100, 900, 2_500, 5_000))
            case "cut":
                for other in others:
                    if world.chance(0.6):
                        self.network.cut(name, other)
                        self.network.cut(other, name)
            case "cut one way":
                other = random.choice(others)
                self.network.cut(*((name, other) if world.chance(0.5) else (other, name)))
            case "slow":
                self.network.slow_down(name, random.choice((30, 200)))
            case "heal":
                self.network.heal()
            case "clock":
                node.machine.disturb_wall_clock()
            case "switch":
                self.has_failed = self.has_failed or self.nodes[self.master].is_up

    def _may_lose_disk(self, node: PlainNode) -> bool:
        """Whether another broker has a log: a set that loses all of them has nothing to check."""
        return node.is_up and any(
            other.is_up and other is not node and other.end_offset >= node.end_offset - 2_000
            for other in self.nodes.values()
        )

    def _cut_power(self, node: PlainNode) -> None:
        node.cut_power()
        self._power_failed(node.name)

    def _power_failed(self, name: str) -> None:
        self.world.later(self.world.random.randrange(300, 3_000), lambda: self._come_back(name))

    def _come_back(self, name: str) -> None:
        """A machine or a process starts again, if it has a role."""
        node = self.nodes[name]
        if node.is_up:
            return
        was_off = not node.machine.is_on
        node.machine.is_on = True
        if name in self.needs_empty:
            node.empty_disk()
            self.needs_empty.discard(name)
        if name == self.master:
            if self.has_failed or (was_off and self._compares_logs()):
                self.has_failed = True
                return
            self.world.note(f"{name}: starts as the master")
            before = len(self.history.log)
            self._start_master(node)
            if not was_off and node.is_up and node.end_offset < before:
                raise ViolationError("kept", f"{name} ended at {before}, and ends at {node.end_offset}")
        else:
            self.world.note(f"{name}: starts as a slave")
            node.start(is_master=False, master=None if self.has_failed else self.master)

    def _heal(self) -> None:
        self.world.note("faults end")
        self.is_faulty = False
        self.network.heal()
        for node in self.nodes.values():
            node.machine.frozen_until_ms = 0
            node.machine.heal_wall_clock()
            node.disk.cut_at_step = None

    # -- the operator --------------------------------------------------------------------------------------------------

    def _operate(self) -> None:
        self.world.later(OPERATOR_MS, self._operate)
        if not self.has_failed:
            self.has_failed = self._is_missing_for_long(self.master)
        if self.has_failed:
            self._replace_master()
        for name in sorted(self.needs_empty):
            node = self.nodes[name]
            if node.machine.is_on and not node.machine.is_frozen and self.network.both_pass(OPERATOR, name):
                if node.is_up:
                    node.kill()
                self._come_back(name)

    def _is_missing_for_long(self, name: str) -> bool:
        if self.nodes[name].is_up and self._is_there(name):
            self.missing_since.pop(name, None)
            return False
        return self.world.now_ms - self.missing_since.setdefault(name, self.world.now_ms) > FAILED_MS

    def _is_there(self, name: str) -> bool:
        """Whether the operator can ask a broker."""
        machine = self.nodes[name].machine
        return machine.is_on and not machine.is_frozen and self.network.both_pass(OPERATOR, name)

    def _replace_master(self) -> None:
        old = self.nodes[self.master]
        if old.is_master:
            self.world.note(f"operator: stops {old.name}")
            old.kill()
        if not old.is_up and self._is_there(old.name) and old.name not in self.needs_empty:
            old.start(is_master=False, master=None)  # to ask where its log ends
        asked = []
        for node in self.nodes.values():
            if node.is_up and self._is_there(node.name) and node.name not in self.needs_empty:
                node.follow(None)
                asked.append(node)
        missing = [name for name in self.nodes if self.nodes[name] not in asked]
        if not asked or (self.settings.slaves_needed and len(missing) > self.settings.slaves_needed):
            return
        chosen = self._choose(asked)
        self.world.note(f"operator: makes {chosen.name} the master, missing {missing}")
        missing += [node.name for node in asked if LOG_START < node.end_offset < chosen.start_offset]
        if not self._has_all_queues(chosen):
            missing = [name for name in self.nodes if name != chosen.name]
        for name in missing:
            if self.nodes[name].is_up:
                self.nodes[name].kill()  # it would follow the new master by itself
            self._have_emptied(name)
        chosen.kill()
        self._start_master(chosen)
        if not chosen.is_master:
            return
        self.has_failed = False
        self.master = chosen.name
        self.missing_since.clear()
        self.promotions += 1
        for node in self.nodes.values():
            if node is not chosen and node.is_up and node.name not in self.needs_empty:
                node.follow(chosen.name)

    # -- rules of the operator -----------------------------------------------------------------------------------------

    def _compares_logs(self) -> bool:
        """Whether a master that has lost its power is compared with its slaves first: they may have what it lost."""
        return True

    def _choose(self, asked: list[PlainNode]) -> PlainNode:
        """The longest log; of several the one with all queues, then the one that begins first."""
        return max(asked, key=lambda node: (node.end_offset, self._has_all_queues(node), -node.start_offset))

    def _have_emptied(self, name: str) -> None:
        """A broker that was not asked may have what the new master will never have: it needs an empty store."""
        self.history.holder_lost(name, from_offset=0)
        self.nodes[name].outdated()
        self.needs_empty.add(name)

    def _has_all_queues(self, node: PlainNode) -> bool:
        """Whether each queue goes on there: a log that began with the last file may have no message of it."""
        return all(
            (found := node.opened.queues.find(*queue)) is not None and found.next_offset > 0
            for queue, messages in self.history.queues.items()
            if messages and messages[-1].end_offset <= node.end_offset
        )

    def _start_master(self, node: PlainNode) -> None:
        node.start(is_master=True, master=None)
        if not node.is_master:
            return
        history, end_offset = self.history, node.end_offset
        before = {queue: history.end_of(queue) for queue in history.queues}
        self._adopt(node)
        history.goes_on_at(node.name, start_offset=node.start_offset, end_offset=end_offset)
        for queue, end in before.items():
            if (now := history.end_of(queue)) < end:
                for reader in self.readers:
                    reader.cuts[queue] = min(reader.cuts.get(queue, now), now)

    def _adopt(self, node: PlainNode) -> None:
        """Take over what a master had put when its power was cut before it could say so."""
        store, history = node.opened, self.history
        while len(history.log) < node.end_offset:
            start = len(history.log)
            view = store.commit_log.record_view(PhysicalOffset(start), BLANK.size)
            size_bytes, magic = BLANK.unpack_from(view)
            if magic == MAGIC_BLANK:
                history.log += bytes_of(store, start, start + size_bytes)
                continue
            record = store.commit_log.read_record(PhysicalOffset(start))
            key = record.topic, record.queue_id
            message = Message(start, start + size_bytes, key, record.queue_offset, bytes(record.body))
            history.put(message, bytes_of(store, start, start + size_bytes))

    # -- the end -------------------------------------------------------------------------------------------------------

    def _check_end(self) -> None:
        master = self.nodes[self.master]
        if not master.is_master:
            raise ViolationError("behind", f"there is no master: {self.master} does not run")
        end_offset = master.end_offset
        if end_offset != len(self.history.log):
            raise ViolationError("order", f"{master.name} ends at {end_offset}, the log at {len(self.history.log)}")
        for node in self.nodes.values():
            if not node.is_up or node.end_offset != end_offset:
                where = node.end_offset if node.is_up else "nowhere"
                raise ViolationError(
                    "behind", f"{node.name} is at {where}, the master at {end_offset}: {node.failures}"
                )
            self.history.check_bytes(
                node.name, node.start_offset, bytes_of(node.opened, node.start_offset, node.end_offset)
            )
            for queue in node.opened.queues:
                for record in records_of(node.opened, queue):
                    self.history.check_read(node.name, (queue.topic, queue.queue_id), record)
            if not set(master.offsets.items()) <= set(node.offsets.items()):
                raise ViolationError("behind", f"{node.name} does not have the consumer offsets of {master.name}")
        if len(master.served) != len(self.nodes) - 1:
            raise ViolationError("behind", f"{master.name} has {len(master.served)} connections")


def run_seed(seed: int) -> PlainSet:
    """Run one seed.

    Raises:
        ViolationError: A promise was broken.
    """
    simulated = PlainSet(seed)
    with replay_shown("plain", seed):
        run_virtually(simulated.run)
    return simulated


@contextlib.contextmanager
def replay_shown(kind: str, seed: int) -> Iterator[None]:
    """Add to what fails how it is replayed."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"python -m tests.replication.simulation.replay {kind} {seed}")
        raise
