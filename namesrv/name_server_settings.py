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

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import msgspec

from thermocline.namesrv.name_server_config import OWN_FIELDS, NameServerConfig
from thermocline.namesrv.official_settings import NAME_SERVER_SETTINGS
from thermocline.remoting.errors import InvalidRequestError, SettingError
from thermocline.remoting.settings import TLS_SECRETS, TlsConfig, Treatment, parse_config_text, resolve, shown_tls

ENVIRONMENT_PREFIX = "THERMOCLINE_NAME_SERVER_"

FLAGS = "flag"
"""The place of settings that came by flags."""

_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_FIELDS = {item.metadata["name"]: item for item in OWN_FIELDS + fields(TlsConfig)}
_TLS_FIELDS = frozenset(item.name for item in fields(TlsConfig))


class PropertySource(msgspec.Struct, frozen=True, kw_only=True):
    """Settings as one source has them: property name -> text; `place` says where, for errors."""

    place: str
    values: Mapping[str, str]


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


def environment_properties(environment: Mapping[str, str]) -> PropertySource:
    """The settings in the environment; variables of other programs are passed over."""
    names = {environment_variable(name): name for name in (*NAME_SERVER_SETTINGS, *_FIELDS)}
    values = {
        names.get(variable, variable): text
        for variable, text in environment.items()
        if variable.startswith(ENVIRONMENT_PREFIX)
    }
    return PropertySource(place="environment", values=values)


def environment_variable(name: str) -> str:
    """The variable of a property."""
    return ENVIRONMENT_PREFIX + _CAPITAL.sub("_", name).replace(".", "_").upper()


def load_name_server_config(sources: Iterable[PropertySource]) -> LoadedNameServerConfig:
    """Put sources together, the later one winning.

    Raises:
        SettingError: A name is unknown, or a value cannot be one or promises what is not built.
    """
    values: dict[str, Any] = {}
    ignored: dict[str, None] = {}
    for source in sources:
        for name, text in source.values.items():
            carrier, resolved = resolve(NAME_SERVER_SETTINGS, name, text, source=source.place)
            item = _FIELDS.get(carrier)
            if item is not None:
                values[item.name] = _parse(carrier, resolved, default=item.default, place=source.place)
            elif name not in NAME_SERVER_SETTINGS:
                raise _unknown(name, source.place)
            elif NAME_SERVER_SETTINGS[name].treatment is Treatment.WITHOUT_EFFECT:
                ignored[name] = None
    try:
        tls = TlsConfig(**{name: value for name, value in values.items() if name in _TLS_FIELDS})
        own = {name: value for name, value in values.items() if name not in _TLS_FIELDS}
        return LoadedNameServerConfig(config=NameServerConfig(**own, tls=tls), ignored=tuple(ignored))
    except InvalidRequestError as error:
        raise SettingError(error.message, **error.context) from error


def secret_names(source: PropertySource) -> list[str]:
    """The settings of a source that have secrets in them."""
    secrets = TLS_SECRETS | {item.metadata["name"] for item in OWN_FIELDS if item.metadata["is_secret"]}
    return [name for name, text in source.values.items() if name in secrets and text.strip()]


def _parse(name: str, text: str, *, default: object, place: str) -> object:
    word = text.strip()
    if isinstance(default, bool):
        if word.lower() not in ("true", "false"):
            raise SettingError(f"{name}: true or false is needed", value=shown_tls(name, text), source=place)
        return word.lower() == "true"
    if isinstance(default, int):
        try:
            return int(word.replace("_", ""))
        except ValueError:
            raise SettingError(f"{name}: a whole number is needed", value=text, source=place) from None
    return word


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


def _unknown(name: str, place: str) -> SettingError:
    if name.startswith(ENVIRONMENT_PREFIX):
        near = difflib.get_close_matches(name, [environment_variable(field) for field in _FIELDS], n=2)
    else:
        near = difflib.get_close_matches(name, [*_FIELDS, *NAME_SERVER_SETTINGS], n=2)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return SettingError(f"unknown setting {name}{hint}", source=place)
