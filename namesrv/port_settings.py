"""Where the settings of a NameServer or a controller come from: file, changes, environment, flags; the later one wins.

Configuration file, by suffix: `*.toml` has property names at the top; anything else is properties text with
Apache RocketMQ's names, so that a `namesrv.conf` or `controller.conf` written for it works. Names of RocketMQ that have
no effect here are collected; a value that promises what is not built is refused (official_settings.py).
tls.properties, which `tls.config.file` names, counts as a configuration file above that one. The file of
`configStorePath` has what was changed while running and stands above both.
Environment: a prefix and the property name in capitals (THERMOCLINE_NAME_SERVER_BROKER_EXPIRY_MS for brokerExpiryMs).

A name that does not exist is an error with the nearest known ones; so is a value that cannot be one, with the place
where it stands. A controller inside a NameServer shares its file and flags: each of the two passes over names that are
the other's alone (`names_of_others`).
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from thermocline.namesrv.port_config import PortConfig, own_fields
from thermocline.namesrv.state_file import StateFile
from thermocline.remoting.connections import FLAGS, warn_of_place
from thermocline.remoting.errors import InvalidRequestError, SettingError
from thermocline.remoting.settings import (
    TLS_SECRETS,
    PropertySource,
    SettingNames,
    TlsConfig,
    dotted,
    error_with_place,
    parse_config_text,
)
from thermocline.remoting.tls import read_tls_file

logger = logging.getLogger(__name__)

C = TypeVar("C", bound=PortConfig)


class LoadedConfig(msgspec.Struct, Generic[C], frozen=True, kw_only=True):
    """The configuration, and names that were accepted without effect."""

    config: C
    ignored: tuple[str, ...]


class PortSettings(Generic[C]):
    """The settings of one kind of daemon."""

    def __init__(self, config_class: type[C], *, prefix: str, names_of_others: Collection[str] = ()) -> None:
        """`prefix`: of the environment's variables. `names_of_others`: see SettingNames."""
        self._config_class = config_class
        self._own_fields = own_fields(config_class)
        self._names = SettingNames(
            prefix,
            official=config_class.OFFICIAL,
            fields_by_name={item.metadata["name"]: item for item in self._own_fields + fields(TlsConfig)},
            names_of_others=names_of_others,
        )
        self.environment_variable = self._names.environment_variable
        self.environment_properties = self._names.environment_properties

    @property
    def property_names(self) -> frozenset[str]:
        """The settings of the class, and RocketMQ's of this daemon."""
        own = {item.metadata["name"] for item in self._own_fields + fields(TlsConfig)}
        return frozenset(own | self._config_class.OFFICIAL.keys())

    def load(self, sources: Iterable[PropertySource]) -> LoadedConfig[C]:
        """Put sources together, the later one winning.

        Raises:
            SettingError: A name is unknown, or a value cannot be one or promises what is not built.
        """
        gathered = self._names.gather(sources)
        try:
            config = self._config_class(**gathered.own, tls=TlsConfig(**gathered.tls))
        except InvalidRequestError as error:
            raise error_with_place(error, gathered.set_in) from error
        return LoadedConfig(config=config, ignored=gathered.ignored)

    def secret_names(self, source: PropertySource) -> list[str]:
        """The settings of a source that have secrets in them."""
        secrets = TLS_SECRETS | {item.metadata["name"] for item in self._own_fields if item.metadata["is_secret"]}
        return [name for name, text in source.values.items() if name in secrets and text.strip()]

    def read(
        self,
        *,
        config_path: Path | None,
        environment: Mapping[str, str],
        flags: Mapping[str, str],
        names_of_others: Collection[str] = frozenset(),
    ) -> C:
        """Read all sources; `flags` are settings by property name.

        Raises:
            SettingError: A name is unknown, or a value cannot be one or promises what is not built; the error names
                the place.
            UnavailableError: The file of changed settings cannot be read.
        """
        others = set(names_of_others) - self.property_names
        sources = [
            self.environment_properties(environment),
            _without(PropertySource(place=FLAGS, values=flags), others),
        ]
        if config_path is not None:
            try:
                sources.insert(0, _without(file_properties(str(config_path), config_path.read_bytes()), others))
            except OSError as error:
                raise SettingError(
                    f"the configuration file cannot be read: {error.strerror}", path=str(config_path)
                ) from error
        loaded = self.load(sources)
        tls_path = loaded.config.tls.config_file
        tls_values = read_tls_file(tls_path)
        if tls_values:
            sources.insert(len(sources) - 2, PropertySource(place=tls_path, values=tls_values))
            loaded = self.load(sources)
        path = loaded.config.config_store_path
        changes = StateFile(path).load()
        if changes:
            sources.insert(len(sources) - 2, _without(file_properties(path, changes), others))
            loaded = self.load(sources)
        for source in sources:
            warn_of_place(source.place, self.secret_names(source))
        if loaded.ignored:
            logger.warning("settings without effect here: %s", " ".join(loaded.ignored))
        return loaded.config


def file_properties(path: str, data: bytes) -> PropertySource:
    """The settings in a configuration file.

    Raises:
        SettingError: The file cannot be read as what its name says.
    """
    try:
        text = data.decode("utf-8-sig")  # editors of Windows put a mark in front
        if path.endswith(".toml"):
            return PropertySource(place=path, values=_toml_properties(tomllib.loads(text), path))
        return PropertySource(place=path, values=parse_config_text(text))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingError(f"the configuration file cannot be read: {error}", path=path) from error


def _without(source: PropertySource, names: Collection[str]) -> PropertySource:
    values = {name: text for name, text in source.values.items() if name not in names}
    return PropertySource(place=source.place, values=values)


def _toml_properties(table: Mapping[str, Any], path: str) -> dict[str, str]:
    tls = table.get("tls")
    if isinstance(tls, dict):  # tls.server.mode = "enforcing", without quotes around the name
        table = {**{name: value for name, value in table.items() if name != "tls"}, **dotted("tls", tls)}
    for name, value in table.items():
        if isinstance(value, dict):
            raise SettingError(f"unknown table [{name}]; settings stand at the top", path=path)
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in table.items()}
