"""`thermocline spark key-history`: everything that was sent with some keys, in order of time."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from thermocline.cli.spark.spark_options import ColdRead, in_session, reads_cold_tier

__all__ = ["key_history"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@click.command("key-history", short_help="Show all messages of some keys, in order of time.")
@click.argument("topic")
@click.argument("keys", nargs=-1, required=True, metavar="KEYS...")
@click.option("--to", "output", metavar="DIRECTORY", help="New directory for files; an interrupted run goes on there.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["json", "parquet"]),
    default="json",
    show_default=True,
    help="Of the files.",
)
@click.option(
    "--body", type=click.Choice(["text", "base64"]), default="text", show_default=True, help="How the body is shown."
)
@click.option(
    "--rows",
    "rows_max",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="Show at most so many, the oldest; files hold all.",
)
@reads_cold_tier
def key_history(
    read: ColdRead,
    topic: str,
    keys: tuple[str, ...],
    output: str | None,
    output_format: str,
    body: str,
    rows_max: int,
) -> None:
    """Show every message in TOPIC (or several, comma separated) that has one of KEYS, in order of store time.

    \b
    Example:
      thermocline spark key-history orders 4711 4712 --from file:///data/cold
    """
    from thermocline.spark.jobs.key_history import key_history as run_key_history

    with in_session(read, f"history in {topic}", output=output) as (spark, tell):
        report = run_key_history(
            spark,
            read.url,
            topic=topic,
            keys=keys,
            output=output,
            output_format="json" if output_format == "json" else "parquet",
            body="base64" if body == "base64" else "text",
            rows_max=rows_max,
            options=read.options,
            on_progress=tell,
        )
    show = read.output
    if report.rows is not None:
        show.rows([_row(row, body) for row in report.rows])
        if report.is_cut:
            show.note(f"only the oldest {report.row_count} are shown; --rows or --to gives more")
        return
    before = " before" if report.outcome == "finished before" else ""
    value = {"output": output, "row_count": report.row_count, "outcome": report.outcome, "notes": report.notes}
    show.text(f"{report.row_count} messages written to {output}{before}", value=value)
    for note in report.notes:
        show.note(note)


def _row(row: Mapping[str, Any], body: str) -> dict[str, object]:
    """One message as commands name its parts."""
    value: bytes = row["value"]
    return {
        "store_timestamp_ms": (row["timestamp"] - EPOCH) // timedelta(milliseconds=1),
        "topic": row["topic"],
        "broker_name": row["brokerName"],
        "queue_id": row["queueId"],
        "queue_offset": row["queueOffset"],
        "keys": row["key"],
        "tag": row["tag"],
        "message_id": row["msgId"],
        "body": base64.b64encode(value).decode() if body == "base64" else value.decode("utf-8", "replace"),
    }
