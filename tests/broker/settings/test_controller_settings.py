"""Settings of a broker under a controller: what is refused.

Covers `broker/settings/controller_settings.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from thermocline.broker.settings.controller_settings import CONTROLLERS_MAX, ControllerSettings
from thermocline.remoting.errors import InvalidParameterError


def test_controllers_are_named_in_rocketmqs_form() -> None:
    settings = ControllerSettings(controller_mode=True, controller_addresses=" a:1; b:2 ;a:1;")
    settings.check_controllers()
    assert settings.controllers == ("a:1", "b:2")


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("controllerAddr", {"controller_addresses": ""}),
        ("controllerAddr", {"controller_addresses": "somewhere"}),
        ("controllerAddr", {"controller_addresses": ";".join(f"a:{port}" for port in range(1, CONTROLLERS_MAX + 2))}),
        (
            "controllerHeartBeatTimeoutMills",
            {"controller_addresses": "a:1", "controller_silence_ms": 2_000, "heartbeat_ms": 1_000},
        ),
    ],
)
def test_what_cannot_work_is_refused(setting: str, values: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError) as refused:
        ControllerSettings(controller_mode=True, **values).check_controllers()
    assert refused.value.context.get("setting", "controllerAddr") == setting


def test_without_controllers_nothing_is_asked_for() -> None:
    ControllerSettings(controller_addresses="nonsense").check_controllers()
