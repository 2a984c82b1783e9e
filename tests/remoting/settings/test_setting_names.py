"""Variables of the environment: what Kubernetes sets for services is no setting of a daemon."""

from __future__ import annotations

import pytest

from thermocline.broker.settings import environment_source
from thermocline.controller.controller_config import CONTROLLER
from thermocline.namesrv.name_server_settings import environment_properties as name_server_properties
from thermocline.proxy.settings.setting_sources import environment_properties as proxy_properties
from thermocline.remoting.settings.setting_names import is_service_link

SOURCES = {
    "THERMOCLINE": environment_source,
    "THERMOCLINE_BROKER": environment_source,
    "THERMOCLINE_NAMESRV": environment_source,
    "THERMOCLINE_HEALTH": environment_source,
    "THERMOCLINE_NAME_SERVER": name_server_properties,
    "THERMOCLINE_CONTROLLER": CONTROLLER.environment_properties,
    "THERMOCLINE_PROXY": proxy_properties,
}


def service_links(service: str) -> dict[str, str]:
    """As Kubernetes sets them in every pod of the service's namespace."""
    return {
        f"{service}_SERVICE_HOST": "10.0.0.11",
        f"{service}_SERVICE_PORT": "9876",
        f"{service}_SERVICE_PORT_REMOTING": "9876",
        f"{service}_PORT": "tcp://10.0.0.11:9876",
        f"{service}_PORT_9876_TCP": "tcp://10.0.0.11:9876",
        f"{service}_PORT_9876_TCP_PROTO": "tcp",
        f"{service}_PORT_9876_TCP_PORT": "9876",
        f"{service}_PORT_9876_TCP_ADDR": "10.0.0.11",
    }


@pytest.mark.parametrize("service", SOURCES)
def test_variables_of_a_service_are_no_settings(service: str) -> None:
    """A daemon whose service has its own name did not start: each of these was an unknown setting."""
    links = service_links(service)
    assert all(is_service_link(*link) for link in links.items())
    assert not SOURCES[service](links).values


@pytest.mark.parametrize("name", ["LISTEN_PORT", "HEALTH_PORT", "PORT", "TIMER_REPUT_SERVICE_CORE_POOL_SIZE"])
def test_other_variables_are_settings_or_mistakes(name: str) -> None:
    assert not is_service_link(f"THERMOCLINE_{name}", "9876")
    assert environment_source({f"THERMOCLINE_{name}": "9876"}).values


def test_a_controller_and_a_broker_may_have_one_environment() -> None:
    """A broker's address of its controllers was an unknown setting of the controller."""
    environment = {
        "THERMOCLINE_CONTROLLER_ADDR": "127.0.0.1:9878",
        "THERMOCLINE_CONTROLLER_HEART_BEAT_TIMEOUT_MILLS": "10000",
        "THERMOCLINE_CONTROLLER_WAITING_CHANGES_MAX": "7",
    }
    assert CONTROLLER.environment_properties(environment).values == {"waitingChangesMax": "7"}
