"""`thermocline spark lag`: how far a consumer group is behind, and how much of that is in the cold tier."""

from __future__ import annotations

from dataclasses import asdict

import click

from thermocline.cli.output import time_text
from thermocline.cli.spark_options import ColdRead, in_session, reads_cold_tier

__all__ = ["lag"]


@click.command("lag", short_help="Show how far a consumer group is behind, hot and cold.")
@click.argument("group")
@click.argument("topic")
@click.option(
    "--namesrv",
    metavar="HOST:PORT[;...]",
    help="Ask these NameServers' brokers; without it the state that brokers keep in the bucket counts.",
)
@reads_cold_tier
def lag(read: ColdRead, group: str, topic: str, namesrv: str | None) -> None:
    """Show how far GROUP is behind in TOPIC (or several, comma separated), queue by queue.

    Reads the first message of each queue that the group has yet to consume, for its time.

    \b
    Example:
      thermocline spark lag billing orders --from file:///data/cold --namesrv 127.0.0.1:9876
    """
    from thermocline.spark.jobs.lag import lag as run_lag

    with in_session(read, f"lag of {group}") as (spark, tell):
        report = run_lag(
            spark, read.url, group=group, topic=topic, namesrv=namesrv, options=read.options, on_progress=tell
        )
    if read.output.as_json:
        read.output.value(asdict(report) | {"behind_count": report.behind_count})
        return
    read.output.rows([asdict(queue) for queue in report.queues])
    read.output.note(f"{report.behind_count} messages behind; positions as of {time_text(report.as_of_ms)}")
