"""What `thermocline tier status` says of the scrub that a broker runs by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from thermocline.cli.common.output import bytes_text, time_text

__all__ = ["steady_notes"]

READ_WITHIN_DAYS = 30


def steady_notes(steady: Mapping[str, Any]) -> Iterator[str]:
    """A line for what was read, one for each thing that is wrong with that, one for each broken object."""
    whole_ms, budget_bytes = steady["wholeEndedMs"], steady["bytesPerDay"]
    if not budget_bytes:
        yield "no byte is read by itself to find damage: coldScrubBytesPerDay is 0"
    else:
        line = f"every byte was read by {time_text(whole_ms)}" if whole_ms else "not every byte was read yet"
        if not steady["isPassOver"]:
            line += f"; {steady['readCount']} objects ({bytes_text(steady['readBytes'])}) are read in this pass"
            if steady["remainingBytes"] is not None:
                line += f", {bytes_text(steady['remainingBytes'])} are left"
        yield line
    if steady["isTooSlow"]:
        yield (
            f"reading every byte takes {steady['daysNeeded']:.0f} days by coldScrubBytesPerDay"
            f" ({bytes_text(budget_bytes)}), more than {READ_WITHIN_DAYS}"
        )
    if steady["isStoreAway"]:
        yield "reading waits for the object store"
    if steady["error"]:
        yield f"reading by itself has ended: {steady['error']}"
    for key in steady["broken"]:
        yield f"broken: {key}"
    if steady["brokenCount"] > len(steady["broken"]):
        yield f"broken: {steady['brokenCount'] - len(steady['broken'])} objects more"
