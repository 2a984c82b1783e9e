"""TlsConfig: the TLS settings of a broker, NameServer or controller, by RocketMQ's names. Checks values, reads no file.

`tls.server.*` apply to the listening port, `tls.client.*` to connections to NameServers and other brokers.
Stricter than RocketMQ in three cases:
  - Key and certificate are used as soon as they are set; RocketMQ ignores them until `tls.test.mode.enable=false`.
  - A client certificate that the server requests is checked, against `tls.server.trustCertPath` or the system's
    authorities; RocketMQ accepts any certificate unless `tls.server.authClient=true`.
  - An unknown `tls.server.mode` is an error; RocketMQ treats it as permissive.
Source: remoting/netty/TlsSystemConfig.java, TlsHelper.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from thermocline.remoting.errors import InvalidParameterError

__all__ = ["CONFIG_FILE_DEFAULT", "TLS_SECRETS", "TlsConfig", "TlsMode", "shown_tls"]

CONFIG_FILE_DEFAULT = "/etc/rocketmq/tls.properties"
"""Read if it exists. Any other file that `tls.config.file` names must exist."""
TLS_SECRETS = frozenset({"tls.server.keyPassword", "tls.client.keyPassword"})
"""Settings whose values are never shown."""
PROTOCOLS = ("TLSv1.2", "TLSv1.3")
CLIENT_CERTIFICATES = ("none", "optional", "require")
_MASK = "***"


class TlsMode:
    """Which connections a port accepts."""

    DISABLED = "disabled"
    """Plain connections only."""
    PERMISSIVE = "permissive"
    """Plain and TLS connections, distinguished by their first byte."""
    ENFORCING = "enforcing"
    """TLS connections only."""
    ALL = (DISABLED, PERMISSIVE, ENFORCING)


def _setting(default: Any, name: str, *, least: int | None = None, most: int | None = None) -> Any:
    metadata = {"name": name, "least": least, "most": most, "live": False}
    return field(default=default, repr=name not in TLS_SECRETS, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS settings of one daemon. The constructor checks them.

    Raises:
        InvalidParameterError: A value is invalid, or two values contradict each other.
    """

    server_mode: str = _setting(TlsMode.PERMISSIVE, "tls.server.mode")
    config_file: str = _setting(CONFIG_FILE_DEFAULT, "tls.config.file")
    """Path of a properties file with further TLS settings."""
    test_mode: bool = _setting(True, "tls.test.mode.enable")
    """Whether the port uses a self-signed certificate when no key and certificate are set."""
    client_certificate: str = _setting("none", "tls.server.need.client.auth")
    """Whether the server requests a client certificate: none, optional or require."""
    server_key_path: str = _setting("", "tls.server.keyPath")
    server_key_password: str = _setting("", "tls.server.keyPassword")
    server_certificate_path: str = _setting("", "tls.server.certPath")
    check_clients: bool = _setting(False, "tls.server.authClient")
    """Whether client certificates are checked; they also are if `server_trust_path` is set."""
    server_trust_path: str = _setting("", "tls.server.trustCertPath")
    """File of the authorities that client certificates are checked against; empty: the system's."""
    outgoing: bool = _setting(False, "tls.enable")
    """Whether connections to NameServers and other brokers use TLS."""
    client_key_path: str = _setting("", "tls.client.keyPath")
    client_key_password: str = _setting("", "tls.client.keyPassword")
    client_certificate_path: str = _setting("", "tls.client.certPath")
    check_servers: bool = _setting(False, "tls.client.authServer")
    """Whether server certificates are checked; they also are if `client_trust_path` is set."""
    client_trust_path: str = _setting("", "tls.client.trustCertPath")
    """File of the authorities that server certificates are checked against; empty: the system's."""
    protocols: str = _setting("", "tls.protocols")
    """TLSv1.2, TLSv1.3 or both, separated by commas; empty: both."""
    handshake_timeout_ms: int = _setting(10_000, "tlsHandshakeTimeoutMills", least=100, most=600_000)
    handshakes_max: int = _setting(1_024, "tlsHandshakesMax", least=1, most=65_536)
    """Handshakes under way at one time; one more TLS connection is closed at once."""

    def __post_init__(self) -> None:
        for item in fields(self):
            least, most = item.metadata["least"], item.metadata["most"]
            value = getattr(self, item.name)
            if least is not None and not least <= value <= most:
                name = item.metadata["name"]
                raise InvalidParameterError(f"{name} must be from {least} to {most}", setting=name, value=value)
        _check_word("tls.server.mode", self.server_mode, TlsMode.ALL)
        _check_word("tls.server.need.client.auth", self.client_certificate, CLIENT_CERTIFICATES)
        for word in self.protocol_names:
            _check_word("tls.protocols", word, PROTOCOLS)
        _check_pair("tls.server", self.server_key_path, self.server_certificate_path)
        _check_pair("tls.client", self.client_key_path, self.client_certificate_path)
        self._check_client_certificates()
        if self.takes_tls and not (self.test_mode or self.server_key_path):
            raise InvalidParameterError(
                "tls.test.mode.enable=false needs tls.server.keyPath and tls.server.certPath, "
                "or tls.server.mode=disabled"
            )

    @property
    def takes_tls(self) -> bool:
        """Whether the port accepts TLS connections."""
        return self.server_mode != TlsMode.DISABLED

    @property
    def is_self_signed(self) -> bool:
        """Whether the port uses a self-signed certificate, because no key and certificate are set."""
        return self.takes_tls and not self.server_key_path

    @property
    def asks_certificate(self) -> bool:
        """Whether the server requests client certificates."""
        return self.client_certificate != "none"

    @property
    def protocol_names(self) -> tuple[str, ...]:
        """The TLS versions in `protocols`; empty when all of PROTOCOLS are allowed."""
        return tuple(word.strip() for word in self.protocols.split(",") if word.strip())

    def _check_client_certificates(self) -> None:
        is_checked = self.check_clients or bool(self.server_trust_path)
        if self.asks_certificate and not is_checked:
            raise InvalidParameterError(
                f"tls.server.need.client.auth={self.client_certificate} needs tls.server.authClient=true or "
                "tls.server.trustCertPath: a certificate that is not checked proves nothing"
            )
        if self.check_clients and not self.asks_certificate:
            raise InvalidParameterError(
                "tls.server.authClient=true checks nothing while no certificate is requested: "
                "set tls.server.need.client.auth to optional or require"
            )


def shown_tls(name: str, text: str) -> str:
    """Return a setting's text for display: a mask instead of a secret."""
    return _MASK if text and name in TLS_SECRETS else text


def _check_word(name: str, value: str, words: tuple[str, ...]) -> None:
    if value not in words:
        raise InvalidParameterError(f"{name} must be one of {', '.join(words)}", setting=name, value=value)


def _check_pair(prefix: str, key_path: str, certificate_path: str) -> None:
    if bool(key_path) != bool(certificate_path):
        missing = f"{prefix}.certPath" if key_path else f"{prefix}.keyPath"
        raise InvalidParameterError(f"{prefix}.keyPath and {prefix}.certPath belong together: {missing} is missing")
