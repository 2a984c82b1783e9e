"""Where a proxy's settings come from: `rmq-proxy.json`, environment, flags; the later one wins.

The file is a JSON object with RocketMQ's names, so one that was written for it works, or a TOML file with the same
names at the top. Names of RocketMQ without effect here are collected in `ignored`; a value that promises what is not
built is refused. A name that does not exist is an error with the nearest known ones.
Environment: THERMOCLINE_PROXY_ and the property name in capitals (THERMOCLINE_PROXY_GRPC_SERVER_PORT), and NAMESRV_ADDR
as RocketMQ reads it, below everything else.
Source: ConfigurationManager.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass

from thermocline.proxy.settings.official_settings import PROXY_SETTINGS
from thermocline.proxy.settings.proxy_config import FIELDS_BY_NAME, OWN_FIELDS, ProxyConfig
from thermocline.remoting.errors import InvalidParameterError, SettingError
from thermocline.remoting.settings import (
    TLS_SECRETS,
    PropertySource,
    SettingNames,
    TlsConfig,
    dotted,
    error_with_place,
)

__all__ = [
    "LoadedProxyConfig",
    "environment_properties",
    "environment_variable",
    "file_properties",
    "load_proxy_config",
    "secret_names",
]

ENVIRONMENT_PREFIX = "THERMOCLINE_PROXY_"
LIST_SETTING, KEY_IN_LIST = "routingClusters", "secretKey"
"""The one setting that is a list in the file, elsewhere its JSON; it is secret where it has keys."""

_NAMES = SettingNames(ENVIRONMENT_PREFIX, official=PROXY_SETTINGS, fields_by_name=FIELDS_BY_NAME)
environment_variable, environment_properties = _NAMES.environment_variable, _NAMES.environment_properties


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedProxyConfig:
    """The configuration, and names that were accepted without effect."""

    config: ProxyConfig
    ignored: tuple[str, ...]


def file_properties(path: str, data: bytes) -> PropertySource:
    """Return the settings in a configuration file.

    Raises:
        SettingError: It is not an object of names and values.
    """
    try:
        table = tomllib.loads(data.decode()) if path.endswith(".toml") else json.loads(data)
    except (UnicodeDecodeError, ValueError) as error:
        raise SettingError(f"the configuration file cannot be read: {error}", path=path) from error
    if not isinstance(table, dict):
        raise SettingError("the configuration file is not an object of names and values", path=path)
    tls = table.pop("tls", None)
    table |= dotted("tls", tls) if isinstance(tls, dict) else {} if tls is None else {"tls": tls}
    return PropertySource(place=path, values={name: _text(name, value, path) for name, value in table.items()})


def load_proxy_config(sources: Iterable[PropertySource]) -> LoadedProxyConfig:
    """Put sources together, the later one winning.

    Raises:
        SettingError: A name is unknown, or a value cannot be one or promises what is not built.
    """
    gathered = _NAMES.gather(sources)
    try:
        config = ProxyConfig(**gathered.own, tls=TlsConfig(**gathered.tls))
    except InvalidParameterError as error:
        raise error_with_place(error, gathered.set_in) from error
    return LoadedProxyConfig(config=config, ignored=gathered.ignored)


def secret_names(source: PropertySource) -> list[str]:
    """Return the settings of a source that have secrets in them."""
    secrets = TLS_SECRETS | {item.metadata["name"] for item in OWN_FIELDS if item.metadata["is_secret"]}
    secrets |= {each.name for each in PROXY_SETTINGS.values() if each.carrier in secrets}
    return [
        name
        for name, text in source.values.items()
        if name in secrets and text.strip() and (name != LIST_SETTING or KEY_IN_LIST in text)
    ]


def _text(name: str, value: object, path: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if name == LIST_SETTING and isinstance(value, list):
        return json.dumps(value)
    raise SettingError(f"{name}: a text, a number, true or false is needed", path=path)
