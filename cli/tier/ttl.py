"""`thermocline ttl`: a topic's time to live, a preview of a change, and a proof that expired messages are gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from thermocline.cli.common.application import Application, uses_cluster
from thermocline.cli.common.output import bytes_text, snake_names, time_text
from thermocline.cli.common.parsing import DURATION, duration_text

if TYPE_CHECKING:
    from thermocline.tiered.cost import PriceTable

__all__ = ["ttl"]

EXIT_DONE, EXIT_UNPROVEN = 0, 1
PRICES = click.option(
    "--prices",
    "prices_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --dry-run: your store's price table (TOML) instead of the example.",
)


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
@PRICES
@uses_cluster
def set_(app: Application, topic: str, duration: int, dry_run: bool, prices_path: Path | None) -> None:
    """Let messages of TOPIC live for DURATION (90s, 12h, 30d; 0s keeps them for ever).

    What has expired never comes back, however long the new time is.

    \b
    Example:
      thermocline ttl set orders 30d
    """
    _change(app, topic, duration, dry_run=dry_run, prices_path=prices_path)


@ttl.command("clear", short_help="Take a topic's own time to live away.")
@click.argument("topic")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@PRICES
@uses_cluster
def clear(app: Application, topic: str, dry_run: bool, prices_path: Path | None) -> None:
    """Let TOPIC follow the broker's default time to live again.

    \b
    Example:
      thermocline ttl clear orders
    """
    _change(app, topic, None, dry_run=dry_run, prices_path=prices_path)


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


@ttl.command("prove", short_help="Prove that nothing expired can be reached.")
@click.argument("topic")
@uses_cluster
def prove(app: Application, topic: str) -> int:
    """Look for anything that still refers to expired messages of TOPIC, in the catalog, queues, index and caches, and
    list what is stored of them until when and why. Exit status 1 when something refers to them.

    \b
    Example:
      thermocline ttl prove orders
    """
    with app.open_admin() as admin:
        proofs = admin.prove_ttl(topic)
    if app.output.as_json:
        app.output.value({"brokers": [_proof_value(broker, proof) for broker, proof in proofs.items()]})
    else:
        rows = [row for broker, proof in proofs.items() for row in _stored_rows(broker, proof)]
        if rows:
            app.output.rows(rows)
        for broker, proof in proofs.items():
            app.output.text(_verdict(broker, proof), value={})
    for broker, proof in proofs.items():
        for problem in proof["problems"]:
            app.output.note(f"{broker}: {problem}")
    return EXIT_DONE if all(proof["isProven"] for proof in proofs.values()) else EXIT_UNPROVEN


def _change(app: Application, topic: str, ttl_ms: int | None, *, dry_run: bool, prices_path: Path | None) -> None:
    if prices_path is not None and not dry_run:
        raise click.UsageError("--prices goes with --dry-run.")
    with app.open_admin() as admin:
        if dry_run:
            from thermocline.tiered.cost import PriceTable

            prices = PriceTable.example() if prices_path is None else PriceTable.load(prices_path)
            previews = admin.preview_ttl(topic, ttl_ms)
            app.output.rows(_preview_row(topic, broker, answer, prices) for broker, answer in previews.items())
            for broker, answer in previews.items():
                _preview_notes(app, broker, answer)
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


# -- dry run -----------------------------------------------------------------------------------------------------------


def _preview_row(topic: str, broker: str, answer: Mapping[str, Any], prices: PriceTable) -> dict[str, Any]:
    """The data that would be deleted, and the savings: storage each month, requests once."""
    from thermocline.tiered.cost import RequestKind

    stored_bytes, requests = answer.get("bytes"), answer.get("requests")
    counts = {RequestKind(kind): count for kind, count in (requests or {}).items()}
    return {
        "topic": topic,
        "broker": broker,
        "ttl": duration_text(answer.get("ttlMs")),
        "messages": answer.get("messages"),
        "segments": answer.get("segments"),
        "packs": answer.get("packs"),
        "stored_bytes": stored_bytes,
        "raw_bytes": answer.get("rawBytes"),
        "held_in_packs_bytes": answer.get("heldBytes"),
        "oldest_surviving_timestamp_ms": answer.get("oldestSurvivingMs"),
        "requests": requests,
        "requests_cost": None if requests is None else round(prices.requests(counts), 6),
        "freed_per_month": None if stored_bytes is None else round(prices.stored(stored_bytes), 6),
        "currency": prices.currency,
    }


def _preview_notes(app: Application, broker: str, answer: Mapping[str, Any]) -> None:
    if answer.get("isTierAway"):
        app.output.note(f"{broker}: the tier process is away; what would go of the cold tier is not known now")
    if answer.get("segments") or answer.get("packs"):
        app.output.note(
            f"{broker}: segments and packs leave the catalog with the next sweep, and the bucket"
            f" {duration_text(answer['graceMs'])} later"
        )
    count = answer.get("partlyExpiredSegments")
    if count:
        until_ms = answer.get("partlyExpiredUntilMs")
        until = "for ever" if until_ms is None else f"until {time_text(until_ms)} at the latest"
        app.output.note(
            f"{broker}: {count} segments ({bytes_text(answer['partlyExpiredBytes'])}) of which a part would be hidden"
            f" stay {until}; `thermocline tier purge {answer['topic']} --now` rewrites them without it"
        )
    if answer.get("heldBytes"):
        app.output.note(
            f"{broker}: {bytes_text(answer['heldBytes'])} that would be hidden stay in packs with other topics'"
            f" messages; `thermocline tier purge {answer['topic']} --now` rewrites those without"
        )


# -- proof -------------------------------------------------------------------------------------------------------------


def _stored_rows(broker: str, proof: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What is stored of expired messages, one row a segment, pack or file."""
    tier = proof["tier"] or {"hidden": []}
    for hidden in tier["hidden"]:
        yield {
            "broker": broker,
            "kind": "objects",
            "name": hidden["segmentId"],
            "state": hidden["state"],
            "count": len(hidden["keys"]),
            "stored_bytes": hidden["bytes"],
            "due_timestamp_ms": hidden["dueMs"],
            "waits_for": hidden["why"],
        }
    for file in proof["files"]:
        yield {
            "broker": broker,
            "kind": f"local {file['kind']}",
            "name": file["path"],
            "state": f"{file['messages']} expired messages" if file["messages"] else "entries of expired messages",
            "count": 1,
            "stored_bytes": file["bytes"],
            "due_timestamp_ms": file["dueMs"],
            "waits_for": file["why"],
        }


def _verdict(broker: str, proof: Mapping[str, Any]) -> str:
    """One line for people."""
    tier = proof["tier"]
    cut = time_text(proof["cutMs"]) if proof["cutMs"] > 0 else "nothing"
    parts = [f"expired: before {cut}" if proof["cutMs"] > 0 else "nothing has expired"]
    if tier is not None:
        parts.append(
            f"in the bucket {tier['hiddenObjects']} objects with expired messages ({bytes_text(tier['hiddenBytes'])}),"
            f" {tier['visibleObjects']} without ({bytes_text(tier['visibleBytes'])})"
        )
        pending = sum(not each["isOverdue"] for each in tier["named"])
        if pending:
            parts.append(f"{pending} segments or packs leave the catalog with the next sweep")
    parts.append(f"{len(proof['samples'])} expired messages looked up, {len(proof['reached'])} found")
    verdict = "nothing expired is referenced" if proof["isProven"] else "NOT PROVEN"
    return f"{broker}: {verdict}; {'; '.join(parts)}"


def _proof_value(broker: str, proof: Mapping[str, Any]) -> dict[str, Any]:
    """One broker's proof as programs get it, members named as all of this command's JSON names them."""
    value: dict[str, Any] = snake_names(proof)
    return {"broker": broker, **value}
