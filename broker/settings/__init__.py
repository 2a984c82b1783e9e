"""Settings: the settings of a broker, the sources that they are read from, and changes while it runs."""

from thermocline.broker.settings import broker_settings
from thermocline.broker.settings.broker_config import INT_MAX, PERM_READ, PERM_WRITE, BrokerConfig, CurrentConfig
from thermocline.broker.settings.broker_settings import (
    SETTINGS,
    BrokerSettings,
    SettingsChange,
    decode_changes,
    settings_path,
)
from thermocline.broker.settings.controller_settings import ControllerSettings
from thermocline.broker.settings.replica_settings import BrokerRole, ReplicaSettings
from thermocline.broker.settings.setting_sources import (
    LoadedSettings,
    environment_source,
    file_source,
    load_settings,
    warn_of_secrets,
)

__all__ = [
    "INT_MAX",
    "PERM_READ",
    "PERM_WRITE",
    "SETTINGS",
    "BrokerConfig",
    "BrokerRole",
    "BrokerSettings",
    "ControllerSettings",
    "CurrentConfig",
    "LoadedSettings",
    "ReplicaSettings",
    "SettingsChange",
    "broker_settings",
    "decode_changes",
    "environment_source",
    "file_source",
    "load_settings",
    "settings_path",
    "warn_of_secrets",
]
