"""`thermocline broker stats` and `broker clean`: the traffic of a running broker, and early deletion of its files."""

from __future__ import annotations

import dataclasses

import click

from thermocline.cli.common.application import Application, uses_cluster

__all__ = ["clean", "stats"]

CLEANINGS = ("expired-log", "expired-queues", "unused-topics")


@click.command("stats", short_help="Show what goes through a broker's topics.")
@click.argument("broker")
@click.option("--topic", "topics", multiple=True, help="Only this topic; may be given more than once.")
@uses_cluster
def stats(app: Application, broker: str, topics: tuple[str, ...]) -> None:
    """Show what goes into the topics of BROKER (name or address), and out to each group that consumes them.

    Rates are of the last minute, counts of the last 24 hours as far as they were counted.

    \b
    Example:
      thermocline broker stats broker-a --topic orders
    """
    with app.open_admin() as admin:
        rows = admin.broker_traffic(broker, topics=topics)
    app.output.rows(
        {
            **dataclasses.asdict(row),
            "in_per_second": round(row.in_per_second, 2),
            "out_per_second": round(row.out_per_second, 2),
        }
        for row in rows
    )


@click.command("clean", short_help="Have a broker delete now what it would later.")
@click.argument("broker")
@click.argument("what", type=click.Choice(CLEANINGS), metavar="WHAT")
@uses_cluster
def clean(app: Application, broker: str, what: str) -> None:
    """Have BROKER (name or address) delete now what it would delete by itself later.

    WHAT is expired-log (log files beyond their time, at any hour of the day), expired-queues (queue files behind the
    log's first message) or unused-topics (queue files of topics that it does not have any more).

    \b
    Example:
      thermocline broker clean broker-a expired-queues
    """
    with app.open_admin() as admin:
        admin.clean_broker(broker, what)
    app.output.text(f"{broker} has cleaned {what}", value={"broker": broker, "cleaned": what})
