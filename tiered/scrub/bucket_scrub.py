"""Bucket scrub: checks the cold tiers of all brokers in a bucket, without a running broker. Only reads the bucket.

`thermocline tier scrub URL` calls it. A deep scrub that stops at its budget writes the state file: for each broker its
cursor, the last object that was read. The next deep scrub with this file continues behind that object:

    {"DefaultCluster/broker-a": "topic\\tsegment id", ...}

A broker whose scrub came to its end has no cursor: its next deep scrub begins with the first segment.
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
    """Scrub all brokers in the bucket at `url`; return one report for each. Runs an event loop until it is done.

    `deep`: read every byte, not names and sizes alone. `budget_bytes`: the most bytes that the deep scrubs of all
    brokers read together, though each reads at least one object. `state_path`: the state file; only a deep scrub uses
    it. `afresh`: begin with the first segments, whatever that file says.

    Raises:
        ObjectNotFoundError: There is no broker's cold tier at this URL.
        ObjectStoreUnavailableError: The object store does not answer.
        InvalidRequestError: `url` is not the URL of an object store.
        OSError: The state file cannot be written; the reports are lost.
    """

    async def scrub_all() -> list[ScrubReport]:
        store = await open_object_store(url)
        try:
            limited = with_read_limit(store, bytes_per_second)
            return await _scrub_roots(limited, url, cursors, deep=deep, budget_bytes=budget_bytes)
        finally:
            await store.close()

    cursors = {} if afresh or state_path is None else _load_cursors(state_path)
    reports = asyncio.run(scrub_all())
    if state_path is not None and deep:
        new_cursors = cursors | {report.root: report.cursor for report in reports}
        state_path.write_bytes(msgspec.json.encode({root: cursor for root, cursor in new_cursors.items() if cursor}))
    return reports


async def _scrub_roots(
    store: ObjectStore, url: str, cursors: dict[str, str], *, deep: bool, budget_bytes: int | None
) -> list[ScrubReport]:
    """Scrub one broker after another; `budget_bytes` is for all of them together."""
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


def _load_cursors(path: Path) -> dict[str, str]:
    """Return the cursor of each broker in the file; empty if it is missing or cannot be read: all scrubs begin anew."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}
