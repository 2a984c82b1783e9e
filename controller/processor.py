"""Controller processor: one method a request, from a decoded command to its answer.

    904 BROKER_HEARTBEAT                  1004 CONTROLLER_GET_REPLICA_INFO     1010 GET_CONTROLLER_CONFIG
    1001 CONTROLLER_ALTER_SYNC_STATE_SET  1005 CONTROLLER_GET_METADATA_INFO    1011 CLEAN_BROKER_DATA
    1002 CONTROLLER_ELECT_MASTER          1006 CONTROLLER_GET_SYNC_STATE_DATA  1012 CONTROLLER_GET_NEXT_BROKER_ID
    1003 CONTROLLER_REGISTER_BROKER       1009 UPDATE_CONTROLLER_CONFIG        1013 CONTROLLER_APPLY_BROKER_ID
    CONTROLLER_CONSENSUS, CONTROLLER_STATUS: remoting/private_requests.py

Every node answers 904, 1005, 1009, 1010 and the last two itself; a node that does not lead answers the others with
CONTROLLER_NOT_LEADER.
Bodies have bounds of their own: a megabyte of Java's dialect of JSON takes a second to read, and a controller that is
silent as long does not lead any more.
Source: controller/processor/ControllerRequestProcessor.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from thermocline.controller.consensus import ConsensusNode
from thermocline.controller.controller_config import ControllerConfig
from thermocline.controller.coordinator import Coordinator
from thermocline.controller.figures import RequestCounts
from thermocline.controller.state import Decision
from thermocline.namesrv.changed_settings import change_settings
from thermocline.namesrv.official_settings import CONTROLLER_FIXED
from thermocline.namesrv.state_file import StateFile
from thermocline.remoting.bodies.replica import BrokerReplicasInfo, ControllerStatus, SyncStateSet
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler, LimitCounts
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetReplicaInfoRequestHeader,
    RegisterBrokerToControllerRequestHeader,
)
from thermocline.remoting.headers.namesrv import BrokerHeartbeatRequestHeader
from thermocline.remoting.json_dialect import loads_as
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.settings import format_config_text

NAMES_BYTES_MAX = 1 << 20
SMALL_BYTES_MAX = 1 << 16
"""Of other bodies, and of those that are no standard JSON."""


class ControllerProcessor:
    """Answers requests out of a coordinator. Owner: the controller's event loop."""

    def __init__(
        self,
        coordinator: Coordinator,
        node: ConsensusNode,
        config: ControllerConfig,
        *,
        changes: StateFile,
        counts: LimitCounts,
        requests: RequestCounts,
    ) -> None:
        """`changes`: where settings that change while it runs are kept. `requests`: how requests ended."""
        self.config = config
        self._coordinator = coordinator
        self._node = node
        self._changes = changes
        self._counts = counts
        self._requests = requests

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        routes: Mapping[int, Handler] = {
            RequestCode.BROKER_HEARTBEAT: self.broker_heartbeat,
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: self.alter_sync_state_set,
            RequestCode.CONTROLLER_ELECT_MASTER: self.elect_master,
            RequestCode.CONTROLLER_REGISTER_BROKER: self.register_broker,
            RequestCode.CONTROLLER_GET_REPLICA_INFO: self.get_replica_info,
            RequestCode.CONTROLLER_GET_METADATA_INFO: self.get_metadata,
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: self.get_sync_state_data,
            RequestCode.UPDATE_CONTROLLER_CONFIG: self.update_config,
            RequestCode.GET_CONTROLLER_CONFIG: self.get_config,
            RequestCode.CLEAN_BROKER_DATA: self.clean_broker_data,
            RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: self.get_next_broker_id,
            RequestCode.CONTROLLER_APPLY_BROKER_ID: self.apply_broker_id,
            PrivateRequestCode.CONTROLLER_CONSENSUS: self.consensus,
            PrivateRequestCode.CONTROLLER_STATUS: self.status,
        }
        return self._requests.counted(routes)

    def broker_heartbeat(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """904: a broker is alive."""
        header = command.header(BrokerHeartbeatRequestHeader)
        if header.broker_id is None:
            return RemotingCommand.response(
                command, ResponseCode.CONTROLLER_INVALID_REQUEST, remark="Heart beat with empty brokerId"
            )
        self._coordinator.heartbeat(header, connection)
        return RemotingCommand.response(command, remark="Heart beat success")

    async def alter_sync_state_set(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """1001: a master asks for another SyncStateSet."""
        header = command.header(AlterSyncStateSetRequestHeader)
        _check_size(command, SMALL_BYTES_MAX)
        wanted = SyncStateSet.decode(command.body)
        return _answer(command, await self._coordinator.alter(header, wanted))

    async def elect_master(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """1002: a broker asks to be the master, or an operator asks for one."""
        return _answer(command, await self._coordinator.elect(command.header(ElectMasterRequestHeader)))

    async def register_broker(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """1003: a replica says where it serves."""
        header = command.header(RegisterBrokerToControllerRequestHeader)
        return _answer(command, await self._coordinator.register(header))

    async def get_replica_info(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """1004: the master and the SyncStateSet of a broker name."""
        header = command.header(GetReplicaInfoRequestHeader)
        decisions = self._coordinator.decisions
        return _answer(command, await self._coordinator.read(lambda: decisions.replica_info(header)))

    def get_metadata(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """1005: which node leads."""
        peers, leader = self.config.peers, self._node.leader
        header = GetMetaDataResponseHeader(
            group=self.config.group,
            controller_leader_id=leader,
            controller_leader_address=None if leader is None else peers.addresses[leader],
            is_leader=self._node.is_serving,
            peers=peers.text,
        )
        return RemotingCommand.response(command, header=header)

    async def get_sync_state_data(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """1006: the replicas of each broker name in the body.

        Raises:
            InvalidRequestError: The body has no names.
        """
        names = _names(command)
        if not names:
            raise InvalidRequestError("not set any response code")
        coordinator = self._coordinator
        return _answer(
            command, await coordinator.read(lambda: coordinator.decisions.sync_states(names, coordinator.liveness()))
        )

    async def clean_broker_data(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """1011: an operator has replicas forgotten."""
        header = command.header(CleanControllerBrokerDataRequestHeader)
        return _answer(command, await self._coordinator.clean(header))

    async def get_next_broker_id(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """1012: the number that a new replica should apply for."""
        header = command.header(GetNextBrokerIdRequestHeader)
        decisions = self._coordinator.decisions
        return _answer(command, await self._coordinator.read(lambda: decisions.next_id(header)))

    async def apply_broker_id(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """1013: a replica applies for a number."""
        header = command.header(ApplyBrokerIdRequestHeader)
        return _answer(command, await self._coordinator.apply_id(header, peer=connection.remote_address))

    def update_config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """1009: change settings of this node; durable before the answer. Unknown names are passed over."""
        self.config = change_settings(
            self.config, bytes(command.body), kept_in=self._changes, by=connection.remote_address
        )
        return RemotingCommand.response(command)

    def get_config(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """1010: all settings of this node, and what cannot be otherwise."""
        shown = {**CONTROLLER_FIXED, **self.config.shown()}
        return RemotingCommand.response(command, body=format_config_text(shown).encode())

    def consensus(self, connection: Connection, command: RemotingCommand) -> None:
        """A message of another controller; one-way."""
        self._node.receive(connection.remote_host[0], command.body)

    def status(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """This node, and its tables of replica sets."""
        node, coordinator = self._node, self._coordinator
        states = coordinator.decisions.sync_states(coordinator.sets.members, coordinator.liveness())
        status = ControllerStatus(
            node=self.config.node,
            group=self.config.group,
            term=node.term,
            leader=node.leader,
            is_leader=node.is_serving,
            peers=self.config.peers.text,
            entries=node.entry_count,
            applied=node.applied_index,
            live_brokers=len(coordinator.live),
            failure=None if node.failure is None else str(node.failure),
            refused=dict(self._counts.totals),
            replica_sets=BrokerReplicasInfo.decode(states.body).replicas_info_table,
        )
        return RemotingCommand.response(command, body=status.encode())


def _check_size(command: RemotingCommand, bytes_max: int) -> None:
    """
    Raises:
        InvalidRequestError: The body is larger.
    """
    if len(command.body) > bytes_max:
        raise InvalidRequestError("the body is too large", size_bytes=len(command.body), size_bytes_max=bytes_max)


def _names(command: RemotingCommand) -> list[str]:
    """The broker names in a body.

    Raises:
        InvalidRequestError: They are none, or too many.
    """
    if not command.body:
        return []
    _check_size(command, NAMES_BYTES_MAX)
    try:
        return msgspec.json.decode(command.body, type=list[str])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        _check_size(command, SMALL_BYTES_MAX)
        return loads_as(command.body, list[str])


def _answer(command: RemotingCommand, decision: Decision) -> RemotingCommand:
    return RemotingCommand.response(
        command, decision.code, header=decision.header, remark=decision.remark, body=decision.body
    )
