"""Question: how do catalog, ledger and the first requests of a tier process grow with a year's history?

Workload: the bucket of `year_of_history.py`, for each of `--segments`: so many segments of `--topics` topics with 8
queues, index objects as merges leave them after a year. On it, each in a process of its own:

    opened     `LedgerReader` opens the newest catalog; the first message of history is read; keys are looked up, each
               by a reader with nothing loaded but the catalog: no blooms, no records of what is not indexed
    recovered  `thermocline broker --recover-from` on an empty disk
    started    the same broker once more, on the disk that it has now: what its tier process takes
    written    a writer claims the ledger; commits a segment and saves a checkpoint; commits one of every topic and
               saves a checkpoint

Reported, as one line of JSON: seconds and requests of each, and seconds of a processor, which say more where other
programs take the cores; proportional and resident memory of the tier process, that
now, and the most; bytes of the checkpoint. Lookups by unique id are asked as `viewMessage` of the official client does,
from the time that the id tells on, and without bounds of time; those by key without bounds of time. Nothing is judged:
the question is how the figures grow.

    python -m benchmarks.growth [--segments 10000 1000000] [--topics 1000] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.memory_watch import MemoryWatch
from benchmarks.recovery import KEYS, make_entry, recover, started_broker, topic_name
from benchmarks.year_of_history import FIRST, IDENTITY, SentKey, fill_year, wall_ms
from thermocline.remoting.clients import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.header_codec import encode_header
from thermocline.remoting.headers.read import QueryMessageRequestHeader
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.tiered.catalog import Catalog, LedgerChanges
from thermocline.tiered.ledger import ENTRIES_MAX, LedgerReader, LedgerWriter
from thermocline.tiered.objects import ObjectStore
from thermocline.tiered.reading import ColdPull, ColdReader, FrameCache
from thermocline.tiered.stores import open_object_store
from thermocline.tiered.wrappers import MeteringObjectStore

END_OF_TIME_MS = 1 << 62
SETTLE_S = 20.0
QUERY_TIMEOUT_MS = 60_000
MESSAGES_MAX = 32

Figures = dict[str, Any]


async def opened(url: str, keys: list[SentKey]) -> Figures:
    """Open the catalog, read, look up."""
    inner = await open_object_store(url)
    store = MeteringObjectStore(inner)
    with MemoryWatch() as memory:
        began, used = time.perf_counter(), time.process_time()
        ledger = await LedgerReader.open(store, KEYS)
        open_s, open_requests = time.perf_counter() - began, store.counters.request_count
        open_processor_s = time.process_time() - used
        catalog, base = ledger.catalog, ledger.base
        pull = ColdPull(topic=FIRST, queue_id=0, offset=QueueOffset(0), count_max=32, bytes_max=1 << 20, cut_ms=0)
        read = await _asked(inner, catalog, lambda reader: reader.pull(pull))
        lookups = await _lookups(inner, catalog, keys)
        await asyncio.sleep(0.3)  # so that the memory is looked at
    await inner.close()
    return {
        "segments": catalog.segment_count,
        "index_objects": sum(index.page_count > 0 for index in catalog.indexes.values()),
        "open_s": round(open_s, 2),
        "open_processor_s": round(open_processor_s, 2),
        "open_requests": open_requests,
        "first_read": read,
        "lookups": lookups,
        "anonymous_mib_most": memory.anonymous_kib // 1_024,
        "resident_mib_most": memory.resident_kib // 1_024,
        "checkpoint_mib": round(sum(each.stored_bytes for each in base.objects) / (1 << 20), 1) if base else 0.0,
    }


async def _asked(
    store: ObjectStore, catalog: Catalog, ask: Callable[[ColdReader], Awaitable[object]]
) -> tuple[float, int]:
    """Milliseconds and requests of one question to a reader that has nothing but the catalog."""
    metered, cache = MeteringObjectStore(store), FrameCache(bytes_max=1 << 24)
    reader = ColdReader(metered, catalog=lambda: catalog, cache=cache)
    began = time.perf_counter()
    answer = await ask(reader)
    passed_ms = round(1_000 * (time.perf_counter() - began), 1)
    assert answer, "what is there is found"
    await reader.close()
    await cache.close()
    return passed_ms, metered.counters.request_count


async def _lookups(store: ObjectStore, catalog: Catalog, keys: list[SentKey]) -> dict[str, list[int]]:
    """Requests of each lookup: one message of each index object, the oldest first, then one that none covers."""
    found: dict[str, list[int]] = {"unique id, from its time on": [], "unique id": [], "key": []}
    for sent in {each.number: each for each in keys}.values():
        for kind, text, begin_ms in (
            ("unique id, from its time on", sent.unique_key, sent.store_ms - 1_000),
            ("unique id", sent.unique_key, 0),
            ("key", sent.key, 0),
        ):

            def ask(
                reader: ColdReader, text: str = text, begin_ms: int = begin_ms, is_unique: bool = kind != "key"
            ) -> Awaitable[object]:
                return reader.query_key(
                    FIRST,
                    text,
                    begin_ms=begin_ms,
                    end_ms=END_OF_TIME_MS,
                    count_max=MESSAGES_MAX,
                    cut_ms=0,
                    is_unique=is_unique,
                )

            found[kind].append((await _asked(store, catalog, ask))[1])
    return found


async def written(url: str, topics: int) -> Figures:
    """Claim the ledger, and write to it."""
    inner = await open_object_store(url)
    store = MeteringObjectStore(inner)
    began = time.perf_counter()
    writer = await LedgerWriter.open(
        store,
        KEYS,
        identity=IDENTITY,
        clock_ms=wall_ms,
        random=Random(),
        checkpoint_interval=ENTRIES_MAX,
        adopt=True,
    )
    figures: Figures = {"claim_s": round(time.perf_counter() - began, 2)}
    await writer.write_checkpoint()  # so that the next ones are of what is committed here alone
    number = 2 * writer.catalog.segment_count // topics
    for name, count in (("one_topic", 1), ("all_topics", topics)):
        number += 1
        coming = tuple(make_entry(writer, topic_name(topic), number) for topic in range(count))
        before, began, used = store.counters.copy(), time.perf_counter(), time.process_time()
        await writer.commit(LedgerChanges(segments_in=coming))
        committed_s, committed_processor_s = time.perf_counter() - began, time.process_time() - used
        began, used = time.perf_counter(), time.process_time()
        await writer.write_checkpoint()
        figures[name] = {
            "commit_ms": round(1_000 * committed_s, 1),
            "commit_processor_ms": round(1_000 * committed_processor_s, 1),
            "checkpoint_s": round(time.perf_counter() - began, 2),
            "checkpoint_processor_s": round(time.process_time() - used, 2),
            "puts": store.counters.since(before).put_count,
            "sent_mib": round(store.counters.since(before).sent_bytes / (1 << 20), 1),
        }
    await writer.close()
    await inner.close()
    return figures


async def served(url: str, folder: Path, sent: SentKey) -> Figures:
    """Recover a broker, then start it once more; what its tier process takes."""
    recovery = await recover(url, folder)
    figures: Figures = {
        "recovered": {
            "ready_s": round(recovery.ready_s, 1),
            "history_s": round(recovery.first_read_s, 1),
            "tier_resident_mb": round(recovery.tier.resident_mb),
            "hot_resident_mb": round(recovery.hot.resident_mb),
        }
    }
    async with started_broker(folder / "store", "--cold", url) as broker:
        connection = await ClientConnection.open(broker.address)
        history_s = await broker.read_first(connection)
        began = time.perf_counter()
        header = QueryMessageRequestHeader(
            topic=FIRST, key=sent.key, max_num=MESSAGES_MAX, begin_timestamp=0, end_timestamp=END_OF_TIME_MS
        )
        command = RemotingCommand.request(RequestCode.QUERY_MESSAGE, ext_fields=encode_header(header))
        answer = await connection.call(command, timeout_ms=QUERY_TIMEOUT_MS)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        lookup_ms = 1_000 * (time.perf_counter() - began)
        await asyncio.sleep(SETTLE_S)
        connection.close()
        figures["started"] = {
            "ready_s": round(broker.ready_s, 2),
            "history_s": round(history_s, 1),
            "first_lookup_ms": round(lookup_ms, 1),
            "tier_mb": _memory_mb(broker.tier_pid),
            "hot_mb": _memory_mb(broker.pid),
        }
    return figures


def _memory_mb(pid: int) -> dict[str, int]:
    """Proportional and resident memory now, and the most that was resident."""
    lines = (Path(f"/proc/{pid}/smaps_rollup").read_text() + Path(f"/proc/{pid}/status").read_text()).splitlines()
    fields = {line.split(":", 1)[0]: line.split()[1] for line in lines if line.endswith(" kB")}
    names = {"Pss": "proportional", "Rss": "resident", "VmHWM": "resident_most"}
    return {label: int(fields[name]) * 1_024 // 1_000_000 for name, label in names.items()}


def _in_a_process(*arguments: str) -> Any:
    """What a process of its own prints."""
    child = [sys.executable, "-m", "benchmarks.growth", *arguments]
    return json.loads(subprocess.run(child, check=True, capture_output=True, text=True).stdout)


def _measure(folder: Path, *, segments: int, topics: int) -> Figures:
    url = (folder / "bucket").as_uri()
    sizes = ("--segments", str(segments), "--topics", str(topics))
    began = time.perf_counter()
    year = _in_a_process("--step", "fill", "--url", url, *sizes)
    filled_s = time.perf_counter() - began
    (folder / "keys.json").write_text(json.dumps(year["keys"]))
    keys = ("--keys", str(folder / "keys.json"))
    return {
        "filled_s": round(filled_s),
        "opened": _in_a_process("--step", "open", "--url", url, *keys),
        **asyncio.run(served(url, folder, SentKey(**year["keys"][-1]))),
        "written": _in_a_process("--step", "write", "--url", url, *sizes),
    }


def _step(options: argparse.Namespace) -> Figures:
    """What a child process does."""
    if options.step == "fill":
        made = fill_year(options.url, segments=options.segments[0], topics=options.topics, now_ms=wall_ms())
        return asdict(asyncio.run(made))
    if options.step == "open":
        keys = [SentKey(**each) for each in json.loads(options.keys.read_text())] if options.keys else []
        return asyncio.run(opened(options.url, keys))
    return asyncio.run(written(options.url, options.topics))


def main(arguments: list[str] | None = None) -> int:
    """Fill buckets, and look at each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--segments", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--folder", type=Path, default=None, help="where the buckets and stores are meanwhile")
    parser.add_argument("--step", choices=("fill", "open", "write"), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--keys", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.step:
        print(json.dumps(_step(options)))
        return 0
    for segments in options.segments:
        with tempfile.TemporaryDirectory(prefix="growth-", dir=options.folder) as folder:
            found = _measure(Path(folder), segments=segments, topics=options.topics)
            print(json.dumps({"segments": segments, "topics": options.topics, **found}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
