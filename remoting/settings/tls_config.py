"""TlsConfig: the TLS settings of a broker or NameServer, by RocketMQ's names; checked as values, no file is read here.

`tls.server.*` concern the port that is listened on, `tls.client.*` the connections to NameServers and other brokers.
Where RocketMQ accepts a setting and does less than it promises, ours is stricter:
  - Key and certificate count as soon as they are named; RocketMQ ignores them until `tls.test.mode.enable=false`.
  - A client's certificate that the server requests is checked, against `tls.server.trustCertPath` or the system's
    authorities; RocketMQ accepts any certificate unless `tls.server.authClient=true`.
  - A mode that does not exist is an error; RocketMQ takes it as permissive.
Source: remoting/netty/TlsSystemConfig.java, TlsHelper.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from thermocline.remoting.errors import InvalidParameterError

__all__ = ["CONFIG_FILE_DEFAULT", "TLS_SECRETS", "TlsConfig", "TlsMode", "shown_tls"]

CONFIG_FILE_DEFAULT = "/etc/rocketmq/tls.properties"
"""Read if it is there; a file that a setting names must be there."""
TLS_SECRETS = frozenset({"tls.server.keyPassword", "tls.client.keyPassword"})
"""Settings whose value is shown nowhere."""
PROTOCOLS = ("TLSv1.2", "TLSv1.3")
CLIENT_CERTIFICATES = ("none", "optional", "require")
_MASK = "***"


class TlsMode:
    """What a port takes."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    """Plain connections and TLS, distinguished by their first byte."""
    ENFORCING = "enforcing"
    """TLS alone."""
    ALL = (DISABLED, PERMISSIVE, ENFORCING)


def _setting(default: Any, name: str, *, least: int | None = None, most: int | None = None) -> Any:
    metadata = {"name": name, "least": least, "most": most, "live": False}
    return field(default=default, repr=name not in TLS_SECRETS, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS settings of one daemon; checked when made.

    Raises:
        InvalidParameterError: A value is none, or promises what another value takes back.
    """

    server_mode: str = _setting(TlsMode.PERMISSIVE, "tls.server.mode")
    config_file: str = _setting(CONFIG_FILE_DEFAULT, "tls.config.file")
    """Properties with further TLS settings."""
    test_mode: bool = _setting(True, "tls.test.mode.enable")
    """Whether a self-signed certificate is made at the start when no key and certificate are named."""
    client_certificate: str = _setting("none", "tls.server.need.client.auth")
    server_key_path: str = _setting("", "tls.server.keyPath")
    server_key_password: str = _setting("", "tls.server.keyPassword")
    server_certificate_path: str = _setting("", "tls.server.certPath")
    check_clients: bool = _setting(False, "tls.server.authClient")
    server_trust_path: str = _setting("", "tls.server.trustCertPath")
    """Authorities of clients' certificates; empty: the system's."""
    outgoing: bool = _setting(False, "tls.enable")
    """Whether connections to NameServers and other brokers are TLS."""
    client_key_path: str = _setting("", "tls.client.keyPath")
    client_key_password: str = _setting("", "tls.client.keyPassword")
    client_certificate_path: str = _setting("", "tls.client.certPath")
    check_servers: bool = _setting(False, "tls.client.authServer")
    client_trust_path: str = _setting("", "tls.client.trustCertPath")
    """Authorities of servers' certificates; empty: the system's."""
    protocols: str = _setting("", "tls.protocols")
    """TLSv1.2, TLSv1.3 or both, separated by commas; empty: both."""
    handshake_timeout_ms: int = _setting(10_000, "tlsHandshakeTimeoutMills", least=100, most=600_000)
    handshakes_max: int = _setting(1_024, "tlsHandshakesMax", least=1, most=65_536)
    """Handshakes under way at a time; a further connection is closed."""

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
        """Whether the port takes TLS connections."""
        return self.server_mode != TlsMode.DISABLED

    @property
    def is_self_signed(self) -> bool:
        """Whether the port's certificate is made at the start."""
        return self.takes_tls and not self.server_key_path

    @property
    def asks_certificate(self) -> bool:
        """Whether the server requests a certificate of clients."""
        return self.client_certificate != "none"

    @property
    def protocol_names(self) -> tuple[str, ...]:
        """The versions that are named; none: all that are supported."""
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
    """The text of a setting as it may be shown."""
    return _MASK if text and name in TLS_SECRETS else text


def _check_word(name: str, value: str, words: tuple[str, ...]) -> None:
    if value not in words:
        raise InvalidParameterError(f"{name} must be one of {', '.join(words)}", setting=name, value=value)


def _check_pair(prefix: str, key_path: str, certificate_path: str) -> None:
    if bool(key_path) != bool(certificate_path):
        missing = f"{prefix}.certPath" if key_path else f"{prefix}.keyPath"
        raise InvalidParameterError(f"{prefix}.keyPath and {prefix}.certPath belong together: {missing} is missing")
