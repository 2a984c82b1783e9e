"""Exposure: whether an address reaches beyond this machine, and the one warning about it at a daemon's start."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there. A name counts as reachable from elsewhere."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def warn_if_exposed(addresses: Iterable[str], *, authentication_enabled: bool) -> None:
    """Log one warning when a port is open beyond this machine to clients that need not prove who they are.

    `addresses`: host:port of each listening port.
    """
    exposed = [address for address in addresses if not is_loopback(address.rpartition(":")[0].strip("[]"))]
    if exposed and not authentication_enabled:
        logger.warning(
            "every client that reaches %s may read, write and administer: authentication is off. Bind to 127.0.0.1, or"
            " let a firewall decide who reaches the port",
            " and ".join(exposed),
        )
