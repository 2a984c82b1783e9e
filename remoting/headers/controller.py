"""Headers of the requests that a controller serves, and of the notice that it sends to brokers.

`broker_id` here is the controller's number of a replica, 1 and up; `-1` in ElectMasterRequestHeader asks the controller
to choose. `invoke_time` is when the request was made; it decides nothing.
Source: the header classes of the same names under header/controller, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from thermocline.remoting.header_codec import Header, Int, Long


class AlterSyncStateSetRequestHeader(Header, kw_only=True):
    """CONTROLLER_ALTER_SYNC_STATE_SET 1001; the body is a SyncStateSet."""

    broker_name: str
    master_broker_id: Long
    master_epoch: Int
    invoke_time: Long | None = None


class AlterSyncStateSetResponseHeader(Header, kw_only=True):
    """The answer; 0 in a refusal."""

    new_sync_state_set_epoch: Int = 0


class ElectMasterRequestHeader(Header, kw_only=True):
    """CONTROLLER_ELECT_MASTER 1002. `designate_elect`: elect `broker_id` or none."""

    cluster_name: str = ""
    broker_name: str
    broker_id: Long = -1
    designate_elect: bool = False
    invoke_time: Long | None = None


class ElectMasterResponseHeader(Header, kw_only=True):
    """The master: the new one, or the one that stays."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None


class RegisterBrokerToControllerRequestHeader(Header, kw_only=True):
    """CONTROLLER_REGISTER_BROKER 1003: the address that a replica has now."""

    cluster_name: str
    broker_name: str
    broker_id: Long
    broker_address: str
    invoke_time: Long | None = None


class RegisterBrokerToControllerResponseHeader(ElectMasterResponseHeader, kw_only=True):
    """The master, if it is alive."""

    cluster_name: str | None = None
    broker_name: str | None = None


class GetReplicaInfoRequestHeader(Header, kw_only=True):
    """CONTROLLER_GET_REPLICA_INFO 1004."""

    broker_name: str


class GetReplicaInfoResponseHeader(Header, kw_only=True):
    """The master; the body is a SyncStateSet."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None


class GetMetaDataResponseHeader(Header, kw_only=True):
    """The answer to CONTROLLER_GET_METADATA_INFO 1005. `peers`: `id:host:port;` of each node."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


class CleanControllerBrokerDataRequestHeader(Header, kw_only=True):
    """CLEAN_BROKER_DATA 1011. `broker_controller_ids_to_clean`: numbers with `;` between; none: all of the name."""

    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Long | None = None


class GetNextBrokerIdRequestHeader(Header, kw_only=True):
    """CONTROLLER_GET_NEXT_BROKER_ID 1012."""

    cluster_name: str
    broker_name: str


class GetNextBrokerIdResponseHeader(Header, kw_only=True):
    """The number that the next new replica should apply for."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Long | None = None


class ApplyBrokerIdRequestHeader(Header, kw_only=True):
    """CONTROLLER_APPLY_BROKER_ID 1013. `register_check_code`: `address;milliseconds`, the same in each repetition."""

    cluster_name: str
    broker_name: str
    applied_broker_id: Long
    register_check_code: str


class ApplyBrokerIdResponseHeader(Header, kw_only=True):
    """The answer to CONTROLLER_APPLY_BROKER_ID."""

    cluster_name: str | None = None
    broker_name: str | None = None


class NotifyBrokerRoleChangedRequestHeader(Header, kw_only=True):
    """NOTIFY_BROKER_ROLE_CHANGED 1008, one-way to brokers; the body is a SyncStateSet."""

    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None
    master_broker_id: Long | None = None
