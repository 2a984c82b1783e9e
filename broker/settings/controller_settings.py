"""Settings of a broker under a controller, of RocketMQ's BrokerConfig and MessageStoreConfig.

    inSyncReplicas (1), allAckInSyncStateSet (false)    how many brokers have a message before its send is answered
    minInSyncReplicas (1)                               with a smaller SyncStateSet sends are refused

Source: common/BrokerConfig.java, store/config/MessageStoreConfig.java, Apache RocketMQ 5.5.
"""

from dataclasses import dataclass

from thermocline.broker.settings.limit_settings import LimitSettings
from thermocline.broker.settings.setting_field import setting
from thermocline.remoting.clients import split_addresses
from thermocline.remoting.errors import InvalidParameterError
from thermocline.remoting.socket_address import parse_address

CONTROLLERS_MAX = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings(LimitSettings):
    """The part of BrokerConfig about controllers."""

    controller_mode: bool = setting(False, "enableControllerMode")
    controller_addresses: str = setting("", "controllerAddr", live=True)
    """host:port of every controller, separated by semicolons."""
    election_priority: int = setting((1 << 31) - 1, "brokerElectionPriority", least=0, most=(1 << 31) - 1, live=True)
    """Of brokers with equal logs the one with the smallest is elected."""
    heartbeat_ms: int = setting(1_000, "brokerHeartbeatInterval", least=100, most=60_000, live=True)
    controller_silence_ms: int = setting(10_000, "controllerHeartBeatTimeoutMills", least=300, most=600_000, live=True)
    """After so long without a heartbeat the controllers replace this broker."""
    replica_info_interval_ms: int = setting(5_000, "syncBrokerMetadataPeriod", least=100, most=60_000, live=True)
    all_ack: bool = setting(False, "allAckInSyncStateSet", live=True)
    """Whether a send waits for every broker of the SyncStateSet, and is read when they have it."""
    min_in_sync_replicas: int = setting(1, "minInSyncReplicas", least=1, most=64, live=True)
    slave_lag_ms_max: int = setting(15_000, "haMaxTimeSlaveNotCatchup", least=100, live=True)
    """A slave that has not caught up for so long leaves the SyncStateSet."""
    is_learner: bool = setting(False, "asyncLearner")
    """Whether this broker only follows: it is never waited for, and never in the SyncStateSet."""
    begins_with_last_file: bool = setting(False, "syncFromLastFile")
    """Whether this broker, empty, begins with its master's last file."""
    identity_path: str = setting("", "storePathBrokerIdentity")
    """Empty: brokerIdentity in storePathRootDir."""

    @property
    def controllers(self) -> tuple[str, ...]:
        """host:port of each."""
        return tuple(dict.fromkeys(split_addresses(self.controller_addresses)))

    def check_controllers(self) -> None:
        """
        Raises:
            InvalidParameterError: Controllers are needed, and not named; or not used, and something needs them.
        """
        if not self.controller_mode:
            for name, is_set in (
                ("minInSyncReplicas", self.min_in_sync_replicas > 1),
                ("allAckInSyncStateSet", self.all_ack),
                ("asyncLearner", self.is_learner),
            ):
                if is_set:
                    raise InvalidParameterError(
                        f"{name} is refused: it would promise what a controller alone keeps (enableControllerMode)",
                        setting=name,
                    )
            return
        controllers = self.controllers
        if not 0 < len(controllers) <= CONTROLLERS_MAX:
            raise InvalidParameterError(
                f"enableControllerMode needs host:port of each controller, 1 to {CONTROLLERS_MAX}",
                setting="controllerAddr",
                value=self.controller_addresses,
            )
        for address in controllers:
            _, port = parse_address(address)
            if not port:
                raise InvalidParameterError(
                    "a controller's address is host:port", setting="controllerAddr", value=address
                )
        if self.controller_silence_ms < 3 * self.heartbeat_ms:
            raise InvalidParameterError(
                "the controllers have to wait for at least three heartbeats (brokerHeartbeatInterval)",
                setting="controllerHeartBeatTimeoutMills",
                value=self.controller_silence_ms,
            )
