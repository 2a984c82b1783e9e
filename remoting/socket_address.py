"""Addresses as text: `10.0.0.1:9876`, `[::1]:9876`, `/run/dir/socket`."""

from __future__ import annotations

import ipaddress

from thermocline.remoting.errors import InvalidParameterError

Host = tuple[str, int]
"""IP address in text and port."""
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

PORT_MAX = 65_535
PORT_DIGITS_MAX = 5
UNIX_PEER = "unix"
"""The text for the peer of a unix socket, which has no address."""


def is_unix_address(address: str) -> bool:
    """Whether the address is the path of a unix socket."""
    return address.startswith("/")


def parse_address(address: str) -> Host:
    """Host (name or IP) and port in `host:port`.

    Raises:
        InvalidParameterError: It is none.
    """
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_port = port.isascii() and port.isdecimal() and len(port) <= PORT_DIGITS_MAX and int(port) <= PORT_MAX
    if not colon or not host or not is_port:
        raise InvalidParameterError("not an address: host:port is wanted", address=address)
    return host, int(port)


def parse_ip_address(text: str) -> IpAddress:
    """The IP address of a text, an IPv4 address written as an IPv6 one as IPv4.

    Raises:
        ValueError: It is none.
    """
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def format_address(host: str, port: int) -> str:
    """`host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def peer_address(name: object) -> tuple[str, Host]:
    """Text and pair for what a socket gives as its own or its peer's name; a unix socket counts as 127.0.0.1:0.

    An IPv4 address that a dual-stack socket shows as IPv6 is given as IPv4.
    """
    if not isinstance(name, tuple) or len(name) < 2:
        return UNIX_PEER, ("127.0.0.1", 0)
    host, port = str(name[0]).partition("%")[0], int(name[1])
    if host.startswith("::ffff:") and "." in host:
        host = host.removeprefix("::ffff:")
    return format_address(host, port), (host, port)
