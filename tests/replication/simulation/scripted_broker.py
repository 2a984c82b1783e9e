"""Scripted broker: a broker of a controller, as far as the controller sees it. Its log is a list, its disk never fails.

It does what brokers do with controllers: applies for a number, registers, sends heartbeats to all of them, asks for the
replica info, has a master elected where there is none, follows notices, and as the master changes the SyncStateSet.
Replication between brokers is abstract: the master sends its log, a slave drops what differs and adds the rest.
A send is acknowledged when each member of the SyncStateSet has it, and there are at least MEMBERS_MIN.

Two rules of the master, which its promise depends on
  - While a change of the SyncStateSet has no answer, sends wait for the members of both sets.
  - A change without an answer may be made by the controllers much later. It counts as pending until the epoch of the
    set has risen.
Brokers of the product take this place when they have a controller: the same requests, over the same network.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from tests.replication.simulation.simulated_controller import NAMES, ControllerSite, Line
from tests.replication.simulation.virtual_world import Machine
from thermocline.controller.coordinator import Coordinator
from thermocline.controller.state import Decision
from thermocline.remoting.bodies.replica import ElectMasterResponseBody, SyncStateSet
from thermocline.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    NotifyBrokerRoleChangedRequestHeader,
    RegisterBrokerToControllerRequestHeader,
)
from thermocline.remoting.headers.namesrv import BrokerHeartbeatRequestHeader
from thermocline.remoting.response_code import ResponseCode

CLUSTER, BROKER_NAME = "cluster", "broker-a"
HEARTBEAT_MS = 500
HEARTBEAT_TIMEOUT_MS = 3_000
ASK_MS = 1_000
COPY_MS = 100
ALTER_MS = 500
SILENT_MS = 2_500
"""A slave that the master has not heard for so long leaves the SyncStateSet."""
MEMBERS_MIN = 2
Entry = tuple[int, int]
"""Epoch of the master that made it, and its number."""


class Witness(Protocol):
    """Sees what brokers learn, and promise."""

    def told_master(self, broker: str, epoch: int, master_id: int) -> None:
        """A broker has learned who the master of an epoch is."""
        ...

    def told_altered(self, set_epoch: int, members: Collection[int]) -> None:
        """A change of the SyncStateSet was acknowledged."""
        ...

    def acknowledged_entry(self, entry: Entry) -> None:
        """A send was acknowledged."""
        ...


class ScriptedBroker:
    """See the module."""

    def __init__(self, site: ControllerSite, witness: Witness, name: str, brokers: dict[str, ScriptedBroker]) -> None:
        self.site = site
        self.name = name
        self.machine = Machine(site.world, name)
        self.id: int | None = None
        self.log: list[Entry] = []
        self.is_up = False
        self.epoch = 0
        self.master_id: int | None = None
        self.members: set[int] = set()
        self.set_epoch = 0
        self._witness = witness
        self._brokers = brokers
        self._acks: dict[int, int] = {}
        self._heard_ms: dict[int, int] = {}
        self._pending: tuple[int, frozenset[int]] | None = None
        """A change of the set that has no answer: the set's epoch that it was asked with, and its members."""
        self._acknowledged = 0
        self._lines: dict[str, Line] = {}
        self._numbers = 0
        self._copies = 0
        self._newest_copy = (0, 0)
        """Epoch and number of the last copy taken: connections keep the order, the events of this network do not."""

    @property
    def is_master(self) -> bool:
        """Whether it takes itself for the master."""
        return self.is_up and self.id is not None and self.master_id == self.id

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process."""
        if self.is_up:
            return
        self.machine.is_on = self.is_up = True
        for step, interval_ms in ((self._beat, HEARTBEAT_MS), (self._ask, ASK_MS), (self._copy, COPY_MS)):
            self._repeat(step, interval_ms)
        self._repeat(self._alter, ALTER_MS)

    def kill(self, *, is_told: bool) -> None:
        """The process ends. `is_told`: its connections are closed; else the machine is off."""
        self.machine.life += 1
        self.machine.frozen_until_ms = 0
        self.is_up = False
        self.epoch = self.set_epoch = 0
        self.master_id = None
        self.members, self._pending = set(), None
        lines, self._lines = self._lines, {}
        if is_told:
            for name, line in lines.items():
                self._close(name, line)

    def lose_disk(self) -> None:
        """It comes back as another replica: it has no number and no log."""
        assert not self.is_up
        self.id = None
        self.log = []

    def _close(self, name: str, line: Line) -> None:
        controller = self.site.controllers[name]

        def arrive() -> None:
            if controller.coordinator is not None and self.site.network.passes(self.name, name):
                controller.coordinator.connection_closed(line)

        self.site.world.later(self.site.network.delay_ms(self.name, name), arrive, machine=controller.machine)

    def _repeat(self, step: Callable[[], None], interval_ms: int) -> None:
        def run() -> None:
            self.site.world.later(interval_ms, run, machine=self.machine)
            step()

        self.site.world.later(self.site.world.random.randrange(interval_ms), run, machine=self.machine)

    # -- requests to controllers ---------------------------------------------------------------------------------------

    def _request(
        self, name: str, handle: Callable[[Coordinator], Awaitable[Decision]], done: Callable[[Decision], None]
    ) -> None:
        network, controller = self.site.network, self.site.controllers[name]

        def arrive() -> None:
            if controller.is_up and network.passes(self.name, name):
                controller.answer(self.machine, handle, done)

        self.site.world.later(network.delay_ms(self.name, name), arrive)

    def _to_leader(
        self, handle: Callable[[Coordinator], Awaitable[Decision]], done: Callable[[Decision], None]
    ) -> None:
        """Ask all controllers; those that do not lead do not answer."""
        for name in NAMES:
            self._request(name, handle, done)

    def _beat(self) -> None:
        if self.id is None:
            return
        header = BrokerHeartbeatRequestHeader(
            cluster_name=CLUSTER,
            broker_addr=self.name,
            broker_name=BROKER_NAME,
            broker_id=self.id,
            epoch=self.log[-1][0] if self.log else 0,
            max_offset=len(self.log),
            confirm_offset=self._acknowledged,
            heartbeat_timeout_mills=HEARTBEAT_TIMEOUT_MS,
        )
        for name in NAMES:
            line = self._lines.get(name)
            if line is None or line.is_over:
                line = self._lines[name] = Line(self.name)
            self._beat_one(name, header, line)

    def _beat_one(self, name: str, header: BrokerHeartbeatRequestHeader, line: Line) -> None:
        async def handle(coordinator: Coordinator) -> Decision:
            if not line.is_over:
                coordinator.heartbeat(header, line)
            return Decision()

        self._request(name, handle, lambda _: None)

    def _ask(self) -> None:
        """Get a number, or register and ask who is the master."""
        if self.id is None:
            self._apply_for_id()
            return
        broker_id = self.id
        register = RegisterBrokerToControllerRequestHeader(
            cluster_name=CLUSTER, broker_name=BROKER_NAME, broker_id=broker_id, broker_address=self.name
        )

        async def handle(coordinator: Coordinator) -> Decision:
            await coordinator.register(register)
            header = GetReplicaInfoRequestHeader(broker_name=BROKER_NAME)
            return await coordinator.read(lambda: coordinator.decisions.replica_info(header))

        def done(decision: Decision) -> None:
            header = decision.header
            if decision.code != ResponseCode.SUCCESS or not isinstance(header, GetReplicaInfoResponseHeader):
                return
            if header.master_broker_id is None:
                self._elect(broker_id)
                return
            assert header.master_epoch is not None
            body = SyncStateSet.decode(decision.body)
            self._learn(header.master_broker_id, header.master_epoch, body.sync_state_set, body.sync_state_set_epoch)

        self._to_leader(handle, done)

    def _apply_for_id(self) -> None:
        self._numbers += 1
        code = f"{self.name};{self._numbers}"

        async def handle(coordinator: Coordinator) -> Decision:
            wanted = coordinator.decisions.next_id(
                GetNextBrokerIdRequestHeader(cluster_name=CLUSTER, broker_name=BROKER_NAME)
            )
            assert isinstance(wanted.header, GetNextBrokerIdResponseHeader)
            number = wanted.header.next_broker_id
            assert number is not None
            applied = await coordinator.apply_id(
                ApplyBrokerIdRequestHeader(
                    cluster_name=CLUSTER, broker_name=BROKER_NAME, applied_broker_id=number, register_check_code=code
                ),
                peer=self.name,
            )
            return wanted if applied.code == ResponseCode.SUCCESS else applied

        def done(decision: Decision) -> None:
            if self.id is None and isinstance(decision.header, GetNextBrokerIdResponseHeader):
                self.id = decision.header.next_broker_id
                self.site.world.note(f"{self.name}: has the number {self.id}")

        self._to_leader(handle, done)

    def _elect(self, broker_id: int) -> None:
        header = ElectMasterRequestHeader(cluster_name=CLUSTER, broker_name=BROKER_NAME, broker_id=broker_id)

        def done(decision: Decision) -> None:
            answer = decision.header
            if decision.code not in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST):
                return
            assert isinstance(answer, ElectMasterResponseHeader)
            assert answer.master_broker_id is not None
            assert answer.master_epoch is not None
            assert answer.sync_state_set_epoch is not None
            members = ElectMasterResponseBody.decode(decision.body).sync_state_set
            self._learn(answer.master_broker_id, answer.master_epoch, members, answer.sync_state_set_epoch)

        self._to_leader(lambda coordinator: coordinator.elect(header), done)

    def notice(self, header: NotifyBrokerRoleChangedRequestHeader, body: SyncStateSet) -> None:
        """1008 has come."""
        if header.master_broker_id is not None and header.master_epoch is not None:
            self._learn(header.master_broker_id, header.master_epoch, body.sync_state_set, body.sync_state_set_epoch)

    def _learn(self, master_id: int, epoch: int, members: Collection[int], set_epoch: int) -> None:
        if self.id is None or epoch < self.epoch:
            return
        self._witness.told_master(self.name, epoch, master_id)
        if epoch > self.epoch:
            self.epoch, self.master_id = epoch, master_id
            self.members, self.set_epoch, self._pending = set(members), set_epoch, None
            self._acks, self._heard_ms, self._acknowledged = {}, {}, 0
            role = "is the master" if self.is_master else f"follows {master_id}"
            self.site.world.note(f"{self.name}: {role} epoch={epoch} set={sorted(members)}")
        elif self.is_master and set_epoch > self.set_epoch:
            self._adopt(members, set_epoch)

    # -- the SyncStateSet ----------------------------------------------------------------------------------------------

    def _alter(self) -> None:
        if not self.is_master or self.id is None:
            return
        now_ms = self.site.world.now_ms
        if self._pending is None:
            heard = {each for each, at_ms in self._heard_ms.items() if now_ms - at_ms <= SILENT_MS}
            in_sync = {each for each in heard if self._acks.get(each, 0) >= self._confirmed()}
            wanted = frozenset({self.id} | (heard & self.members) | in_sync)
            if wanted == self.members:
                return
            self._pending = self.set_epoch, wanted
        asked_epoch, wanted = self._pending
        epoch = self.epoch
        header = AlterSyncStateSetRequestHeader(broker_name=BROKER_NAME, master_broker_id=self.id, master_epoch=epoch)
        body = SyncStateSet(sync_state_set=sorted(wanted), sync_state_set_epoch=asked_epoch)

        def done(decision: Decision) -> None:
            if decision.code != ResponseCode.SUCCESS:
                return  # not made now; an earlier attempt may be: the replica info tells
            altered = SyncStateSet.decode(decision.body)
            self._witness.told_altered(altered.sync_state_set_epoch, altered.sync_state_set)
            if self.epoch == epoch and self.is_master and altered.sync_state_set_epoch > self.set_epoch:
                self._adopt(altered.sync_state_set, altered.sync_state_set_epoch)

        self._to_leader(lambda coordinator: coordinator.alter(header, body), done)

    def _adopt(self, members: Collection[int], set_epoch: int) -> None:
        self.members, self.set_epoch = set(members), set_epoch
        if self._pending is not None and set_epoch > self._pending[0]:
            self._pending = None
        self.site.world.note(f"{self.name}: set={sorted(members)} set_epoch={set_epoch}")

    def _confirmed(self) -> int:
        assert self.id is not None
        needed = self.members if self._pending is None else self.members | self._pending[1]
        return min((self._acks.get(each, 0) for each in needed if each != self.id), default=len(self.log))

    # -- messages ------------------------------------------------------------------------------------------------------

    def send(self) -> None:
        """A client's send arrives."""
        if self.is_master:
            self._numbers += 1
            self.log.append((self.epoch, self._numbers * 100 + (self.id or 0)))
            self._acknowledge()

    def _acknowledge(self) -> None:
        if len(self.members) < MEMBERS_MIN:
            return
        confirmed = self._confirmed()
        for entry in self.log[self._acknowledged : confirmed]:
            self._witness.acknowledged_entry(entry)
        self._acknowledged = max(self._acknowledged, confirmed)

    def _copy(self) -> None:
        if not self.is_master or self.id is None:
            return
        epoch, master_id, log = self.epoch, self.id, list(self.log)
        self._copies += 1
        number = self._copies
        for name, broker in self._brokers.items():
            if broker is not self:
                self._to_broker(name, lambda broker=broker: broker._copied(self.name, master_id, (epoch, number), log))  # type: ignore[misc]

    def _to_broker(self, name: str, step: Callable[[], None]) -> None:
        network, machine = self.site.network, self._brokers[name].machine

        def arrive() -> None:
            if network.passes(self.name, name):
                step()

        self.site.world.later(network.delay_ms(self.name, name), arrive, machine=machine)

    def _copied(self, master: str, master_id: int, copy: tuple[int, int], log: list[Entry]) -> None:
        epoch, _ = copy
        if not self.is_up or self.id is None or (epoch, master_id) != (self.epoch, self.master_id) or self.is_master:
            return
        if copy < self._newest_copy:
            return
        self._newest_copy = copy
        common = 0
        for mine, theirs in zip(self.log, log, strict=False):
            if mine != theirs:
                break
            common += 1
        random = self.site.world.random
        end = len(log) if random.random() < 0.8 else random.randint(common, len(log))
        self.log = log[: max(common, end)]
        broker_id, end = self.id, len(self.log)
        self._to_broker(master, lambda: self._brokers[master]._reported(broker_id, epoch, end))

    def _reported(self, broker_id: int, epoch: int, end: int) -> None:
        if self.is_master and epoch == self.epoch:
            self._acks[broker_id] = end
            self._heard_ms[broker_id] = self.site.world.now_ms
            self._acknowledge()
