"""Coordinator: decisions made durable, heartbeats, and the elections that the controller begins itself.

    a request         decision checked -> proposed -> committed and applied -> answer      one change at a time
    a dead master     heartbeats stopped (scan), or its connection closed -> election -> notices
    a new leader      replaces no master until it can know who is alive (`new_leader_wait_ms`)

A change whose tables changed under it (a proposal that timed out was committed after all) is checked again. A process
that was frozen has missed heartbeats: it waits as a new leader does.
Bounds: changes that wait (`waiting_requests_max`), live brokers, replica sets and their replicas, texts; one election a
broker name runs at a time.
Owner: the controller's event loop.
Source: controller/ControllerManager.java, controller/impl/DLedgerController.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping

from thermocline.controller.consensus import ConsensusNode, NotLeaderError
from thermocline.controller.controller_config import ControllerConfig
from thermocline.controller.role_notices import RoleNotices
from thermocline.controller.state import (
    BY_CONTROLLER,
    BrokerKey,
    Decision,
    Decisions,
    Liveness,
    LiveTable,
    Proposal,
    ReplicaSets,
)
from thermocline.remoting.bodies.replica import ElectMasterResponseBody, SyncStateSet
from thermocline.remoting.connections import Connection, LimitCounts
from thermocline.remoting.errors import BrokerBusyError, InvalidParameterError, MQError, UnavailableError
from thermocline.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    NotifyBrokerRoleChangedRequestHeader,
    RegisterBrokerToControllerRequestHeader,
)
from thermocline.remoting.headers.namesrv import BrokerHeartbeatRequestHeader
from thermocline.remoting.response_code import ResponseCode

logger = logging.getLogger(__name__)

TEXT_CHARACTERS_MAX = 255
NUMBERS_CHARACTERS_MAX = 1_024
"""Of a list of replicas' numbers."""
CHECKS_MAX = 3
EMPTY_PROPOSAL = b""
ELECTION_RESULTS: Mapping[int, str] = {
    ResponseCode.SUCCESS: "new_master_elected",
    ResponseCode.CONTROLLER_MASTER_STILL_EXIST: "keep_current_master",
}


class Coordinator:
    """See the module."""

    def __init__(
        self,
        *,
        config: Callable[[], ControllerConfig],
        clock: Callable[[], int],
        notices: RoleNotices,
        counts: LimitCounts,
    ) -> None:
        """`clock`: milliseconds that never go back. `node` is set before the first request."""
        self._config = config
        self._clock = clock
        self._notices = notices
        self._counts = counts
        self.sets = ReplicaSets()
        self.decisions = Decisions(self.sets)
        self.live = LiveTable()
        self.node: ConsensusNode
        self._changing = asyncio.Lock()
        self._waiting_count = 0
        self._leading_since_ms: int | None = None
        self._heard: set[BrokerKey] = set()
        """Brokers heard since this node leads, until it may elect anyway."""
        self._elections: dict[str, asyncio.Task[None]] = {}
        self.elections: dict[str, Counter[str]] = {}
        """What came of the elections of a broker name since the start, by RocketMQ's names."""

    # -- the consensus -------------------------------------------------------------------------------------------------

    def apply(self, command: bytes) -> object:
        """Apply a committed command; False: it was checked against older tables, and changed nothing.

        Raises:
            CorruptDataError: It is none of ours.
        """
        return True if command == EMPTY_PROPOSAL else self.sets.apply(Proposal.decode(command))

    def leading(self, is_leading: bool) -> None:
        """This node begins or stops to lead, or goes on after a pause."""
        self._leading_since_ms = self._clock() if is_leading else None
        self._heard.clear()

    def paused(self) -> None:
        """The process stood still: heartbeats were missed."""
        if self._leading_since_ms is not None:
            logger.warning("this controller was frozen; it elects as a new leader does")
            self.leading(True)

    # -- requests ------------------------------------------------------------------------------------------------------

    def liveness(self) -> Liveness:
        """Who is alive now."""
        return self.live.at(self._clock())

    async def read(self, check: Callable[[], Decision]) -> Decision:
        """An answer that changes nothing.

        Raises:
            NotLeaderError, RequestTimeoutError: Another node leads, or may lead.
        """
        if self._config().confirm_reads:
            await self.node.propose(EMPTY_PROPOSAL)
        elif not self.node.is_serving:
            raise NotLeaderError
        return check()

    async def alter(self, header: AlterSyncStateSetRequestHeader, wanted: SyncStateSet) -> Decision:
        """1001."""
        return await self._change(lambda: self.decisions.alter(header, wanted, self.liveness()))

    async def register(self, header: RegisterBrokerToControllerRequestHeader) -> Decision:
        """1003."""
        self._check_texts(header.broker_address)
        return await self._change(lambda: self.decisions.register(header, self.liveness()))

    async def clean(self, header: CleanControllerBrokerDataRequestHeader) -> Decision:
        """1011.

        Raises:
            InvalidParameterError: The list of numbers is too long.
        """
        self._check_texts(header.broker_controller_ids_to_clean or "", characters_max=NUMBERS_CHARACTERS_MAX)
        return await self._change(lambda: self.decisions.clean(header, self.liveness()))

    async def apply_id(self, header: ApplyBrokerIdRequestHeader, *, peer: str) -> Decision:
        """1013. `peer`: the address that it came from."""
        self._check_texts(header.cluster_name, header.broker_name, header.register_check_code)

        def check() -> Decision:
            self._check_room(header, peer)
            return self.decisions.apply_id(header)

        return await self._change(check)

    async def elect(self, header: ElectMasterRequestHeader) -> Decision:
        """1002; sends notices of a new master to the replicas."""
        decision = await self._change(lambda: self._check_election(header))
        self._count_election(header.broker_name, decision)
        if decision.code == ResponseCode.SUCCESS:
            logger.info("master elected broker_name=%s header=%s", header.broker_name, decision.header)
            if self._config().notify_brokers:
                self._notify(decision)
        return decision

    def _count_election(self, broker_name: str, decision: Decision) -> None:
        if broker_name not in self.sets.members:
            return
        for gone in self.elections.keys() - self.sets.members.keys():
            del self.elections[gone]
        result = ELECTION_RESULTS.get(decision.code, "no_master_elected")
        self.elections.setdefault(broker_name, Counter())[result] += 1

    def heartbeat(self, header: BrokerHeartbeatRequestHeader, connection: Connection) -> None:
        """904.

        Raises:
            BrokerBusyError: There are too many brokers.
            InvalidParameterError: A text is too long.
        """
        assert header.broker_id is not None
        self._check_texts(header.cluster_name, header.broker_name, header.broker_addr)
        key = BrokerKey(header.cluster_name, header.broker_name, header.broker_id)
        if not self.live.has(key) and len(self.live) >= self._config().live_brokers_max:
            raise self._refused("liveBrokersMax", connection.remote_address)
        self.live.beat(
            key,
            now_ms=self._clock(),
            owner=connection,
            address=header.broker_addr,
            timeout_ms=header.heartbeat_timeout_mills,
            epoch=header.epoch,
            max_offset=header.max_offset,
            confirm_offset=header.confirm_offset,
            priority=header.election_priority,
        )
        if self._is_new_leader():
            self._heard.add(key)

    def cluster_of(self, broker_name: str) -> str | None:
        """The cluster of a replica set; None when there is none of the name."""
        members = self.sets.members.get(broker_name)
        return None if members is None else members.cluster

    # -- elections -----------------------------------------------------------------------------------------------------

    def connection_closed(self, connection: Connection) -> None:
        """The brokers of a connection are gone."""
        for key in self.live.owner_gone(connection):
            self._inactive(key)

    def scan_delay_ms(self, interval_ms: int) -> int:
        """How long until the next scan for silent brokers: the interval, or less when one expires before."""
        expiry_ms = self.live.next_expiry_ms()
        return interval_ms if expiry_ms is None else min(interval_ms, max(1, expiry_ms - self._clock()))

    def expire_brokers(self) -> None:
        """Forget brokers that fell silent, and close their connections. What the scan does each time."""
        for key, owner in self.live.expire(self._clock()):
            logger.warning("no heartbeat in time cluster=%s broker_name=%s broker_id=%d", *key)
            assert isinstance(owner, Connection)
            owner.close()
            self._inactive(key)

    def replace_dead_masters(self) -> None:
        """Elect where the master is dead and another replica is alive. What the second scan does each time."""
        if not self.node.is_serving:
            return
        for name in self.decisions.without_living_master(self.liveness()):
            self._begin_election(name)
        self._notices.keep_connections(
            {replica.address for members in self.sets.members.values() for replica in members.replicas.values()}
        )

    async def close(self) -> None:
        """End the elections that run. Idempotent."""
        tasks = list(self._elections.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _inactive(self, key: BrokerKey) -> None:
        sync = self.sets.syncs.get(key.broker_name)
        if sync is not None and sync.master_id == key.broker_id and self.node.is_serving:
            self._begin_election(key.broker_name)

    def _begin_election(self, broker_name: str) -> None:
        if broker_name not in self._elections:
            task = asyncio.create_task(self._elect(broker_name), name=f"election of {broker_name}")
            self._elections[broker_name] = task
            task.add_done_callback(lambda _: self._elections.pop(broker_name, None))

    async def _elect(self, broker_name: str) -> None:
        header = ElectMasterRequestHeader(broker_name=broker_name, broker_id=BY_CONTROLLER)
        for _ in range(self._config().election_tries_max):
            try:
                decision = await self.elect(header)
            except NotLeaderError:
                return
            except UnavailableError as error:
                logger.warning("election failed, tried again broker_name=%s: %s", broker_name, error)
                continue
            except MQError as error:
                logger.error("election failed broker_name=%s: %s", broker_name, error)
                return
            if decision.code not in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST):
                logger.warning("no master elected broker_name=%s: %s", broker_name, decision.remark)
            return

    def _check_election(self, header: ElectMasterRequestHeader) -> Decision:
        decision = self.decisions.elect(header, self.liveness(), is_unclean_allowed=self._config().elect_unclean)
        sync = self.sets.syncs.get(header.broker_name)
        if decision.event is None or header.designate_elect or sync is None or sync.master_epoch == 0:
            return decision
        if not self._is_new_leader():
            return decision
        if sync.master_id is not None and BrokerKey(sync.cluster, header.broker_name, sync.master_id) in self._heard:
            return decision
        return Decision(
            code=ResponseCode.CONTROLLER_ELECT_MASTER_FAILED,
            remark="This controller leads for less than newLeaderElectionWaitMs: a living master may not be known yet",
            header=ElectMasterResponseHeader(),
        )

    def _is_new_leader(self) -> bool:
        if self._leading_since_ms is None:
            return False
        if self._clock() - self._leading_since_ms < self._config().new_leader_wait_ms:
            return True
        self._heard.clear()
        return False

    def _notify(self, decision: Decision) -> None:
        header, body = decision.header, ElectMasterResponseBody.decode(decision.body)
        assert isinstance(header, ElectMasterResponseHeader)
        group = body.broker_member_group
        if group is None or header.sync_state_set_epoch is None:
            return
        notice = NotifyBrokerRoleChangedRequestHeader(
            master_address=header.master_address,
            master_epoch=header.master_epoch,
            sync_state_set_epoch=header.sync_state_set_epoch,
            master_broker_id=header.master_broker_id,
        )
        members = SyncStateSet(sync_state_set=body.sync_state_set, sync_state_set_epoch=header.sync_state_set_epoch)
        liveness = self.liveness()
        for broker_id, address in group.broker_addrs.items():
            if liveness.get(BrokerKey(group.cluster, group.broker_name, broker_id)) is not None:
                self._notices.send(address, notice, members)

    # -- changes -------------------------------------------------------------------------------------------------------

    async def _change(self, check: Callable[[], Decision]) -> Decision:
        """Check, propose what the answer promises, and give the answer when it is applied.

        Raises:
            NotLeaderError: Another node leads.
            BrokerBusyError: Too many changes wait.
            RequestTimeoutError: No majority of the controllers answers; the change may be made later all the same.
        """
        if not self.node.is_serving:
            raise NotLeaderError
        if self._waiting_count >= self._config().waiting_requests_max:
            raise self._refused("waitingChangesMax", "")
        self._waiting_count += 1
        try:
            async with self._changing:
                for _ in range(CHECKS_MAX):
                    if not self.node.is_serving:
                        raise NotLeaderError
                    decision = check()
                    if decision.event is None:
                        return decision
                    proposal = Proposal(after=self.sets.revision, event=decision.event)
                    if await self.node.propose(proposal.encode()):
                        return decision
        finally:
            self._waiting_count -= 1
        raise UnavailableError("the replica sets changed at the same time")

    def _check_room(self, header: ApplyBrokerIdRequestHeader, peer: str) -> None:
        members = self.sets.members.get(header.broker_name)
        if members is None:
            if len(self.sets.members) >= self._config().replica_sets_max:
                raise self._refused("replicaSetsMax", peer)
        elif (
            header.applied_broker_id not in members.replicas
            and len(members.replicas) >= self._config().set_replicas_max
        ):
            raise self._refused("replicasPerSetMax", peer)

    def _check_texts(self, *texts: str, characters_max: int = TEXT_CHARACTERS_MAX) -> None:
        for text in texts:
            if len(text) > characters_max:
                raise InvalidParameterError("a name or an address is too long", characters=len(text))

    def _refused(self, limit: str, address: str) -> BrokerBusyError:
        self._counts.refused(limit, address=address, detail="request refused")
        return BrokerBusyError(f"the controller takes no more, {limit} is reached")
