"""`thermocline controller`: run a controller; its subcommands are for those that run."""

from __future__ import annotations

import os
from pathlib import Path

import click

from thermocline.cli.brokers.controller_administration import clean, config, elect, status
from thermocline.cli.common.daemon_options import log_level_option, parse_settings, print_line, runs_daemon

__all__ = ["controller"]


@click.group(invoke_without_command=True, short_help="Run a controller, or ask and change those that run.")
@click.option("--config", "config_path", type=click.Path(dir_okay=False), help="controller.conf or a TOML file.")
@click.option("--data", metavar="DIR", help="Where the controllers' log, changed settings and users are kept.")
@click.option(
    "--peers",
    metavar="ID-HOST:PORT[;...]",
    help="All controllers of the group, the same on each: one, three or five.",
)
@click.option("--id", "node", metavar="ID", help="Which of them this one is.")
@click.option("--listen-host", metavar="HOST", help="The address to listen on, at the port of --peers [127.0.0.1].")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Any setting, by its property name.")
@log_level_option("INFO")
@click.pass_context
def controller(
    context: click.Context,
    config_path: str | None,
    data: str | None,
    peers: str | None,
    node: str | None,
    listen_host: str | None,
    settings: tuple[str, ...],
    log_level: str,
) -> None:
    """Run a controller until SIGTERM or Ctrl-C; without a subcommand. It elects the masters of replicated brokers.

    Settings come from the file, the environment and these options; the later wins. Prints one line
    `ready controller=HOST:PORT` when it serves.

    \b
    Example:
      thermocline controller --data ./controller --peers n0-127.0.0.1:9878 --id n0
    """
    if not runs_daemon(context):
        return
    from thermocline.broker.process import configure_logging
    from thermocline.controller.main import load_config, main, state_paths

    flags: dict[str, str] = {}
    if data is not None:
        flags |= state_paths(Path(data).resolve())
    given = {"controllerDLegerPeers": peers, "controllerDLegerSelfId": node, "bindAddress": listen_host}
    flags |= {name: text for name, text in given.items() if text is not None}
    configure_logging(log_level, process_name="controller")
    settings_read = load_config(
        config_path=None if config_path is None else Path(config_path),
        environment=os.environ,
        flags=flags | parse_settings(settings),
    )
    main(settings_read, on_ready=lambda address: print_line(f"ready controller={address}"))


for _command in (status, elect, clean, config):
    controller.add_command(_command)
