"""The settings of a NameServer and their sources; the environment's variables begin with THERMOCLINE_NAME_SERVER_.

Source: common/namesrv/NamesrvConfig.java, NettyServerConfig.java, Apache RocketMQ 5.3.
"""

from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.port_settings import PortSettings, file_properties

ENVIRONMENT_PREFIX = "THERMOCLINE_NAME_SERVER_"

NAME_SERVER = PortSettings(NameServerConfig, prefix=ENVIRONMENT_PREFIX)
environment_variable, environment_properties = NAME_SERVER.environment_variable, NAME_SERVER.environment_properties
load_name_server_config = NAME_SERVER.load

__all__ = [
    "ENVIRONMENT_PREFIX",
    "NAME_SERVER",
    "environment_properties",
    "environment_variable",
    "file_properties",
    "load_name_server_config",
]
