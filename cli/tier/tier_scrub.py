"""`thermocline tier scrub`: checks and repairs the cold tier."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from thermocline.cli.common.application import Application, uses_cluster
from thermocline.cli.common.output import Failure, bytes_text, snake_names
from thermocline.cli.common.parsing import SIZE

if TYPE_CHECKING:
    from thermocline.client.admin.admin_client import AdminClient

__all__ = ["scrub"]

POLL_SECONDS = 0.5
EXIT_DONE, EXIT_BROKEN = 0, 1


@click.command("scrub", short_help="Check what is in the cold tier, and repair it.")
@click.argument("url", required=False)
@click.option("--deep", is_flag=True, help="Read every byte. Without it flipped bytes in an object are not found.")
@click.option(
    "--budget", "budget_bytes", type=SIZE, help="With --deep: read at most so much; the next scrub goes on there."
)
@click.option("--rate", "bytes_per_second", type=SIZE, help="Read at most so much a second.")
@click.option(
    "--afresh", is_flag=True, help="With --deep: begin with the first segment, wherever the last scrub stopped."
)
@click.option("--heal", is_flag=True, help="Repair what can be, put the rest into quarantine (brokers only).")
@click.option(
    "--state",
    "state_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With URL and --deep: the file that says where the next scrub goes on.",
)
@uses_cluster
def scrub(
    app: Application,
    url: str | None,
    deep: bool,
    budget_bytes: int | None,
    bytes_per_second: int | None,
    afresh: bool,
    heal: bool,
    state_path: Path | None,
) -> int:
    """Check the cold tier of every running broker, or the bucket at URL without any; report what is missing, damaged or
    left over. Exit status 1 when something is broken and not healed.

    Checked: names and sizes of all objects, the ledger, checkpoints and saved state byte by byte. The bytes of
    segments, packs and index objects are read by --deep alone, and by the broker itself within 30 days
    (coldScrubBytesPerDay).

    \b
    Example:
      thermocline tier scrub --deep --heal
    """
    if budget_bytes is not None and not deep:
        raise click.UsageError("--budget bounds what --deep reads; add --deep.")
    if afresh and not deep:
        raise click.UsageError("--afresh says where --deep begins; add --deep.")
    if url is None:
        if state_path is not None:
            raise click.UsageError("--state goes with a URL; a broker keeps its own.")
        options = {
            "deep": deep,
            "heal": heal,
            "afresh": afresh,
            "budget_bytes": budget_bytes,
            "bytes_per_second": bytes_per_second,
        }
        reports = _scrub_brokers(app, options)
    else:
        if heal:
            raise click.UsageError("only a running broker can heal: leave URL away.")
        if state_path is not None and not deep:
            raise click.UsageError("--state keeps where --deep goes on; add --deep.")
        from thermocline.tiered.scrub import scrub_bucket

        with app.output.progress() as progress:
            progress.add_task("reading the bucket", total=None)
            found = scrub_bucket(
                url,
                deep=deep,
                budget_bytes=budget_bytes,
                bytes_per_second=bytes_per_second,
                state_path=state_path,
                afresh=afresh,
            )
        reports = [msgspec.to_builtins(report) for report in found]
    _show(app, reports)
    return EXIT_BROKEN if any(map(_broken, reports)) else EXIT_DONE


def _scrub_brokers(app: Application, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The reports of all brokers; a scrub that did not come to its end is a failure."""
    with app.open_admin() as admin, app.output.progress() as progress:
        begun = admin.start_tier_scrub(**options)
        task = progress.add_task("scrubbing", total=None)
        states = _wait(admin, begun, lambda text: progress.update(task, description=text))
    # A broker that answers in the end may have been silent for a while.
    app.output.failures = [failure for failure in app.output.failures if failure.broker not in states]
    reports: list[dict[str, Any]] = []
    for broker, state in states.items():
        if state["number"] != begun[broker]["number"]:
            problem = "the tier process was started anew meanwhile; ask again"
        elif state["error"]:
            problem = f"the scrub ended early: {state['error']}"
        else:
            reports.append(state["report"])
            continue
        app.output.add_failures([Failure(sentence=f"{broker}: {problem}", error=problem, broker=broker)])
    return reports


def _wait(admin: AdminClient, begun: Mapping[str, Any], say: Any) -> dict[str, dict[str, Any]]:
    while True:
        states = {broker: state for broker, state in admin.tier_scrub_state().items() if broker in begun}
        if not any(state["isRunning"] for state in states.values()):
            return states
        done, count, read_bytes = (
            sum(state[name] for state in states.values()) for name in ("deepSegmentCount", "segmentCount", "readBytes")
        )
        say(f"scrubbing: {done} of {count} segments, packs and index objects read, {bytes_text(read_bytes)}")
        time.sleep(POLL_SECONDS)


def _show(app: Application, reports: Iterable[Mapping[str, Any]]) -> None:
    if app.output.as_json:
        app.output.value({"reports": [snake_names(report) | {"broken": _broken(report)} for report in reports]})
        return
    rows = [
        {
            "broker": report["root"],
            "object": finding["kind"],
            "problem": finding["problem"],
            "outcome": finding["outcome"],
            "key": finding["key"],
            "lost": finding["lost"],
            "detail": finding["detail"],
        }
        for report in reports
        for finding in report["findings"]
    ]
    if rows:
        app.output.rows(rows)
    for report in reports:
        broken, healed = _broken(report), len(report["findings"]) - _broken(report)
        line = (
            f"{report['root']}: {report['objectCount']} objects checked by name and size,"
            f" {report['deepSegmentCount']} of {_readable(report)} segments, packs and index objects byte by byte:"
            f" {broken} broken{f', {healed} healed' if healed else ''}"
        )
        if report["unreadCount"]:
            line += f"; not read: {report['unreadCount']} of these ({bytes_text(report['unreadBytes'])})"
            line += ", whose bytes may be damaged"
            line += "; the next scrub goes on there" if not report["isComplete"] else "; --deep reads them"
        if report["missingOldCount"]:
            line += f"; {report['missingOldCount']} objects are missing that only older versions name"
        if report["garbageCount"]:
            line += f"; {report['garbageCount']} left-over objects ({bytes_text(report['garbageBytes'])})"
        app.output.text(line, value={})
        for note in report["notes"]:
            app.output.note(f"{report['root']}: {note}")


def _readable(report: Mapping[str, Any]) -> int:
    """Segments, packs and index objects."""
    count: int = report["segmentCount"] + report["packCount"] + report["indexCount"]
    return count


def _broken(report: Mapping[str, Any]) -> int:
    return sum(finding["outcome"] != "healed" for finding in report["findings"])
