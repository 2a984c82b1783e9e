"""`thermocline namesrv`: run a NameServer; its subcommands are for those that run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click

from thermocline.cli.brokers.namesrv_administration import add_write_perm, config, kv, wipe_write_perm
from thermocline.cli.common.daemon_options import (
    log_level_option,
    parse_listen,
    parse_settings,
    print_line,
    runs_daemon,
)

__all__ = ["namesrv"]

CONTROLLER_SETTING = "enableControllerInNamesrv"
CONTROLLER_VARIABLE = "THERMOCLINE_NAME_SERVER_ENABLE_CONTROLLER_IN_NAMESRV"


@click.group(invoke_without_command=True, short_help="Run a NameServer, or change those that run.")
@click.option("--config", "config_path", type=click.Path(dir_okay=False), help="namesrv.conf or a TOML file.")
@click.option(
    "--data",
    metavar="DIR",
    help="Where changed settings, the KV configuration and users are kept [nowhere].",
)
@click.option("--listen", metavar="HOST:PORT", help="Port 0: a free one [127.0.0.1:9876].")
@click.option(
    "--broker-expiry-ms", type=click.IntRange(min=100), help="Silence after which a broker is forgotten [120000]."
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Any setting, by its property name.")
@log_level_option("INFO")
@click.pass_context
def namesrv(
    context: click.Context,
    config_path: str | None,
    data: str | None,
    listen: str | None,
    broker_expiry_ms: int | None,
    settings: tuple[str, ...],
    log_level: str,
) -> None:
    """Run a NameServer until SIGTERM or Ctrl-C; without a subcommand. It tells clients where the brokers are: run two.

    Settings come from the file, the environment and these options; the later wins. Prints one line
    `ready namesrv=HOST:PORT` when it serves.

    \b
    Example:
      thermocline namesrv --listen 0.0.0.0:9876
    """
    if not runs_daemon(context):
        return
    from thermocline.broker.process import configure_logging
    from thermocline.namesrv.main import load_config, main, state_paths

    flags: dict[str, str] = {}
    if data is not None:
        flags |= state_paths(Path(data).resolve())
    if listen is not None:
        host, port = parse_listen("--listen", listen)
        flags |= {"bindAddress": host, "listenPort": str(port)}
    if broker_expiry_ms is not None:
        flags["brokerExpiryMs"] = str(broker_expiry_ms)
    configure_logging(log_level, process_name="namesrv")
    path = None if config_path is None else Path(config_path)
    flags |= parse_settings(settings)
    if not _asks_for_controller(path, flags):
        config_read = load_config(config_path=path, environment=os.environ, flags=flags)
        main(config_read, on_ready=lambda address: print_line(f"ready namesrv={address}"))
        return
    from thermocline.controller import in_name_server

    config_read, controller = in_name_server.load_configs(config_path=path, environment=os.environ, flags=flags)
    if controller is None:
        main(config_read, on_ready=lambda address: print_line(f"ready namesrv={address}"))
        return
    place = controller.peers.address
    in_name_server.main(
        config_read, controller, on_ready=lambda address: print_line(f"ready namesrv={address} controller={place}")
    )


def _asks_for_controller(path: Path | None, flags: Mapping[str, str]) -> bool:
    """Whether any source names the setting; then the controller's settings are read too."""
    try:
        text = "" if path is None else path.read_text(errors="replace")
    except OSError:
        return False  # reading it as settings says why
    return CONTROLLER_SETTING in text or CONTROLLER_SETTING in flags or CONTROLLER_VARIABLE in os.environ


for _command in (config, kv, wipe_write_perm, add_write_perm):
    namesrv.add_command(_command)
