"""The whole examination of a store: `thermocline store doctor URL`.

Everything is tried in a folder of the doctor's own, `doctor/{id}/` under the URL's prefix, and removed at the end.
Where puts, gets or deletes are not allowed, or the certificate is not trusted, nothing more is tried; a probe that gets
no answer is a defect of its own, and the others go on.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom
from urllib.parse import unquote, urlsplit

from thermocline.remoting.errors import MQError
from thermocline.tiered.doctor.bench import Bench
from thermocline.tiered.doctor.fencing_probe import Races, probe_conditional, probe_listings, probe_read_back
from thermocline.tiered.doctor.finding import Finding, Report, Verdict, failed
from thermocline.tiered.doctor.store_probes import (
    probe_cleanup,
    probe_listing,
    probe_missing,
    probe_permissions,
    probe_ranges,
    probe_throughput,
)
from thermocline.tiered.ledger import FencingMode
from thermocline.tiered.objects import ObjectStore, UntrustedStoreError, without_options
from thermocline.tiered.stores import ObjectStoreOptions, is_s3_url, open_object_store, parse_s3_url
from thermocline.tiered.stores.file import PARTIAL_FOLDER
from thermocline.tiered.wrappers import RetryPolicy

__all__ = ["ExaminationOptions", "FencingMode", "Races", "Report", "examine"]

logger = logging.getLogger(__name__)

FOLDER = "doctor/"
NEEDED = ("may-put", "may-get", "may-delete")
"""Without these nothing more is tried: it would tell nothing, or could not be removed."""
MIB = 1024 * 1024
RETRY = RetryPolicy(attempts_max=4, first_delay_ms=50, delay_ms_max=500)

Probe = Callable[[], Awaitable[Finding | list[Finding]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminationOptions:
    """How thoroughly."""

    races: Races = field(default_factory=Races)
    read_back_count: int = 20
    throughput_bytes: int = 16 * MIB
    random: Random = field(default_factory=SystemRandom)
    monotonic: Callable[[], float] = time.monotonic
    now_s: Callable[[], float] = time.time


async def examine(url: str, options: ExaminationOptions | None = None) -> Report:
    """Examine the store at `url`. What is wrong with it is in the report, unreachable included.

    Raises:
        InvalidRequestError: It is no URL of a store.
    """
    chosen = options if options is not None else ExaminationOptions()
    made = _missing_folders(url)
    store = await open_object_store(url, ObjectStoreOptions(retry=RETRY))
    try:
        bench = Bench(store, parent=FOLDER, random=chosen.random)
        findings = [finding async for finding in _findings(url, bench, chosen)]
    finally:
        await store.close()
        _remove_folders(made)
    return Report(url=without_options(url), findings=tuple(findings))


async def _findings(url: str, bench: Bench, options: ExaminationOptions) -> AsyncIterator[Finding]:
    try:
        permissions = await probe_permissions(bench)
    except UntrustedStoreError as error:
        yield failed("certificate", str(error))
        return
    for finding in permissions:
        yield finding
    is_usable = not any(finding.verdict is Verdict.DEFECT and finding.name in NEEDED for finding in permissions)
    try:
        if is_usable:
            for name, probe in _probes(bench, options).items():
                for finding in await _try(name, probe):
                    yield finding
            if is_s3_url(url):
                async for finding in _s3_findings(url, bench, options):
                    yield finding
    finally:
        last = await probe_cleanup(bench)
    yield last


def _probes(bench: Bench, options: ExaminationOptions) -> dict[str, Probe]:
    return {
        "conditional-create": lambda: probe_conditional(bench, options.races),
        "racing-listings": lambda: probe_listings(bench, options.races),
        "read-after-write": lambda: probe_read_back(bench, count=options.read_back_count),
        "missing-object": lambda: probe_missing(bench),
        "listing": lambda: probe_listing(bench),
        "ranges": lambda: probe_ranges(bench),
        "throughput": lambda: probe_throughput(bench, size_bytes=options.throughput_bytes, monotonic=options.monotonic),
    }


async def _s3_findings(url: str, bench: Bench, options: ExaminationOptions) -> AsyncIterator[Finding]:
    from thermocline.tiered.doctor.s3_probes import S3Probes
    from thermocline.tiered.s3 import S3ObjectStore, translated

    def _with_our_errors(name: str, probe: Probe) -> Probe:
        async def attempt() -> Finding | list[Finding]:
            with translated(name):
                return await probe()

        return attempt

    store = await S3ObjectStore.open(parse_s3_url(url))
    try:
        probes = S3Probes(store, bench)
        tries: dict[str, Probe] = {
            "listing-pages": probes.probe_pages,
            "checksums": probes.probe_checksums,
            "multipart": probes.probe_multipart,
            "clock": lambda: probes.probe_clock(now_s=options.now_s),
        }
        for name, probe in tries.items():
            for finding in await _try(name, _with_our_errors(name, probe)):
                yield finding
    finally:
        await _remove_uploads(store, bench)
        await store.close()


async def _remove_uploads(store: ObjectStore, bench: Bench) -> None:
    try:
        await store.remove_incomplete(bench.prefix)
    except MQError as error:
        logger.debug("unfinished uploads of the doctor cannot be removed: %s", error)


async def _try(name: str, probe: Probe) -> list[Finding]:
    try:
        found = await probe()
    except MQError as error:
        return [failed(name, f"could not be tried ({error})")]
    except (KeyError, TypeError, ValueError) as error:  # what stands behind a URL may answer anything
        return [failed(name, f"gave an answer that cannot be understood ({error!r})")]
    return found if isinstance(found, list) else [found]


def _missing_folders(url: str) -> list[Path]:
    """With `file://`: the folders that the examination will make, outermost first. Objects go, folders would stay."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return []
    root = Path(unquote(parts.path))
    wanted = [*reversed(root.parents), root, root / PARTIAL_FOLDER, root / PARTIAL_FOLDER / "doctor", root / "doctor"]
    return [folder for folder in wanted if not folder.exists()]


def _remove_folders(made: list[Path]) -> None:
    """Remove what was made, as far as it is empty."""
    for folder in reversed(made):
        inner = [*folder.rglob("*/"), folder] if folder.is_dir() else []
        for path in sorted(inner, reverse=True):
            with contextlib.suppress(OSError):  # not empty: foreign objects
                path.rmdir()
