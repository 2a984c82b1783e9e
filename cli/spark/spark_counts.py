"""`thermocline spark counts`: how many messages and bytes there are, by topic, queue, day, tag."""

from __future__ import annotations

from dataclasses import asdict

import click

from thermocline.cli.spark.spark_options import ColdRead, in_session, reads_cold_tier

__all__ = ["counts"]


@click.command("counts", short_help="Count messages and bytes by topic, queue, day, tag.")
@click.argument("topic")
@click.option(
    "--by", default="topic", show_default=True, help="Some of topic,queue,day,tag; days are of store time, UTC."
)
@click.option(
    "--to", "output", metavar="DIRECTORY", help="New directory for counts.json; an interrupted run goes on there."
)
@reads_cold_tier
def counts(read: ColdRead, topic: str, by: str, output: str | None) -> None:
    """Count the messages of TOPIC (or several, comma separated) in the cold tier, and the bytes of their bodies.

    \b
    Example:
      thermocline spark counts orders --from file:///data/cold --by day,tag
    """
    from thermocline.spark.jobs.counts import counts as run_counts

    with in_session(read, f"counting {topic}", output=output) as (spark, tell):
        report = run_counts(spark, read.url, topic=topic, by=by, output=output, options=read.options, on_progress=tell)
    if read.output.as_json:
        read.output.value(asdict(report))
        return
    read.output.rows(report.rows)
    for note in report.notes:
        read.output.note(note)
    if report.outcome == "finished before":
        read.output.note("nothing to do: this was counted before")
