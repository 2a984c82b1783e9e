"""Bodies about replicas and their master.

Source: HARuntimeInfo.java, SyncStateSet.java, ElectMasterResponseBody.java, BrokerReplicasInfo.java,
Apache RocketMQ 5.5.
"""

from __future__ import annotations

from msgspec import field

from thermocline.remoting.bodies.body import Body
from thermocline.remoting.bodies.route import BrokerMemberGroup
from thermocline.remoting.header_codec import Int, Long, PhysicalOffsetLong
from thermocline.remoting.java_long import LONG_MAX
from thermocline.remoting.offsets import LOG_START, PhysicalOffset


class HAClientRuntimeInfo(Body, kw_only=True):
    """How a replica follows its master."""

    last_read_timestamp: Long = 0
    last_write_timestamp: Long = 0
    master_addr: str | None = None
    master_flush_offset: PhysicalOffsetLong = LOG_START
    max_offset: PhysicalOffsetLong = LOG_START
    transferred_byte_in_second: Long = 0


class HAConnectionRuntimeInfo(Body, kw_only=True):
    """How far one replica is, as its master sees it."""

    addr: str = ""
    diff: Long = 0
    in_sync: bool = False
    slave_ack_offset: PhysicalOffsetLong = LOG_START
    transfer_from_where: Long = 0
    transferred_byte_in_second: Long = 0


class HARuntimeInfo(Body, kw_only=True):
    """The answer to GET_BROKER_HA_STATUS."""

    ha_client_runtime_info: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)
    ha_connection_info: list[HAConnectionRuntimeInfo] = field(default_factory=list)
    in_sync_slave_nums: Int = 0
    master: bool = False
    master_commit_log_max_offset: PhysicalOffsetLong = LOG_START


class SyncStateSet(Body, kw_only=True):
    """The replicas that are in sync, by their numbers, the master among them."""

    sync_state_set: list[Long] = field(default_factory=list)
    sync_state_set_epoch: Int = 0


class ElectMasterResponseBody(Body, kw_only=True):
    """The answer to CONTROLLER_ELECT_MASTER. `broker_member_group`: all replicas, when there is a new master.

    The numbers in it are quoted: `mqadmin electMaster` 5.5.0 cannot read them as RocketMQ's own controller writes them.
    """

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: list[Long] = field(default_factory=list)


class ReplicaIdentity(Body, kw_only=True):
    """One replica; `alive`: the controller has its heartbeats."""

    broker_name: str = ""
    broker_id: Long = 0
    broker_address: str | None = None
    alive: bool | None = None


class ReplicasInfo(Body, kw_only=True):
    """One set of replicas."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None
    in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)
    not_in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)


class BrokerReplicasInfo(Body, kw_only=True):
    """The answer to CONTROLLER_GET_SYNC_STATE_DATA, by broker name; names without replicas are left out."""

    replicas_info_table: dict[str, ReplicasInfo] = field(default_factory=dict)


class EpochEntry(Body, kw_only=True):
    """One master's part of a log; the last one ends where the log does."""

    epoch: Int = 0
    start_offset: PhysicalOffsetLong = LOG_START
    end_offset: PhysicalOffsetLong = PhysicalOffset(LONG_MAX)


class EpochEntryCache(Body, kw_only=True):
    """The answer to GET_BROKER_EPOCH_CACHE. `broker_id`: 0 for a master."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: Long = 0
    epoch_list: list[EpochEntry] = field(default_factory=list)
    max_offset: PhysicalOffsetLong = LOG_START


class ControllerStatus(Body, kw_only=True):
    """The answer to CONTROLLER_STATUS. `entries`: in the node's log; `replica_sets`: as this node has applied them,
    `alive` by its own heartbeats; `refused`: how often each limit refused something."""

    node: str = ""
    group: str = ""
    term: Long = 0
    leader: str | None = None
    is_leader: bool = False
    peers: str = ""
    entries: Long = 0
    applied: Long = 0
    live_brokers: Long = 0
    failure: str | None = None
    refused: dict[str, Long] = field(default_factory=dict)
    replica_sets: dict[str, ReplicasInfo] = field(default_factory=dict)
