"""Simulated controller: coordinator, tables, live table, consensus and journal are the product's; links are virtual.

What is replaced: the connections to the other controllers (a message is lost where a direction is cut), the sending of
notices, and the two tasks that scan (controller_server.py), which are events of the machine here. A frozen controller
takes no message, and its clock of the consensus does not tick.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from tests.replication.simulation.virtual_network import Network
from tests.replication.simulation.virtual_world import LoopWorld, Machine
from tests.simulated_disk import PowerCut, SimulatedDisk
from thermocline.controller.consensus import ConsensusNode
from thermocline.controller.consensus.peer_messages import Envelope, Message
from thermocline.controller.controller_config import ControllerConfig
from thermocline.controller.coordinator import Coordinator
from thermocline.controller.state import Decision, Proposal, ReplicaSets
from thermocline.remoting.bodies.replica import SyncStateSet
from thermocline.remoting.connections import Connection, LimitCounts
from thermocline.remoting.errors import MQError, UnavailableError
from thermocline.remoting.headers.controller import NotifyBrokerRoleChangedRequestHeader

FOLDER = "/controller"
GROUP = "simulated"
NAMES = ("n0", "n1", "n2")
PEERS = ";".join(f"{name}-10.0.0.{number}:9878" for number, name in enumerate(NAMES, 1))
SCAN_MS = 1_000


class Observer(Protocol):
    """Sees what each controller applies."""

    def applied(self, controller: str, proposal: Proposal, sets: ReplicaSets, apply: Callable[[], bool]) -> bool:
        """Apply a committed proposal by `apply`, and check what that changes."""
        ...


class ControllerSite:
    """What the controllers and brokers of a run share."""

    def __init__(self, world: LoopWorld, network: Network, observer: Observer) -> None:
        self.world = world
        self.network = network
        self.observer = observer
        self.controllers: dict[str, SimulatedController] = {}
        self.notify: Callable[[str, str, NotifyBrokerRoleChangedRequestHeader, SyncStateSet], None]
        """Brings a notice from a controller to the broker at an address."""


class Line(Connection):
    """A broker's connection to a controller, as the live table sees it."""

    def __init__(self, broker: str) -> None:
        self.remote_address = broker
        self.is_over = False

    def close(self) -> None:
        """The controller ends it."""
        self.is_over = True


class SimulatedController:
    """One controller: a machine, its disk, and a process that runs or not."""

    def __init__(self, site: ControllerSite, name: str, *, settings: dict[str, object]) -> None:
        self.site = site
        self.name = name
        self.machine = Machine(site.world, name)
        self.disk = SimulatedDisk()
        self.coordinator: Coordinator | None = None
        self._config = ControllerConfig(
            peers_text=PEERS,
            node=name,
            group=GROUP,
            store_path=FOLDER,
            **settings,  # type: ignore[arg-type]
        )

    @property
    def is_up(self) -> bool:
        """Whether its process runs."""
        return self.coordinator is not None

    @property
    def is_leader(self) -> bool:
        """Whether it serves as the leader."""
        return self.coordinator is not None and self.coordinator.node.is_serving

    async def start(self) -> None:
        """Start the process."""
        if self.coordinator is not None:
            return
        self.machine.is_on = True
        coordinator = Coordinator(
            config=lambda: self._config,
            clock=self.machine.steady_ms,
            notices=_Notices(self),  # type: ignore[arg-type] # what a Coordinator calls
            counts=LimitCounts(),
        )
        coordinator.node = _Consensus(self, coordinator, self._config)
        self.coordinator = coordinator
        try:
            await coordinator.node.start()
        except PowerCut:
            self.cut_power()
            return
        self.site.world.later(SCAN_MS, self._scan, machine=self.machine)

    def kill(self) -> None:
        """The process ends; what it wrote stays."""
        self._end()
        self.disk.revive()

    def cut_power(self) -> None:
        """The machine is off; what was not synced may be lost."""
        self._end()
        self.disk = self.disk.after_power_cut(self.site.world.random)
        self.machine.is_on = False

    def power_failed(self) -> None:
        """Its power was cut in a step of its disk: end it, once that step is over."""
        self.site.world.note(f"{self.name}: power cut in a step")
        self.site.world.later(0, self.cut_power, machine=self.machine)
        self.site.world.later(self.site.world.random.randrange(200, 3_000), self.start)

    def _end(self) -> None:
        self.machine.life += 1
        self.machine.frozen_until_ms = 0
        coordinator, self.coordinator = self.coordinator, None
        if coordinator is not None:
            assert isinstance(coordinator.node, _Consensus)
            coordinator.node.stop()
            for task in coordinator._elections.values():
                task.cancel()

    def _scan(self) -> None:
        assert self.coordinator is not None
        _ = self.coordinator.node.is_serving  # as ControllerServer does: notices a pause before silence is counted
        self.coordinator.expire_brokers()
        self.coordinator.replace_dead_masters()
        self.site.world.later(SCAN_MS, self._scan, machine=self.machine)

    def answer(
        self, asker: Machine, handle: Callable[[Coordinator], Awaitable[Decision]], done: Callable[[Decision], None]
    ) -> None:
        """A request has arrived; `done` gets the answer if it comes through. A refusal by an error is no answer."""

        async def work() -> None:
            if self.coordinator is None:
                return
            try:
                decision = await handle(self.coordinator)
            except (MQError, PowerCut):
                return
            site, life = self.site, asker.life

            def arrive() -> None:
                if asker.life == life and site.network.passes(self.name, asker.name):
                    done(decision)

            site.world.later(site.network.delay_ms(self.name, asker.name), arrive, machine=asker)

        self.site.world.later(0, work, machine=self.machine)


class _Consensus(ConsensusNode):
    """A ConsensusNode on the virtual network."""

    def __init__(self, controller: SimulatedController, coordinator: Coordinator, config: ControllerConfig) -> None:
        self._controller = controller
        self._coordinator = coordinator
        self._machine = controller.machine
        super().__init__(
            controller.disk,
            FOLDER,
            config.peers,
            group=GROUP,
            apply=self._observe,
            encode_tables=coordinator.sets.encode,
            restore_tables=coordinator.sets.restore,
            on_leading=coordinator.leading,
            on_paused=coordinator.paused,
            clock=lambda: self._machine.steady_ms() / 1_000,
        )

    def stop(self) -> None:
        """The process is gone."""
        for task in self._tasks:
            task.cancel()
        self._failure = self._failure or UnavailableError("the process has ended")

    def deliver(self, data: bytes) -> None:
        """A message of a peer has come."""
        envelope = Envelope.decode(data)
        if self._log is None or self._failure is not None or not self._order.is_newer(envelope):
            return
        log = self._log
        self._guarded(lambda: log.receive(envelope.sender, envelope.message))
        self._tick()

    def _observe(self, command: bytes) -> object:
        coordinator = self._coordinator
        if not command:
            return coordinator.apply(command)
        return self._controller.site.observer.applied(
            self._controller.name,
            Proposal.decode(command),
            coordinator.sets,
            lambda: bool(coordinator.apply(command)),
        )

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            super()._guarded(step)
        except PowerCut:
            self._failure = UnavailableError("the power is off")
            self._controller.power_failed()
        if isinstance(self._failure, AssertionError):  # a violation, or a bug of the product
            world = self._controller.site.world
            world.failure = world.failure or self._failure

    def _tick(self) -> None:
        if not self._machine.is_frozen and self._failure is None:
            super()._tick()

    async def _resolve(self) -> None:
        """Addresses are names here."""

    async def _link_on(self, name: str, address: str) -> None:
        assert self._log is not None
        self._log.connected(name)
        await asyncio.Event().wait()

    def _send(self, peer: str, message: Message) -> None:
        site, sender = self._controller.site, self._controller.name
        self._sequence += 1
        data = Envelope(
            group=GROUP, sender=sender, starts=self._starts, sequence=self._sequence, message=message
        ).encode()
        receiver = site.controllers[peer]

        def arrive() -> None:
            if receiver.is_up and site.network.passes(sender, peer):
                site.world.later(0, accept, machine=receiver.machine)

        def accept() -> None:
            if receiver.coordinator is not None:
                assert isinstance(receiver.coordinator.node, _Consensus)
                receiver.coordinator.node.deliver(data)

        if site.network.passes(sender, peer):
            site.world.later(site.network.delay_ms(sender, peer), arrive)


class _Notices:
    """RoleNotices, over the virtual network."""

    def __init__(self, controller: SimulatedController) -> None:
        self._controller = controller

    def send(self, address: str, header: NotifyBrokerRoleChangedRequestHeader, members: SyncStateSet) -> None:
        """Tell the broker at this address who is the master."""
        self._controller.site.notify(self._controller.name, address, header, members)

    def keep_connections(self, addresses: Collection[str]) -> None:
        """There are none to close."""
