"""`thermocline namesrv`: run a NameServer."""

from __future__ import annotations

import click

__all__ = ["namesrv"]


@click.command(short_help="Run a NameServer.")
@click.option("--listen", default="0.0.0.0:9876", show_default=True, metavar="HOST:PORT", help="Port 0: a free one.")
@click.option(
    "--broker-expiry-ms", type=click.IntRange(min=100), help="Silence after which a broker is forgotten [120000]."
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Any setting, by its RocketMQ name.")
@click.option("--log-level", default="INFO", show_default=True, help="DEBUG, INFO, WARNING or ERROR.")
def namesrv(listen: str, broker_expiry_ms: int | None, settings: tuple[str, ...], log_level: str) -> None:
    """Run a NameServer until SIGTERM or Ctrl-C: it tells clients where the brokers are. Run two or more.

    Prints one line `ready namesrv=HOST:PORT` when it serves.

    \b
    Example:
      thermocline namesrv --listen 0.0.0.0:9876
    """
    import dataclasses

    from thermocline.broker.log_format import configure_logging
    from thermocline.cli.daemon_options import parse_listen, parse_settings
    from thermocline.namesrv.main import main
    from thermocline.namesrv.name_server_config import NameServerConfig

    host, port = parse_listen("--listen", listen)
    config = NameServerConfig(listen_host=host, listen_port=port).updated(parse_settings(settings))
    if broker_expiry_ms is not None:
        config = dataclasses.replace(config, broker_expiry_ms=broker_expiry_ms)
    configure_logging(log_level, process_name="namesrv")
    main(config, on_ready=lambda address: click.echo(f"ready namesrv={address}"))
