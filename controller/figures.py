"""Figures: the text behind GET /metrics of one controller.

Families that RocketMQ's controller has keep its names and labels (address, group, peer_id; cluster and broker_set):
role, dledger_disk_usage_bytes, active_broker_num, request_total, election_total. Those of this project begin with
thermocline_controller_. Each node shows its own view: replica sets are as of what it has applied, brokers alive are
those that it hears itself.
Bound: a series for each of `replicaSetsMax` names and each of the families by name; counts of elections by name are
dropped with the name.
Source: controller/metrics/ControllerMetricsConstant.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Awaitable, Mapping

from thermocline.controller.consensus import ConsensusNode
from thermocline.controller.controller_config import ControllerConfig
from thermocline.controller.coordinator import Coordinator
from thermocline.remoting.bodies.replica import BrokerReplicasInfo
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler, LimitCounts
from thermocline.remoting.errors import RequestTimeoutError
from thermocline.remoting.health import REFUSAL_FAMILIES, Exposition, Families, MetricType, show_refusals
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

CANDIDATE, FOLLOWER, LEADER = 1, 2, 3
"""RocketMQ's values of `role`; 0: this node takes no part."""
FAMILIES: Families = {
    "role": (MetricType.GAUGE, "What this node is: 0 takes no part, 1 candidate, 2 follower, 3 leader."),
    "dledger_disk_usage_bytes": (MetricType.GAUGE, "Bytes of what the group has agreed on, in this node's folder."),
    "active_broker_num": (MetricType.GAUGE, "Brokers of a name whose heartbeats come to this node."),
    "request_total": (MetricType.COUNTER, "Requests, by type and how they ended."),
    "election_total": (MetricType.COUNTER, "Elections of masters by name, and what came of them."),
    "thermocline_controller_master_alive": (
        MetricType.GAUGE,
        "1 while the master of a broker name is there and alive, 0 while there is none.",
    ),
    "thermocline_controller_in_sync": (MetricType.GAUGE, "Living brokers of the SyncStateSet of a broker name."),
    "thermocline_controller_replicas": (MetricType.GAUGE, "Brokers that have a number, of a broker name."),
    **REFUSAL_FAMILIES,
}
REQUEST_TYPES: Mapping[int, str] = {
    RequestCode.BROKER_HEARTBEAT: "CONTROLLER_BROKER_HEARTBEAT",
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: "CONTROLLER_ALTER_SYNC_STATE_SET",
    RequestCode.CONTROLLER_ELECT_MASTER: "CONTROLLER_ELECT_MASTER",
    RequestCode.CONTROLLER_REGISTER_BROKER: "CONTROLLER_REGISTER_BROKER",
    RequestCode.CONTROLLER_GET_REPLICA_INFO: "CONTROLLER_GET_REPLICA_INFO",
    RequestCode.CONTROLLER_GET_METADATA_INFO: "CONTROLLER_GET_METADATA_INFO",
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: "CONTROLLER_GET_SYNC_STATE_DATA",
    RequestCode.UPDATE_CONTROLLER_CONFIG: "CONTROLLER_UPDATE_CONTROLLER_CONFIG",
    RequestCode.GET_CONTROLLER_CONFIG: "CONTROLLER_GET_CONTROLLER_CONFIG",
    RequestCode.CLEAN_BROKER_DATA: "CONTROLLER_CLEAN_BROKER_DATA",
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: "CONTROLLER_GET_NEXT_BROKER_ID",
    RequestCode.CONTROLLER_APPLY_BROKER_ID: "CONTROLLER_APPLY_BROKER_ID",
}
"""RocketMQ's names of what is counted."""
SUCCESS, FAILED, TIMEOUT = "success", "failed", "timeout"


class RequestCounts:
    """How the requests of one controller ended."""

    def __init__(self) -> None:
        self.totals: Counter[tuple[str, str]] = Counter()
        """By type, and success, failed or timeout."""

    def counted(self, routes: Mapping[int, Handler]) -> Mapping[int, Handler]:
        """The same routes; those that RocketMQ counts are counted."""
        return {
            code: self._count(REQUEST_TYPES[code], handler) if code in REQUEST_TYPES else handler
            for code, handler in routes.items()
        }

    def _count(self, name: str, handler: Handler) -> Handler:
        async def wait(answer: Awaitable[RemotingCommand | None]) -> RemotingCommand | None:
            try:
                return self._ended(name, await answer)
            except Exception as error:
                self._failed(name, error)
                raise

        def counted(connection: Connection, command: RemotingCommand) -> object:
            try:
                answer = handler(connection, command)
                return wait(answer) if inspect.isawaitable(answer) else self._ended(name, answer)
            except Exception as error:
                self._failed(name, error)
                raise

        return counted  # type: ignore[return-value]  # of the same kind as the handler's answer

    def _ended(self, name: str, answer: RemotingCommand | None) -> RemotingCommand | None:
        is_good = answer is None or answer.code == ResponseCode.SUCCESS
        self.totals[name, SUCCESS if is_good else FAILED] += 1
        return answer

    def _failed(self, name: str, error: Exception) -> None:
        self.totals[name, TIMEOUT if isinstance(error, RequestTimeoutError) else FAILED] += 1


def metrics_text(
    config: ControllerConfig,
    node: ConsensusNode,
    coordinator: Coordinator,
    *,
    requests: RequestCounts,
    folder: str,
    limits: LimitCounts,
    denials: Mapping[str, int],
) -> bytes:
    """The whole page. `folder`: where this node's files are."""
    page = Exposition(FAMILIES)
    own = {"address": config.peers.address, "group": config.group, "peer_id": config.node}
    page.add("role", role_of(node), own)
    page.add("dledger_disk_usage_bytes", _size_bytes(folder), own)
    for (name, status), times in requests.totals.items():
        page.add("request_total", times, {**own, "request_type": name, "request_handle_status": status})
    states = coordinator.decisions.sync_states(coordinator.sets.members, coordinator.liveness())
    for name, info in BrokerReplicasInfo.decode(states.body).replicas_info_table.items():
        of_set = {"cluster": coordinator.sets.members[name].cluster, "broker_set": name}
        replicas = [*info.in_sync_replicas, *info.not_in_sync_replicas]
        alive = {replica.broker_id for replica in replicas if replica.alive}
        page.add("active_broker_num", len(alive), {**own, **of_set})
        for result, times in coordinator.elections.get(name, {}).items():
            page.add("election_total", times, {**own, **of_set, "election_result": result})
        page.add("thermocline_controller_master_alive", info.master_broker_id in alive, of_set)
        in_sync = len(alive & {replica.broker_id for replica in info.in_sync_replicas})
        page.add("thermocline_controller_in_sync", in_sync, of_set)
        page.add("thermocline_controller_replicas", len(replicas), of_set)
    show_refusals(page, limits=limits.totals, quotas={}, denials=denials)
    return page.text()


def role_of(node: ConsensusNode) -> int:
    """What a node is in its group."""
    if node.failure is not None:
        return 0
    if node.is_serving:
        return LEADER
    return CANDIDATE if node.leader is None else FOLLOWER


def _size_bytes(folder: str) -> int:
    """Of the files of a folder, which may be replaced meanwhile."""
    total = 0
    for entry in os.scandir(folder) if os.path.isdir(folder) else ():
        try:
            total += entry.stat().st_size if entry.is_file() else 0
        except FileNotFoundError:
            continue
    return total
