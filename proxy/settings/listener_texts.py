"""Listener texts: the form of the setting `moreListeners`, the addresses that a proxy listens on beside its main ones.

    PROTOCOL HOST:PORT [access=HOST:PORT] [tls=MODE]; PROTOCOL HOST:PORT ...

    grpc 10.0.0.5:8081 access=proxy.internal:8081; remoting 10.0.0.5:8080 access=proxy.internal:8080 tls=disabled

PROTOCOL    grpc or remoting; a remoting listener takes gRPC, too
HOST:PORT   an IP address, or 0.0.0.0 or [::] for all of them, and a port
access      what routes name for clients of this listener; without it as at the main listener, with this one's port
tls         disabled, permissive or enforcing; without it `tls.server.mode`
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from thermocline.remoting.errors import InvalidParameterError
from thermocline.remoting.settings import TlsMode
from thermocline.remoting.socket_address import Host, parse_address

__all__ = ["GRPC", "REMOTING", "Listener", "Listeners", "parse_access_address", "parse_listeners"]

GRPC, REMOTING = "grpc", "remoting"
ANY_IPV4, ANY_IPV6 = "0.0.0.0", "::"
LISTENERS_MAX = 16
ACCESS, TLS = "access", "tls"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One address that is listened on."""

    protocol: str
    place: Host
    access: Host | None = None
    """What routes name; None: nothing is set."""
    tls_mode: str | None = None
    """None: that of the proxy."""


class Listeners:
    """Finds the listener that a connection came by."""

    def __init__(self, listeners: Iterable[Listener]) -> None:
        self._by_place = {listener.place: listener for listener in listeners}

    def __iter__(self) -> Iterator[Listener]:
        return iter(self._by_place.values())

    def of(self, local_host: Host) -> Listener | None:
        """The listener of a connection whose own end is `local_host`; None: a main one's."""
        host, port = local_host
        return self._by_place.get(local_host) or self._by_place.get((_any_of(host), port))


def parse_listeners(text: str, *, main: Iterable[Host] = ()) -> list[Listener]:
    """The listeners of a text. `main`: the addresses of the main ones.

    Raises:
        InvalidParameterError: It is none; the error says what is wrong.
    """
    found: list[Listener] = []
    taken = list(main)
    for entry in text.split(";"):
        words = entry.split()
        if not words:
            continue
        listener = _parse_listener(words)
        if any(_overlap(listener.place, other) for other in taken):
            raise InvalidParameterError("an address is listened on twice", listener=entry.strip())
        taken.append(listener.place)
        found.append(listener)
    if len(found) > LISTENERS_MAX:
        raise InvalidParameterError("there are too many listeners", count=len(found), most=LISTENERS_MAX)
    return found


def parse_access_address(text: str) -> Host:
    """The host, a name or an address, and the port that routes name.

    Raises:
        InvalidParameterError: It is none.
    """
    host, port = parse_address(text)
    if port == 0 or host in (ANY_IPV4, ANY_IPV6):
        raise InvalidParameterError("routes cannot name this address: clients connect to it", address=text)
    return host, port


def _parse_listener(words: list[str]) -> Listener:
    if len(words) < 2 or words[0] not in (GRPC, REMOTING):
        text = "a listener is: grpc or remoting, HOST:PORT, access=HOST:PORT, tls=MODE; the last two may be missing"
        raise InvalidParameterError(text, listener=" ".join(words))
    host, port = parse_address(words[1])
    try:
        host = str(ipaddress.ip_address(host))
    except ValueError:
        raise InvalidParameterError("a listener's host is an IP address", address=words[1]) from None
    if port == 0:
        raise InvalidParameterError("a listener needs a port", address=words[1])
    options: dict[str, str] = {}
    for word in words[2:]:
        name, equals, value = word.partition("=")
        if name not in (ACCESS, TLS) or not equals or name in options:
            raise InvalidParameterError("a listener has access=HOST:PORT and tls=MODE, each once", word=word)
        options[name] = value
    mode = options.get(TLS)
    if mode is not None and mode not in TlsMode.ALL:
        raise InvalidParameterError(f"a listener's tls is one of {', '.join(TlsMode.ALL)}", value=mode)
    access = parse_access_address(options[ACCESS]) if ACCESS in options else None
    return Listener(protocol=words[0], place=(host, port), access=access, tls_mode=mode)


def _overlap(one: Host, other: Host) -> bool:
    return one[1] == other[1] and (one[0] == other[0] or _any_of(one[0]) == other[0] or one[0] == _any_of(other[0]))


def _any_of(host: str) -> str:
    """The address that stands for all of the machine's, of the same family."""
    return ANY_IPV6 if ":" in host else ANY_IPV4
