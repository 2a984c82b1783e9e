"""`thermocline spark catch-up`: replay a topic from the cold tier into files, for people who write no Spark code."""

from __future__ import annotations

from dataclasses import asdict

import click

from thermocline.cli.spark.spark_options import ColdRead, in_session, reads_cold_tier

__all__ = ["catch_up"]

EARLIEST_OFFSET = -2
"""As in receipts."""


@click.command("catch-up", short_help="Replay a topic from the bucket into Parquet or JSON lines.")
@click.argument("topic")
@click.option("--to", "output", required=True, metavar="DIRECTORY", help="New directory for the files.")
@click.option("--format", "output_format", type=click.Choice(["parquet", "json"]), default="parquet", show_default=True)
@click.option(
    "--body",
    type=click.Choice(["text", "base64"]),
    default="text",
    show_default=True,
    help="How JSON lines show the body.",
)
@click.option("--partition-by", metavar="day|tag|day,tag", help="One folder for each day of store time (UTC), or tag.")
@click.option("--columns", help="Columns to write, comma separated, in this order.")
@click.option("--receipt", metavar="PLACE", help="Path or URL of the receipt; beside the files when absent.")
@click.option(
    "--from-group",
    metavar="GROUP",
    help="Start where this consumer group is; at the oldest message where it has no position.",
)
@click.option("--seal", is_flag=True, help="First move what the brokers have flushed until now to the cold tier.")
@click.option(
    "--namesrv",
    envvar="NAMESRV_ADDR",
    show_envvar=True,
    metavar="HOST:PORT[;...]",
    help="NameServers, for --from-group and --seal.",
)
@reads_cold_tier
def catch_up(
    read: ColdRead,
    topic: str,
    output: str,
    output_format: str,
    body: str,
    partition_by: str | None,
    columns: str | None,
    receipt: str | None,
    from_group: str | None,
    seal: bool,
    namesrv: str | None,
) -> None:
    """Replay TOPIC (or several, comma separated) from the cold tier; no broker takes part.

    Reports the exact end offset of every queue, and writes it into a receipt, to which `thermocline spark hand-off`
    moves a consumer group. An interrupted run goes on when it is repeated.

    \b
    Example:
      thermocline spark catch-up orders --from file:///data/cold --to ./orders --partition-by day,tag
    """
    from thermocline.spark.jobs.replay import catch_up as run_catch_up

    options = dict(read.options) | ({} if columns is None else {"columns": columns})
    with in_session(read, f"replaying {topic}", output=output) as (spark, tell):
        report = run_catch_up(
            spark,
            read.url,
            topic=topic,
            output=output,
            output_format="json" if output_format == "json" else "parquet",
            body="base64" if body == "base64" else "text",
            partition_by=partition_by or (),
            options=options,
            receipt=receipt,
            from_group=from_group,
            seal=seal,
            namesrv=namesrv,
            on_progress=tell,
        )
    if read.output.as_json:
        read.output.value(asdict(report))
        return
    names = ("topic", "broker_name", "queue_id", "start_offset", "end_offset")
    read.output.rows([_shown(asdict(queue)) for queue in report.queues], columns=names)
    for note in report.notes:
        read.output.note(note)
    if report.outcome == "finished before":
        read.output.note(f"nothing to do: {report.row_count} messages had been written to {report.output} before")
    else:
        begun = " (begun by an earlier run)" if report.outcome == "continued" else ""
        read.output.note(
            f"{report.row_count} messages written to {report.output} in {report.elapsed_ms / 1000:.1f} s{begun}"
        )


def _shown(queue: dict[str, object]) -> dict[str, object]:
    """A queue of which nothing was cold begins and ends where it begins; people know that as the option's word."""
    return {name: "earliest" if value == EARLIEST_OFFSET else value for name, value in queue.items()}
