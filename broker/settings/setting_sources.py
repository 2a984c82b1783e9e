"""Where settings come from: configuration file, changes made while running, environment, flags; the later one wins.

Configuration file, by its ending:
    broker.conf, *.properties, *.conf    properties text with RocketMQ's names
    *.toml                               tables [broker], [store], [tier], [tls], [auth] with field names of the
                                         classes, or property names at the top:

        brokerName = "broker-a"
        [store]
        log_file_bytes = 67_108_864
        [tier]
        cold_url = "s3://bucket/prefix?endpoint=http://127.0.0.1:9000"

tls.properties, which `tls.config.file` names, counts as a configuration file above that one (RocketMQ reads TLS
settings there alone).

Environment: THERMOCLINE_ and the property name in capitals (THERMOCLINE_BROKER_CLUSTER_NAME for brokerClusterName,
THERMOCLINE_TLS_SERVER_MODE for tls.server.mode), and
RocketMQ's own NAMESRV_ADDR and ROCKETMQ_ZONE; its JVM properties as ROCKETMQ_NAMESRV_DOMAIN(_SUBGROUP).
Flags: property names, or `section.field`.

A name that does not exist is an error with the nearest known ones; so is a value that cannot be one, or that promises
what is not built (official_settings/), with the place where it stands. Names of RocketMQ that have no effect here are
collected in `ignored`.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import msgspec

from thermocline.auth.auth_config import AuthConfig
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.broker.settings.broker_settings import (
    ACCESS_SECRETS,
    COLD_URL,
    SECTIONS,
    SETTINGS,
    check_controlled,
    check_retention,
    check_slave,
    check_user_quotas,
    parse_value,
)
from thermocline.broker.settings.official_settings import BROKER_SETTINGS
from thermocline.broker.settings.store_places import PLACES_IN_STORE, check_place
from thermocline.remoting.connections import warn_of_file, warn_of_place
from thermocline.remoting.errors import InvalidRequestError, SettingError
from thermocline.remoting.settings import (
    TLS_SECRETS,
    PropertySource,
    TlsConfig,
    Treatment,
    did_you_mean,
    dotted,
    error_with_place,
    is_service_link,
    parse_config_text,
    resolve,
)
from thermocline.remoting.settings import environment_variable as variable_of
from thermocline.store.config import StoreConfig
from thermocline.tiered.budgets import TierConfig
from thermocline.tiered.objects import masked_url

ENVIRONMENT_PREFIX = "THERMOCLINE_"
ENVIRONMENT_ALIASES: Mapping[str, str] = {
    "NAMESRV_ADDR": "namesrvAddr",
    "ROCKETMQ_NAMESRV_DOMAIN": "namesrvDomain",
    "ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP": "namesrvDomainSubgroup",
    "ROCKETMQ_ZONE": "zoneName",
}
ALIASES: Mapping[str, str] = {
    "rocketmq.namesrv.addr": "namesrvAddr",
    "rocketmq.namesrv.domain": "namesrvDomain",
    "rocketmq.namesrv.domain.subgroup": "namesrvDomainSubgroup",
}
"""RocketMQ's JVM properties."""
ENVIRONMENT_OTHERS = frozenset(
    {"THERMOCLINE_LOG_LEVEL", "THERMOCLINE_RUNTIME_DIR", "THERMOCLINE_CONTROLLERS"}
    | {f"THERMOCLINE_{name}" for name in ("ACCESS_KEY", "SECRET_KEY", "SECURITY_TOKEN", "CREDENTIALS_FILE")}
)
"""Variables of the prefix that are no settings."""
ENVIRONMENT_OTHER_PREFIXES = tuple(f"THERMOCLINE_{name}_" for name in ("NAME_SERVER", "CONTROLLER", "PROXY", "CLIENT"))
"""Settings of NameServer, controller and proxy, which may run beside the broker, and of clients."""


class LoadedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The four configurations, and names that were accepted without effect."""

    broker: BrokerConfig
    store: StoreConfig
    tier: TierConfig
    tls: TlsConfig
    auth: AuthConfig
    ignored: tuple[str, ...]


def file_source(path: str, data: bytes) -> PropertySource:
    """The settings in a configuration file.

    Raises:
        SettingError: The file cannot be read as what its name says.
    """
    try:
        text = data.decode("utf-8-sig")  # editors of Windows put a mark in front
        if path.endswith(".toml"):
            return PropertySource(place=path, values=dict(_flatten_toml(tomllib.loads(text), path)))
        return PropertySource(place=path, values=parse_config_text(text))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingError(f"the configuration file cannot be read: {error}", path=path) from error


def environment_source(environment: Mapping[str, str]) -> PropertySource:
    """The settings in the environment; variables of other programs are passed over."""
    names = {environment_variable(name): name for name in (*BROKER_SETTINGS, *SETTINGS)}
    values: dict[str, str] = {}
    for variable, text in environment.items():
        if is_service_link(variable, text):
            continue
        name = ENVIRONMENT_ALIASES.get(variable) or names.get(variable)
        if name is not None:
            values[name] = text
        elif variable in ENVIRONMENT_OTHERS or variable.startswith(ENVIRONMENT_OTHER_PREFIXES):
            continue
        elif variable.startswith(ENVIRONMENT_PREFIX):
            values[variable] = text  # unknown: reported with its nearest
    return PropertySource(place="environment", values=values)


def environment_variable(name: str) -> str:
    """The variable of a property."""
    return variable_of(ENVIRONMENT_PREFIX, name)


def load_settings(sources: Iterable[PropertySource]) -> LoadedSettings:
    """Put sources together, the later one winning.

    Raises:
        SettingError: A name is unknown, a value cannot be one or promises what is not built, or values contradict each
            other.
    """
    values: dict[str, Any] = {}
    set_in: dict[str, str] = {}
    ignored: dict[str, None] = {}
    places: list[tuple[str, str, str]] = []
    for source in sources:
        for given_name, text in source.values.items():
            property_name = _property_name(given_name)
            name, resolved = resolve(BROKER_SETTINGS, property_name, text, source=source.place)
            if name in SETTINGS:
                is_field = property_name != given_name and given_name not in ALIASES
                values[name] = parse_value(name, resolved, source=source.place, is_field=is_field)
                set_in[name] = source.place
            elif name in PLACES_IN_STORE:
                places.append((name, text, source.place))
            elif name not in BROKER_SETTINGS:
                raise _unknown(given_name, source.place)
            elif BROKER_SETTINGS[name].treatment is Treatment.WITHOUT_EFFECT:
                ignored[name] = None
    sections: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for name, value in values.items():
        sections[SETTINGS[name].section][SETTINGS[name].field] = value
    if "root_path" not in sections["store"]:
        raise SettingError("a folder for the store is needed", setting="storePathRootDir")
    for name, text, source_place in places:
        check_place(name, text, root_path=sections["store"]["root_path"], source=source_place)
    try:
        loaded = LoadedSettings(
            broker=BrokerConfig(**sections["broker"]),
            store=StoreConfig(**sections["store"]),
            tier=TierConfig(**sections["tier"]),
            tls=TlsConfig(**sections["tls"]),
            auth=AuthConfig(**sections["auth"]),
            ignored=tuple(ignored),
        )
        check_user_quotas(loaded.broker, loaded.auth)
        check_slave(loaded.broker, loaded.tier)
        check_retention(loaded.store)
        check_controlled(loaded.broker)
        return loaded
    except InvalidRequestError as error:
        raise error_with_place(error, set_in) from error


def secret_names(source: PropertySource) -> list[str]:
    """The settings of a source that have secrets in them."""
    found = []
    for given, text in source.values.items():
        name = _property_name(given)
        is_secret = name in ACCESS_SECRETS or name in TLS_SECRETS or (name == COLD_URL and masked_url(text) != text)
        if is_secret and text.strip():
            found.append(name)
    return found


def warn_of_secrets(sources: Iterable[PropertySource], loaded: LoadedSettings) -> None:
    """Warn of secrets where other users of the machine can read them: in flags, and in files by their mode."""
    for source in sources:
        warn_of_place(source.place, secret_names(source))
    if loaded.auth.migrate_v1:
        warn_of_file(loaded.auth.v1_file, ["secretKey"])


def _property_name(given: str) -> str:
    """The property of `store.log_file_bytes` or `log_file_bytes`; any other name as it is."""
    if given in ALIASES:
        return ALIASES[given]
    section, _, field = given.rpartition(".")
    for setting in SETTINGS.values():
        if setting.field == field and section in ("", setting.section):
            return setting.name
    return given


def _flatten_toml(table: Mapping[str, Any], path: str) -> Iterable[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, dict):
            names = dotted(name, value)
            if names.keys() <= ALIASES.keys():  # rocketmq.namesrv.domain = "...", without quotes around the name
                yield from ((each, _toml_text(member)) for each, member in names.items())
                continue
            if name not in SECTIONS:
                sections = ", ".join(f"[{section}]" for section in SECTIONS)
                raise SettingError(f"unknown table [{name}]; known are {sections}", path=path)
            known_fields = {item.name for item in fields(SECTIONS[name])}
            for field, member in value.items():
                whole = f"{name}.{field}"
                if isinstance(member, dict):  # tls.server.mode = "enforcing", without quotes around the name
                    yield from ((each, _toml_text(text)) for each, text in dotted(whole, member).items())
                else:
                    is_whole = field in known_fields or whole in BROKER_SETTINGS  # such as tls.enable
                    yield (whole if is_whole else field), _toml_text(member)
        else:
            yield name, _toml_text(value)


def _toml_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ";".join(str(item) for item in value)
    return str(value)


def _unknown(name: str, place: str) -> SettingError:
    candidates = [*SETTINGS, *BROKER_SETTINGS, *(setting.field for setting in SETTINGS.values())]
    asked = name.removeprefix(ENVIRONMENT_PREFIX).lower() if name.startswith(ENVIRONMENT_PREFIX) else name
    return SettingError(f"unknown setting {name}{did_you_mean(asked, candidates)}", source=place)
