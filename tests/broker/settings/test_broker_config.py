"""Where a broker listens by default, and which NameServers cannot use what it tells them."""

from __future__ import annotations

import pytest

from thermocline.broker.settings import BrokerConfig
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.remoting.errors import InvalidParameterError


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "127.0.0.1"),
        ({"advertised_host": "127.0.0.1"}, "127.0.0.1"),
        ({"advertised_host": "192.0.2.10"}, "0.0.0.0"),
        ({"listen_host": "0.0.0.0"}, "0.0.0.0"),
        ({"listen_host": "127.0.0.1", "advertised_host": "192.0.2.10"}, "127.0.0.1"),
        ({"listen_host": "10.0.0.5"}, "10.0.0.5"),
    ],
)
def test_a_broker_is_for_this_machine_unless_a_setting_says_otherwise(settings: dict[str, str], expected: str) -> None:
    config = BrokerConfig(**settings)  # type: ignore[arg-type]
    assert config.bound_host == expected
    assert config.health_host == "127.0.0.1"


def test_a_name_server_is_for_this_machine_unless_a_setting_says_otherwise() -> None:
    assert NameServerConfig().listen_host == "127.0.0.1"


@pytest.mark.parametrize("field", ["listen_host", "health_host", "advertised_host"])
def test_addresses_are_ip_addresses(field: str) -> None:
    with pytest.raises(InvalidParameterError, match="an IP address"):
        BrokerConfig(**{field: "localhost"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ()),
        ({"name_server_addresses": "127.0.0.1:9876;localhost:9876"}, ()),
        ({"name_server_addresses": "127.0.0.1:9876;10.0.0.5:9876"}, ("10.0.0.5:9876",)),
        ({"name_server_addresses": "dns://namesrv.example.com:9876"}, ("namesrv.example.com:9876",)),
        ({"address_server_on": True, "name_server_domain": "h"}, ("http://h:8080/rocketmq/nsaddr",)),
    ],
)
def test_name_servers_elsewhere(settings: dict[str, str], expected: tuple[str, ...]) -> None:
    assert BrokerConfig(**settings).name_servers_elsewhere == expected  # type: ignore[arg-type]
