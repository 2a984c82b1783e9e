"""`thermocline dev`: NameServer and broker in one command, to try things out."""

from __future__ import annotations

import os
from pathlib import Path

import click

from thermocline.cli.common.daemon_options import (
    broker_flags,
    log_level_option,
    merged_proxy_flags,
    parse_listen,
    parse_settings,
    print_line,
    proxy_options,
)
from thermocline.remoting.errors import SettingError

__all__ = ["dev"]


@click.command(short_help="Run a NameServer and a broker together, to try things out.")
@click.option(
    "--data", default="./thermocline-data", show_default=True, metavar="DIR", help="Where everything is kept."
)
@click.option("--namesrv", default="127.0.0.1:9876", show_default=True, metavar="HOST:PORT", help="Port 0: a free one.")
@click.option("--listen", default="127.0.0.1:10911", show_default=True, metavar="HOST:PORT", help="Port 0: a free one.")
@click.option(
    "--cold",
    metavar="URL",
    help="The cold tier [file://DIR/cold]; file:///directory or s3://bucket/prefix?endpoint=...",
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Any broker setting, by property name.")
@proxy_options
@log_level_option("WARNING")
def dev(
    data: str,
    namesrv: str,
    listen: str,
    cold: str | None,
    settings: tuple[str, ...],
    has_proxy: bool,
    proxy_config: str | None,
    proxy_settings: tuple[str, ...],
    log_level: str,
) -> None:
    """Run a NameServer and a broker until SIGTERM or Ctrl-C.

    Prints one line `ready namesrv=HOST:PORT broker=HOST:PORT cold=URL` when they serve, index and cold tier included.
    What does not serve after 15 seconds (an object store on a network: 1.5) joins later, and a warning names it. With
    --proxy, clients of RocketMQ 5 (gRPC) are served, too, and `proxy=HOST:PORT remoting=HOST:PORT` is on the line.

    \b
    Example:
      thermocline dev --data ./data --namesrv 127.0.0.1:0 --listen 127.0.0.1:0
    """
    from thermocline.broker.main import BrokerArguments, ReadyAddresses, run_with_name_server
    from thermocline.namesrv.main import load_config, state_paths

    directory = Path(data).resolve()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    host, port = parse_listen("--namesrv", namesrv)
    flags = merged_proxy_flags(has_proxy, proxy_config) | broker_flags(
        data=str(directory / "store"),
        namesrv=None,
        listen=listen,
        advertise=None,
        name=None,
        cold=cold or (directory / "cold").as_uri(),
        settings=settings,
    )

    def tell(ready: ReadyAddresses) -> None:
        print_line(f"ready namesrv={ready.name_server} broker={ready.broker} cold={ready.cold_url}{ready.proxy_fields}")

    name_server = load_config(
        config_path=None,
        environment=os.environ,
        flags={"bindAddress": host, "listenPort": str(port), **state_paths(directory / "namesrv")},
    )
    if name_server.controller:
        raise SettingError(
            "thermocline dev runs no controller: start `thermocline namesrv` or `thermocline controller` for it",
            setting="enableControllerInNamesrv",
        )
    run_with_name_server(
        BrokerArguments(
            flags=flags, log_level=log_level, proxy_flags=parse_settings(proxy_settings, option="--proxy-set")
        ),
        name_server,
        on_ready=tell,
    )
