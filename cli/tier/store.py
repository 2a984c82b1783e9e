"""`thermocline store`: whether an object store is fit to hold the cold tier. Talks to no broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from thermocline.cli.common.output import Output

if TYPE_CHECKING:
    from thermocline.tiered.doctor import Report

__all__ = ["store"]

EXIT_UNFIT = 1
MODES = ("conditional", "ballots")
MIB = 1024 * 1024


@click.group(short_help="See whether an object store is fit for the cold tier.")
def store() -> None:
    """See whether an object store is fit for the cold tier.

    \b
    Example:
      thermocline store doctor s3://history/production
    """


@store.command("doctor", short_help="Try out what a store does.")
@click.argument("url")
@click.option(
    "--fencing",
    type=click.Choice(MODES),
    default=MODES[0],
    show_default=True,
    help="The fencing mode to check, as in coldFencing.",
)
@click.option("--rounds", type=click.IntRange(min=1), default=10, show_default=True, help="How often writers race.")
@click.option("--writers", type=click.IntRange(2, 32), default=16, show_default=True, help="How many race at once.")
@click.option("--size-mib", type=click.IntRange(1, 1024), default=16, show_default=True, help="Object for throughput.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON for programs instead of a table.")
def doctor(url: str, fencing: str, rounds: int, writers: int, size_mib: int, as_json: bool) -> int:
    """Test the behaviour of the store at URL, delete the test objects, and report whether a broker may run on it.

    URL is what the broker's coldUrl would be. Exits with 1 when the store is unfit.

    \b
    Example:
      thermocline store doctor file:///var/lib/thermocline/cold
    """
    from thermocline.tiered.doctor import ExaminationOptions, FencingMode, Races, examine

    races = Races(writers=writers, small_rounds=rounds, listing_rounds=max(1, rounds // 2))
    options = ExaminationOptions(races=races, throughput_bytes=size_mib * MIB)
    report = asyncio.run(examine(url, options))
    mode = FencingMode(fencing)
    is_fit = report.is_fit_for(mode)
    output = Output(as_json=as_json)
    if as_json:
        output.value(_as_value(report, fencing, is_fit=is_fit))
    else:
        output.rows(
            {"finding": item.name, "verdict": item.verdict.value, "what": item.text} for item in report.findings
        )
        output.text(_conclusion(report, fencing, is_fit=is_fit), value={})
    return 0 if is_fit else EXIT_UNFIT


def _as_value(report: Report, fencing: str, *, is_fit: bool) -> dict[str, object]:
    return {
        "url": report.url,
        "fencing": fencing,
        "fit": is_fit,
        "fencing_chosen": report.fencing.value if report.fencing is not None else None,
        "findings": [
            {
                "name": item.name,
                "verdict": item.verdict.value,
                "text": item.text,
                "rules_out": sorted(mode.value for mode in item.rules_out),
                "figures": dict(item.figures),
            }
            for item in report.findings
        ],
    }


def _conclusion(report: Report, fencing: str, *, is_fit: bool) -> str:
    if is_fit:
        return f"{report.url} is fit for the cold tier with coldFencing={fencing}."
    if report.fencing is not None:
        return f"{report.url} is unfit with coldFencing={fencing}; it is fit with coldFencing={report.fencing.value}."
    return f"{report.url} is unfit for the cold tier."
