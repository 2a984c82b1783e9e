"""`thermocline tier`: status of the cold tier, and seals and purges on demand. Checks: tier_scrub.py; costs:
tier_cost.py; the contents of a bucket: tier_bucket.py."""

from __future__ import annotations

from typing import Any

import click

from thermocline.cli.common.application import Application, uses_cluster
from thermocline.cli.common.output import time_text
from thermocline.cli.common.parsing import duration_text
from thermocline.cli.tier.cold_read_limits import clear_read_limit, reads, set_read_limit
from thermocline.cli.tier.steady_scrub_notes import steady_notes
from thermocline.cli.tier.tier_bucket import cat, ls, verify
from thermocline.cli.tier.tier_cost import cost
from thermocline.cli.tier.tier_scrub import scrub

__all__ = ["tier"]


@click.group(short_help="See the state of the cold tier; seal and purge now.")
def tier() -> None:
    """See the state of the cold tier and the messages that wait for it; seal them now.

    \b
    Example:
      thermocline tier status orders
    """


tier.add_command(scrub)
tier.add_command(cost)


@tier.command("status", short_help="Show local and cold ranges.")
@click.argument("topic", required=False)
@uses_cluster
def status(app: Application, topic: str | None) -> None:
    """Show the local, cold and waiting offsets of every queue of TOPIC, or of all topics.

    Ranges are [first, next) queue offsets.

    \b
    Example:
      thermocline tier status orders
    """
    with app.open_admin() as admin:
        answers = admin.tier_status(topic)
    if app.output.as_json:
        app.output.value(answers)
        return
    rows = []
    for broker, answer in answers.items():
        for state in answer.get("topics", []):
            rows += [
                {
                    "topic": state["topic"],
                    "broker": broker,
                    "queue": queue["queueId"],
                    "local": _range(queue.get("localMin"), queue.get("localEnd")),
                    "cold": _range(queue.get("coldMin"), queue.get("coldEnd")),
                    "waiting": queue.get("waitingMessages"),
                    "waiting_bytes": queue.get("waitingBytes"),
                    "ttl": duration_text(state.get("ttlMs")),
                }
                for queue in state.get("queues", [])
            ]
    app.output.rows(rows)
    for broker, answer in answers.items():
        version = answer.get("ledgerVersion")
        place = f"{broker}: cold tier {answer.get('coldUrl') or 'off'}"
        app.output.note(place if version is None else f"{place}, ledger version {version}")
        cold = answer.get("cold") or {}
        if cold.get("state") == "degraded":
            since = time_text(cold["sinceMs"])
            app.output.note(f"{broker}: the object store has not answered since {since}; messages stay local")
        if answer.get("lastError"):
            app.output.note(f"{broker}: {answer['lastError']}")
        for name, lost in _by_topic(answer.get("dropped") or []).items():
            count = sum(each["endOffset"] - each["startOffset"] for each in lost)
            last = time_text(max(each["droppedMs"] for each in lost))
            app.output.note(f"{broker}: {count} messages of {name} were dropped from a full disk, the last {last}")
        budget = answer.get("budget")
        if budget and budget["isWidened"]:
            app.output.note(
                f"{broker}: the request budget ({budget['requestsPerHour']} an hour) widens seal ages,"
                f" {budget['waitingTopics']} topics wait for it"
            )
        if budget and budget.get("isYielding"):
            app.output.note(
                f"{broker}: the request budget ({budget['requestsPerHour']} an hour) yields: local files have to go,"
                f" {budget['yieldedRequests']} requests beyond it so far"
            )
        if answer.get("oldestWaiting"):
            app.output.note(f"{broker}: local files are held by {answer['oldestWaiting']}, which waits longest")
        if answer.get("lastScrub"):
            scrubbed = answer["lastScrub"]
            unread = scrubbed.get("unreadCount", 0)
            extent = f"names and sizes, without the bytes of {unread} objects" if unread else "every byte read"
            found = f"{scrubbed['broken']} broken" if scrubbed["broken"] else "nothing broken in that"
            app.output.note(f"{broker}: last scrub {time_text(scrubbed['finishedMs'])} ({extent}), {found}")
        if answer.get("steadyScrub"):
            for line in steady_notes(answer["steadyScrub"]):
                app.output.note(f"{broker}: {line}")
        for helper in answer.get("helpers", []):
            if not helper.get("connected"):
                app.output.note(f"{broker}: the {helper['name']} process is {helper['state']}")


@tier.command("seal", short_help="Move what is stored so far to the cold tier.")
@click.argument("topic", required=False)
@uses_cluster
def seal(app: Application, topic: str | None) -> None:
    """Seal and upload what TOPIC, or every topic, holds now, and return when it is committed in the bucket.

    \b
    Example:
      thermocline tier seal orders
    """
    with app.open_admin() as admin, app.output.progress() as progress:
        progress.add_task("sealing and uploading", total=None)
        answers = admin.tier_seal(topic)
    app.output.rows(
        {
            "broker": broker,
            "topic": segment.get("topic"),
            "segment": segment.get("segmentId"),
            "messages": segment.get("messages"),
            "raw_bytes": segment.get("rawBytes"),
            "stored_bytes": segment.get("storedBytes"),
        }
        for broker, answer in answers.items()
        for segment in answer.get("segments", [])
    )


@tier.command("explain", short_help="Say what happens next to each queue, and why.")
@click.argument("topic")
@click.argument("queue", required=False, type=click.IntRange(min=0))
@click.option("--queue", "queue_id", type=click.IntRange(min=0), help="The same as QUEUE.")
@uses_cluster
def explain(app: Application, topic: str, queue: int | None, queue_id: int | None) -> None:
    """Explain for each queue of TOPIC, or for QUEUE, where its messages are, what happens to them next, and why: why
    the local log still holds them, why they are not in the bucket yet, why they are not deleted there.

    \b
    Example:
      thermocline tier explain orders 0
    """
    if queue is not None and queue_id not in (None, queue):
        raise click.UsageError("Give either QUEUE or --queue.")
    queue_id = queue if queue is not None else queue_id
    with app.open_admin() as admin:
        answers = admin.tier_explain(topic, queue_id=queue_id)
    rows = [
        {"broker": broker, "queue": row["queueId"], **{name: row.get(key) for name, key in _EXPLAINED.items()}}
        for broker, answer in answers.items()
        for row in answer.get("queues", [])
    ]
    if app.output.as_json or not rows:
        app.output.rows(rows)
        return
    for number, row in enumerate(rows):
        if number:
            app.output.text("", value={})
        app.output.value(row)  # sentences: one line each is easier to read than a table


@tier.command("purge", short_help="Delete now what has expired or been deleted.")
@click.argument("topic")
@click.option("--now", is_flag=True, required=True, help="Do not wait for the time when it would go by itself.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@uses_cluster
def purge(app: Application, topic: str, now: bool, yes: bool) -> None:
    """Delete from the bucket now what has expired of TOPIC, or is left of it after it was deleted.

    Packs and segments that hold such messages are rewritten without them, and everything that the cold tier has given
    up is deleted at once: readers of an older version of the catalog without a pin lose it. Messages that are
    visible stay.

    \b
    Example:
      thermocline tier purge orders --now --yes
    """
    if not yes:
        question = f"Delete what is hidden of {topic!r}, and end the grace period of older versions?"
        click.confirm(question, abort=True, err=True)
    with app.open_admin() as admin, app.output.progress() as progress:
        progress.add_task("rewriting and deleting", total=None)
        answers = admin.tier_purge(topic)
    app.output.rows(
        {
            "broker": broker,
            "packs_rewritten": answer.get("packsRewritten"),
            "segments_rewritten": answer.get("segmentsRewritten"),
            "written_bytes": answer.get("writtenBytes"),
            "deleted_objects": answer.get("deletedObjects"),
            "deleted_bytes": answer.get("deletedBytes"),
            "left_packs": len(answer.get("leftObjects", [])) - answer.get("ownSegments", 0),
            "left_segments": answer.get("ownSegments"),
        }
        for broker, answer in answers.items()
    )
    for broker, answer in answers.items():
        if answer.get("heldByPin"):
            app.output.note(f"{broker}: a pin keeps older versions; nothing of them was deleted")
        for key in answer.get("leftObjects", []):
            app.output.note(f"{broker}: still there: {key}")


_EXPLAINED = {
    **{name: name for name in ("local", "cold", "stored", "waiting", "ttl", "next")},
    "why_local": "whyLocal",
    "why_in_bucket": "whyInBucket",
}


def _by_topic(dropped: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for each in dropped:
        found.setdefault(each["topic"], []).append(each)
    return found


def _range(start: int | None, end: int | None) -> str:
    return "unknown" if start is None or end is None else f"[{start}, {end})"


for _command in (ls, cat, verify, reads, set_read_limit, clear_read_limit):
    tier.add_command(_command)
