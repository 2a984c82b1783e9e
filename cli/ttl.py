"""`thermocline ttl`: how long a topic's messages live, and what a change would take away."""

from __future__ import annotations

import click

from thermocline.cli.application import Application, uses_cluster
from thermocline.cli.parsing import DURATION, duration_text

__all__ = ["ttl"]


@click.group(short_help="Set how long a topic's messages live.")
def ttl() -> None:
    """Set how long a topic's messages live, hot and cold; in effect at once.

    \b
    Example:
      thermocline ttl set orders 30d --dry-run
    """


@ttl.command("set", short_help="Set a topic's time to live.")
@click.argument("topic")
@click.argument("duration", type=DURATION)
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@uses_cluster
def set_(app: Application, topic: str, duration: int, dry_run: bool) -> None:
    """Let messages of TOPIC live for DURATION (90s, 12h, 30d; 0s keeps them for ever).

    What has expired never comes back, however long the new time is.

    \b
    Example:
      thermocline ttl set orders 30d
    """
    _change(app, topic, duration, dry_run=dry_run)


@ttl.command("clear", short_help="Take a topic's own time to live away.")
@click.argument("topic")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@uses_cluster
def clear(app: Application, topic: str, dry_run: bool) -> None:
    """Let TOPIC follow the broker's default time to live again.

    \b
    Example:
      thermocline ttl clear orders
    """
    _change(app, topic, None, dry_run=dry_run)


@ttl.command("show", short_help="Show a topic's time to live.")
@click.argument("topic")
@uses_cluster
def show(app: Application, topic: str) -> None:
    """Show how long messages of TOPIC live, on each broker.

    \b
    Example:
      thermocline ttl show orders
    """
    with app.open_admin() as admin:
        answers = admin.tier_status(topic)
    rows = []
    for broker, answer in answers.items():
        for state in answer.get("topics", []):
            ttl_ms = state.get("ttlMs")
            rows.append({"topic": topic, "broker": broker, "ttl_ms": ttl_ms, "ttl": duration_text(ttl_ms)})
    app.output.rows(rows)


def _change(app: Application, topic: str, ttl_ms: int | None, *, dry_run: bool) -> None:
    with app.open_admin() as admin:
        if dry_run:
            previews = admin.preview_ttl(topic, ttl_ms)
            app.output.rows(
                {
                    "topic": topic,
                    "broker": broker,
                    "ttl": duration_text(answer.get("ttlMs")),
                    "segments": answer.get("segments"),
                    "packs": answer.get("packs"),
                    "messages": answer.get("messages"),
                    "stored_bytes": answer.get("bytes"),
                    "held_in_packs_bytes": answer.get("heldBytes"),
                    "oldest_surviving_timestamp_ms": answer.get("oldestSurvivingMs"),
                }
                for broker, answer in previews.items()
            )
            return
        answers = admin.set_ttl(topic, ttl_ms)
    app.output.rows(
        {
            "topic": topic,
            "broker": broker,
            "ttl_ms": answer.get("ttlMs"),
            "ttl": duration_text(answer.get("ttlMs")),
        }
        for broker, answer in answers.items()
    )
