"""Settings of a NameServer, with the names and defaults of Apache RocketMQ's.

`getNamesrvConfig` shows them and `updateNamesrvConfig` changes those that a running NameServer can follow. A change of
one that is read at the start alone is refused, and so is a value that promises what is not built
(official_settings.py); unknown names are passed over, as RocketMQ does, so that one tool can talk to both. Changes are
kept in the file that `configStorePath` names, and stand above the configuration file at the next start; environment and
flags stand above them. Without a path a NameServer has its start settings again after a restart.
Access control has the settings of a broker (auth/auth_config.py); RocketMQ's NameServer has none.
Source: common/namesrv/NamesrvConfig.java, Apache RocketMQ 5.3.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from thermocline.auth.auth_config import AuthConfig
from thermocline.namesrv.official_settings import NAME_SERVER_SETTINGS
from thermocline.remoting.connections import LOOPBACK, ServerLimits
from thermocline.remoting.errors import InvalidParameterError, PermissionDeniedError
from thermocline.remoting.settings import TlsConfig, resolve, shown_tls

SECRET_MASK = "***"


def _setting(
    default: Any, name: str, *, least: int | None = None, is_live: bool = True, is_secret: bool = False
) -> Any:
    metadata = {"name": name, "least": least, "is_live": is_live, "is_secret": is_secret}
    return field(default=default, repr=not is_secret, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig:
    """Settings of one NameServer; checked when made.

    Raises:
        InvalidParameterError: A value is outside its range.
    """

    listen_host: str = _setting(LOOPBACK, "bindAddress", is_live=False)
    listen_port: int = _setting(9876, "listenPort", least=0, is_live=False)
    """0 takes a free one."""
    scan_interval_ms: int = _setting(5_000, "scanNotActiveBrokerInterval", least=10)
    """How often brokers that fell silent are looked for."""
    broker_expiry_ms: int = _setting(120_000, "brokerExpiryMs", least=100)
    """Silence after which a broker is forgotten, unless its registration names another time."""
    server_idle_ms: int = _setting(120_000, "serverChannelMaxIdleTimeMills", least=100, is_live=False)
    order_message: bool = _setting(False, "orderMessageEnable")
    """Give the order configuration of a topic along with its route."""
    return_order_topics: bool = _setting(True, "returnOrderTopicConfigToBroker")
    all_topic_list: bool = _setting(True, "enableAllTopicList")
    topic_list: bool = _setting(True, "enableTopicList")
    acting_master: bool = _setting(False, "supportActingMaster")
    delete_topics_with_registration: bool = _setting(False, "deleteTopicWithBrokerRegistration")
    """A broker's registration removes the topics that it no longer names."""
    wait_for_service: bool = _setting(False, "needWaitForService")
    wait_for_service_seconds: int = _setting(45, "waitSecondsForService", least=0)
    """With `wait_for_service`: no routes before this time, so that clients see all brokers or none."""
    config_store_path: str = _setting("", "configStorePath", is_live=False)
    """Where settings that were changed while running are kept; empty: nowhere."""
    kv_config_path: str = _setting("", "kvConfigPath", is_live=False)
    """Where the KV configuration is kept; empty: nowhere."""
    server_address_connections_max: int = _setting(20_000, "serverConnectionsPerAddressMax", least=1, is_live=False)
    server_receiving_bytes_max: int = _setting(256 << 20, "serverReceivingBytesMax", least=32 << 20, is_live=False)
    """Bytes of frames that are received in part, over all connections."""
    server_frame_timeout_ms: int = _setting(60_000, "serverFrameTimeoutMillis", least=100, is_live=False)
    server_unsent_bytes_max: int = _setting(1 << 30, "serverUnsentBytesMax", least=1 << 20, is_live=False)
    """Bytes of answers that peers do not read, over all connections."""
    connection_brokers_max: int = _setting(64, "brokersPerConnectionMax", least=1)
    brokers_max: int = _setting(10_000, "brokersMax", least=1)
    broker_topics_max: int = _setting(200_000, "topicsPerBrokerMax", least=1)
    routes_max: int = _setting(2_000_000, "routesMax", least=1)
    """Topics of all brokers, a topic counted once for each broker that has it."""
    kv_config_bytes_max: int = _setting(4 << 20, "kvConfigBytesMax", least=1)
    config_black_list: str = _setting("configBlackList;configStorePath;kvConfigPath", "configBlackList")
    tls: TlsConfig = field(default_factory=TlsConfig)
    """Read at the start alone, and changed in the configuration file alone."""

    # -- access control ------------------------------------------------------------------------------------------------
    authentication_enabled: bool = _setting(False, "authenticationEnabled", is_live=False)
    authentication_whitelist: str = _setting("", "authenticationWhitelist", is_live=False)
    authorization_enabled: bool = _setting(False, "authorizationEnabled", is_live=False)
    authorization_whitelist: str = _setting("", "authorizationWhitelist", is_live=False)
    init_user: str = _setting("", "initAuthenticationUser", is_live=False, is_secret=True)
    inner_credentials: str = _setting("", "innerClientAuthenticationCredentials", is_live=False, is_secret=True)
    """Of the brokers that register here: their user, which a start makes if there is none of the name."""
    auth_file_path: str = _setting("", "authFilePath", is_live=False)
    """Where users and policies are kept; empty: nowhere, then a start has those of the settings alone."""
    cluster_name: str = _setting("DefaultCluster", "clusterName", is_live=False)
    """The cluster that a right on the cluster is about, for requests that name none."""
    users_max: int = _setting(10_000, "usersMax", least=0)
    user_entries_max: int = _setting(1_000, "aclEntriesPerUserMax", least=0)
    entries_max: int = _setting(100_000, "aclEntriesMax", least=0)
    """Limits on what administrators make; as at a broker."""
    audit_path: str = _setting("", "auditLogPath", is_live=False)
    """The audit log; empty: none."""
    audit_file_bytes: int = _setting(64 << 20, "auditLogFileBytes", least=4096, is_live=False)
    audit_file_count: int = _setting(8, "auditLogFileCount", least=1, is_live=False)
    audit_accesses: bool = _setting(False, "auditLogAccesses")

    @property
    def auth(self) -> AuthConfig:
        """The settings of access control.

        Raises:
            InvalidParameterError: They contradict each other.
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
        for item in OWN_FIELDS:
            least = item.metadata["least"]
            value = getattr(self, item.name)
            if least is not None and value < least:
                raise InvalidParameterError(
                    f"{item.metadata['name']} must be at least {least}", setting=item.metadata["name"], value=value
                )
        if self.authentication_enabled or self.authorization_enabled:
            _ = self.auth

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
        """Property name -> value as text, without secrets."""
        own = {item.metadata["name"]: self._shown(item.name, item.metadata["is_secret"]) for item in OWN_FIELDS}
        tls = {item.metadata["name"]: _to_text(getattr(self.tls, item.name)) for item in fields(TlsConfig)}
        return own | {name: shown_tls(name, text) for name, text in tls.items()}

    def _shown(self, name: str, is_secret: bool) -> str:
        text = _to_text(getattr(self, name))
        return SECRET_MASK if is_secret and text else text

    def live_names(self, properties: Mapping[str, str]) -> set[str]:
        """Those of the properties that a running NameServer follows."""
        return {item.metadata["name"] for item in OWN_FIELDS if item.metadata["is_live"]} & properties.keys()

    def updated(self, properties: Mapping[str, str]) -> "NameServerConfig":
        """The settings after an update; names that are unknown or without effect are passed over.

        Raises:
            PermissionDeniedError: A name is black-listed; nothing changes.
            InvalidParameterError: A value cannot be read, is outside its range, or promises what is not built; or the
                setting is read at the start alone, and this would change it.
        """
        black_list = {*self.config_black_list.split(";"), "rocketmqHome"}
        if black_list & properties.keys():
            raise PermissionDeniedError("Can not update config in black list.")
        resolved = dict(resolve(NAME_SERVER_SETTINGS, name, text, source="update") for name, text in properties.items())
        shown = self.shown()
        for name in {item.metadata["name"] for item in fields(TlsConfig)} & resolved.keys():
            if resolved[name] != shown[name]:
                raise PermissionDeniedError("TLS settings are changed in the configuration file alone", setting=name)
        changes: dict[str, Any] = {}
        for item in OWN_FIELDS:
            name, present = item.metadata["name"], getattr(self, item.name)
            if name not in resolved:
                continue
            value = _from_text(name, resolved[name], present)
            if item.metadata["is_secret"] and value == SECRET_MASK:
                continue  # as it was shown
            if not item.metadata["is_live"] and value != present:
                raise InvalidParameterError(
                    f"{name} is read at the start: set it in the configuration file and start again",
                    value=SECRET_MASK if item.metadata["is_secret"] else value,
                )
            changes[item.name] = value
        return replace(self, **changes) if changes else self


OWN_FIELDS = tuple(item for item in fields(NameServerConfig) if item.name != "tls")
"""The settings that are no TLS settings."""


def _to_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _from_text(name: str, text: str, present: object) -> object:
    if isinstance(present, bool):
        word = text.strip().lower()
        if word not in ("true", "false"):
            raise InvalidParameterError("true or false is needed", setting=name, value=text)
        return word == "true"
    if isinstance(present, int):
        try:
            return int(text)
        except ValueError:
            raise InvalidParameterError("a whole number is needed", setting=name, value=text) from None
    return text
