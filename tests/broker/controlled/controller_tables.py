"""The tables of a controller without consensus and sockets: questions of brokers, answered as the product's controller
answers them."""

from __future__ import annotations

from thermocline.broker.controlled.identity_files import BrokerNames
from thermocline.broker.controlled.questions import Answer, Question
from thermocline.broker.controlled.wire_questions import decode_answer, encode_question
from thermocline.controller.state import BrokerKey, Decision, Decisions, LiveTable, Proposal, ReplicaSets
from thermocline.remoting.bodies.replica import SyncStateSet
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    ElectMasterRequestHeader,
    GetNextBrokerIdRequestHeader,
    GetReplicaInfoRequestHeader,
    RegisterBrokerToControllerRequestHeader,
)
from thermocline.remoting.request_code import RequestCode

NAMES = BrokerNames(cluster="c", broker_name="broker-a")
SILENCE_MS = 3_000


class ControllerTables:
    """See the module."""

    def __init__(self) -> None:
        self.sets = ReplicaSets()
        self.decisions = Decisions(self.sets)
        self.live = LiveTable()

    def beat(
        self, broker_id: int, *, address: str, now_ms: int, owner: object, epoch: int = 0, end_offset: int = 0
    ) -> None:
        """A heartbeat."""
        self.live.beat(
            BrokerKey(NAMES.cluster, NAMES.broker_name, broker_id),
            now_ms=now_ms,
            owner=owner,
            address=address,
            timeout_ms=SILENCE_MS,
            epoch=epoch,
            max_offset=end_offset,
        )

    def ask(self, question: Question, *, address: str, now_ms: int) -> Answer:
        """The answer, over the wire form of both."""
        command = encode_question(question, NAMES, address=address)
        decision = self._decide(command, now_ms)
        if decision.event is not None:
            assert self.sets.apply(Proposal(after=self.sets.revision, event=decision.event))
        return decode_answer(
            question,
            RemotingCommand.response(
                command, decision.code, header=decision.header, remark=decision.remark, body=decision.body
            ),
        )

    def replace_dead_masters(self, now_ms: int) -> None:
        """Elect where the master is silent."""
        self.live.expire(now_ms)
        liveness = self.live.at(now_ms)
        sync = self.sets.syncs.get(NAMES.broker_name)
        if sync is None or sync.master_id is None:
            return
        if liveness.get(BrokerKey(NAMES.cluster, NAMES.broker_name, sync.master_id)) is None:
            decision = self.decisions.elect(
                ElectMasterRequestHeader(broker_name=NAMES.broker_name, broker_id=-1),
                liveness,
                is_unclean_allowed=False,
            )
            if decision.event is not None:
                self.sets.apply(Proposal(after=self.sets.revision, event=decision.event))

    def _decide(self, command: RemotingCommand, now_ms: int) -> Decision:
        decisions, liveness = self.decisions, self.live.at(now_ms)
        match command.code:
            case RequestCode.CONTROLLER_GET_NEXT_BROKER_ID:
                return decisions.next_id(command.header(GetNextBrokerIdRequestHeader))
            case RequestCode.CONTROLLER_APPLY_BROKER_ID:
                return decisions.apply_id(command.header(ApplyBrokerIdRequestHeader))
            case RequestCode.CONTROLLER_REGISTER_BROKER:
                return decisions.register(command.header(RegisterBrokerToControllerRequestHeader), liveness)
            case RequestCode.CONTROLLER_ELECT_MASTER:
                return decisions.elect(command.header(ElectMasterRequestHeader), liveness, is_unclean_allowed=False)
            case RequestCode.CONTROLLER_GET_REPLICA_INFO:
                return decisions.replica_info(command.header(GetReplicaInfoRequestHeader))
            case _:
                assert command.code == RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
                return decisions.alter(
                    command.header(AlterSyncStateSetRequestHeader), SyncStateSet.decode(command.body), liveness
                )
