"""Quota texts: the form of the setting `quotas`.

    KIND NAME LIMIT=NUMBER ...; KIND NAME LIMIT=NUMBER ...

    topic Orders sendBytes=1048576 burstSeconds=5; address * sendRequests=1000 readRequests=1000

KIND    topic, group (producer or consumer group), address (IPv4, or an IPv6 address or /64 network) or user, who a
        request's signature proves to have sent it: with authentication alone
NAME    `*`: each one of the kind that has no quota of its own, by itself
LIMIT   sendRequests, sendBytes, readRequests, readBytes: whole numbers a second, at least 1; one of them at least
        burstSeconds: so many seconds' worth may come at once, 1 when it is missing
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, fields

from thermocline.remoting.errors import InvalidParameterError

TOPIC, GROUP, ADDRESS, USER = "topic", "group", "address", "user"
KINDS = (TOPIC, GROUP, ADDRESS, USER)
EACH = "*"
QUOTAS_MAX = 10_000
NAME_CHARACTERS_MAX = 255
NUMBER_MAX = 1 << 50
BURST_SECONDS_MAX = 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Limits a second; 0: none."""

    send_requests: int = 0
    send_bytes: int = 0
    read_requests: int = 0
    read_bytes: int = 0
    burst_seconds: int = 1

    @property
    def has_limit(self) -> bool:
        """Whether it limits anything."""
        return any((self.send_requests, self.send_bytes, self.read_requests, self.read_bytes))


def _property(field_name: str) -> str:
    first, second = field_name.split("_")
    return first + second.capitalize()


LIMITS: Mapping[str, str] = {_property(item.name): item.name for item in fields(Quota)}
"""Name in the text -> field."""

Quotas = Mapping[tuple[str, str], Quota]
"""(kind, name) -> quota."""


def parse_quotas(text: str) -> dict[tuple[str, str], Quota]:
    """The quotas of a text.

    Raises:
        InvalidParameterError: It is none; the error says what is wrong.
    """
    found: dict[tuple[str, str], Quota] = {}
    for entry in text.split(";"):
        words = entry.split()
        if not words:
            continue
        if len(words) < 3:
            raise InvalidParameterError("a quota is: KIND NAME LIMIT=NUMBER ...", quota=entry.strip())
        key = quota_key(words[0], words[1])
        if key in found:
            raise InvalidParameterError("a quota is there twice", quota=f"{key[0]} {key[1]}")
        found[key] = parse_limits(words[2:])
    if len(found) > QUOTAS_MAX:
        raise InvalidParameterError("there are too many quotas", count=len(found), most=QUOTAS_MAX)
    return found


def quota_key(kind: str, name: str) -> tuple[str, str]:
    """Kind and name of a quota; an IPv6 address as its /64 network.

    Raises:
        InvalidParameterError: There is no such kind, or none can have the name.
    """
    if kind not in KINDS:
        raise InvalidParameterError(f"a quota's kind is {', '.join(KINDS)}", kind=kind)
    if len(name) > NAME_CHARACTERS_MAX or any(mark in name for mark in "; ="):
        raise InvalidParameterError("a quota's name is too long, or has a character that no name has", name=name[:255])
    if kind == ADDRESS and name != EACH:
        try:
            network = ipaddress.ip_network(name, strict=False)
        except ValueError:
            raise InvalidParameterError("an IP address is needed", name=name) from None
        if network.version == 4:
            if network.prefixlen != network.max_prefixlen:
                raise InvalidParameterError("an IPv4 address is needed, not a network", name=name)
            return kind, str(network.network_address)
        return kind, str(ipaddress.ip_network((network.network_address, 64), strict=False))
    return kind, name


def parse_limits(words: list[str] | tuple[str, ...]) -> Quota:
    """The quota of texts LIMIT=NUMBER.

    Raises:
        InvalidParameterError: One of them is none, or none limits anything.
    """
    values: dict[str, int] = {}
    for word in words:
        name, separator, number = word.partition("=")
        if name not in LIMITS or not separator:
            raise InvalidParameterError(f"a quota's limits are {', '.join(LIMITS)}", limit=word)
        most = BURST_SECONDS_MAX if name == "burstSeconds" else NUMBER_MAX
        if not number.isascii() or not number.isdecimal() or not 1 <= int(number[:20]) <= most:
            raise InvalidParameterError(f"{name}: a whole number from 1 to {most} is needed", value=number[:40])
        values[LIMITS[name]] = int(number)
    quota = Quota(**values)
    if not quota.has_limit:
        raise InvalidParameterError("a quota needs a limit beside burstSeconds")
    return quota


def format_quotas(quotas: Quotas) -> str:
    """The text of quotas, in the order of kinds and names."""
    ordered = sorted(quotas.items(), key=lambda item: (KINDS.index(item[0][0]), item[0][1]))
    return "; ".join(f"{kind} {name} {format_limits(quota)}" for (kind, name), quota in ordered)


def format_limits(quota: Quota) -> str:
    """LIMIT=NUMBER, separated by blanks; without what is missing anyway."""
    default = Quota()
    shown = ((name, getattr(quota, field), getattr(default, field)) for name, field in LIMITS.items())
    return " ".join(f"{name}={value}" for name, value, missing in shown if value != missing)
