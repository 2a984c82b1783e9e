"""Where a NameServer's settings come from: configuration file, environment, flags; the later one wins.

Configuration file, by suffix: `*.toml` has property names at the top; anything else is properties text with
Apache RocketMQ's names, so that a `namesrv.conf` written for it works. Names of RocketMQ that have no effect here
are collected in `ignored`; a value that promises what is not built is refused (official_settings.py).
tls.properties, which `tls.config.file` names, counts as a configuration file above that one.
Environment: THERMOCLINE_NAME_SERVER_ and the property name in capitals (THERMOCLINE_NAME_SERVER_BROKER_EXPIRY_MS for
brokerExpiryMs).

A name that does not exist is an error with the nearest known ones; so is a value that cannot be one, with the place
where it stands.
Source: common/namesrv/NamesrvConfig.java, NettyServerConfig.java, Apache RocketMQ 5.3.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import msgspec

from thermocline.namesrv.name_server_config import OWN_FIELDS, NameServerConfig
from thermocline.namesrv.official_settings import NAME_SERVER_SETTINGS
from thermocline.remoting.errors import InvalidRequestError, SettingError
from thermocline.remoting.settings import TLS_SECRETS, PropertySource, SettingNames, TlsConfig, parse_config_text

ENVIRONMENT_PREFIX = "THERMOCLINE_NAME_SERVER_"

_NAMES = SettingNames(
    ENVIRONMENT_PREFIX,
    official=NAME_SERVER_SETTINGS,
    fields_by_name={item.metadata["name"]: item for item in OWN_FIELDS + fields(TlsConfig)},
)
environment_variable, environment_properties = _NAMES.environment_variable, _NAMES.environment_properties


class LoadedNameServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration, and names that were accepted without effect."""

    config: NameServerConfig
    ignored: tuple[str, ...]


def file_properties(path: str, data: bytes) -> PropertySource:
    """The settings in a configuration file.

    Raises:
        SettingError: The file cannot be read as what its name says.
    """
    try:
        text = data.decode()
        if path.endswith(".toml"):
            return PropertySource(place=path, values=_toml_properties(tomllib.loads(text), path))
        return PropertySource(place=path, values=parse_config_text(text))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingError(f"the configuration file cannot be read: {error}", path=path) from error


def load_name_server_config(sources: Iterable[PropertySource]) -> LoadedNameServerConfig:
    """Put sources together, the later one winning.

    Raises:
        SettingError: A name is unknown, or a value cannot be one or promises what is not built.
    """
    gathered = _NAMES.gather(sources)
    try:
        config = NameServerConfig(**gathered.own, tls=TlsConfig(**gathered.tls))
    except InvalidRequestError as error:
        raise SettingError(error.message, **error.context) from error
    return LoadedNameServerConfig(config=config, ignored=gathered.ignored)


def secret_names(source: PropertySource) -> list[str]:
    """The settings of a source that have secrets in them."""
    secrets = TLS_SECRETS | {item.metadata["name"] for item in OWN_FIELDS if item.metadata["is_secret"]}
    return [name for name, text in source.values.items() if name in secrets and text.strip()]


def _toml_properties(table: Mapping[str, Any], path: str) -> dict[str, str]:
    tls = table.get("tls")
    if isinstance(tls, dict):  # tls.server.mode = "enforcing", without quotes around the name
        table = {**{name: value for name, value in table.items() if name != "tls"}, **_dotted("tls", tls)}
    for name, value in table.items():
        if isinstance(value, dict):
            raise SettingError(f"unknown table [{name}]; settings stand at the top", path=path)
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in table.items()}


def _dotted(prefix: str, table: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, member in table.items():
        found |= _dotted(f"{prefix}.{name}", member) if isinstance(member, dict) else {f"{prefix}.{name}": member}
    return found
