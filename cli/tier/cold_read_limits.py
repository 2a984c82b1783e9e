"""`thermocline tier reads`, `set-read-limit` and `clear-read-limit`: how much of history groups read, and may read."""

from __future__ import annotations

import dataclasses

import click

from thermocline.cli.common.application import Application, uses_cluster

__all__ = ["clear_read_limit", "reads", "set_read_limit"]


@click.command("reads", short_help="Show which groups read history.")
@click.argument("broker")
@uses_cluster
def reads(app: Application, broker: str) -> None:
    """Show which groups read history at BROKER (name or address), how much in the present five seconds, and limits.

    \b
    Example:
      thermocline tier reads broker-a
    """
    with app.open_admin() as admin:
        rows = admin.cold_reads(broker)
    app.output.rows(dataclasses.asdict(row) for row in rows)


@click.command("set-read-limit", short_help="Limit how fast a group reads history.")
@click.argument("broker")
@click.argument("group")
@click.argument("limit_bytes", type=click.IntRange(min=1), metavar="BYTES")
@uses_cluster
def set_read_limit(app: Application, broker: str, group: str, limit_bytes: int) -> None:
    """Let GROUP read at most BYTES of history in five seconds at BROKER (name or address).

    It has an effect only while the broker's setting coldDataFlowControlEnable is true, and lasts until its next start.

    \b
    Example:
      thermocline tier set-read-limit broker-a billing 10000000
    """
    with app.open_admin() as admin:
        admin.set_cold_read_limit(broker, group, limit_bytes)
    app.output.text(
        f"{group} may read {limit_bytes} bytes of history in five seconds",
        value={"broker": broker, "group": group, "limit_bytes": limit_bytes},
    )


@click.command("clear-read-limit", short_help="Take a group's limit away.")
@click.argument("broker")
@click.argument("group")
@uses_cluster
def clear_read_limit(app: Application, broker: str, group: str) -> None:
    """Remove the limit of GROUP at BROKER (name or address); the broker's default then applies.

    \b
    Example:
      thermocline tier clear-read-limit broker-a billing
    """
    with app.open_admin() as admin:
        admin.set_cold_read_limit(broker, group, None)
    app.output.text(f"{group} has no limit of its own", value={"broker": broker, "group": group, "limit_bytes": None})
