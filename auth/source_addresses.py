"""Source addresses: those from which an entry of a policy counts.

    192.168.1.7        that address
    192.168.1.0/24     a range, by CIDR; IPv6 alike

A range is compared by number, as RocketMQ does it, whatever the family: `::/0` covers every IPv4 address, too, and
`0.0.0.0/0` those IPv6 addresses alone that are below 2^32. An IPv4 address written as IPv6 (`::ffff:10.0.0.1`) is IPv4.
Source: common/utils/IPAddressUtils.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from functools import lru_cache

from thermocline.remoting.socket_address import parse_ip_address

_V4_BITS, _V6_BITS = 32, 128


def is_valid_source(text: str) -> bool:
    """Whether `text` is an address or a range."""
    return _range_of(text) is not None


def is_in_sources(address: str, sources: tuple[str, ...]) -> bool:
    """Whether a client at `address` is covered by one of `sources`; without sources every client is."""
    if not sources:
        return True
    number = _number_of(address)
    if number is None:
        return False
    for source in sources:
        bounds = _range_of(source)
        if bounds is None:
            continue
        first, last, is_single, bits = bounds
        if is_single:
            if number == (first, bits):
                return True
        elif first <= number[0] <= last:
            return True
    return False


@lru_cache(maxsize=4096)
def _number_of(address: str) -> tuple[int, int] | None:
    """An address as a number, and its bits; None for what is none."""
    try:
        parsed = parse_ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return int(parsed), _V4_BITS if parsed.version == 4 else _V6_BITS


@lru_cache(maxsize=4096)
def _range_of(text: str) -> tuple[int, int, bool, int] | None:
    """First and last address of a source, whether it is a single address, and its bits; None for what is none."""
    address, slash, prefix_text = text.partition("/")
    found = _number_of(address)
    if found is None:
        return None
    number, bits = found
    if not slash:
        return number, number, True, bits
    if not (prefix_text.isascii() and prefix_text.isdigit()) or int(prefix_text) > bits:
        return None
    free_bits = bits - int(prefix_text)
    first = number >> free_bits << free_bits
    return first, first + (1 << free_bits) - 1, False, bits
