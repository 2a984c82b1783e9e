"""`thermocline spark lag`: how far a consumer group is behind, and how much of that is in the cold tier."""

from __future__ import annotations

from dataclasses import asdict

import click

from thermocline.cli.common.output import time_text
from thermocline.cli.spark.spark_options import ColdRead, in_session, reads_cold_tier

__all__ = ["lag"]


@click.command("lag", short_help="Show how far a consumer group is behind, hot and cold.")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC")
@click.option("--group", help="The consumer group; it must be given.")
@click.option(
    "--namesrv",
    metavar="HOST:PORT[;...]",
    help="Ask these NameServers' brokers; without it the state that brokers keep in the bucket counts.",
)
@reads_cold_tier
def lag(read: ColdRead, topics: tuple[str, ...], group: str | None, namesrv: str | None) -> None:
    """Show how far a group is behind in TOPIC (or several, comma separated), queue by queue.

    Reads the first message of each queue that the group has yet to consume, for its time.

    \b
    Example:
      thermocline spark lag orders --group billing --from file:///data/cold --namesrv 127.0.0.1:9876
    """
    if len(topics) == 2 and group is None:  # the former syntax: a group and a topic, whose order is ambiguous
        former_group, former_topic = topics
        raise click.UsageError(
            f"The group is an option. Type: thermocline spark lag {former_topic} --group {former_group}"
        )
    if len(topics) != 1 or group is None:
        raise click.UsageError("Give one TOPIC (or several, comma separated) and --group.")
    (topic,) = topics
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
