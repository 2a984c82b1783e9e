"""Exposure: whether an address reaches beyond this machine, and the warnings about it at a daemon's start."""

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
    exposed = [address for address in addresses if _is_exposed(address)]
    if exposed and not authentication_enabled:
        logger.warning(
            "every client that reaches %s may read, write and administer: authentication is off. Bind to 127.0.0.1, or"
            " let a firewall decide who reaches the port",
            " and ".join(exposed),
        )


def warn_if_log_is_exposed(address: str) -> None:
    """Log one warning when the port for slaves, which has neither users nor TLS, is open beyond this machine.

    `address`: host:port of a broker with authentication; `warn_if_exposed` names the port of one without.
    """
    if _is_exposed(address):
        logger.warning(
            "every client that reaches %s is given all messages, and counts as a slave: authentication is on, but this"
            " port has no users and no TLS. Let a firewall decide who reaches it",
            address,
        )


def _is_exposed(address: str) -> bool:
    return not is_loopback(address.rpartition(":")[0].strip("[]"))
