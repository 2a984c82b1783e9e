"""`thermocline proxy`: run a proxy; `clients` and `rules` are for one that runs."""

from __future__ import annotations

import os
from pathlib import Path

import click

from thermocline.cli.brokers.proxy_clients import clients
from thermocline.cli.brokers.proxy_rules import rules
from thermocline.cli.common.daemon_options import (
    log_level_option,
    parse_listen,
    parse_settings,
    print_line,
    runs_daemon,
)

__all__ = ["proxy"]


@click.group(invoke_without_command=True, short_help="Run a proxy for RocketMQ's clients, or inspect one that runs.")
@click.option("--config", "config_path", type=click.Path(dir_okay=False), help="rmq-proxy.json or a TOML file.")
@click.option("--namesrv", metavar="HOST:PORT[;...]", help="NameServers of the cluster [127.0.0.1:9876].")
@click.option("--listen", metavar="HOST:PORT", help="Port for gRPC; 0: a free one [127.0.0.1:8081].")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Any setting, by its property name.")
@log_level_option("INFO")
@click.pass_context
def proxy(
    context: click.Context,
    config_path: str | None,
    namesrv: str | None,
    listen: str | None,
    settings: tuple[str, ...],
    log_level: str,
) -> None:
    """Run a proxy until SIGTERM or Ctrl-C; without a subcommand.

    Clients speak gRPC or remoting to it, it speaks to the cluster's brokers.

    It keeps nothing: run as many as you like, in front of the same cluster. Needs the extra `proxy`. Settings come from
    the file, the environment and these options; the later wins. Prints one line `ready proxy=HOST:PORT
    remoting=HOST:PORT` when it serves.

    \b
    Example:
      thermocline proxy --namesrv 127.0.0.1:9876
    """
    if not runs_daemon(context):
        return
    from thermocline.broker.process import configure_logging, run
    from thermocline.proxy.main import load_config
    from thermocline.proxy.main import run as run_proxy

    flags: dict[str, str] = {}
    if namesrv is not None:
        flags["namesrvAddr"] = namesrv
    if listen is not None:
        host, port = parse_listen("--listen", listen)
        flags |= {"bindAddress": host, "grpcServerPort": str(port)}
    configure_logging(log_level, process_name="proxy")
    config = load_config(
        config_path=None if config_path is None else Path(config_path),
        environment=os.environ,
        flags=flags | parse_settings(settings),
    )
    os.umask(0o077)  # what it makes is for its user alone

    def tell(address: str, remoting_address: str) -> None:
        print_line(f"ready proxy={address}" + (f" remoting={remoting_address}" if remoting_address else ""))

    run(run_proxy(config, on_ready=tell))


proxy.add_command(clients)
proxy.add_command(rules)
