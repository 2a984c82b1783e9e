"""Setting names: the settings of a daemon whose configuration is one data class, gathered from their sources.

Known are RocketMQ's names, by their treatment (official_settings.py), and the property names of the data class, those
of TLS among them. A name that does not exist is an error with the nearest known ones; so is a value that cannot be one,
or that promises what is not built, with the place where it stands.

Kubernetes sets variables for each service of a pod's namespace (`is_service_link`). The service of a daemon usually has
such a name that they begin with the prefix of its settings; they are passed over.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import Field, fields
from typing import Any

import msgspec

from thermocline.remoting.errors import InvalidRequestError, SettingError
from thermocline.remoting.java_long import LONG_MAX
from thermocline.remoting.settings.official_settings import OfficialSetting, Treatment, resolve
from thermocline.remoting.settings.tls_config import TlsConfig, shown_tls

__all__ = [
    "GatheredSettings",
    "PropertySource",
    "SettingNames",
    "did_you_mean",
    "dotted",
    "environment_variable",
    "error_with_place",
    "is_service_link",
]

_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SERVICE_LINK = re.compile(
    r"[A-Z0-9_]+_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_PORT_LINK = re.compile(r"(tcp|udp|sctp)://.*")
_TLS_FIELDS = frozenset(item.name for item in fields(TlsConfig))


class PropertySource(msgspec.Struct, frozen=True, kw_only=True):
    """Settings as one source has them: property name -> text; `place` says where, for errors."""

    place: str
    values: Mapping[str, str]


class GatheredSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Values by field name: the daemon's own, and those of TlsConfig; and names that were accepted without effect.
    `set_in`: where the value of a property comes from."""

    own: dict[str, Any]
    tls: dict[str, Any]
    ignored: tuple[str, ...]
    set_in: dict[str, str]


def environment_variable(prefix: str, name: str) -> str:
    """Return the variable of a property."""
    return prefix + _CAPITAL.sub("_", name).replace(".", "_").upper()


def dotted(prefix: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a table in a table by their whole names: TOML reads `tls.server.mode = 1` as tables."""
    found: dict[str, Any] = {}
    for name, member in table.items():
        found |= dotted(f"{prefix}.{name}", member) if isinstance(member, dict) else {f"{prefix}.{name}": member}
    return found


def error_with_place(error: InvalidRequestError, set_in: Mapping[str, str]) -> SettingError:
    """Return the error of a configuration class, with the place where the property in its `setting` was set."""
    place = set_in.get(str(error.context.get("setting")))
    context = {**error.context, "source": place} if place is not None else error.context
    return SettingError(error.message, **context)


def is_service_link(variable: str, text: str) -> bool:
    """Whether Kubernetes has set the variable, for a service: its host, its ports, or its URL by port.

    THERMOCLINE_PROXY_SERVICE_HOST=10.0.0.11 and THERMOCLINE_PROXY_PORT=tcp://10.0.0.11:8081 of `thermocline-proxy`.
    """
    is_url = variable.endswith("_PORT") and _PORT_LINK.fullmatch(text) is not None
    return is_url or _SERVICE_LINK.fullmatch(variable) is not None


class SettingNames:
    """See the module."""

    def __init__(
        self,
        prefix: str,
        *,
        official: Mapping[str, OfficialSetting],
        fields_by_name: Mapping[str, Field[Any]],
        names_of_others: Collection[str] = (),
    ) -> None:
        """`prefix`: of the environment's variables; `official`: RocketMQ's settings by name; `fields_by_name`: by
        property name; `names_of_others`: settings of another daemon whose variables begin with the prefix, too."""
        self._prefix = prefix
        self._others = frozenset(environment_variable("THERMOCLINE_", name) for name in names_of_others)
        self._official = official
        self._fields = fields_by_name

    def environment_variable(self, name: str) -> str:
        """Return the variable of a property."""
        return environment_variable(self._prefix, name)

    def environment_properties(self, environment: Mapping[str, str]) -> PropertySource:
        """Return the settings in the environment; variables of other programs are passed over."""
        names = {self.environment_variable(name): name for name in (*self._official, *self._fields)}
        values = {
            names.get(variable, variable): text
            for variable, text in environment.items()
            if variable.startswith(self._prefix)
            and variable not in self._others
            and not is_service_link(variable, text)
        }
        return PropertySource(place="environment", values=values)

    def gather(self, sources: Iterable[PropertySource]) -> GatheredSettings:
        """Put sources together, the later one winning.

        Raises:
            SettingError: A name is unknown, or a value cannot be one or promises what is not built.
        """
        values: dict[str, Any] = {}
        set_in: dict[str, str] = {}
        ignored: dict[str, None] = {}
        for source in sources:
            for name, text in source.values.items():
                carrier, resolved = resolve(self._official, name, text, source=source.place)
                item = self._fields.get(carrier)
                if item is not None:
                    values[item.name] = _parse(carrier, resolved, default=item.default, place=source.place)
                    set_in[carrier] = source.place
                elif name not in self._official:
                    raise self._unknown(name, source.place)
                elif self._official[name].treatment is Treatment.WITHOUT_EFFECT:
                    ignored[name] = None
        return GatheredSettings(
            own={name: value for name, value in values.items() if name not in _TLS_FIELDS},
            tls={name: value for name, value in values.items() if name in _TLS_FIELDS},
            ignored=tuple(ignored),
            set_in=set_in,
        )

    def _unknown(self, name: str, place: str) -> SettingError:
        if name.startswith(self._prefix):
            hint = did_you_mean(name, map(self.environment_variable, self._fields))
        else:
            hint = did_you_mean(name, [*self._fields, *self._official])
        return SettingError(f"unknown setting {name}{hint}", source=place)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of an error about an unknown name: the nearest of `names`, if any are near."""
    near = difflib.get_close_matches(name, list(dict.fromkeys(names)), n=3)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _parse(name: str, text: str, *, default: object, place: str) -> object:
    word = text.strip()
    if isinstance(default, bool):
        if word.lower() not in ("true", "false"):
            raise SettingError(f"{name}: true or false is needed", value=shown_tls(name, text), source=place)
        return word.lower() == "true"
    if isinstance(default, int):
        try:
            value = int(word.replace("_", ""))
        except ValueError:
            raise SettingError(f"{name}: a whole number is needed", value=text, source=place) from None
        if abs(value) > LONG_MAX:
            raise SettingError(f"{name}: a whole number of 64 bits is needed", value=text, source=place)
        return value
    return word
