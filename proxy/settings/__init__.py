"""Settings of a proxy."""

from thermocline.proxy.settings.listener_texts import GRPC, Listener, Listeners
from thermocline.proxy.settings.official_auth_settings import PROXY_AUTH_CONFIG
from thermocline.proxy.settings.official_settings import PROXY_CONFIG, PROXY_SETTINGS
from thermocline.proxy.settings.proxy_config import FIELDS_BY_NAME, OWN_FIELDS, QUOTAS, ProxyConfig
from thermocline.proxy.settings.setting_sources import (
    LoadedProxyConfig,
    environment_properties,
    environment_variable,
    file_properties,
    load_proxy_config,
    secret_names,
)

__all__ = [
    "FIELDS_BY_NAME",
    "GRPC",
    "OWN_FIELDS",
    "PROXY_AUTH_CONFIG",
    "PROXY_CONFIG",
    "PROXY_SETTINGS",
    "QUOTAS",
    "Listener",
    "Listeners",
    "LoadedProxyConfig",
    "ProxyConfig",
    "environment_properties",
    "environment_variable",
    "file_properties",
    "load_proxy_config",
    "secret_names",
]
