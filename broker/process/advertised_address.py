"""Advertised address: the address given to clients and NameServers; not always the bound one (containers)."""

import ipaddress
import socket

ROUTE_PROBE = ("192.0.2.1", 9)  # an address for documentation: nothing is sent, the kernel only picks a source address


def advertised_host(*, listen_host: str, configured_host: str) -> str:
    """`configured_host` when there is one; `listen_host` when it is one machine's; else this machine's own address."""
    if configured_host:
        return configured_host
    if not ipaddress.ip_address(listen_host).is_unspecified:
        return listen_host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(ROUTE_PROBE)
            host: str = probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
    return host
