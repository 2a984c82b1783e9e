"""`thermocline group reset-offset`, `skip` and `clone-offsets`: where a consumer group goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from thermocline.cli.common.application import Application, uses_cluster
from thermocline.cli.common.parsing import TIME

if TYPE_CHECKING:
    from thermocline.client.message_queue import MessageQueue

__all__ = ["clone_offsets", "reset_offset", "skip"]


@click.command("reset-offset", short_help="Move a group.")
@click.argument("name")
@click.option("--topic", required=True, help="The topic to move in.")
@click.option("--to", "timestamp_ms", type=TIME, required=True, help="earliest, latest, an ISO time, or ms since 1970.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@uses_cluster
def reset_offset(app: Application, name: str, topic: str, timestamp_ms: int, yes: bool) -> None:
    """Move the group NAME to the first message stored at a time or later, in every queue of a topic.

    \b
    Example:
      thermocline group reset-offset billing --topic orders --to earliest --yes
    """
    if not yes:
        click.confirm(f"Move {name} in {topic}? Messages may be consumed again or left out.", abort=True, err=True)
    with app.open_admin() as admin:
        offsets = admin.reset_offsets(name, topic, timestamp_ms=timestamp_ms)
    _show(app, offsets)


@click.command("skip", short_help="Have a group leave out what has piled up.")
@click.argument("name")
@click.option("--topic", required=True, help="The topic whose messages it leaves out.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@uses_cluster
def skip(app: Application, name: str, topic: str, yes: bool) -> None:
    """Have the group NAME leave out all messages of a topic that it has not consumed yet.

    \b
    Example:
      thermocline group skip billing --topic orders --yes
    """
    from thermocline.client.admin.group_administration import LATEST

    if not yes:
        click.confirm(f"Have {name} leave out all that waits for it in {topic}?", abort=True, err=True)
    with app.open_admin() as admin:
        offsets = admin.reset_offsets(name, topic, timestamp_ms=LATEST)
    _show(app, offsets)


@click.command("clone-offsets", short_help="Let a group begin where another is.")
@click.argument("source")
@click.argument("target")
@click.option("--topic", required=True, help="The topic whose offsets are taken over.")
@uses_cluster
def clone_offsets(app: Application, source: str, target: str, topic: str) -> None:
    """Give the group TARGET the offsets that the group SOURCE has in a topic. No member of TARGET should run.

    \b
    Example:
      thermocline group clone-offsets billing billing-test --topic orders
    """
    with app.open_admin() as admin:
        brokers = admin.clone_group_offsets(source, target, topic=topic)
    app.output.text(
        f"{target} is where {source} is in {topic} on {', '.join(brokers)}",
        value={"source": source, "target": target, "topic": topic, "brokers": brokers},
    )


def _show(app: Application, offsets: Mapping[MessageQueue, int]) -> None:
    app.output.rows(
        {"broker": queue.broker_name, "queue": queue.queue_id, "offset": offset} for queue, offset in offsets.items()
    )
