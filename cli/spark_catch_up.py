"""`thermocline spark catch-up`: replay a topic from the cold tier into files, for people who write no Spark code."""

from __future__ import annotations

from dataclasses import asdict

import click

from thermocline.cli.output import Output

__all__ = ["catch_up"]


@click.command("catch-up", short_help="Replay a topic from the bucket into Parquet or JSON lines.")
@click.argument("topic")
@click.option(
    "--from",
    "url",
    required=True,
    metavar="URL",
    help="The cold tier: s3a://bucket/prefix, s3://bucket/prefix?endpoint=URL or file:///directory.",
)
@click.option("--to", "output", required=True, metavar="DIRECTORY", help="New directory for the files.")
@click.option("--format", "output_format", type=click.Choice(["parquet", "json"]), default="parquet", show_default=True)
@click.option(
    "--body",
    type=click.Choice(["text", "base64"]),
    default="text",
    show_default=True,
    help="How JSON lines show the body.",
)
@click.option("--columns", help="Columns to write, comma separated, in this order.")
@click.option("--tags", help="Only messages with one of these tags: 'A || B'.")
@click.option("--queues", help="Only these queues: broker-a:0,broker-a:1 or 0,1.")
@click.option("--starting-offsets", metavar="earliest|latest|JSON", help="Where to start in every queue.")
@click.option("--ending-offsets", metavar="earliest|latest|JSON", help="Where to end, exclusive.")
@click.option("--starting-time", metavar="TIME", help="Store time to start at: milliseconds or ISO 8601.")
@click.option("--ending-time", metavar="TIME", help="Store time to end before.")
@click.option("--option", "pairs", multiple=True, metavar="NAME=VALUE", help="Any other option of the data source.")
@click.option("--cores", type=click.IntRange(min=1), help="Cores to use; all when absent.")
@click.option("--json", "as_json", is_flag=True, help="Write the report as JSON for programs instead of a table.")
def catch_up(
    topic: str,
    url: str,
    output: str,
    output_format: str,
    body: str,
    columns: str | None,
    tags: str | None,
    queues: str | None,
    starting_offsets: str | None,
    ending_offsets: str | None,
    starting_time: str | None,
    ending_time: str | None,
    pairs: tuple[str, ...],
    cores: int | None,
    as_json: bool,
) -> None:
    """Replay TOPIC (or several, comma separated) from the cold tier with local Spark; no broker takes part.

    Needs PySpark (pip install 'thermocline[spark]') and Java 17. Reports the exact end offset of every queue.

    \b
    Example:
      thermocline spark catch-up orders --from file:///data/cold --to ./orders --format json
    """
    from thermocline.spark.jobs.replay import catch_up as run_catch_up
    from thermocline.spark.session import session_for_job

    named = {
        "columns": columns,
        "tags": tags,
        "queues": queues,
        "startingOffsets": starting_offsets,
        "endingOffsets": ending_offsets,
        "startingTimestamp": starting_time,
        "endingTimestamp": ending_time,
    }
    options = parse_pairs(pairs) | {name: value for name, value in named.items() if value is not None}
    show = Output(as_json=as_json)
    with session_for_job(app_name="thermocline spark catch-up", cores=cores) as spark, show.progress() as progress:
        bar = progress.add_task(f"replaying {topic}", total=None)
        report = run_catch_up(
            spark,
            url,
            topic=topic,
            output=output,
            output_format="json" if output_format == "json" else "parquet",
            body="base64" if body == "base64" else "text",
            options=options,
            on_progress=lambda done, total: progress.update(bar, completed=done, total=total),
        )
    if as_json:
        show.value(asdict(report))
        return
    show.rows([asdict(queue) for queue in report.queues])
    show.note(f"{report.row_count} messages written to {report.output} in {report.elapsed_ms / 1000:.1f} s")


def parse_pairs(pairs: tuple[str, ...]) -> dict[str, str]:
    """Options written as NAME=VALUE; click.BadParameter for anything else."""
    options: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not name or not separator:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--option")
        options[name] = value
    return options
