"""A group of controllers on one seed: clock, network, disks and faults are simulated, the replicated log is real.

Faults: a process is killed (what it wrote stays), a machine loses power at any step of its disk (what was not synced
may be gone, in part, out of order), a node freezes, links are cut in one direction or both, messages take long.
Checked all the time
  - two nodes that have applied an entry of one number have applied the same one;
  - a term has one leader.
And after the faults have ended: every node has applied every command that was acknowledged.
"""

from __future__ import annotations

import contextlib
import heapq
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.simulated_disk import PowerCut, SimulatedDisk
from thermocline.controller.consensus.journal import Journal
from thermocline.controller.consensus.peer_messages import Envelope, Message, RisingOrder
from thermocline.controller.consensus.raft_library import syncobj
from thermocline.controller.consensus.replicated_log import TICK_MS, ReplicatedLog

FOLDER = "/controller"
GROUP = "simulated"
COMPACT_ENTRIES = 25
PROPOSE_EVERY_S = 0.15
QUIET_S = 20.0
"""After the last fault, and after the last proposal: far more than elections and catching up take."""


class ViolationError(AssertionError):
    """A promise of the log was broken."""


@dataclass(eq=False)
class SimulatedNode:
    """One machine."""

    name: str
    disk: SimulatedDisk
    log: ReplicatedLog | None = None
    starts: int = 0
    sequence: int = 0
    frozen_until_s: float = 0.0
    tables: list[str] = field(default_factory=list)
    order: RisingOrder = field(default_factory=RisingOrder)
    life: int = 0
    """Rises at each end of the process: timers and callbacks of an earlier one count no more."""


class SimulatedGroup:
    """See the module."""

    def __init__(self, seed: int, *, size: int, ignored_sites: tuple[str, ...] = ()) -> None:
        """`ignored_sites`: syncs of the disks that do nothing (tests/simulated_disk.py)."""
        self.random = Random(seed)
        self.now_s = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._event_count = 0
        names = [f"n{number}" for number in range(size)]
        self.nodes = {name: SimulatedNode(name, SimulatedDisk(ignored_sites=ignored_sites)) for name in names}
        self._cut_links: set[tuple[str, str]] = set()
        self._applied: dict[int, str] = {}
        self._leaders: dict[int, str] = {}
        self.acknowledged: list[str] = []
        self._proposed = 0
        self._is_faulty = self._is_proposing = True

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self, faults_s: float) -> None:
        """Work under faults for so long, then heal everything, wait, and check.

        Raises:
            ViolationError: A promise was broken.
        """
        with simulated_library(self):
            for node in self.nodes.values():
                self._start(node)
            self._later(PROPOSE_EVERY_S, self._propose)
            self._later(self.random.uniform(0, 4), self._fault)
            self._until(faults_s)
            self._heal()
            self._until(faults_s + QUIET_S)
            self._is_proposing = False
            self._until(faults_s + 2 * QUIET_S)
            self._check_end()

    def _until(self, end_s: float) -> None:
        while self._events and self._events[0][0] <= end_s:
            self.now_s, _, action = heapq.heappop(self._events)
            action()
        self.now_s = end_s

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        self._event_count += 1
        heapq.heappush(self._events, (self.now_s + delay_s, self._event_count, action))

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _start(self, node: SimulatedNode) -> None:
        node.life += 1
        node.tables, node.order, node.sequence = [], RisingOrder(), 0
        life = node.life

        def apply(command: bytes) -> object:
            text = command.decode()
            assert node.log is not None
            self._note_applied(node.log.applied_index + 1, text)
            node.tables.append(text)
            return True

        def restore(data: bytes) -> None:
            node.tables = json.loads(data)

        def open_log() -> None:
            journal = Journal(node.disk, FOLDER, group=GROUP, node=node.name, nodes=self.nodes, start_floor=0)
            node.starts = journal.starts
            node.log = ReplicatedLog(
                journal,
                node=node.name,
                peers=[name for name in self.nodes if name != node.name],
                apply=apply,
                encode_tables=lambda: json.dumps(node.tables).encode(),
                restore_tables=restore,
                send=lambda peer, message: self._send(node, peer, message),
                compact_entries=COMPACT_ENTRIES,
            )
            for peer in self.nodes:
                if peer != node.name:
                    node.log.connected(peer)

        self._on(node, open_log)
        self._tick(node, life)

    def _on(self, node: SimulatedNode, step: Callable[[], None]) -> None:
        """Run a step of a node, which a power cut may end."""
        try:
            step()
        except PowerCut:
            self._end(node, node.disk.after_power_cut(self.random))

    def _end(self, node: SimulatedNode, disk: SimulatedDisk) -> None:
        node.life += 1
        node.log = None
        node.disk = disk
        disk.revive()
        self._later(self.random.uniform(0.05, 4), lambda: self._start(node) if node.log is None else None)

    def _tick(self, node: SimulatedNode, life: int) -> None:
        if node.life != life or node.log is None:
            return
        if self.now_s >= node.frozen_until_s:
            self._on(node, node.log.tick)
            self._note_leader(node)
        self._later(TICK_MS / 1000 * self.random.uniform(0.8, 1.5), lambda: self._tick(node, life))

    def _send(self, node: SimulatedNode, peer: str, message: Message) -> None:
        node.sequence += 1
        envelope = Envelope(
            group=GROUP, sender=node.name, starts=node.starts, sequence=node.sequence, message=message
        ).encode()
        if (node.name, peer) in self._cut_links:
            return
        slow = self.random.random() < 0.03
        delay_s = self.random.uniform(0.3, 3.0) if slow else self.random.expovariate(100)
        self._later(delay_s, lambda: self._deliver(peer, envelope))

    def _deliver(self, name: str, data: bytes) -> None:
        node = self.nodes[name]
        if node.log is None:
            return
        if self.now_s < node.frozen_until_s:
            self._later(node.frozen_until_s - self.now_s, lambda: self._deliver(name, data))
            return
        envelope = Envelope.decode(data)
        if not node.order.is_newer(envelope):
            return
        log = node.log

        def receive() -> None:
            log.receive(envelope.sender, envelope.message)
            log.tick()

        self._on(node, receive)
        self._note_leader(node)

    # -- work and faults -----------------------------------------------------------------------------------------------

    def _propose(self) -> None:
        if not self._is_proposing:
            return
        self._later(PROPOSE_EVERY_S * self.random.uniform(0.5, 1.5), self._propose)
        leaders = [node for node in self.nodes.values() if node.log is not None and node.log.is_leader]
        awake = [node for node in leaders if self.now_s >= node.frozen_until_s]
        if not awake:
            return
        node = self.random.choice(awake)
        self._proposed += 1
        text, life = f"command-{self._proposed}", node.life

        def done(result: object | None) -> None:
            if result is not None and node.life == life:
                self.acknowledged.append(text)

        def step() -> None:
            assert node.log is not None
            node.log.propose(text.encode(), done)
            node.log.tick()

        self._on(node, step)

    def _fault(self) -> None:
        if not self._is_faulty:
            return
        self._later(self.random.uniform(0.5, 5), self._fault)
        node = self.random.choice(list(self.nodes.values()))
        match self.random.choice(["kill", "power", "power", "freeze", "cut", "cut one way", "heal"]):
            case "kill" if node.log is not None:
                self._end(node, node.disk)
            case "power" if node.log is not None:
                node.disk.cut_at_step = node.disk.step_count + self.random.randrange(1, 12)
            case "freeze":
                node.frozen_until_s = self.now_s + self.random.uniform(0.5, 6)
            case "cut" if len(self.nodes) > 1:
                others = self.random.sample(sorted(self.nodes), self.random.randrange(1, len(self.nodes)))
                self._cut_links |= {(a, b) for a in self.nodes for b in self.nodes if (a in others) != (b in others)}
            case "cut one way":
                self._cut_links.add((node.name, self.random.choice(sorted(self.nodes))))
            case "heal":
                self._cut_links.clear()

    def _heal(self) -> None:
        self._is_faulty = False
        self._cut_links.clear()
        for node in self.nodes.values():
            node.frozen_until_s = 0.0
            node.disk.cut_at_step = None

    # -- checks --------------------------------------------------------------------------------------------------------

    def _note_applied(self, index: int, command: str) -> None:
        present = self._applied.setdefault(index, command)
        if present != command:
            raise ViolationError(f"entry {index} is {present} and {command}")

    def _note_leader(self, node: SimulatedNode) -> None:
        if node.log is not None and node.log.is_leader:
            first = self._leaders.setdefault(node.log.term, node.name)
            if first != node.name:
                raise ViolationError(f"term {node.log.term} has the leaders {first} and {node.name}")

    def _check_end(self) -> None:
        for node in self.nodes.values():
            if node.log is None:
                raise ViolationError(f"{node.name} does not run after the faults have ended")
            missing = set(self.acknowledged) - set(node.tables)
            if missing:
                raise ViolationError(f"{node.name} lacks what was acknowledged: {sorted(missing)[:3]}")
            if len(set(node.tables)) != len(node.tables):
                raise ViolationError(f"{node.name} has applied a command twice")


@contextlib.contextmanager
def simulated_library(group: SimulatedGroup) -> Iterator[None]:
    """Give PySyncObj the group's clock and random numbers."""
    present: dict[str, Any] = {name: getattr(syncobj, name) for name in ("monotonicTime", "random")}
    syncobj.monotonicTime = lambda: group.now_s
    syncobj.random = group.random
    try:
        yield
    finally:
        for name, value in present.items():
            setattr(syncobj, name, value)
