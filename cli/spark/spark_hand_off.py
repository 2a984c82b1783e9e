"""`thermocline spark hand-off`: move a consumer group to where a job has stopped reading."""

from __future__ import annotations

import click

from thermocline.cli.common.application import Application, uses_cluster
from thermocline.cli.common.parsing import parse_pairs

__all__ = ["hand_off"]


@click.command("hand-off", short_help="Move a consumer group to the receipt of a job.")
@click.argument("receipt")
@click.option("--group", required=True, help="The consumer group to move; none of its members may run.")
@click.option("--force", is_flag=True, help="Although the load was no whole one, or the group has gone on since.")
@click.option("--option", "pairs", multiple=True, metavar="NAME=VALUE", help="How to reach a receipt's bucket: s3.*.")
@uses_cluster
def hand_off(app: Application, receipt: str, group: str, force: bool, pairs: tuple[str, ...]) -> None:
    """Move a group to RECEIPT, a path or URL, so that it consumes exactly what the job has not read.

    All brokers agree before any moves it. After a failure the same command may be repeated until it succeeds. Needs no
    PySpark.

    \b
    Example:
      thermocline spark hand-off ./orders.receipt.json --group dashboards
    """
    from thermocline.spark.handoff.hand_off import hand_off as run_hand_off

    moved = run_hand_off(
        receipt,
        group=group,
        namesrv=app.namesrv,
        force=force,
        options=parse_pairs(pairs, option="--option"),
        timeout_ms=app.timeout_ms,
        tls=app.tls,
        credentials=app.credentials,
    )
    app.output.rows(
        {
            "topic": row.queue.topic,
            "broker": row.queue.broker_name,
            "queue": row.queue.queue_id,
            "before": row.before,
            "offset": row.offset,
        }
        for row in moved
    )
    app.output.note(
        f"{group} goes on behind what was read" if moved else f"{group} had been handed over by this receipt before"
    )
