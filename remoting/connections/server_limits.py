"""Server limits: bounds on what all connections of a server take together, and on the connections of one address.

An IPv6 client usually has a whole /64 network, so its addresses count as one.
"""

from __future__ import annotations

import ipaddress

import msgspec

ADDRESS_CONNECTIONS_MAX = "serverConnectionsPerAddressMax"
CONNECTIONS_MAX = "connections"
"""Not a setting: the limit of open files decides (descriptor_limit.py)."""

_IPV6_PREFIX_BITS = 64


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """See held_bytes.py for the first three."""

    receiving_bytes_max: int = 256 << 20
    frame_timeout_ms: int = 60_000
    unsent_bytes_max: int = 1 << 30
    address_connections_max: int = 20_000


def client_address(host: str) -> str:
    """What counts as one client address: an IPv4 address, or the /64 network of an IPv6 address."""
    if ":" not in host:
        return host
    return str(ipaddress.ip_network((host, _IPV6_PREFIX_BITS), strict=False))
