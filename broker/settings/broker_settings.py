"""Broker settings: every setting by its property name, where its value came from, and changing it while running.

Five classes hold the values: BrokerConfig, StoreConfig (local files), TierConfig (cold tier), TlsConfig (encrypted
connections) and AuthConfig (access control). Here each of their fields has one property name: Apache RocketMQ's where
it has one, so that a `broker.conf` written for it works, else a name of the same form; the cold tier's begin with
`cold`. Some are written in other units than the fields hold: RocketMQ's `fileReservedTime` is in hours. `Setting.parse`
and `Setting.show` turn one into the other.

A running broker
  - shows all settings, in properties text (`mqadmin getBrokerConfig`), keys in a URL masked;
  - takes changes of them (`mqadmin updateBrokerConfig`), one after the other: each is checked as a whole, with what is
    in force and with what the next start will have, so that the broker starts again; durable before they count, in
    effect at once where a setting is live and at the next start elsewhere. Names that are unknown, or without effect
    here, are passed over, as RocketMQ does; a value that promises what is not built (official_settings/) is refused. A
    URL that comes back as it was shown, masked, is no change.
Changes are kept in thermocline/settings.json of the store and stand above the configuration file at the next start;
flags and environment stand above them.
Source: remoting/Configuration.java, Apache RocketMQ 5.3.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, get_origin, get_type_hints

import msgspec

from thermocline.auth.auth_config import AuthConfig
from thermocline.auth.quota_texts import USER, parse_quotas
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.broker.settings.official_settings import BROKER_SETTINGS, FIXED
from thermocline.broker.settings.replica_settings import BrokerRole
from thermocline.broker.settings.store_places import PLACES_IN_STORE, check_place
from thermocline.broker.state_files import ConfigPersister, VersionCounter
from thermocline.remoting.bodies import DataVersion
from thermocline.remoting.errors import CorruptDataError, InvalidParameterError, PermissionDeniedError, SettingError
from thermocline.remoting.java_long import LONG_MAX
from thermocline.remoting.settings import TlsConfig, format_config_text, resolve, shown_tls
from thermocline.store.config import FlushDiskType, StoreConfig
from thermocline.tiered.budgets import TierConfig, property_name
from thermocline.tiered.objects import MASK, is_masked, masked_url

logger = logging.getLogger(__name__)

FILE_NAME = "settings"
BLACK_LIST = frozenset(
    {"configBlackList", "brokerConfigPath", "mergedProxyConfigPath", "rocketmqHome", "storePathRootDir"}
)
"""Settings that no remote caller may change, independent of `configBlackList`."""

HOUR_MS = 3_600_000
_LINE_BREAKS = re.compile(r"\s*[\r\n]\s*")
NUMBER_MAX = 1e12
"""Of hours and percent; in milliseconds it has 64 bits."""

SECTIONS: Mapping[
    str, type[BrokerConfig] | type[StoreConfig] | type[TierConfig] | type[TlsConfig] | type[AuthConfig]
] = {
    "broker": BrokerConfig,
    "store": StoreConfig,
    "tier": TierConfig,
    "tls": TlsConfig,
    "auth": AuthConfig,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: `section` and `field` say where it is held, `parse` and `show` turn text to value and back.

    `parse_field` reads text in the field's own unit, for files that name the field instead of the property.
    """

    name: str
    section: str
    field: str
    is_live: bool
    parse: Callable[[str], Any]
    parse_field: Callable[[str], Any]
    show: Callable[[Any], str]


# -- texts
# ---------------------------------------------------------------------------------------------------------------


def _parse_boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("true or false is needed")
    return word == "true"


def _parse_integer(text: str) -> int:
    try:
        value = int(text.strip().replace("_", ""))
    except ValueError:
        raise ValueError("a whole number is needed") from None
    return _in_long(value)


def _in_long(value: int) -> int:
    """A number that RocketMQ's settings, files of state and messages between processes can hold."""
    if not -LONG_MAX <= value <= LONG_MAX:
        raise ValueError("a whole number of 64 bits is needed")
    return value


def _parse_number(text: str) -> float:
    try:
        value = float(text.strip())
    except ValueError:
        raise ValueError("a number is needed") from None
    if not abs(value) <= NUMBER_MAX:
        raise ValueError("a number is needed")
    return value


def _parse_text(text: str) -> str:
    """On one line: settings are shown a line each, as RocketMQ shows them, and come back from tools like that."""
    return _LINE_BREAKS.sub(" ", text.strip())


def _parse_flush_type(text: str) -> FlushDiskType:
    try:
        return FlushDiskType(text.strip().upper())
    except ValueError:
        raise ValueError("ASYNC_FLUSH or SYNC_FLUSH is needed") from None


def _parse_role(text: str) -> BrokerRole:
    try:
        return BrokerRole(text.strip().upper())
    except ValueError:
        raise ValueError("ASYNC_MASTER, SYNC_MASTER or SLAVE is needed") from None


def _show_role(value: BrokerRole) -> str:
    return str((BrokerRole.ASYNC_MASTER if value is BrokerRole.NONE else value).value)


def _parse_hours_of_day(text: str) -> tuple[int, ...]:
    hours = tuple(_parse_integer(word) for word in text.split(";") if word.strip())
    if any(not 0 <= hour < 24 for hour in hours):
        raise ValueError("hours of the day, 0 to 23, separated by semicolons are needed")
    return hours


def _show_boolean(value: bool) -> str:
    return "true" if value else "false"


def _show_hours_of_day(value: tuple[int, ...]) -> str:
    return ";".join(f"{hour:02}" for hour in value)


def _parse_ratio(text: str) -> float:
    """RocketMQ writes these in percent."""
    return _parse_number(text) / 100


def _show_ratio(value: float) -> str:
    return f"{value * 100:g}"


def _parse_hours(text: str) -> int:
    return round(_parse_number(text) * HOUR_MS)


def _show_hours(value: int) -> str:
    return f"{value / HOUR_MS:g}"


_TEXTS_BY_TYPE: Mapping[type, tuple[Callable[[str], Any], Callable[[Any], str]]] = {
    bool: (_parse_boolean, _show_boolean),
    int: (_parse_integer, str),
    float: (_parse_number, str),
    str: (_parse_text, str),
    tuple: (_parse_hours_of_day, _show_hours_of_day),
    FlushDiskType: (_parse_flush_type, lambda value: str(value.value)),
    BrokerRole: (_parse_role, _show_role),
}

# -- settings of the store
# -----------------------------------------------------------------------------------------------

_STORE_TEXTS: Mapping[str, tuple[Callable[[str], Any], Callable[[Any], str]]] = {
    "file_reserved_ms": (_parse_hours, _show_hours),
    "disk_used_ratio_max": (_parse_ratio, _show_ratio),
    "disk_used_ratio_force": (_parse_ratio, _show_ratio),
    "disk_used_ratio_refuse": (_parse_ratio, _show_ratio),
}
_STORE_LIVE = frozenset(
    {
        "file_reserved_ms",
        "delete_when_hours",
        "disk_used_ratio_max",
        "disk_used_ratio_force",
        "disk_used_ratio_refuse",
        "clean_forcibly",
    }
)
ROLE = "brokerRole"
ID = "brokerId"
COLD_URL = "coldUrl"
"""The one setting that may hold keys."""
_TIER_LIVE = frozenset(
    {
        "upload_bytes_per_second_max",
        "upload_requests_per_second_max",
        "read_bytes_per_second_max",
        "read_requests_per_second_max",
        "read_budget_bytes",
        "upload_budget_bytes",
        "spool_bytes",
        "full_policy",
        "scrub_bytes_per_day",
    }
)


def settings_path(store: StoreConfig) -> str:
    """The file of settings that were changed while running."""
    return f"{store.own_path}/settings.json"


def _all_settings() -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for section, config_type in SECTIONS.items():
        hints = _field_types(config_type)
        for item in fields(config_type):
            plain = _TEXTS_BY_TYPE[hints[item.name]]
            parse, show = _STORE_TEXTS.get(item.name, plain)
            if section in ("broker", "tls", "auth"):
                name, is_live = item.metadata["name"], bool(item.metadata["live"])
            elif section == "store":
                name, is_live = item.metadata["name"], item.name in _STORE_LIVE
            else:
                name, is_live = property_name(item.name), item.name in _TIER_LIVE
            assert name not in found, f"two settings of the name {name}"
            found[name] = Setting(
                name=name,
                section=section,
                field=item.name,
                is_live=is_live,
                parse=parse,
                parse_field=plain[0],
                show=show,
            )
    return found


def _field_types(config_type: type) -> dict[str, type]:
    hints = get_type_hints(config_type)
    return {name: hint if isinstance(hint, type) else get_origin(hint) for name, hint in hints.items()}


SETTINGS: Mapping[str, Setting] = _all_settings()
"""All settings by property name."""

_ACCESS_CONTROL = frozenset(
    setting.name for setting in SETTINGS.values() if setting.section == "auth" and not setting.is_live
)
"""Not to be changed over the wire either: access control is not to be switched off by a request. Tools that send back
what they were shown change nothing."""
ACCESS_SECRETS = tuple(item.metadata["name"] for item in fields(AuthConfig) if item.metadata["is_secret"])


# -- values
# --------------------------------------------------------------------------------------------------------------


class SettingsChange(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an update: names in effect now, and names in effect from the next start on."""

    live: tuple[str, ...]
    at_restart: tuple[str, ...]


def parse_value(name: str, text: str, *, source: str, is_field: bool = False) -> Any:
    """The value of a setting's text; `is_field`: written in the unit of the field, not of the property.

    Raises:
        SettingError: It cannot be one; `source` (a file's line, a flag) stands in the error.
    """
    try:
        setting = SETTINGS[name]
        return setting.parse_field(text) if is_field else setting.parse(text)
    except ValueError as error:
        raise SettingError(f"{name}: {error}", value=shown_tls(name, text), source=source) from None


class _SettingsFile(msgspec.Struct, rename="camel"):
    settings: dict[str, str] = {}
    data_version: DataVersion | None = None


class BrokerSettings:
    """The settings of a running broker. Owner: the hot process's event loop."""

    def __init__(
        self,
        *,
        broker: BrokerConfig,
        store: StoreConfig,
        tier: TierConfig,
        clock: Callable[[], int],
        tls: TlsConfig | None = None,
        auth: AuthConfig | None = None,
    ) -> None:
        """
        Raises:
            InvalidParameterError: They contradict each other.
        """
        self.tls = tls or TlsConfig()
        self.broker = broker
        self.auth = auth or AuthConfig()
        check_user_quotas(broker, self.auth)
        check_slave(broker, tier)
        self.store = store
        self.tier = tier
        self.version = VersionCounter(clock)
        self._changed: dict[str, str] = {}
        self._waiting: dict[str, str] = {}
        """Those of them that count from the next start on."""
        self._updating = asyncio.Lock()
        self._listeners: list[Callable[[SettingsChange], None]] = []

    def add_listener(self, listener: Callable[[SettingsChange], None]) -> None:
        """Register a callback for each change, called after it is in effect."""
        self._listeners.append(listener)

    @property
    def listener_count(self) -> int:
        """How many callbacks are registered."""
        return len(self._listeners)

    def drop_listeners(self, *, kept: int) -> None:
        """Forget all but the `kept` oldest callbacks: those of parts that have ended."""
        del self._listeners[kept:]

    def text(self) -> str:
        """All settings as properties text, without keys. What waits for a restart is shown as it will be."""
        shown = self._shown()
        return format_config_text({**FIXED, "useTLS": shown["tls.enable"], **shown})

    def _shown(self) -> dict[str, str]:
        shown = {}
        for setting in SETTINGS.values():
            shown[setting.name] = setting.show(getattr(getattr(self, setting.section), setting.field))
        for name, text in self._waiting.items():
            shown[name] = SETTINGS[name].show(SETTINGS[name].parse(text))
        shown[COLD_URL] = masked_url(shown[COLD_URL])
        shown = {name: shown_tls(name, text) for name, text in shown.items()}
        shown.update({name: MASK for name in ACCESS_SECRETS if shown[name]})
        return shown

    async def update(self, properties: Mapping[str, str], persister: ConfigPersister) -> SettingsChange:
        """Change settings; durable on return.

        Raises:
            PermissionDeniedError: A name may not be changed from afar; nothing changes.
            InvalidParameterError: A value is none, or promises what is not built, or contradicts others that are in
                force or wait for the next start; nothing changes.
            UnavailableError: The change could not be written; nothing changes.
        """
        async with self._updating:
            change = await self._update(self._accepted(properties), persister)
        logger.info("settings changed live=%s at_restart=%s", ",".join(change.live), ",".join(change.at_restart))
        for listener in self._listeners:
            listener(change)
        return change

    def _accepted(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The settings in an update that have a meaning here, and differ where they could not be changed. Raises as
        `update`."""
        kept = {name: text for name, text in self._shown().items() if name in _ACCESS_CONTROL & properties.keys()}
        if (BLACK_LIST | self.broker.black_list) & properties.keys() or any(
            properties[name].strip() != text for name, text in kept.items()
        ):
            raise PermissionDeniedError("Can not update config in black list.")
        properties = {name: text for name, text in properties.items() if name not in kept}
        resolved = dict(resolve(BROKER_SETTINGS, name, text, source="update") for name, text in properties.items())
        for name in PLACES_IN_STORE.keys() & properties.keys():
            check_place(name, properties[name], root_path=self.store.root_path, source="update")
        accepted = {name: text for name, text in resolved.items() if name in SETTINGS}
        self._drop_tls(accepted)
        if accepted.get(ROLE, "").strip().upper() == self._shown()[ROLE]:
            del accepted[ROLE]  # sent back as it was shown: that opens no port for slaves
        if self.broker.controller_mode:  # likewise, and it stays the controllers'
            for name in (ID, "haMasterAddress"):
                if accepted.get(name) == self._shown()[name]:
                    del accepted[name]
        if COLD_URL in accepted and is_masked(accepted[COLD_URL]):
            self._check_unchanged(accepted.pop(COLD_URL))
        return accepted

    async def _update(self, accepted: Mapping[str, str], persister: ConfigPersister) -> SettingsChange:
        change = SettingsChange(
            live=tuple(sorted(name for name in accepted if SETTINGS[name].is_live)),
            at_restart=tuple(sorted(name for name in accepted if not SETTINGS[name].is_live)),
        )
        if self.broker.controller_mode:
            check_unchanged_role(accepted)
        self._check(self._with({**self._waiting, **accepted}))
        self._check(self._with({name: accepted[name] for name in change.live}))
        before, version_before = dict(self._changed), self.version.current
        self._changed.update(accepted)
        self.version.bump()
        try:
            await persister.save(FILE_NAME)
        except Exception:
            self._changed = before
            self.version.current = version_before
            raise
        self._waiting.update({name: accepted[name] for name in change.at_restart})
        # Not what was checked: the role may have been changed while the file was written.
        for section, config in self._with({name: accepted[name] for name in change.live}).items():
            setattr(self, section, config)
        return change

    def _with(self, changes: Mapping[str, str]) -> dict[str, Any]:
        """The settings as they are, by section, with these changes.

        Raises:
            InvalidParameterError: A value is none, or they contradict each other.
        """
        result: dict[str, Any] = {section: getattr(self, section) for section in SECTIONS}
        for section, config in result.items():
            values = {
                SETTINGS[name].field: parse_value(name, text, source="update")
                for name, text in changes.items()
                if SETTINGS[name].section == section
            }
            if values:
                result[section] = replace(config, **values)
        return result

    def _check(self, settings: Mapping[str, Any]) -> None:
        """Pass settings whose sections go together. Raises InvalidParameterError."""
        check_user_quotas(settings["broker"], self.auth)
        check_slave(settings["broker"], settings["tier"])
        check_retention(settings["store"])
        if not self.broker.controller_mode:
            check_controlled(settings["broker"])

    def _drop_tls(self, accepted: dict[str, str]) -> None:
        """Take the TLS settings out of an update, in which they may stand as they are.

        Raises:
            PermissionDeniedError: One would change; a remote caller must not weaken what protects the connection.
        """
        for name in [name for name in accepted if SETTINGS[name].section == "tls"]:
            text = accepted.pop(name)
            setting = SETTINGS[name]
            present = getattr(self.tls, setting.field)
            if text != shown_tls(name, setting.show(present)) and parse_value(name, text, source="update") != present:
                raise PermissionDeniedError("TLS settings are changed in the configuration file alone", setting=name)

    def _check_unchanged(self, masked: str) -> None:
        """Tools send back what they were shown; a URL in which something else was changed lacks its keys.

        Raises:
            InvalidParameterError: It is not what is shown now.
        """
        shown = masked_url(self._waiting.get(COLD_URL, self.tier.cold_url))
        if masked.strip() != shown:
            raise InvalidParameterError(f"{COLD_URL}: {MASK} stands for no key; give the whole URL", value=shown)

    def encode(self) -> bytes:
        """The file that keeps changes over a restart."""
        return b'{"dataVersion":%s,"settings":%s}' % (
            self.version.text(),
            msgspec.json.encode(self._changed, order="sorted"),
        )

    def take_over(self, data: bytes) -> None:
        """Continue with the changes in a file of `encode`; their values are applied when settings are read."""
        file = decode_changes(data)
        self._changed = file.settings
        if file.data_version is not None:
            self.version.current = file.data_version


def check_user_quotas(broker: BrokerConfig, auth: AuthConfig) -> None:
    """Refuse quotas of users where no request proves its user.

    Raises:
        InvalidParameterError: There is one.
    """
    if not auth.authentication_enabled and any(kind == USER for kind, _ in parse_quotas(broker.quotas)):
        raise InvalidParameterError(
            "a quota of a user needs authenticationEnabled: without signatures it is not known who sends",
            setting="quotas",
        )


def check_retention(store: StoreConfig) -> None:
    """Refuse an age that no log file is below: each would be deleted as soon as it is full.

    Raises:
        InvalidParameterError: It is below 0, which elsewhere may stand for "for ever".
    """
    if store.file_reserved_ms < 0:
        raise InvalidParameterError(
            "local files are kept for a time, 0 or more hours; messages that are to stay need a cold tier",
            setting="fileReservedTime",
            value=store.file_reserved_ms,
        )


def check_slave(broker: BrokerConfig, tier: TierConfig) -> None:
    """Refuse what a slave does not do.

    Raises:
        InvalidParameterError: The settings ask for it.
    """
    if not broker.is_slave or broker.controller_mode:
        return
    if tier.is_enabled and not (broker.name_server_addresses or broker.address_server_on):
        raise InvalidParameterError(
            "a slave with a cold tier finds its master by namesrvAddr, and asks it whose ledger it follows",
            setting=COLD_URL,
        )
    if tier.is_enabled and broker.ha_master_address:
        raise InvalidParameterError(
            "a slave with a cold tier copies the log of the broker whose ledger it follows, which NameServers name:"
            " start it without haMasterAddress",
            setting=COLD_URL,
        )
    if broker.merged_proxy:
        raise InvalidParameterError("a proxy runs beside a master, not beside a slave", setting="mergedProxyEnable")


def check_controlled(broker: BrokerConfig) -> None:
    """Refuse settings of a role that the controllers decide, and what does not go with a change of roles.

    Raises:
        InvalidParameterError: There is one.
    """
    if not broker.controller_mode:
        return
    if broker.broker_role not in (BrokerRole.NONE, BrokerRole.SLAVE):
        raise InvalidParameterError(
            "the controllers decide which broker is the master: leave it out, or set it to SLAVE", setting=ROLE
        )
    if broker.broker_id > 0:
        raise InvalidParameterError("the controllers number the brokers: leave it out, or set it to -1", setting=ID)
    if broker.ha_master_address:
        raise InvalidParameterError("the controllers name the master: leave it out", setting="haMasterAddress")
    if broker.slave_acting_master or broker.remote_escape:
        raise InvalidParameterError(
            "under a controller a slave is elected in place of a lost master, and stands in for none: leave it out",
            setting="enableSlaveActingMaster",
        )
    if broker.merged_proxy:
        raise InvalidParameterError(
            "under a controller the proxy is a process of its own (thermocline proxy): a change of the broker's role"
            " would stop it",
            setting="mergedProxyEnable",
        )


def check_unchanged_role(changed: Mapping[str, str]) -> None:
    """Refuse to change the role of a running broker from afar, under controllers.

    Raises:
        InvalidParameterError: These changes would.
    """
    found = sorted({ROLE, ID, "haMasterAddress"} & changed.keys())
    if found:
        raise InvalidParameterError(
            "the controllers decide on the role: thermocline controller elect makes another broker the master",
            setting=found[0],
        )


def decode_changes(data: bytes) -> _SettingsFile:
    """Read a file of `BrokerSettings.encode`.

    Raises:
        CorruptDataError: It is none.
    """
    try:
        return msgspec.json.decode(data, type=_SettingsFile)
    except msgspec.MsgspecError as error:
        raise CorruptDataError("changed settings cannot be read", file=FILE_NAME, reason=str(error)) from error
