"""Client id: the name under which one client object is known to brokers and to the other members of its group.

Form: `ip@instance[@unit]`. The id alone distinguishes group members, so it must be unique among everything that runs:
the default instance is process id and a counter of nanoseconds. Broadcasting keeps its offsets under the client id, so
there the instance must be a chosen, lasting name.
Source: client/ClientConfig.java (buildMQClientId, changeInstanceNameToPID), Apache RocketMQ 5.3.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import time

__all__ = ["address_of_ids", "build_client_id", "local_address"]


def build_client_id(*, address: str, instance_name: str, unit_name: str = "") -> str:
    """Return the id; an empty `instance_name` means a unique one."""
    instance = instance_name or f"{os.getpid()}#{time.monotonic_ns()}"
    return f"{address}@{instance}" + (f"@{unit_name}" if unit_name else "")


def local_address() -> str:
    """Return the address that this machine would use to reach the outside, "127.0.0.1" when it has none.

    Nothing is sent: connecting a datagram socket only makes the kernel choose a source address.
    """
    for family, target in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))
                address = str(probe.getsockname()[0])
        except OSError:
            continue
        if not address.startswith(("127.", "::1")):
            return address
    return "127.0.0.1"


def address_of_ids(address: str) -> str:
    """Return the address that message ids are made of: a client's own, or this machine's where that is only a name."""
    try:
        return str(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return local_address()
