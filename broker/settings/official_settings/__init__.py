"""RocketMQ's settings of a broker, class by class, and all of them by name."""

from __future__ import annotations

from collections.abc import Mapping

from thermocline.broker.settings.official_settings.access_control import AUTH_CONFIG
from thermocline.broker.settings.official_settings.address_server import ADDRESS_SERVER
from thermocline.broker.settings.official_settings.broker_config import BROKER_CONFIG
from thermocline.broker.settings.official_settings.message_store_config import MESSAGE_STORE_CONFIG
from thermocline.broker.settings.official_settings.older_names import OLDER_NAMES
from thermocline.broker.settings.official_settings.tiered_store import TIERED_STORE_CONFIG
from thermocline.remoting.settings import (
    NETTY_CLIENT_CONFIG,
    NETTY_SERVER_CONFIG,
    TLS_PROPERTIES,
    OfficialSetting,
    by_name,
    fixed_values,
)

__all__ = ["ADDRESS_SERVER", "BROKER_CLASSES", "BROKER_SETTINGS", "FIXED", "OLDER_NAMES"]

BROKER_CLASSES: Mapping[str, tuple[OfficialSetting, ...]] = {
    "org.apache.rocketmq.common.BrokerConfig": BROKER_CONFIG,
    "org.apache.rocketmq.store.config.MessageStoreConfig": MESSAGE_STORE_CONFIG,
    "org.apache.rocketmq.remoting.netty.NettyServerConfig": NETTY_SERVER_CONFIG,
    "org.apache.rocketmq.remoting.netty.NettyClientConfig": NETTY_CLIENT_CONFIG,
    "org.apache.rocketmq.auth.config.AuthConfig": AUTH_CONFIG,
    "org.apache.rocketmq.tieredstore.MessageStoreConfig": TIERED_STORE_CONFIG,
}
"""By the full name of the official class."""

BROKER_SETTINGS: Mapping[str, OfficialSetting] = by_name(
    *BROKER_CLASSES.values(), ADDRESS_SERVER, OLDER_NAMES, TLS_PROPERTIES
)
"""Every setting of RocketMQ that a broker's configuration file may name, by its name."""

FIXED: Mapping[str, str] = fixed_values(
    BROKER_CONFIG, MESSAGE_STORE_CONFIG, NETTY_SERVER_CONFIG, NETTY_CLIENT_CONFIG, AUTH_CONFIG
)
"""What `mqadmin getBrokerConfig` shows of the refused settings: the value that is true here."""
