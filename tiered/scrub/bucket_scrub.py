"""Bucket scrub: checks the cold tier of every broker under a URL, without a running broker. Changes nothing there.

A deep scrub with a budget continues where the last one stopped if it has a cursor file:

    {"DefaultCluster/broker-a": "topic\\tsegment id", ...}
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import msgspec

from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.errors import ObjectNotFoundError
from thermocline.tiered.findings import ScrubReport
from thermocline.tiered.ledger import find_roots
from thermocline.tiered.objects import ObjectStore, without_options
from thermocline.tiered.scrub.scrubber import Scrubber, ScrubOptions
from thermocline.tiered.scrub.view import BucketView
from thermocline.tiered.segments import BrokerKeys
from thermocline.tiered.stores import open_object_store
from thermocline.tiered.wrappers import with_read_limit


def scrub_bucket(
    url: str,
    *,
    deep: bool,
    budget_bytes: int | None,
    bytes_per_second: int | None,
    state_path: Path | None,
    afresh: bool,
) -> list[ScrubReport]:
    """Return one report for each broker.

    Raises:
        ObjectNotFoundError: No broker has a cold tier there.
        ObjectStoreUnavailableError: No answer.
        InvalidRequestError: The URL is not one of a store.
    """

    async def run() -> list[ScrubReport]:
        store = await open_object_store(url)
        try:
            limited = with_read_limit(store, bytes_per_second)
            return await _scrub_roots(limited, url, cursors, deep=deep, budget_bytes=budget_bytes)
        finally:
            await store.close()

    cursors = {} if afresh or state_path is None else _load(state_path)
    reports = asyncio.run(run())
    if state_path is not None and deep:
        kept = cursors | {report.root: report.cursor for report in reports}
        state_path.write_bytes(msgspec.json.encode({root: cursor for root, cursor in kept.items() if cursor}))
    return reports


async def _scrub_roots(
    store: ObjectStore, url: str, cursors: dict[str, str], *, deep: bool, budget_bytes: int | None
) -> list[ScrubReport]:
    """One broker after the other; they share the budget."""
    roots = await find_roots(store)
    if not roots:
        raise ObjectNotFoundError("there is no cold tier at this URL", url=without_options(url))
    reports: list[ScrubReport] = []
    for root in roots:
        keys = BrokerKeys(root)
        options = ScrubOptions(deep=deep, budget_bytes=budget_bytes, cursor=cursors.get(root, ""))
        scrubber = Scrubber(
            store,
            keys,
            BucketView(store, keys),
            wall_clock_ms,
            spool_folder=Path(tempfile.gettempdir()),
        )
        report = await scrubber.run(options)
        if budget_bytes is not None:
            budget_bytes = max(0, budget_bytes - report.read_bytes)
        reports.append(report)
    return reports


def _load(path: Path) -> dict[str, str]:
    """Where earlier scrubs stopped; empty if the file is missing or unreadable."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}
