"""Settings of a controller, with the names and defaults of Apache RocketMQ's ControllerConfig.

`getControllerConfig` shows them and `updateControllerConfig` changes those that a running controller can follow, on the
node that is asked alone; how, and where changes are kept: namesrv/port_config.py, namesrv/changed_settings.py.
Source: common/ControllerConfig.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from thermocline.controller.consensus import Peers, parse_peers
from thermocline.namesrv.official_settings import CONTROLLER_SETTINGS
from thermocline.namesrv.port_config import PORT_MAX, PortConfig, own_fields, setting
from thermocline.namesrv.port_settings import PortSettings
from thermocline.remoting.errors import InvalidParameterError
from thermocline.remoting.settings import OfficialSetting

LOOPBACK = "127.0.0.1"
ENVIRONMENT_PREFIX = "THERMOCLINE_CONTROLLER_"
BROKER_NAMES = ("controllerAddr", "controllerHeartBeatTimeoutMills")
"""A broker's settings whose variables begin with that prefix: daemons may share their environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig(PortConfig):
    """Settings of one controller; checked when made.

    Raises:
        InvalidParameterError: A value is outside its range, or the peers are no group.
    """

    OFFICIAL: ClassVar[Mapping[str, OfficialSetting]] = CONTROLLER_SETTINGS

    group: str = setting("default", "controllerDLegerGroup", is_live=False)
    peers_text: str = setting("", "controllerDLegerPeers", is_live=False)
    """`n0-host:port;n1-host:port;...`, the same on every node; brokers and tools are given the same addresses."""
    node: str = setting("", "controllerDLegerSelfId", is_live=False)
    """Which of them this node is."""
    store_path: str = setting("", "controllerStorePath", is_live=False)
    scan_brokers_ms: int = setting(5_000, "scanNotActiveBrokerInterval", least=10)
    """How often brokers that fell silent are looked for."""
    scan_masters_ms: int = setting(5_000, "scanInactiveMasterInterval", least=10)
    """How often a leading controller looks for replica sets whose master is dead."""
    election_tries_max: int = setting(3, "electMasterMaxRetryCount", least=1)
    """How often an election is tried while no majority of the controllers answers."""
    elect_unclean: bool = setting(False, "enableElectUncleanMaster")
    """Elect a replica outside the SyncStateSet when none in it is alive: messages may be lost."""
    confirm_reads: bool = setting(False, "isProcessReadEvent")
    """Have a majority confirm that this node leads before it answers a read."""
    notify_brokers: bool = setting(True, "notifyBrokerRoleChanged")
    new_leader_wait_ms: int = setting(10_000, "newLeaderElectionWaitMs", least=0)
    """A controller that begins to lead replaces no master before this time, unless it has heard the master and then
    lost it: it may have missed heartbeats. To be no less than the brokers' `controllerHeartBeatTimeoutMills`."""
    replica_sets_max: int = setting(10_000, "replicaSetsMax", least=1)
    set_replicas_max: int = setting(32, "replicasPerSetMax", least=1)
    live_brokers_max: int = setting(20_000, "liveBrokersMax", least=1)
    health_port: int = setting(-1, "healthPort", least=-1, most=PORT_MAX, is_live=False)
    """HTTP port with health and figures; 0 takes a free one, -1 opens none."""
    health_host: str = setting(LOOPBACK, "healthBindAddress", is_live=False)
    waiting_requests_max: int = setting(1_000, "waitingChangesMax", least=1)
    """Changes that wait for the one before them."""

    def __post_init__(self) -> None:
        PortConfig.__post_init__(self)
        _ = self.peers
        try:
            ipaddress.ip_address(self.health_host)
        except ValueError:
            raise InvalidParameterError(
                "an address of this machine is needed", setting="healthBindAddress", value=self.health_host
            ) from None
        if not self.group.strip():
            raise InvalidParameterError("controllerDLegerGroup must not be empty", setting="controllerDLegerGroup")

    @property
    def peers(self) -> Peers:
        """The group's nodes.

        Raises:
            InvalidParameterError: They are none.
        """
        return parse_peers(self.peers_text, self.node)


CONTROLLER = PortSettings(ControllerConfig, prefix=ENVIRONMENT_PREFIX, names_of_others=BROKER_NAMES)
OWN_FIELDS = own_fields(ControllerConfig)
"""The settings that are no TLS settings."""
