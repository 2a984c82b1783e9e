"""Where a proxy's settings come from: `rmq-proxy.json`, environment, flags; the later one wins.

The file is a JSON object with RocketMQ's names, so one that was written for it works, or a TOML file with the same
names at the top. Names of RocketMQ without effect here are collected in `ignored`; a value that promises what is not
built is refused. A name that does not exist is an error with the nearest known ones.
Environment: THERMOCLINE_PROXY_ and the property name in capitals (THERMOCLINE_PROXY_GRPC_SERVER_PORT), and NAMESRV_ADDR
as RocketMQ reads it, below everything else.
Source: ConfigurationManager.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from thermocline.proxy.settings.official_settings import PROXY_SETTINGS
from thermocline.proxy.settings.proxy_config import FIELDS_BY_NAME, ProxyConfig
from thermocline.remoting.errors import InvalidParameterError, SettingError
from thermocline.remoting.settings import TlsConfig, Treatment, resolve, shown_tls

__all__ = [
    "LoadedProxyConfig",
    "ProxySource",
    "environment_properties",
    "environment_variable",
    "file_properties",
    "load_proxy_config",
]

ENVIRONMENT_PREFIX = "THERMOCLINE_PROXY_"
NAMESRV_VARIABLE = "NAMESRV_ADDR"
_TLS_FIELDS = frozenset(item.name for item in fields(TlsConfig))
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySource:
    """Settings as one source has them: property name -> text; `place` says where, for errors."""

    place: str
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedProxyConfig:
    """The configuration, and names that were accepted without effect."""

    config: ProxyConfig
    ignored: tuple[str, ...]


def file_properties(path: str, data: bytes) -> ProxySource:
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
    return ProxySource(place=path, values={name: _text(name, value, path) for name, value in table.items()})


def environment_properties(environment: Mapping[str, str]) -> ProxySource:
    """Return the settings in the environment; variables of other programs are passed over."""
    names = {environment_variable(name): name for name in (*PROXY_SETTINGS, *FIELDS_BY_NAME)}
    values = {
        names.get(variable, variable): text
        for variable, text in environment.items()
        if variable.startswith(ENVIRONMENT_PREFIX)
    }
    return ProxySource(place="environment", values=values)


def environment_variable(name: str) -> str:
    """Return the variable of a property."""
    return ENVIRONMENT_PREFIX + _CAPITAL.sub("_", name).replace(".", "_").upper()


def load_proxy_config(sources: Iterable[ProxySource]) -> LoadedProxyConfig:
    """Put sources together, the later one winning.

    Raises:
        SettingError: A name is unknown, or a value cannot be one or promises what is not built.
    """
    values: dict[str, Any] = {}
    ignored: dict[str, None] = {}
    for source in sources:
        for name, text in source.values.items():
            carrier, resolved = resolve(PROXY_SETTINGS, name, text, source=source.place)
            item = FIELDS_BY_NAME.get(carrier)
            if item is not None:
                values[item.name] = _parse(carrier, resolved, default=item.default, place=source.place)
            elif name not in PROXY_SETTINGS:
                raise _unknown(name, source.place)
            elif PROXY_SETTINGS[name].treatment is Treatment.WITHOUT_EFFECT:
                ignored[name] = None
    try:
        tls = TlsConfig(**{name: value for name, value in values.items() if name in _TLS_FIELDS})
    except InvalidParameterError as error:
        raise SettingError(error.message, **error.context) from error
    own = {name: value for name, value in values.items() if name not in _TLS_FIELDS}
    return LoadedProxyConfig(config=ProxyConfig(**own, tls=tls), ignored=tuple(ignored))


def _text(name: str, value: object, path: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise SettingError(f"{name}: a text, a number, true or false is needed", path=path)


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


def _unknown(name: str, place: str) -> SettingError:
    if name.startswith(ENVIRONMENT_PREFIX):
        near = difflib.get_close_matches(name, [environment_variable(field) for field in FIELDS_BY_NAME], n=2)
    else:
        near = difflib.get_close_matches(name, [*FIELDS_BY_NAME, *PROXY_SETTINGS], n=2)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return SettingError(f"unknown setting {name}{hint}", source=place)
