"""Addresses as text."""

import pytest

from thermocline.remoting.errors import InvalidParameterError
from thermocline.remoting.socket_address import format_address, is_unix_address, parse_address, peer_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        ("[::1]:1", ("::1", 1)),
        ("broker-a.example:10911", ("broker-a.example", 10_911)),
    ],
)
def test_parse(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected
    assert format_address(*expected) == text


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":1", "host:x", "host:-1", "host:65536", "host:１", "host:" + "9" * 5_000]
)
def test_invalid_addresses_are_refused(text: str) -> None:
    with pytest.raises(InvalidParameterError):
        parse_address(text)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (("10.0.0.1", 5), ("10.0.0.1:5", ("10.0.0.1", 5))),
        (("::ffff:10.0.0.1", 5, 0, 0), ("10.0.0.1:5", ("10.0.0.1", 5))),
        (("fe80::1%eth0", 5, 0, 2), ("[fe80::1]:5", ("fe80::1", 5))),
        ("", ("unix", ("127.0.0.1", 0))),
        (None, ("unix", ("127.0.0.1", 0))),
    ],
)
def test_peers(name: object, expected: object) -> None:
    assert peer_address(name) == expected


def test_unix() -> None:
    assert is_unix_address("/run/thermocline/tier.sock")
    assert not is_unix_address("127.0.0.1:1")
