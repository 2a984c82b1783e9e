"""Peers: the controllers of a group, as `controllerDLegerPeers` lists them.

    n0-10.0.0.1:9878;n1-10.0.0.2:9878;n2-controller-2.example:9878        id-host:port, the same on every node

One node, three or five: an even number tolerates no failure more than the odd one below it.
Source: DLedger's MemberState, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import re

import msgspec

from thermocline.remoting.errors import InvalidParameterError
from thermocline.remoting.socket_address import parse_address

GROUP_SIZES = (1, 3, 5)
_ID = re.compile(r"[A-Za-z0-9_]{1,64}")


class Peers(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a group by id, in the order of the setting, and which one this is."""

    addresses: dict[str, str]
    node: str

    @property
    def address(self) -> str:
        """Where this node serves, as others reach it."""
        return self.addresses[self.node]

    @property
    def others(self) -> dict[str, str]:
        """The other nodes."""
        return {name: address for name, address in self.addresses.items() if name != self.node}

    @property
    def text(self) -> str:
        """As RocketMQ shows them: `id:host:port;` of each."""
        return "".join(f"{name}:{address};" for name, address in self.addresses.items())


def parse_peers(text: str, node: str) -> Peers:
    """Read `controllerDLegerPeers` and `controllerDLegerSelfId`.

    Raises:
        InvalidParameterError: They name no group of a size that is served here, or not this node.
    """
    addresses: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, dash, address = part.partition("-")
        if not dash or _ID.fullmatch(name) is None:
            raise InvalidParameterError("controllerDLegerPeers needs id-host:port for each node", value=part)
        host, port = parse_address(address)
        if not host or port == 0:
            raise InvalidParameterError("controllerDLegerPeers needs a host and a port for each node", value=part)
        if name in addresses or address in addresses.values():
            raise InvalidParameterError("controllerDLegerPeers names a node twice", value=part)
        addresses[name] = address
    if len(addresses) not in GROUP_SIZES:
        raise InvalidParameterError("controllerDLegerPeers needs one, three or five nodes", nodes=len(addresses))
    if node not in addresses:
        raise InvalidParameterError("controllerDLegerSelfId is none of controllerDLegerPeers", value=node)
    return Peers(addresses=addresses, node=node)
