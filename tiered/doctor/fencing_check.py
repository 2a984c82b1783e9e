"""The part of the store doctor that a broker does each time it starts, and before it is recovered from a bucket: some
130 requests, well under a second.

Of a directory it asks less: there each write waits for the disk, and what is tried is whether the file system links a
name once. Some that are mounted over a network do not, or do not link at all.

The verdict is not remembered: what stands behind an address may be another store, or have a proxy before it, the next
time. While the store does not answer there is no verdict, and the broker serves its hot tier and commits nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from random import Random

from thermocline.remoting.errors import ObjectStoreUnavailableError
from thermocline.tiered.doctor.bench import Bench
from thermocline.tiered.doctor.fencing_probe import Races, probe_conditional, probe_listings, probe_read_back
from thermocline.tiered.doctor.finding import ALL_MODES, Finding, Report, failed
from thermocline.tiered.doctor.store_probes import RANGES, probe_ranges
from thermocline.tiered.ledger import FencingMode
from thermocline.tiered.objects import ObjectStore, UnfitStoreError
from thermocline.tiered.segments import BrokerKeys
from thermocline.tiered.stores import is_directory_url, is_s3_url

logger = logging.getLogger(__name__)

RACES = Races(small_rounds=4, large_rounds=2, large_bytes=256 * 1024, listing_rounds=2)
DIRECTORY_RACES = Races(writers=8, small_rounds=2, large_rounds=0, listing_rounds=1)
READ_BACK_COUNT = 2
CLEAR_TIMEOUT_S = 2.0
"""How long a check that was cut off tries to remove its objects."""


async def check_fencing(
    store: ObjectStore, keys: BrokerKeys, *, mode: FencingMode, random: Random, races: Races = RACES
) -> None:
    """Return when nothing was seen that would let two writers commit, or keep readers from what they committed.

    Raises:
        UnfitStoreError: It was; the message is one sentence that says what to do.
        ObjectStoreUnavailableError: The store does not answer.
    """
    started = time.monotonic()
    bench = Bench(store, parent=keys.doctor_prefix, random=random, is_flat=True)
    try:
        findings = [
            await probe_read_back(bench, count=READ_BACK_COUNT),
            await _probe_ranges(bench),
            await _probe(bench, mode, races),
        ]
        report = Report(url=keys.root, findings=tuple(findings))
        if not report.is_fit_for(mode):
            others = [await _probe(bench, other, races) for other in FencingMode if other is not mode]
            raise _unfit(mode, Report(url=keys.root, findings=(*findings, *others)))
    except (asyncio.CancelledError, ObjectStoreUnavailableError):
        # A broker that stops must not wait for a store that does not answer. What stays, a later check removes.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLEAR_TIMEOUT_S):
                await bench.clear()
        raise
    except BaseException:
        await _clear(bench)
        raise
    await _clear(bench)
    logger.info("store checked fencing=%s elapsed_ms=%d", mode, (time.monotonic() - started) * 1_000)


async def _clear(bench: Bench) -> None:
    remaining = await bench.clear()
    if remaining:
        logger.warning(
            "objects of the store check could not be removed count=%d first=%s", len(remaining), remaining[0]
        )


def races_for(url: str) -> Races | None:
    """How the store at `url` is tried before its ledger is claimed; None: not at all, for what `memory://` promises is
    our own code."""
    if is_s3_url(url):
        return RACES
    return DIRECTORY_RACES if is_directory_url(url) else None


async def _probe_ranges(bench: Bench) -> Finding:
    """Whether ranges are exact: a store may arbitrate and be unreadable, and must not be named as a way out then.

    Raises:
        ObjectStoreUnavailableError: Nothing is answered; s3s-fs answers to all but a suffix longer than the object.
    """
    try:
        return await probe_ranges(bench)
    except ObjectStoreUnavailableError as error:
        await bench.get(bench.key(RANGES))
        return failed(RANGES, f"gives a whole object, and no answer to some range of it ({error})")


async def _probe(bench: Bench, mode: FencingMode, races: Races) -> Finding:
    match mode:
        case FencingMode.CONDITIONAL:
            return await probe_conditional(bench, races)
        case FencingMode.BALLOTS:
            return await probe_listings(bench, races)


def _unfit(mode: FencingMode, report: Report) -> UnfitStoreError:
    defects = [finding for finding in report.findings if mode in finding.rules_out]
    seen = "; ".join(finding.text for finding in defects)
    if all(finding.rules_out == ALL_MODES for finding in defects):
        return UnfitStoreError(f"this store is unfit for the cold tier (it {seen}): use another store")
    way_out = f"set coldFencing={report.fencing}, which it is fit for" if report.fencing else "use another store"
    return UnfitStoreError(
        f"this store would let two brokers commit at once with coldFencing={mode} (it {seen}): {way_out}"
    )
