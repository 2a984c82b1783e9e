"""Question: how do catalog, ledger and the first requests of a tier process grow with a year's history?

Workload: the bucket of `recovery.py`, for each of `--segments`: so many segments of `--topics` topics with 8 queues.
A process of its own then opens the newest catalog, as a tier process does that begins, and reads the first message of
history. Reported: seconds and requests until the catalog is there; the most memory of that process; seconds and
requests of the first cold read; bytes of the checkpoint. No broker runs, and nothing is judged: the question is how
the figures grow. Filling a bucket writes a checkpoint each 32 commits, so that takes much longer than opening it.

    python -m benchmarks.growth [--segments 10000 100000] [--topics 1000] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.memory_watch import MemoryWatch
from benchmarks.recovery import KEYS, fill
from thermocline.tiered.cold_pull import ColdPull
from thermocline.tiered.cold_reader import ColdReader
from thermocline.tiered.frame_cache import FrameCache
from thermocline.tiered.ledger_reader import LedgerReader
from thermocline.tiered.object_store_url import open_object_store
from thermocline.tiered.wrappers import MeteringObjectStore


async def open_and_read(url: str) -> dict[str, float]:
    """What the child process does, and what it took."""
    inner = await open_object_store(url)
    store = MeteringObjectStore(inner)
    with MemoryWatch() as memory:
        began = time.perf_counter()
        opened = await LedgerReader.open(store, KEYS)
        open_s, open_requests = time.perf_counter() - began, store.counters.request_count
        catalog, base = opened.catalog, opened.base
        cache = FrameCache(bytes_max=1 << 24)
        reader = ColdReader(store, catalog=lambda: catalog, cache=cache)
        began = time.perf_counter()
        pull = ColdPull(topic="First", queue_id=0, offset=0, count_max=32, bytes_max=1 << 20, cut_ms=0)
        found = await reader.pull(pull)
        read_s, requests = time.perf_counter() - began, store.counters.request_count - open_requests
        assert found.buffers, "the first message of history"
        await asyncio.sleep(0.2)  # so that the memory is looked at
    await reader.close()
    await cache.close()
    await inner.close()
    return {
        "segments": catalog.segment_count,
        "open_s": round(open_s, 2),
        "open_requests": open_requests,
        "first_read_ms": round(1_000 * read_s, 1),
        "first_read_requests": requests,
        "anonymous_mib": memory.anonymous_kib // 1_024,
        "resident_mib": memory.resident_kib // 1_024,
        "checkpoint_mib": round(sum(each.stored_bytes for each in base.objects) / (1 << 20), 1) if base else 0.0,
    }


def main(arguments: list[str] | None = None) -> int:
    """Fill buckets, and look at each from a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--segments", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--folder", type=Path, default=None, help="where the buckets are meanwhile")
    parser.add_argument("--open", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.open:
        print(json.dumps(asyncio.run(open_and_read(options.open))))
        return 0
    for segments in options.segments:
        with tempfile.TemporaryDirectory(prefix="growth-", dir=options.folder) as folder:
            url = f"file://{folder}/bucket"
            began = time.perf_counter()
            asyncio.run(fill(url, segments=segments, topics=options.topics, groups=2))
            filled_s = time.perf_counter() - began
            child = [sys.executable, "-m", "benchmarks.growth", "--open", url]
            found = json.loads(subprocess.run(child, check=True, capture_output=True, text=True).stdout)
            print(json.dumps({**found, "filled_s": round(filled_s)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
