"""Settings of a NameServer, with the names and defaults of Apache RocketMQ's.

`getNamesrvConfig` shows them and `updateNamesrvConfig` changes those that a running NameServer can follow. A change of
one that is read at the start alone is refused, and so is a value that promises what is not built
(official_settings.py); unknown names are passed over, as RocketMQ does, so that one tool can talk to both. Changes are
kept in the file that `configStorePath` names, and stand above the configuration file at the next start; environment and
flags stand above them. Without a path a NameServer has its start settings again after a restart.
Source: common/namesrv/NamesrvConfig.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from thermocline.namesrv.official_settings import NAME_SERVER_SETTINGS
from thermocline.namesrv.port_config import PORT_MAX, PortConfig, own_fields, setting
from thermocline.remoting.settings import OfficialSetting


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig(PortConfig):
    """Settings of one NameServer; checked when made.

    Raises:
        InvalidParameterError: A value is outside its range.
    """

    OFFICIAL: ClassVar[Mapping[str, OfficialSetting]] = NAME_SERVER_SETTINGS

    listen_port: int = setting(9876, "listenPort", least=0, most=PORT_MAX, is_live=False)
    """0 takes a free one."""
    scan_interval_ms: int = setting(5_000, "scanNotActiveBrokerInterval", least=10)
    """How often brokers that fell silent are looked for."""
    broker_expiry_ms: int = setting(120_000, "brokerExpiryMs", least=100)
    """Silence after which a broker is forgotten, unless its registration names another time."""
    order_message: bool = setting(False, "orderMessageEnable")
    """Give the order configuration of a topic along with its route."""
    return_order_topics: bool = setting(True, "returnOrderTopicConfigToBroker")
    all_topic_list: bool = setting(True, "enableAllTopicList")
    topic_list: bool = setting(True, "enableTopicList")
    acting_master: bool = setting(False, "supportActingMaster")
    least_id_notices: bool = setting(False, "notifyMinBrokerIdChanged")
    """Tell brokers of one name when another one has the least id (least_id_notices.py)."""
    delete_topics_with_registration: bool = setting(False, "deleteTopicWithBrokerRegistration")
    """A broker's registration removes the topics that it no longer names."""
    wait_for_service: bool = setting(False, "needWaitForService")
    wait_for_service_seconds: int = setting(45, "waitSecondsForService", least=0)
    """With `wait_for_service`: no routes before this time, so that clients see all brokers or none."""
    controller: bool = setting(False, "enableControllerInNamesrv", is_live=False)
    """Run a controller in this process, on its own port (controller/controller_config.py has its settings)."""
    kv_config_path: str = setting("", "kvConfigPath", is_live=False)
    """Where the KV configuration is kept; empty: nowhere."""
    connection_brokers_max: int = setting(64, "brokersPerConnectionMax", least=1)
    brokers_max: int = setting(10_000, "brokersMax", least=1)
    broker_topics_max: int = setting(200_000, "topicsPerBrokerMax", least=1)
    routes_max: int = setting(2_000_000, "routesMax", least=1)
    """Topics of all brokers, a topic counted once for each broker that has it."""
    kv_config_bytes_max: int = setting(4 << 20, "kvConfigBytesMax", least=1)
    config_black_list: str = setting("configBlackList;configStorePath;kvConfigPath", "configBlackList")


OWN_FIELDS = own_fields(NameServerConfig)
"""The settings that are no TLS settings."""
