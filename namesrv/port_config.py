"""PortConfig: the settings that a NameServer and a controller share, and how they are shown and changed.

NameServerConfig (name_server_config.py) and ControllerConfig (controller/controller_config.py) extend it. It has the
address and limits of the port, TLS, access control, and the path of the file of changed settings (changed_settings.py).
Each field's metadata has the property name, the range of a number, whether a change takes effect in a running daemon
(`is_live`), and whether the value is a secret.
The settings of access control are those of a broker (auth/auth_config.py). RocketMQ's NameServer and controller have no
access control.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, ClassVar, Self

from thermocline.auth.auth_config import AuthConfig
from thermocline.remoting.connections import LOOPBACK, ServerLimits
from thermocline.remoting.errors import InvalidParameterError, PermissionDeniedError
from thermocline.remoting.java_long import LONG_MAX
from thermocline.remoting.settings import OfficialSetting, TlsConfig, resolve, shown_tls

SECRET_MASK = "***"
PORT_MAX = 65_535


def setting(
    default: Any,
    name: str,
    *,
    least: int | None = None,
    most: int = LONG_MAX,
    is_live: bool = True,
    is_secret: bool = False,
) -> Any:
    """Define a field that is a setting. `name`: its property name. `least`, `most`: the range of a number."""
    metadata = {"name": name, "least": least, "most": most, "is_live": is_live, "is_secret": is_secret}
    return field(default=default, repr=not is_secret, metadata=metadata)


def own_fields(config_class: type[PortConfig]) -> tuple[Field[Any], ...]:
    """Return the fields of the class except `tls`, whose own fields are settings too."""
    return tuple(item for item in fields(config_class) if item.name != "tls")


@dataclass(frozen=True, slots=True, kw_only=True)
class PortConfig:
    """Settings of one daemon. The constructor checks them.

    Raises:
        InvalidParameterError: A value is outside its range, or the settings of access control contradict each other.
    """

    OFFICIAL: ClassVar[Mapping[str, OfficialSetting]] = {}
    """RocketMQ's settings of this daemon, by name, each with what it does here."""

    listen_host: str = setting(LOOPBACK, "bindAddress", is_live=False)
    server_idle_ms: int = setting(120_000, "serverChannelMaxIdleTimeMills", least=100, is_live=False)
    config_store_path: str = setting("", "configStorePath", is_live=False)
    """File of the settings that were changed while running; empty: changes last until the daemon stops."""
    server_address_connections_max: int = setting(20_000, "serverConnectionsPerAddressMax", least=1, is_live=False)
    server_receiving_bytes_max: int = setting(256 << 20, "serverReceivingBytesMax", least=32 << 20, is_live=False)
    """Most bytes of incomplete frames, over all connections."""
    server_frame_timeout_ms: int = setting(60_000, "serverFrameTimeoutMillis", least=100, is_live=False)
    server_unsent_bytes_max: int = setting(1 << 30, "serverUnsentBytesMax", least=1 << 20, is_live=False)
    """Most bytes of answers that peers have not read yet, over all connections."""
    config_black_list: str = setting("configBlackList;configStorePath", "configBlackList")
    """Property names that an update must not contain, separated by semicolons."""
    tls: TlsConfig = field(default_factory=TlsConfig)
    """Read at the start only. To change them, edit the configuration file and start again."""

    # -- access control ------------------------------------------------------------------------------------------------
    authentication_enabled: bool = setting(False, "authenticationEnabled", is_live=False)
    authentication_whitelist: str = setting("", "authenticationWhitelist", is_live=False)
    authorization_enabled: bool = setting(False, "authorizationEnabled", is_live=False)
    authorization_whitelist: str = setting("", "authorizationWhitelist", is_live=False)
    init_user: str = setting("", "initAuthenticationUser", is_live=False, is_secret=True)
    inner_credentials: str = setting("", "innerClientAuthenticationCredentials", is_live=False, is_secret=True)
    """JSON as in AuthConfig: the user as whom brokers sign requests to this daemon. A start creates it if missing."""
    auth_file_path: str = setting("", "authFilePath", is_live=False)
    """File of users and policies; empty: they are not saved, and a start creates only the users in the settings."""
    cluster_name: str = setting("DefaultCluster", "clusterName", is_live=False)
    """A request that names no cluster needs its right on this one."""
    # Limits on the users and policies that administrators create, as at a broker.
    users_max: int = setting(10_000, "usersMax", least=0)
    user_entries_max: int = setting(1_000, "aclEntriesPerUserMax", least=0)
    """Entries of all policies of one user."""
    entries_max: int = setting(100_000, "aclEntriesMax", least=0)
    """Entries of all policies of all users."""
    audit_path: str = setting("", "auditLogPath", is_live=False)
    """Path of the audit log; empty: there is none."""
    audit_file_bytes: int = setting(64 << 20, "auditLogFileBytes", least=4096, is_live=False)
    audit_file_count: int = setting(8, "auditLogFileCount", least=1, is_live=False)
    audit_accesses: bool = setting(False, "auditLogAccesses")

    @property
    def auth(self) -> AuthConfig:
        """The settings of access control as an AuthConfig, which checks them.

        Raises:
            InvalidParameterError: They are invalid, or contradict each other.
        """
        return AuthConfig(
            authentication_enabled=self.authentication_enabled,
            authentication_whitelist=self.authentication_whitelist,
            authorization_enabled=self.authorization_enabled,
            authorization_whitelist=self.authorization_whitelist,
            init_user=self.init_user,
            inner_credentials=self.inner_credentials,
            audit_path=self.audit_path,
            audit_file_bytes=self.audit_file_bytes,
            audit_file_count=self.audit_file_count,
            audit_accesses=self.audit_accesses,
        )

    def __post_init__(self) -> None:
        for item in own_fields(type(self)):
            name, least, most = (item.metadata[key] for key in ("name", "least", "most"))
            value = getattr(self, item.name)
            if least is not None and not least <= value <= most:
                bound = f"at least {least}" if value < least else f"at most {most}"
                raise InvalidParameterError(f"{name} must be {bound}", setting=name, value=value)
        if self.authentication_enabled or self.authorization_enabled:
            _ = self.auth  # AuthConfig's constructor checks the settings of access control

    @property
    def server_limits(self) -> ServerLimits:
        """The limits of the port."""
        return ServerLimits(
            receiving_bytes_max=self.server_receiving_bytes_max,
            frame_timeout_ms=self.server_frame_timeout_ms,
            unsent_bytes_max=self.server_unsent_bytes_max,
            address_connections_max=self.server_address_connections_max,
        )

    def shown(self) -> dict[str, str]:
        """Return property name -> value as text; a mask instead of a secret."""
        own = {
            item.metadata["name"]: self._shown(item.name, item.metadata["is_secret"]) for item in own_fields(type(self))
        }
        tls = {item.metadata["name"]: _to_text(getattr(self.tls, item.name)) for item in fields(TlsConfig)}
        return own | {name: shown_tls(name, text) for name, text in tls.items()}

    def _shown(self, name: str, is_secret: bool) -> str:
        text = _to_text(getattr(self, name))
        return SECRET_MASK if is_secret and text else text

    def live_names(self, properties: Mapping[str, str]) -> set[str]:
        """Return the names in `properties` whose change takes effect in a running daemon."""
        names = {item.metadata["name"] for item in own_fields(type(self)) if item.metadata["is_live"]}
        return names & properties.keys()

    def updated(self, properties: Mapping[str, str]) -> Self:
        """Return the settings after an update. Ignored: unknown names, names without effect, and the mask of a secret.

        Raises:
            PermissionDeniedError: A name is black-listed, or a TLS setting would change; nothing changes.
            InvalidParameterError: A value cannot be read, is outside its range, or asks for what is not built, or would
                change a setting that is read at the start only; nothing changes.
        """
        black_list = {*self.config_black_list.split(";"), "rocketmqHome"}
        if black_list & properties.keys():
            raise PermissionDeniedError("Can not update config in black list.")
        resolved = dict(resolve(self.OFFICIAL, name, text, source="update") for name, text in properties.items())
        shown = self.shown()
        for name in {item.metadata["name"] for item in fields(TlsConfig)} & resolved.keys():
            if resolved[name] != shown[name]:
                raise PermissionDeniedError("TLS settings are changed in the configuration file alone", setting=name)
        changes: dict[str, Any] = {}
        for item in own_fields(type(self)):
            name, current = item.metadata["name"], getattr(self, item.name)
            if name not in resolved:
                continue
            value = _from_text(name, resolved[name], current=current)
            if item.metadata["is_secret"] and value == SECRET_MASK:
                continue  # `shown` returned the mask, and a tool sent it back
            if not item.metadata["is_live"] and value != current:
                raise InvalidParameterError(
                    f"{name} is read at the start: set it in the configuration file and start again",
                    value=SECRET_MASK if item.metadata["is_secret"] else value,
                )
            changes[item.name] = value
        return replace(self, **changes) if changes else self


def _to_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _from_text(name: str, text: str, *, current: object) -> object:
    """Parse a setting's text as the type of its current value."""
    if isinstance(current, bool):
        word = text.strip().lower()
        if word not in ("true", "false"):
            raise InvalidParameterError("true or false is needed", setting=name, value=text)
        return word == "true"
    if isinstance(current, int):
        try:
            number = int(text)
        except ValueError:
            raise InvalidParameterError("a whole number is needed", setting=name, value=text) from None
        if abs(number) > LONG_MAX:
            raise InvalidParameterError("a whole number of 64 bits is needed", setting=name, value=text)
        return number
    return text
