"""Controlled set: three controllers and a replica set of scripted brokers, under faults, by one seed.

Checked, at each committed change, at each answer and at the end

check              found
two masters        an epoch has two masters, as controllers apply it or as brokers learn it
set                a master is elected that was not in the SyncStateSet, and unclean elections are off
forgotten          a change of the set that was acknowledged is not what the controllers have under its epoch
lost               a new master's log lacks an acknowledged send (clean elections only)
no master          after the faults: a member of the SyncStateSet is alive, and MASTER_MS later there is no master that
                   the brokers follow
no progress        after the faults: sends are not acknowledged again
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tests.replication.simulation.history import ViolationError
from tests.replication.simulation.plain_set import replay_shown
from tests.replication.simulation.scripted_broker import BROKER_NAME, MEMBERS_MIN, Entry, ScriptedBroker
from tests.replication.simulation.simulated_controller import NAMES, ControllerSite, SimulatedController
from tests.replication.simulation.virtual_network import Network
from tests.replication.simulation.virtual_world import LoopWorld
from tests.virtual_loop import run_virtually
from thermocline.controller.consensus.raft_library import syncobj
from thermocline.controller.state import Proposal, ReplicaSets
from thermocline.controller.state.events import AlterSyncStateSet, ElectMaster
from thermocline.remoting.bodies.replica import SyncStateSet
from thermocline.remoting.headers.controller import NotifyBrokerRoleChangedRequestHeader

FAULTS_MS = 25_000
NEW_LEADER_MS = 3_000
MASTER_MS = 14_000
"""A leader of the controllers (4 s), its wait (3 s), silence of a dead master (3 s), two scans, what brokers ask."""
PROGRESS_MS = 6_000
FAULTS = {
    "kill controller": 3,
    "cut power of controller": 2,
    "freeze controller": 2,
    "kill broker": 5,
    "cut power of broker": 3,
    "lose disk of broker": 1,
    "freeze broker": 4,
    "cut": 4,
    "cut one way": 4,
    "heal": 6,
}


class ControlledSet:
    """See the module."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.world: LoopWorld
        self.acknowledged: dict[Entry, None] = {}
        self.changes = 0
        self.elections = 0
        self._masters: dict[int, int] = {}
        self._sets: dict[int, tuple[int, ...]] = {}
        self._altered: dict[int, tuple[int, ...]] = {}
        self._is_sending = self._is_faulty = True

    async def run(self) -> None:
        """One run.

        Raises:
            ViolationError: A promise was broken.
        """
        world = self.world = LoopWorld(self.seed)
        random = world.random
        present = syncobj.monotonicTime, syncobj.random
        syncobj.monotonicTime, syncobj.random = (lambda: world.now_ms / 1_000), random
        self.network = Network(world)
        self.site = ControllerSite(world, self.network, self)
        self.site.notify = self._notify
        self.is_unclean = random.random() < 0.15
        settings: dict[str, object] = {
            "new_leader_wait_ms": NEW_LEADER_MS,
            "elect_unclean": self.is_unclean,
            "confirm_reads": random.random() < 0.3,
        }
        try:
            for name in NAMES:
                self.site.controllers[name] = SimulatedController(self.site, name, settings=settings)
            self.brokers: dict[str, ScriptedBroker] = {}
            for number in range(random.choice((2, 3, 3, 4))):
                self.brokers[f"b{number}"] = ScriptedBroker(self.site, self, f"b{number}", self.brokers)
            await self._run()
        finally:
            for controller in self.site.controllers.values():
                controller.kill()
            syncobj.monotonicTime, syncobj.random = present

    async def _run(self) -> None:
        world, random = self.world, self.world.random
        for controller in self.site.controllers.values():
            world.later(random.randrange(500), controller.start)
        for broker in self.brokers.values():
            world.later(random.randrange(1_000, 4_000), broker.start)
        world.later(3_000, self._send)
        world.later(random.randrange(2_000, 8_000), self._fault)
        await world.run_until(FAULTS_MS)
        self._heal()
        await world.run_until(FAULTS_MS + MASTER_MS)
        self._check_master("after the faults")
        self._kill_some()
        await world.run_until(FAULTS_MS + MASTER_MS + 2_000)
        if not self._has_living_member():
            return
        await world.run_until(FAULTS_MS + 2 * MASTER_MS)
        self._check_master("after the last deaths")
        before = len(self.acknowledged)
        await world.run_until(FAULTS_MS + 2 * MASTER_MS + PROGRESS_MS)
        members = [broker for broker in self.brokers.values() if broker.is_up]
        if self._has_living_member() and len(members) >= MEMBERS_MIN and len(self.acknowledged) == before:
            raise ViolationError("no progress", f"{len(members)} brokers are up, and no send is acknowledged")

    # -- what happens --------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        self.world.later(120, self._send)
        for broker in self.brokers.values():
            if broker.is_master and not broker.machine.is_frozen:
                broker.send()

    def _notify(
        self, controller: str, address: str, header: NotifyBrokerRoleChangedRequestHeader, members: SyncStateSet
    ) -> None:
        broker = self.brokers[address]

        def arrive() -> None:
            if self.network.passes(controller, address):
                broker.notice(header, members)

        self.world.later(self.network.delay_ms(controller, address), arrive, machine=broker.machine)

    def _fault(self) -> None:
        if not self._is_faulty:
            return
        world, random = self.world, self.world.random
        world.later(random.randrange(200, 3_000), self._fault)
        (fault,) = random.choices(list(FAULTS), list(FAULTS.values()))
        controller = self.site.controllers[random.choice(NAMES)]
        masters = [broker for broker in self.brokers.values() if broker.is_master]
        broker = random.choice(masters if masters and world.chance(0.5) else list(self.brokers.values()))
        names = [*NAMES, *self.brokers]
        world.note(f"fault: {fault} {controller.name if 'controller' in fault else broker.name}")
        match fault:
            case "kill controller" if controller.is_up:
                controller.kill()
                world.later(random.randrange(100, 4_000), controller.start)
            case "cut power of controller" if controller.is_up:
                controller.disk.cut_at_step = controller.disk.step_count + random.randrange(1, 10)
            case "freeze controller":
                controller.machine.frozen_until_ms = world.now_ms + random.choice((300, 1_500, 5_000))
            case "kill broker" | "cut power of broker" | "lose disk of broker" if broker.is_up:
                broker.kill(is_told=fault == "kill broker")
                if fault == "lose disk of broker":
                    broker.lose_disk()
                world.later(random.choice((200, 2_000, 7_000)), broker.start)
            case "freeze broker":
                broker.machine.frozen_until_ms = world.now_ms + random.choice((300, 2_000, 6_000))
            case "cut":
                name = random.choice(names)
                for other in names:
                    if other != name and world.chance(0.6):
                        self.network.cut(name, other)
                        self.network.cut(other, name)
            case "cut one way":
                name, other = random.sample(names, 2)
                self.network.cut(name, other)
            case "heal":
                self.network.heal()

    def _heal(self) -> None:
        self.world.note("faults end")
        self._is_faulty = False
        self.network.heal()
        for controller in self.site.controllers.values():
            controller.machine.frozen_until_ms = 0
            controller.disk.cut_at_step = None
            self.world.later(1, controller.start)
        for broker in self.brokers.values():
            broker.machine.frozen_until_ms = 0
            broker.start()

    def _kill_some(self) -> None:
        """For good: perhaps a controller, and brokers of which one at least stays."""
        random = self.world.random
        if self.world.chance(0.4):
            controller = self.site.controllers[random.choice(NAMES)]
            self.world.note(f"the last deaths: {controller.name}")
            controller.kill()
        for broker in random.sample(list(self.brokers.values()), random.randrange(len(self.brokers))):
            self.world.note(f"the last deaths: {broker.name}")
            broker.kill(is_told=self.world.chance(0.5))

    # -- what is seen --------------------------------------------------------------------------------------------------

    def told_master(self, broker: str, epoch: int, master_id: int) -> None:
        """See Witness."""
        present = self._masters.setdefault(epoch, master_id)
        if present != master_id:
            self._fail("two masters", f"{broker} learns {master_id} of epoch {epoch}, which {present} has")

    def told_altered(self, set_epoch: int, members: Collection[int]) -> None:
        """See Witness."""
        self.changes += 1
        self._altered[set_epoch] = tuple(members)
        present = self._sets.get(set_epoch)
        if present != tuple(members):
            self._fail("forgotten", f"epoch {set_epoch} of the set is {present}, acknowledged was {members}")

    def acknowledged_entry(self, entry: Entry) -> None:
        """See Witness."""
        self.acknowledged[entry] = None

    def applied(self, controller: str, proposal: Proposal, sets: ReplicaSets, apply: Callable[[], bool]) -> bool:
        """See Observer."""
        event = proposal.event
        before = sets.syncs.get(BROKER_NAME)
        old_set = () if before is None else tuple(before.set)
        old_epoch = 0 if before is None else before.master_epoch
        if not apply():
            return False
        sync = sets.syncs.get(BROKER_NAME)
        if sync is None:
            return True
        if isinstance(event, (ElectMaster, AlterSyncStateSet)):
            present = self._sets.setdefault(sync.set_epoch, tuple(sync.set))
            if present != tuple(sync.set):
                self._fail("forgotten", f"{controller} has {sync.set} as epoch {sync.set_epoch} of the set: {present}")
        if isinstance(event, ElectMaster) and event.master_id is not None:
            is_new = sync.master_epoch not in self._masters
            self.told_master(controller, sync.master_epoch, event.master_id)
            if old_epoch and not self.is_unclean and event.master_id not in old_set:
                self._fail("set", f"{event.master_id} is elected, the set was {old_set}")
            if is_new:
                self._elected(event.master_id, sync.master_epoch)
        return True

    def _elected(self, master_id: int, epoch: int) -> None:
        self.elections += 1
        self.world.note(f"elected {master_id} epoch={epoch}")
        if self.is_unclean:
            return
        for broker in self.brokers.values():
            if broker.id == master_id:
                missing = [entry for entry in self.acknowledged if entry not in set(broker.log)]
                if missing:
                    self._fail("lost", f"{broker.name} is elected, and lacks {len(missing)}, such as {missing[0]}")

    def _fail(self, check: str, text: str) -> None:
        error = ViolationError(check, text)
        self.world.failure = self.world.failure or error
        raise error

    # -- the end -------------------------------------------------------------------------------------------------------

    def _leader(self) -> SimulatedController | None:
        return next((each for each in self.site.controllers.values() if each.is_leader), None)

    def _has_living_member(self) -> bool:
        leader = self._leader()
        if leader is None or leader.coordinator is None:
            return True  # there will be one: a majority is connected
        sync = leader.coordinator.sets.syncs.get(BROKER_NAME)
        members = () if sync is None else sync.set
        return any(broker.is_up and broker.id in members for broker in self.brokers.values())

    def _check_master(self, when: str) -> None:
        leader = self._leader()
        if leader is None or leader.coordinator is None:
            raise ViolationError("no master", f"{when} no controller leads")
        sync = leader.coordinator.sets.syncs.get(BROKER_NAME)
        if sync is None:
            raise ViolationError("no master", f"{when} no broker is registered")
        if self._altered and sync.set_epoch < max(self._altered):
            raise ViolationError("forgotten", f"{when} the set's epoch is {sync.set_epoch}, not {max(self._altered)}")
        if not self._has_living_member():
            return
        for broker in self.brokers.values():
            if broker.is_up and (broker.epoch, broker.master_id) != (sync.master_epoch, sync.master_id):
                raise ViolationError(
                    "no master", f"{when} {broker.name} follows {broker.master_id} of epoch {broker.epoch}, not {sync}"
                )
        if not any(broker.is_master for broker in self.brokers.values()):
            raise ViolationError("no master", f"{when} {sync.master_id} is the master, and is not there")


def run_controlled_seed(seed: int) -> ControlledSet:
    """Run one seed.

    Raises:
        ViolationError: A promise was broken.
    """
    simulated = ControlledSet(seed)
    with replay_shown("controlled", seed):
        run_virtually(simulated.run)
    return simulated
