"""Merged settings: the configuration of a proxy in a broker's process group.

Below its own file, environment and flags the broker's settings count: its NameServers, its cluster, the address that
its port is bound to, its certificates, its access control. So a broker that works needs no settings for its proxy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from thermocline.broker.settings import BrokerSettings
from thermocline.proxy.configuration import load_config
from thermocline.proxy.settings import ProxyConfig
from thermocline.remoting.errors import SettingError
from thermocline.remoting.settings import PropertySource, TlsConfig

__all__ = ["merged_config"]


def merged_config(
    settings: BrokerSettings, *, config_path: str, environment: Mapping[str, str], flags: Mapping[str, str]
) -> ProxyConfig:
    """Put the proxy's settings together. `config_path`: its file, empty for none; `flags`: by property name.

    Raises:
        SettingError: A name is unknown, or a value cannot be one; or the broker has nothing that a proxy needs.
    """
    broker = settings.broker
    name_servers = broker.name_server_source
    if name_servers is None:
        raise SettingError("a proxy finds topics through NameServers: set namesrvAddr", setting="namesrvAddr")
    if settings.auth.authentication_enabled and settings.auth.credentials() is None:
        raise SettingError(
            "a proxy signs its requests as a broker does: with access control it needs them",
            setting="innerClientAuthenticationCredentials",
        )
    values = {
        "bindAddress": broker.bound_host,
        "rocketMQClusterName": broker.cluster_name,
        "proxyName": broker.broker_name,
        "namesrvAddr": ";".join(name_servers.texts),
        **_changed_tls(settings.tls),
        **_access_control(settings),
    }
    return load_config(
        config_path=Path(config_path) if config_path else None,
        environment=environment,
        flags=flags,
        broker_source=PropertySource(place="settings of the broker", values=values),
    )


def _access_control(settings: BrokerSettings) -> dict[str, str]:
    """Clients of the proxy sign and need rights as those of the broker do; the audit log is beside the broker's."""
    auth = settings.auth
    if not auth.authentication_enabled:
        return {}
    audit_path = auth.audit_path or f"{settings.store.own_path}/audit.log"
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": str(auth.authorization_enabled).lower(),
        "auditLogPath": f"{audit_path}.proxy",
        "auditLogFileBytes": str(auth.audit_file_bytes),
        "auditLogFileCount": str(auth.audit_file_count),
        "auditLogAccesses": str(auth.audit_accesses).lower(),
    }


def _changed_tls(tls: TlsConfig) -> dict[str, str]:
    """The settings of TLS that are not the defaults, as text."""
    values = {item.metadata["name"]: (getattr(tls, item.name), item.default) for item in fields(TlsConfig)}
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, (value, default) in values.items()
        if value != default
    }
