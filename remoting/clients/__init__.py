"""Clients: connections that are opened to other nodes, and the addresses of name servers."""

from thermocline.remoting.clients.client import ClientConnection, RefuseRequests, RemotingClient
from thermocline.remoting.clients.name_server_source import (
    ADDRESS_SERVER,
    NameServerSource,
    address_server_url,
    split_addresses,
)

__all__ = [
    "ADDRESS_SERVER",
    "ClientConnection",
    "NameServerSource",
    "RefuseRequests",
    "RemotingClient",
    "address_server_url",
    "split_addresses",
]
