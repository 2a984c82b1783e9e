"""Settings: the text of a configuration file, and the official settings with their kinds."""

from thermocline.remoting.settings.config_text import format_config_text, parse_config_text
from thermocline.remoting.settings.official_network_settings import (
    NETTY_CLIENT_CONFIG,
    NETTY_SERVER_CONFIG,
    TLS_PROPERTIES,
)
from thermocline.remoting.settings.official_settings import (
    MACHINE,
    OfficialSetting,
    Treatment,
    by_name,
    carried,
    fixed_values,
    honoured,
    refused,
    resolve,
    without_effect,
)
from thermocline.remoting.settings.setting_names import (
    PropertySource,
    SettingNames,
    did_you_mean,
    dotted,
    environment_variable,
    error_with_place,
    is_service_link,
)
from thermocline.remoting.settings.tls_config import (
    CONFIG_FILE_DEFAULT,
    TLS_SECRETS,
    TlsConfig,
    TlsMode,
    shown_tls,
)

__all__ = [
    "CONFIG_FILE_DEFAULT",
    "MACHINE",
    "NETTY_CLIENT_CONFIG",
    "NETTY_SERVER_CONFIG",
    "TLS_PROPERTIES",
    "TLS_SECRETS",
    "OfficialSetting",
    "PropertySource",
    "SettingNames",
    "TlsConfig",
    "TlsMode",
    "Treatment",
    "by_name",
    "carried",
    "did_you_mean",
    "dotted",
    "environment_variable",
    "error_with_place",
    "fixed_values",
    "format_config_text",
    "honoured",
    "is_service_link",
    "parse_config_text",
    "refused",
    "resolve",
    "shown_tls",
    "without_effect",
]
