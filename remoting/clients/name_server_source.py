"""NameServerSource: where a list of NameServers comes from, so that brokers and clients can follow it while they run.

    10.0.0.5:9876;10.0.0.6:9876             these addresses; a name is resolved at each connection
    dns://namesrv.example.com:9876          every address of the name
    http://namesrv.example.com:8080/rocketmq/nsaddr    what this address server answers: a line of such addresses

RocketMQ's brokers have the second by `fetchNameSrvAddrByDnsLookup`, its brokers and clients the third by the JVM
properties `rocketmq.namesrv.domain` and `rocketmq.namesrv.domain.subgroup` (`address_server_url`).

`fetch` asks anew each time; the caller says how often, and keeps its list when there is no answer. Of several names one
may have no address: NameServers are several so that one may be missing.
Source: common/namesrv/DefaultTopAddressing.java, common/MixAll.java (getWSAddr), broker/out/BrokerOuterAPI.java
(dnsLookupAddressByDomain), Apache RocketMQ 5.5.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable, Sequence

import msgspec

from thermocline.remoting.errors import InvalidParameterError, UnavailableError
from thermocline.remoting.socket_address import format_address, parse_address

__all__ = ["ADDRESS_SERVER", "NameServerSource", "address_server_url", "split_addresses"]

logger = logging.getLogger(__name__)

FETCH_TIMEOUT_S = 3
"""RocketMQ's own, of a request to an address server."""
ANSWER_BYTES_MAX = 64 * 1024
ADDRESS_SERVER_PORT = 8080
DNS_SCHEME = "dns://"
HTTP_SCHEMES = ("http://", "https://")
ADDRESSES, DNS, ADDRESS_SERVER = "addresses", "dns", "address server"
NO_SUCH_NAME = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
"""Of a lookup's errors those that say that there is no such name, or that it has no address."""


class NameServerSource(msgspec.Struct, frozen=True):
    """One source; `values` are addresses (`host:port`), or the URL of an address server."""

    kind: str
    values: tuple[str, ...]

    @classmethod
    def parse(cls, texts: Sequence[str]) -> NameServerSource:
        """Read what a setting or an option says.

        Raises:
            InvalidParameterError: It says nothing, an address is not `host:port`, or kinds are mixed.
        """
        if not texts:
            raise InvalidParameterError("no NameServer address")
        if any(text.startswith(HTTP_SCHEMES) for text in texts):
            if len(texts) > 1:
                raise InvalidParameterError("an address server stands alone", namesrv=";".join(texts))
            return cls(ADDRESS_SERVER, (texts[0],))
        names = [text.removeprefix(DNS_SCHEME) for text in texts]
        for name in names:
            check_name_server_address(name)
        count = sum(text.startswith(DNS_SCHEME) for text in texts)
        if count not in (0, len(texts)):
            raise InvalidParameterError("either all names are dns:// or none", namesrv=";".join(texts))
        return cls(DNS if count else ADDRESSES, tuple(names))

    def by_dns(self) -> NameServerSource:
        """Return the source that looks up the names of these addresses."""
        return NameServerSource(DNS, self.values) if self.kind == ADDRESSES else self

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that `parse` makes it of."""
        return tuple(f"{DNS_SCHEME}{name}" for name in self.values) if self.kind == DNS else self.values

    @property
    def is_fixed(self) -> bool:
        """Whether it never says anything else."""
        return self.kind == ADDRESSES

    async def fetch(self, *, has_list: bool = False) -> tuple[str, ...]:
        """Return the addresses as they are now, at least one, each once. Cancelling is safe.

        A name that does not exist has no addresses. One whose lookup fails for now has those of the list that the
        caller keeps (`has_list`), else none.

        Raises:
            UnavailableError: No name has an address now, or one may have and the caller has a list; or the address
                server gives none.
        """
        if self.kind == ADDRESS_SERVER:
            return await _from_address_server(self.values[0])
        if self.kind == DNS:
            return await _from_names(self.values, has_list=has_list)
        return self.values


def address_server_url(domain: str, subgroup: str, unit_name: str = "") -> str:
    """Return the address server that RocketMQ asks with these properties: `domain` may have a port of its own."""
    place = domain if ":" in domain else f"{domain}:{ADDRESS_SERVER_PORT}"
    unit = f"-{unit_name}?nofix=1" if unit_name else ""
    return f"http://{place}/rocketmq/{subgroup}{unit}"


def split_addresses(text: str) -> list[str]:
    """Return the parts of a list with `;` or `,` between."""
    return [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]


def check_name_server_address(address: str) -> None:
    """Pass `host:port`.

    Raises:
        InvalidParameterError: It is none.
    """
    try:
        _, port = parse_address(address)
    except InvalidParameterError:
        port = 0
    if not port:
        raise InvalidParameterError("a NameServer address is host:port", address=address)


async def _from_names(names: Sequence[str], *, has_list: bool) -> tuple[str, ...]:
    outcomes = await asyncio.gather(*map(_addresses_of, names))
    found = dict.fromkeys(address for outcome in outcomes if isinstance(outcome, list) for address in outcome)
    failures = {name: outcome for name, outcome in zip(names, outcomes, strict=True) if isinstance(outcome, Exception)}
    for name, error in failures.items():
        if not found or (has_list and not _is_missing(error)):
            raise UnavailableError("the NameServers' name has no address now", name=name, reason=error) from error
        logger.warning("a NameServer's name has no address now name=%s reason=%s", name, error)
    return tuple(found)


async def _addresses_of(name: str) -> list[str] | Exception:
    """The addresses of a name, or why there are none."""
    host, port = parse_address(name)
    try:
        async with asyncio.timeout(FETCH_TIMEOUT_S):
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:  # a label that is too long is a UnicodeError
        return error
    return [format_address(str(place[0]), port) for *_, place in found]


def _is_missing(error: Exception) -> bool:
    """Whether the answer was that there is no such name."""
    return isinstance(error, socket.gaierror) and error.errno in NO_SUCH_NAME


async def _from_address_server(url: str) -> tuple[str, ...]:
    try:
        text = await asyncio.to_thread(_get, url)
    except (OSError, ValueError) as error:
        raise UnavailableError("the address server gives no answer", url=url, reason=error) from error
    addresses = split_addresses(text.strip().partition("\n")[0].partition("\r")[0])
    return _checked(addresses, url)


def _checked(addresses: Iterable[str], url: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(addresses))
    try:
        for address in found:
            check_name_server_address(address)
    except InvalidParameterError as error:
        raise UnavailableError("the address server's answer is no list of NameServers", url=url, why=error) from error
    if not found:
        raise UnavailableError("the address server names no NameServer", url=url)
    return found


def _get(url: str) -> str:
    """The body of a successful GET; as RocketMQ's client, through no proxy. OSError or ValueError: there is none."""
    import http.client  # loads Python's HTTP client, which only processes with an address server need
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=FETCH_TIMEOUT_S) as answer:
            body: bytes = answer.read(ANSWER_BYTES_MAX)
            if answer.length:
                raise ValueError("the answer is cut off, or too long")
    except http.client.HTTPException as error:  # another protocol, or an answer that ends too early
        raise ValueError(f"no answer of HTTP: {error!r}") from error
    return body.decode("utf-8", "replace")
