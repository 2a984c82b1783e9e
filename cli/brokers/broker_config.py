"""`thermocline broker config` and `broker runtime`: settings and figures of a broker that runs."""

from __future__ import annotations

import click

from thermocline.cli.common.application import Application, uses_cluster

__all__ = ["config", "runtime"]


@click.group(short_help="Read and change settings of a running broker.")
def config() -> None:
    """Read and change settings of a running broker.

    \b
    Example:
      thermocline broker config get broker-a --match disk
    """


@config.command("get", short_help="Show a broker's settings.")
@click.argument("broker")
@click.option("--match", default="", help="Only names that contain this, whatever its case.")
@uses_cluster
def get(app: Application, broker: str, match: str) -> None:
    """Show the settings of BROKER (name or address) by their property names.

    \b
    Example:
      thermocline broker config get broker-a --match flush
    """
    with app.open_admin() as admin:
        values = admin.broker_config(broker)
    app.output.value({name: value for name, value in sorted(values.items()) if match.lower() in name.lower()})


@config.command("set", short_help="Change a broker's settings.")
@click.argument("broker")
@click.argument("changes", nargs=-1, required=True, metavar="NAME=VALUE...")
@uses_cluster
def set_(app: Application, broker: str, changes: tuple[str, ...]) -> None:
    """Change settings of BROKER (name or address); a name that it does not have is an error.

    \b
    Example:
      thermocline broker config set broker-a fileReservedTime=48
    """
    from thermocline.cli.common.daemon_options import parse_settings

    wanted = parse_settings(changes)
    with app.open_admin() as admin:
        unknown = sorted(wanted.keys() - admin.broker_config(broker).keys())
        if unknown:
            raise click.ClickException(f"{broker} has no setting {', '.join(unknown)}.")
        admin.update_broker_config(broker, wanted)
        now = admin.broker_config(broker)
    app.output.value({name: now.get(name) for name in wanted})


@click.command("runtime", short_help="Show a broker's figures.")
@click.argument("broker")
@click.option("--match", default="", help="Only names that contain this, whatever its case.")
@uses_cluster
def runtime(app: Application, broker: str, match: str) -> None:
    """Show the figures of BROKER (name or address): rates, counts, disk, what lags behind.

    \b
    Example:
      thermocline broker runtime broker-a --match tps
    """
    with app.open_admin() as admin:
        values = admin.broker_runtime_info(broker)
    app.output.value({name: value for name, value in sorted(values.items()) if match.lower() in name.lower()})
