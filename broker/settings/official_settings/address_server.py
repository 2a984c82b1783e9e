"""Names that RocketMQ's broker reads from its configuration file by themselves, into system properties.

Source: broker/BrokerStartup.java (properties2SystemEnv), common/MixAll.java (WS_DOMAIN_NAME, WS_DOMAIN_SUBGROUP).
"""

from __future__ import annotations

from thermocline.remoting.settings import OfficialSetting, carried

__all__ = ["ADDRESS_SERVER"]

ADDRESS_SERVER: tuple[OfficialSetting, ...] = (
    carried("rmqAddressServerDomain", "jmenv.tbsite.net", carrier="namesrvDomain"),
    carried("rmqAddressServerSubGroup", "nsaddr", carrier="namesrvDomainSubgroup"),
)
