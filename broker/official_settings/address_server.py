"""Names that RocketMQ's broker reads from its configuration file by themselves, into system properties.

Source: broker/BrokerStartup.java (properties2SystemEnv), common/MixAll.java (WS_DOMAIN_NAME, WS_DOMAIN_SUBGROUP).
"""

from __future__ import annotations

from thermocline.remoting.official_settings import OfficialSetting, refused

__all__ = ["ADDRESS_SERVER"]

ADDRESS_SERVER: tuple[OfficialSetting, ...] = tuple(
    refused(
        "NameServers that are found by an address server",
        {"rmqAddressServerDomain": "jmenv.tbsite.net", "rmqAddressServerSubGroup": "nsaddr"},
        true_here="",
        advice="namesrvAddr names the NameServers",
    )
)
