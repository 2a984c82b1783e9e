"""Settings of replication, of RocketMQ's MessageStoreConfig.

    brokerRole     brokerId   the log                                              sends are answered
    (not set)      0          no slave can connect                                 when stored here
    ASYNC_MASTER   0          slaves copy it, from the port haListenPort           when stored here
    SYNC_MASTER    0          likewise                                             when inSyncReplicas brokers have it
    SLAVE          above 0    is the copy of a master's                            never: they are refused

Under a controller (enableControllerMode) the controllers give role and number; this class then shows SYNC_MASTER with
0, or SLAVE with the number, -1 while there is none. `inSyncReplicas` counts the master.
Source: store/config/MessageStoreConfig.java, Apache RocketMQ 5.5.
"""

from dataclasses import dataclass
from enum import Enum

from thermocline.broker.settings.controller_settings import ControllerSettings
from thermocline.broker.settings.setting_field import setting
from thermocline.remoting.errors import InvalidParameterError


class BrokerRole(Enum):
    """RocketMQ's names."""

    NONE = ""
    """Not set: shown as ASYNC_MASTER, which is RocketMQ's default; no port is open for slaves."""
    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings(ControllerSettings):
    """The part of BrokerConfig about replicas."""

    broker_role: BrokerRole = setting(BrokerRole.NONE, "brokerRole")  # noqa: RUF009 - makes a field
    broker_id: int = setting(0, "brokerId", least=-1, most=(1 << 31) - 1)
    """0 is the master; -1: the controllers have given none yet."""
    ha_port: int = setting(0, "haListenPort", least=0, most=65535)
    """Where slaves connect; 0: listen_port + 1."""
    ha_master_address: str = setting("", "haMasterAddress")
    """host:port of the master's `ha_port`; empty: as a NameServer answers."""
    in_sync_replicas: int = setting(1, "inSyncReplicas", least=1, most=64)
    slave_timeout_ms: int = setting(3_000, "slaveTimeout", least=1, live=True)
    """How long a send waits for slaves."""
    ha_transfer_bytes: int = setting(32_768, "haTransferBatchSize", least=1, most=1 << 22)
    ha_heartbeat_interval_ms: int = setting(5_000, "haSendHeartbeatInterval", least=10)
    ha_silence_ms_max: int = setting(20_000, "haHousekeepingInterval", least=10)
    ha_flow_control: bool = setting(False, "haFlowControlEnable")
    ha_bytes_per_second_max: int = setting(100 << 20, "maxHaTransferByteInSecond", least=1)
    ha_gap_bytes_max: int = setting(256 << 20, "haMaxGapNotInSync", least=0)
    slave_acting_master: bool = setting(False, "enableSlaveActingMaster")
    """Whether a slave stands in for a master that is gone, see docs/replicas.md."""
    remote_escape: bool = setting(False, "enableRemoteEscape")
    """Whether a slave that stands in sends what is due, popped or open to other masters of the cluster."""
    not_active_ms: int = setting(10_000, "brokerNotActiveTimeoutMillis", least=1_000)
    """Silence after which NameServers drop this broker."""
    member_group_ms: int = setting(1_000, "syncBrokerMemberGroupPeriod", least=100)
    """How often NameServers are asked which brokers have this one's name."""
    skip_pre_online: bool = setting(False, "skipPreOnline")
    """Whether a master serves before it has taken back what a slave did in its place."""

    @property
    def is_slave(self) -> bool:
        """Whether the log is the copy of a master's."""
        return self.broker_role is BrokerRole.SLAVE

    @property
    def takes_slaves(self) -> bool:
        """Whether a port is open for slaves."""
        return self.broker_role in (BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER)

    @property
    def slaves_needed(self) -> int:
        """How many slaves have to confirm a send before it is answered."""
        return self.in_sync_replicas - 1 if self.broker_role is BrokerRole.SYNC_MASTER else 0

    def check_role(self) -> None:
        """
        Raises:
            InvalidParameterError: Role, id and promise contradict each other.
        """
        if self.controller_mode:
            return
        if self.is_slave and self.broker_id <= 0:
            raise InvalidParameterError("a slave needs a brokerId above 0", setting="brokerId", value=self.broker_id)
        if self.broker_id and not self.is_slave:
            raise InvalidParameterError(
                "only a slave (brokerRole=SLAVE) has another brokerId than 0", setting="brokerId", value=self.broker_id
            )
        if self.in_sync_replicas > 1 and self.broker_role in (BrokerRole.NONE, BrokerRole.ASYNC_MASTER):
            raise InvalidParameterError(
                "sends wait for other brokers with brokerRole=SYNC_MASTER alone",
                setting="inSyncReplicas",
                value=self.in_sync_replicas,
            )
        if self.slave_acting_master and self.broker_role is BrokerRole.NONE:
            raise InvalidParameterError(
                "a broker without brokerRole has no slave that could stand in for it",
                setting="enableSlaveActingMaster",
                value=self.slave_acting_master,
            )
        if self.remote_escape and not self.slave_acting_master:
            raise InvalidParameterError(
                "only a slave that stands in for its master (enableSlaveActingMaster=true) sends to other masters",
                setting="enableRemoteEscape",
                value=self.remote_escape,
            )
