"""`thermocline cold`: the history in a bucket, read without any broker.

The reader is the product's own (`tiered/`), which supports every kind of store, retries and verifies checksums.
`examples/cold_reader.py` reads the same format and shares no code with it: it proves that the page on the format is
enough to write a reader.
"""

from __future__ import annotations

import click

from thermocline.cli.common.message_rows import COLUMNS, message_row
from thermocline.cli.common.output import Output
from thermocline.cli.common.parsing import MOMENT, TIME, topic_and_url
from thermocline.remoting.offsets import QueueOffset

__all__ = ["cold"]

LATEST = -1


@click.group(short_help="Read the history in a bucket, without a broker.")
def cold() -> None:
    """Read the history in a bucket, without a broker.

    \b
    Example:
      thermocline cold read orders s3://history/production --json
    """


@cold.command("read", short_help="Print the messages of a topic from a bucket.")
@click.argument("places", nargs=-1, required=True, metavar="TOPIC URL")
@click.option("--queue", "queue_id", type=click.IntRange(min=0), help="Only the queue with this number.")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="Begin at this queue offset.")
@click.option("--end", type=click.IntRange(min=0), help="End before this queue offset.")
@click.option("--since", "since_ms", type=MOMENT, help="Begin at the first message stored since: an ISO time, or ms.")
@click.option("--until", "until_ms", type=TIME, help="End before the first message stored then or later.")
@click.option("--count", type=click.IntRange(min=1), help="At most so many a queue; without it all.")
@click.option("--full", is_flag=True, help="Show whole bodies.")
@click.option("--broker", help="Only this broker's cold tier, where several share the bucket.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON for programs instead of a table.")
def read(
    places: tuple[str, ...],
    queue_id: int | None,
    offset: int,
    end: int | None,
    since_ms: int | None,
    until_ms: int | None,
    count: int | None,
    full: bool,
    broker: str | None,
    as_json: bool,
) -> None:
    """Print the messages of TOPIC in the bucket at URL by queue and offset: all that its broker would give.

    TOPIC and URL may be given in either order. Messages are written as they are read; expired ones are not there.

    \b
    Example:
      thermocline cold read orders s3://history/production --since 2026-05-01 --until 2026-05-02 --json
    """
    from thermocline.tiered.bucket import WantedMessages, read_messages

    topic, url = topic_and_url(places)
    wanted = WantedMessages(
        topic=topic,
        queue_id=queue_id,
        start_offset=QueueOffset(offset),
        end_offset=None if end is None else QueueOffset(end),
        start_ms=since_ms or 0,
        end_ms=None if until_ms == LATEST else until_ms,
        count_max=count,
    )
    found = read_messages(url, wanted, broker=broker)
    rows = (message_row(name, record, full=full or as_json) for name, record in found)
    Output(as_json=as_json).stream(rows, columns=COLUMNS)
