"""Whose address a request behind a load balancer counts as: never what the client claims itself."""

from __future__ import annotations

import pytest

from thermocline.proxy.http2 import Balancers
from thermocline.proxy.settings import ProxyConfig
from thermocline.remoting.errors import SettingError

TRUSTED = Balancers.parse(" 10.0.0.2, 10.1.0.0/16,2001:db8::/64 ,")
BALANCER, CLIENT = ("10.0.0.2", 40_000), ("192.0.2.9", 50_000)


def of(connected: tuple[str, int], forwarded: str | None, balancers: Balancers = TRUSTED) -> tuple[str, int]:
    return balancers.client_host(connected, {} if forwarded is None else {"x-forwarded-for": forwarded})


@pytest.mark.parametrize(
    ("forwarded", "host"),
    [
        ("192.0.2.9", ("192.0.2.9", 0)),
        ("192.0.2.9:4711", ("192.0.2.9", 4711)),
        ("2001:db8:1::9", ("2001:db8:1::9", 0)),
        ("[2001:db8:1::9]", ("2001:db8:1::9", 0)),
        ("[2001:DB8:1::9]:4711", ("2001:db8:1::9", 4711)),
        ("::ffff:192.0.2.9", ("192.0.2.9", 0)),
        ("6.6.6.6, 192.0.2.9", ("192.0.2.9", 0)),  # the first entry is the client's own claim
        ("6.6.6.6,192.0.2.9, 10.1.2.3 ,2001:db8::1", ("192.0.2.9", 0)),  # through three balancers
        ("10.1.0.1, 10.1.0.2", ("10.1.0.1", 0)),  # a balancer asks itself
        ("6.6.6.6, unknown", BALANCER),
        ("6.6.6.6, 10.1.0.1:x", BALANCER),
        ("6.6.6.6, 10.1.0.1 10.1.0.2", BALANCER),
        ("6.6.6.6, nonsense, 10.1.0.1", ("10.1.0.1", 0)),
        ("", BALANCER),
        (",,,", BALANCER),
        (None, BALANCER),
    ],
)
def test_a_trusted_balancer_tells_its_client(forwarded: str | None, host: tuple[str, int]) -> None:
    assert of(BALANCER, forwarded) == host


def test_the_word_of_others_has_no_effect() -> None:
    assert of(CLIENT, "10.0.0.7") == CLIENT
    assert of(BALANCER, "192.0.2.9", Balancers()) == BALANCER
    assert of(("::ffff:10.0.0.2", 1), "192.0.2.9") == ("192.0.2.9", 0)


@pytest.mark.parametrize("text", ["balancer", "10.0.0.1/8", "10.0.0.1:80", ",".join(["10.0.0.1"] * 257)])
def test_what_is_no_list_of_balancers(text: str) -> None:
    with pytest.raises(SettingError, match=r"^trustedBalancers: "):
        ProxyConfig(trusted_balancers=text)
