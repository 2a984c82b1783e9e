"""Options that every client has. Names and defaults are the official SDKs', units are written out.

A client class inherits from its options: they are checked once, at construction, can be read from the client afterwards
and never change, and both halves (blocking and asyncio) have the same constructor without listing it twice.
Source: client/ClientConfig.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from thermocline.client.credentials import Credentials, environment_credentials
from thermocline.client.tls_environment import environment_tls
from thermocline.remoting.clients import NameServerSource, split_addresses
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.tls import TlsOptions

__all__ = ["ClientOptions", "ZonedOptions", "name_server_addresses", "option_values"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ClientOptions:
    """How a client finds the cluster and talks to it."""

    namesrv: str | Sequence[str] = "127.0.0.1:9876"
    """NameServer addresses, `host:port`: a sequence, or one string with `;` between. Any one that answers will do.

    `dns://name:port`: all addresses of the name. `http://...`: what this address server answers. Both are asked again
    every `poll_name_server_interval_ms`.
    """
    instance_name: str = ""
    """Part of the client id; "" makes a unique one. Broadcasting consumers need a lasting name for their offsets."""
    unit_name: str = ""
    """Optional third part of the client id."""
    client_ip: str = ""
    """Address part of the client id; "" finds this machine's."""
    request_timeout_ms: int = 3_000
    """Bound on each request to a NameServer or broker that has no timeout of its own."""
    connect_timeout_ms: int = 3_000
    """Bound on opening a connection."""
    poll_name_server_interval_ms: int = 30_000
    """How often the routes of the topics in use are fetched again, and the NameServers' addresses."""
    heartbeat_broker_interval_ms: int = 30_000
    """How often every broker hears from this client."""
    tls: TlsOptions | None = field(default_factory=environment_tls)
    """How connections are encrypted; without it as the environment says, None: not at all."""
    credentials: Credentials | None = field(default_factory=environment_credentials)
    """What signs every request, for a cluster with access control; without it the environment's, if it has any."""

    def __post_init__(self) -> None:
        name_server_addresses(self.namesrv)
        require_positive(self, "request_timeout_ms", "connect_timeout_ms")
        require_positive(self, "poll_name_server_interval_ms", "heartbeat_broker_interval_ms")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ZonedOptions(ClientOptions):
    """How a client that sends or consumes keeps near."""

    zone_name: str = ""
    """The zone that this client is in: it uses only brokers there, a producer others if there are none. "": any."""


def name_server_addresses(namesrv: str | Sequence[str]) -> list[str]:
    """Return the addresses in an option or an environment variable; a URL as it is.

    Raises:
        InvalidRequestError: There is none, or one is not `host:port`.
    """
    texts = split_addresses(namesrv) if isinstance(namesrv, str) else [part.strip() for part in namesrv if part.strip()]
    NameServerSource.parse(texts)
    return texts


def require_positive(options: object, *names: str) -> None:
    """Refuse options that must be greater than zero and are not.

    Raises:
        InvalidRequestError: One is not.
    """
    for name in names:
        value = getattr(options, name)
        if value <= 0:
            raise InvalidRequestError(f"{name} must be greater than zero", value=value)


def option_values(options: Any) -> dict[str, Any]:
    """Return the options of a client as keyword arguments, for its other half."""
    return {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
