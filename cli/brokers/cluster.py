"""`thermocline cluster`: which brokers there are and how they are."""

from __future__ import annotations

import click

from thermocline.cli.common.application import Application, uses_cluster
from thermocline.cli.common.output import Failure

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
        brokers = admin.cluster_info()
        try:
            infos = admin.runtime_infos()
        except MQError as error:
            infos = {}
            app.output.add_failures(Failure.of(error))
    errors = {failure.address: failure.error for failure in app.output.failures}
    for broker in brokers:
        info = infos.get(broker)
        row: dict[str, object] = {
            "cluster": broker.cluster,
            "broker": broker.broker_name,
            "id": broker.broker_id,
            "address": broker.address,
        }
        if info is None:
            row |= {"version": None, "in_rate": None, "out_rate": None, "state": errors.get(broker.address)}
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
