"""The address that a broker advertises to clients, apart from the address that it binds."""

import ipaddress

from thermocline.broker.process.advertised_address import advertised_host


def test_the_configured_address_wins() -> None:
    assert advertised_host(listen_host="127.0.0.1", configured_host="10.1.2.3") == "10.1.2.3"


def test_a_bound_address_is_advertised_unchanged() -> None:
    assert advertised_host(listen_host="127.0.0.1", configured_host="") == "127.0.0.1"


def test_a_wildcard_becomes_an_address_of_this_machine() -> None:
    host = ipaddress.ip_address(advertised_host(listen_host="0.0.0.0", configured_host=""))
    assert not host.is_unspecified
