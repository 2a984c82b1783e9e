"""TlsOptions: how a client speaks TLS."""

from __future__ import annotations

from dataclasses import dataclass, field

from thermocline.remoting.errors import InvalidParameterError
from thermocline.remoting.settings import TlsConfig

__all__ = ["TlsOptions", "outgoing_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """How a client speaks TLS: what it trusts, and the certificate that it shows. All files are PEM.

    Raises:
        InvalidParameterError: Options contradict each other.
    """

    ca_file: str | None = None
    """Certificates of the authorities that are trusted; None: those of the system."""
    cert_file: str | None = None
    """The client's certificate, and those between it and its authority; None: it shows none."""
    key_file: str | None = None
    """The key of `cert_file`; None: it is in that file."""
    key_password: str | None = field(default=None, repr=False)
    """The password of the key; None: it has none."""
    server_name: str | None = None
    """The name that the server's certificate must have; None: the host of the address that is connected to."""
    verify: bool = True
    """Whether the server's certificate and name are checked. Without that anyone on the way can read and change all."""

    def __post_init__(self) -> None:
        if self.cert_file is None and (self.key_file is not None or self.key_password is not None):
            raise InvalidParameterError("a key needs its certificate: cert_file is missing")
        if not self.verify and (self.ca_file is not None or self.server_name is not None):
            raise InvalidParameterError("ca_file and server_name say what is checked, and verify=False checks nothing")


def outgoing_options(config: TlsConfig) -> TlsOptions | None:
    """How a daemon connects to NameServers and brokers; None: without TLS.

    A daemon that is given authorities to trust checks servers against them, also without `tls.client.authServer`.
    """
    if not config.outgoing:
        return None
    return TlsOptions(
        ca_file=config.client_trust_path or None,
        cert_file=config.client_certificate_path or None,
        key_file=config.client_key_path or None,
        key_password=config.client_key_password or None,
        verify=config.check_servers or bool(config.client_trust_path),
    )
