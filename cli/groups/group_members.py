"""`thermocline group connections` and `members`: who is in a consumer group, and how they are."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
import msgspec

from thermocline.cli.common.application import Application, uses_cluster

if TYPE_CHECKING:
    from thermocline.cli.common.output import Row
    from thermocline.remoting.bodies import ConsumerRunningInfo

__all__ = ["connections", "members"]

COLUMNS = ("client_id", "language", "state", "queues", "held", "consumed_per_second", "failed_per_second")


@click.command("connections", short_help="Show who is in a group.")
@click.argument("name")
@uses_cluster
def connections(app: Application, name: str) -> None:
    """Show the connected members of the group NAME and what they subscribe to.

    \b
    Example:
      thermocline group connections billing
    """
    with app.open_admin() as admin:
        found = admin.consumer_connections(name)
    subscriptions = {topic: data.sub_string for topic, data in sorted(found.subscription_table.items())}
    app.output.rows(
        {
            "client_id": one.client_id,
            "address": one.client_addr,
            "language": one.language,
            "version": one.version,
            "subscriptions": subscriptions,
        }
        for one in found.connection_set
    )


@click.command("members", short_help="Ask the members of a group how they are.")
@click.argument("name")
@click.option("--client-id", help="Only the member with this id.")
@click.option("--stacks", is_flag=True, help="Also what their threads are doing.")
@uses_cluster
def members(app: Application, name: str, client_id: str | None, stacks: bool) -> None:
    """Ask the connected members of the group NAME how they are: what they hold, how fast they consume.

    Each answers for itself; one that does not serve such questions says so. With --json every queue is shown.

    \b
    Example:
      thermocline group members billing --stacks
    """
    from thermocline.cli.common.output import harmless
    from thermocline.remoting.errors import MQError

    rows: list[Row] = []
    with app.open_admin() as admin:
        for one in admin.consumer_connections(name).connection_set:
            if client_id not in (None, one.client_id):
                continue
            member: dict[str, object] = {"client_id": one.client_id, "language": one.language, "state": "active"}
            try:
                info = admin.consumer_running_info(name, one.client_id, with_stacks=stacks)
            except MQError as error:
                rows.append(member | dict.fromkeys(COLUMNS[3:]) | {"state": str(error)})
            else:
                rows.append(member | _figures(info))
    if not rows:
        raise click.ClickException(f"{name} has no member {client_id}.")
    app.output.rows(rows, columns=COLUMNS)
    if stacks and not app.output.as_json:
        for row in rows:
            lines = [str(row["client_id"]), *str(row.get("stacks") or "-").expandtabs().splitlines()]
            sys.stdout.write("\n" + "".join(f"{harmless(line)}\n" for line in lines))


def _figures(info: ConsumerRunningInfo) -> dict[str, object]:
    statuses = info.status_table.values()
    return {
        "queues": len(info.mq_table) + len(info.mq_pop_table),
        "held": sum(one.cached_msg_count for one in info.mq_table.values())
        + sum(one.wait_ack_count for one in info.mq_pop_table.values()),
        "consumed_per_second": round(sum(one.consume_ok_tps for one in statuses), 1),
        "failed_per_second": round(sum(one.consume_failed_tps for one in statuses), 1),
        "subscriptions": {one.topic: one.sub_string for one in info.subscription_set},
        "queue_states": [
            {
                "topic": queue.topic,
                "broker": queue.broker_name,
                "queue": queue.queue_id,
                "committed_offset": held.commit_offset,
                "held": held.cached_msg_count,
                "locked": held.locked,
                "last_pull_timestamp_ms": held.last_pull_timestamp,
                "last_consume_timestamp_ms": held.last_consume_timestamp,
            }
            for queue, held in sorted(info.mq_table.items(), key=lambda item: msgspec.structs.astuple(item[0]))
        ],
        "properties": info.properties,
        "stacks": info.jstack,
    }
