"""`thermocline replica status`: how far the brokers of a replica set are."""

from __future__ import annotations

import click

from thermocline.cli.brokers.controller_administration import uses_controllers
from thermocline.cli.common.application import Application

__all__ = ["replica"]

COLUMNS = ("broker_name", "broker_id", "address", "role", "alive", "epoch", "end_offset", "lag_bytes")


@click.group(short_help="See how far the brokers of a replica set are.")
def replica() -> None:
    """See how far the brokers of a replica set are. They are switched and removed by `thermocline controller`.

    \b
    Example:
      thermocline replica status broker-a
    """


@replica.command("status", short_help="Show each broker of a set, and what it lacks.")
@click.argument("broker")
@uses_controllers
def status(app: Application, controllers: str, broker: str) -> None:
    """Show each broker of the name BROKER, with its role, the end of its log, and what that lacks of the master's.

    What a broker says itself is empty where it does not answer.

    \b
    Example:
      thermocline replica status broker-a
    """
    with app.open_admin() as admin:
        states = admin.replica_states(controllers, broker)
    app.output.rows(
        [
            {
                "broker_name": state.broker_name,
                "broker_id": state.broker_id,
                "address": state.address,
                "role": "master" if state.is_master else "in sync" if state.is_in_sync else "not in sync",
                "alive": state.is_alive,
                "epoch": state.epoch,
                "end_offset": state.end_offset,
                "lag_bytes": state.lag_bytes,
            }
            for state in states
        ],
        columns=COLUMNS,
    )
