"""Balancers: the load balancers whose word about a client's address is taken.

A balancer appends the address of its client to the header field `x-forwarded-for`: the last entry comes from the
balancer that is connected, the ones before it from its client, who may have written anything. So the field is read from
its end, and only as long as balancers that are trusted have written it:

    connected: 10.0.0.2 (trusted)    x-forwarded-for: 6.6.6.6, 192.0.2.9, 10.0.0.1 (trusted)    client: 192.0.2.9

Without trusted balancers the field has no effect: a client is the address that is connected.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping

from thermocline.remoting.errors import InvalidParameterError
from thermocline.remoting.socket_address import Host, IpAddress, parse_address, parse_ip_address

__all__ = ["FORWARDED_FOR", "Balancers"]

FORWARDED_FOR = "x-forwarded-for"
BALANCERS_MAX = 256

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class Balancers:
    """See the module."""

    def __init__(self, networks: Iterable[IpNetwork] = ()) -> None:
        self._networks = tuple(networks)

    @classmethod
    def parse(cls, text: str) -> Balancers:
        """From addresses and networks with commas between: `10.0.0.2, 10.1.0.0/16, 2001:db8::/64`.

        Raises:
            InvalidParameterError: One is none, or there are more than BALANCERS_MAX.
        """
        networks = []
        for word in filter(None, map(str.strip, text.split(","))):
            try:
                networks.append(ipaddress.ip_network(word))
            except ValueError as error:
                raise InvalidParameterError(f"not an address or a network: {error}") from error
        if len(networks) > BALANCERS_MAX:
            raise InvalidParameterError("there are too many balancers", count=len(networks), most=BALANCERS_MAX)
        return cls(networks)

    def client_host(self, connected: Host, headers: Mapping[str, str]) -> Host:
        """The client's address, of a request with these header fields that came from `connected`. Its port is 0 where a
        balancer says no port."""
        if not self._networks or not self._trusts(connected[0]):
            return connected
        found = connected
        for entry in reversed(headers.get(FORWARDED_FOR, "").split(",")):
            try:
                found = _entry_host(entry.strip())
            except InvalidParameterError:  # written by a balancer that hides it, or does not know it
                return found
            if not self._trusts(found[0]):
                return found
        return found

    def _trusts(self, host: str) -> bool:
        try:
            address = _ip_address(host)
        except InvalidParameterError:  # a connection that was lost before it had an address
            return False
        return any(address in network for network in self._networks)


def _entry_host(entry: str) -> Host:
    """`192.0.2.9`, `192.0.2.9:4711`, `2001:db8::9`, `[2001:db8::9]` or `[2001:db8::9]:4711`."""
    is_whole = entry.count(":") != 1 and not (entry.startswith("[") and not entry.endswith("]"))
    host, port = (entry.strip("[]"), 0) if is_whole else parse_address(entry)
    return str(_ip_address(host)), port


def _ip_address(host: str) -> IpAddress:
    try:
        return parse_ip_address(host)
    except ValueError as error:
        raise InvalidParameterError("not an IP address", address=host[:64]) from error
