"""`thermocline producer`: which producers are connected."""

from __future__ import annotations

import click

from thermocline.cli.common.application import Application, uses_cluster

__all__ = ["producer"]


@click.group(short_help="See which producers are connected.")
def producer() -> None:
    """See which producers are connected.

    \b
    Example:
      thermocline producer list
    """


@producer.command("list", short_help="List producers.")
@click.option("--broker", help="Only those of this broker, by name or address.")
@uses_cluster
def list_(app: Application, broker: str | None) -> None:
    """List the producers that are connected, with their groups.

    \b
    Example:
      thermocline producer list --broker broker-a
    """
    with app.open_admin() as admin:
        groups = admin.list_producers(broker=broker)
    app.output.rows(
        {
            "group": group,
            "client_id": one.client_id,
            "address": one.remote_ip,
            "language": one.language,
            "version": one.version,
            "last_update_timestamp_ms": one.last_update_timestamp,
        }
        for group, producers in groups.items()
        for one in producers
    )


@producer.command("connections", short_help="Show the producers of a group.")
@click.argument("name")
@uses_cluster
def connections(app: Application, name: str) -> None:
    """Show the connected producers of the group NAME. Without any it fails.

    \b
    Example:
      thermocline producer connections shop
    """
    with app.open_admin() as admin:
        found = admin.producer_connections(name)
    app.output.rows(
        {
            "client_id": one.client_id,
            "address": one.client_addr,
            "language": one.language,
            "version": one.version,
        }
        for one in found
    )
