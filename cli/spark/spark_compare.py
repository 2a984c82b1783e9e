"""`thermocline spark compare`: which messages of two topics are only in one of them, or differ."""

from __future__ import annotations

from dataclasses import asdict

import click

from thermocline.cli.common.parsing import parse_pairs
from thermocline.cli.spark.spark_options import ColdRead, in_session, reads_cold_tier

__all__ = ["compare"]

EXIT_EQUAL, EXIT_DIFFERENT = 0, 1


@click.command("compare", short_help="Show which messages of two topics are missing or differ.")
@click.argument("topic")
@click.argument("other")
@click.option(
    "--other-from", "other_url", metavar="URL", help="The cold tier that OTHER is in, when it is not the same."
)
@click.option("--other-option", "other_pairs", multiple=True, metavar="NAME=VALUE", help="As --option, for OTHER.")
@click.option(
    "--by",
    type=click.Choice(["unique-key", "key", "body", "offset"]),
    default="unique-key",
    show_default=True,
    help="What makes two messages the same one.",
)
@click.option("--properties", "with_properties", is_flag=True, help="Compare the application's own properties too.")
@click.option(
    "--to", "output", metavar="DIRECTORY", help="New directory for all differences; an interrupted run goes on there."
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["json", "parquet"]),
    default="json",
    show_default=True,
    help="Of the files.",
)
@click.option(
    "--rows",
    "examples_max",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Show so many differences.",
)
@reads_cold_tier
def compare(
    read: ColdRead,
    topic: str,
    other: str,
    other_url: str | None,
    other_pairs: tuple[str, ...],
    by: str,
    with_properties: bool,
    output: str | None,
    output_format: str,
    examples_max: int,
) -> int:
    """Compare the messages of TOPIC with those of OTHER, by body, keys, tag and flag. Exit status 1 when they differ.

    Options that say what is read of TOPIC say nothing of OTHER, unless both are in one cold tier: then they count for
    both, but for --other-option.

    \b
    Example:
      thermocline spark compare orders orders-copy --from file:///data/cold --properties
    """
    from thermocline.spark.jobs.compare import Side
    from thermocline.spark.jobs.compare import compare as run_compare

    of_read = dict(read.options) if other_url is None else {"engine": read.engine}
    other_options = of_read | parse_pairs(other_pairs, option="--other-option")
    with in_session(read, f"comparing {topic} and {other}", output=output) as (spark, tell):
        found = run_compare(
            spark,
            Side(url=read.url, topic=topic, options=read.options),
            Side(url=other_url or read.url, topic=other, options=other_options),
            by=by,
            with_properties=with_properties,
            output=output,
            output_format="json" if output_format == "json" else "parquet",
            examples_max=examples_max,
            on_progress=tell,
        )
    show = read.output
    if show.as_json:
        show.value(asdict(found) | {"is_equal": found.is_equal})
    else:
        if found.examples:
            show.rows(found.examples)
        show.text(
            f"{found.same} the same, {found.differs} differ, {found.only_here} only in {topic},"
            f" {found.only_there} only in {other} ({found.here_messages} and {found.there_messages} messages)",
            value={},
        )
    for note in found.notes:
        show.note(note)
    return EXIT_EQUAL if found.is_equal else EXIT_DIFFERENT
