"""Proxied clients: what proxies report to brokers of the gRPC clients that are connected to them.

    PROXIED_CLIENTS_REPORT   ProxiedClientsReport -> ProxiedClientsAnswer     proxy to broker
    PROXIED_CLIENTS_LIST     -> ProxiedClientsList                            tools to broker

A report names the clients that have changed since the one before on the same connection, and the ids of those that are
gone. The first report of a connection replaces what the proxy reported before; without one the answer's `is_known` is
False, and the proxy begins anew. A report without changes says that the proxy is still there.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

__all__ = [
    "CLIENT_ID_CHARACTERS_MAX",
    "EXPRESSION_CHARACTERS_MAX",
    "LABEL_CHARACTERS_MAX",
    "NAME_CHARACTERS_MAX",
    "PRODUCER",
    "PUSH_CONSUMER",
    "SIMPLE_CONSUMER",
    "ListedClient",
    "ProxiedClient",
    "ProxiedClientsAnswer",
    "ProxiedClientsList",
    "ProxiedClientsReport",
    "ProxiedSubscription",
]

PRODUCER, PUSH_CONSUMER, SIMPLE_CONSUMER = "producer", "push consumer", "simple consumer"
NAME_CHARACTERS_MAX = 255
CLIENT_ID_CHARACTERS_MAX = 1_024
LABEL_CHARACTERS_MAX = 128
EXPRESSION_CHARACTERS_MAX = 1_024

Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARACTERS_MAX)]
ClientId = Annotated[str, msgspec.Meta(max_length=CLIENT_ID_CHARACTERS_MAX)]
Label = Annotated[str, msgspec.Meta(max_length=LABEL_CHARACTERS_MAX)]
Ms = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
Expression = Annotated[str, msgspec.Meta(max_length=EXPRESSION_CHARACTERS_MAX)]


class ProxiedSubscription(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A consumer's subscription to one topic. `kind`: TAG or SQL92."""

    topic: Name
    expression: Expression
    kind: Label


class ProxiedClient(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """One client of a proxy. `groups`: the group of a consumer; the topics of a producer, which are its groups.

    `version`: as the client says it, "5.2.0". `address`: the client's own. `started_ms`: since 1970. `user`: "" without
    access control.
    """

    client_id: ClientId
    kind: Label
    groups: tuple[Name, ...]
    language: Label
    version: Label
    address: Label
    started_ms: Ms
    user: Name = ""
    request_timeout_ms: Ms = 0
    subscriptions: tuple[ProxiedSubscription, ...] = ()

    @property
    def entry_count(self) -> int:
        """What it counts as where clients are limited."""
        return 1 + len(self.groups) + len(self.subscriptions)


class ProxiedClientsReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The body of PROXIED_CLIENTS_REPORT.

    `proxy`: its name, for people. `instance`: a random text that its process has; a first report on another connection
    replaces those of the same instance.
    """

    proxy: Label
    instance: Label
    is_first: bool = False
    clients: tuple[ProxiedClient, ...] = ()
    gone: tuple[ClientId, ...] = ()


class ProxiedClientsAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`is_known` False: nothing was noted, a first report is needed. `refused`: ids of clients beyond a limit."""

    is_known: bool
    refused: tuple[str, ...] = ()


class ListedClient(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A client, and the proxy that it is connected to."""

    proxy: str
    client: ProxiedClient


class ProxiedClientsList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The body of the answer to PROXIED_CLIENTS_LIST. `total`: how many there are; `clients` may hold fewer."""

    total: int
    clients: tuple[ListedClient, ...]
