"""`thermocline cluster`: which brokers there are and how they are."""

from __future__ import annotations

import click

from thermocline.cli.application import Application, uses_cluster

__all__ = ["cluster"]


@click.group(short_help="See which brokers there are.")
def cluster() -> None:
    """See which brokers there are.

    \b
    Example:
      thermocline cluster list
    """


@cluster.command("list", short_help="List brokers.")
@uses_cluster
def list_(app: Application) -> None:
    """List every broker that is registered, with its version and rates (messages a second).

    \b
    Example:
      thermocline cluster list
    """
    from thermocline.remoting.errors import MQError

    rows = []
    with app.open_admin() as admin:
        for broker in admin.cluster_info():
            row: dict[str, object] = {
                "cluster": broker.cluster,
                "broker": broker.broker_name,
                "id": broker.broker_id,
                "address": broker.address,
            }
            try:
                info = admin.broker_runtime_info(broker.address)
            except MQError as error:
                row |= {"version": None, "in_rate": None, "out_rate": None, "state": str(error)}
            else:
                row |= {
                    "version": info.get("brokerVersionDesc"),
                    "in_rate": _rate(info.get("putTps")),
                    "out_rate": _rate(info.get("getTransferredTps")),
                    "state": "active" if info.get("brokerActive", "true") == "true" else "not active",
                }
            rows.append(row)
    app.output.rows(rows)


def _rate(text: str | None) -> float | None:
    """Return the rate over the last ten seconds, the first of the three that a broker gives."""
    try:
        return round(float((text or "").split()[0]), 1)
    except (IndexError, ValueError):
        return None
