"""Options that the daemons share."""

from __future__ import annotations

import click
import pytest

from thermocline.cli.common.daemon_options import broker_flags, parse_listen, parse_settings
from thermocline.cli.main import EXIT_MISUSED, run


def test_addresses_to_listen_on() -> None:
    assert parse_listen("--listen", "0.0.0.0:0") == ("0.0.0.0", 0)
    assert parse_listen("--listen", "[::1]:9876") == ("::1", 9876)
    for text in ("nonsense", ":1", "host:", "host:99999", "host:" + "9" * 5_000):
        with pytest.raises(click.BadParameter):
            parse_listen("--listen", text)


def test_settings_by_name_win_over_options() -> None:
    assert parse_settings(["a = 1", "b=x=y"]) == {"a": "1", "b": "x=y"}
    with pytest.raises(click.BadParameter):
        parse_settings(["nonsense"])
    flags = broker_flags(
        data="/data",
        namesrv="127.0.0.1:9876",
        listen="127.0.0.1:0",
        advertise="example.org",
        name="broker-b",
        cold="memory://x",
        settings=["brokerName=broker-c"],
    )
    assert flags == {
        "bindAddress": "127.0.0.1",
        "listenPort": "0",
        "storePathRootDir": "/data",
        "namesrvAddr": "127.0.0.1:9876",
        "brokerIP1": "example.org",
        "coldUrl": "memory://x",
        "brokerName": "broker-c",
    }


@pytest.mark.parametrize("daemon", ["dev", "namesrv", "broker"])
def test_a_log_level_that_is_none_is_misuse(daemon: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([daemon, "--log-level", "loud"]) == EXIT_MISUSED
    assert "'loud' is not one of" in capsys.readouterr().err
