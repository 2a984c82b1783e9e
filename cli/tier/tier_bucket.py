"""`thermocline tier ls`, `cat` and `verify`: the contents of a bucket, without any broker."""

from __future__ import annotations

from typing import Any

import click

from thermocline.cli.common.message_rows import COLUMNS, message_row
from thermocline.cli.common.output import Output, bytes_text
from thermocline.cli.common.parsing import duration_text, optional_topic_and_url, topic_and_url
from thermocline.remoting.offsets import QueueOffset

__all__ = ["cat", "ls", "verify"]

EXIT_DONE, EXIT_BROKEN = 0, 1

_places = click.argument("places", nargs=-1, required=True, metavar="[TOPIC] URL")
_json = click.option("--json", "as_json", is_flag=True, help="Write JSON for programs instead of a table.")
_broker = click.option("--broker", help="Only this broker's cold tier, where several share the bucket.")


@click.command("ls", short_help="List the contents of a bucket.")
@_places
@click.option("--indexes", is_flag=True, help="List index objects instead, by which keys and places are found.")
@_broker
@_json
def ls(places: tuple[str, ...], indexes: bool, broker: str | None, as_json: bool) -> None:
    """List the topics in the bucket at URL, or the segments and packs that hold TOPIC, by queue and offset.

    URL is what the brokers' coldUrl is. No broker is asked, nor needed.

    \b
    Example:
      thermocline tier ls orders file:///var/lib/thermocline/cold
    """
    topic, url = optional_topic_and_url(places)
    from thermocline.tiered.bucket import list_indexes, list_pieces, list_topics

    output = Output(as_json=as_json)
    if indexes:
        output.rows(list_indexes(url, topic, broker=broker))
        return
    if topic is not None:
        output.rows(list_pieces(url, topic, broker=broker))
        return
    rows = list_topics(url, broker=broker)
    if as_json:
        output.rows(rows)
        return
    for row in rows:
        ttl_ms = row.pop("ttl_ms")
        row["ttl"] = duration_text(ttl_ms if isinstance(ttl_ms, int) else None)
    output.rows(rows)


@click.command("cat", short_help="Print messages from a bucket.")
@click.argument("places", nargs=-1, required=True, metavar="TOPIC URL")
@click.option("--queue", "queue_id", type=click.IntRange(min=0), help="Only the queue with this number.")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="Begin at this queue offset.")
@click.option("--end", type=click.IntRange(min=0), help="End before this queue offset.")
@click.option("--count", type=click.IntRange(min=1), default=32, show_default=True, help="At most so many a queue.")
@click.option("--full", is_flag=True, help="Show whole bodies.")
@_broker
@_json
def cat(
    places: tuple[str, ...],
    queue_id: int | None,
    offset: int,
    end: int | None,
    count: int,
    full: bool,
    broker: str | None,
    as_json: bool,
) -> None:
    """Print messages of TOPIC from the bucket at URL: all that its broker would give, none that has expired.

    \b
    Example:
      thermocline tier cat orders s3://history/production --queue 0 --offset 1000 --end 1010 --full
    """
    topic, url = topic_and_url(places)
    from thermocline.tiered.bucket import WantedMessages, read_messages

    wanted = WantedMessages(
        topic=topic,
        queue_id=queue_id,
        start_offset=QueueOffset(offset),
        end_offset=None if end is None else QueueOffset(end),
        count_max=count,
    )
    found = read_messages(url, wanted, broker=broker)
    rows = (message_row(name, record, full=full or as_json) for name, record in found)
    Output(as_json=as_json).rows(rows, columns=COLUMNS)


@click.command("verify", short_help="Check a topic or an object in a bucket.")
@_places
@click.option("--key", help="Instead of a topic: the segment, pack or index object with this key.")
@_broker
@_json
def verify(places: tuple[str, ...], key: str | None, broker: str | None, as_json: bool) -> int:
    """Read every byte that holds TOPIC, or one object, in the bucket at URL, and hold it against the catalog.

    Exits with 1 when something is broken. `tier scrub URL --deep` does so with everything.

    \b
    Example:
      thermocline tier verify orders s3://history/production
    """
    topic, url = optional_topic_and_url(places)
    from thermocline.tiered.bucket import bucket_verify

    if (topic is None) == (key is None):
        raise click.UsageError("Give either TOPIC or --key.")
    output = Output(as_json=as_json)
    reports = bucket_verify.verify(url, topic=topic, key=key, broker=broker)
    if as_json:
        output.value({"reports": [_report(report) for report in reports]})
    else:
        rows = [
            {"broker": report.broker, "object": finding.kind.value, "problem": finding.problem.value}
            | {"key": finding.key, "lost": finding.lost, "detail": finding.detail}
            for report in reports
            for finding in report.findings
        ]
        if rows:
            output.rows(rows)
        for report in reports:
            output.text(
                f"{report.broker}: {report.segment_count} segments, {report.pack_count} packs and"
                f" {report.index_count} index objects read,"
                f" {bytes_text(report.read_bytes)}, {len(report.findings)} broken",
                value={},
            )
    return EXIT_BROKEN if any(report.findings for report in reports) else EXIT_DONE


def _report(report: Any) -> dict[str, Any]:
    return {
        "broker": report.broker,
        "segment_count": report.segment_count,
        "pack_count": report.pack_count,
        "index_count": report.index_count,
        "read_bytes": report.read_bytes,
        "findings": [
            {
                "object": finding.kind.value,
                "problem": finding.problem.value,
                "key": finding.key,
                "topic": finding.topic,
                "segment_id": finding.segment_id,
                "lost": list(finding.lost),
                "detail": finding.detail,
            }
            for finding in report.findings
        ],
    }
