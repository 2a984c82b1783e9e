"""The reader in examples/ and ours, side by side on the golden buckets."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples import cold_reader
from tests.docs.pages import ROOT
from tests.tiered.packs.make_golden import GOLDEN_RECORDS
from thermocline.store.files.disk import RealDisk
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.catalog.ttl import topic_visible_from_ms
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.reading.cold_pull import ColdPull, ColdPullStatus
from thermocline.tiered.reading.cold_reader import ColdReader
from thermocline.tiered.reading.frame_cache import FrameCache
from thermocline.tiered.segments.object_keys import BrokerKeys
from thermocline.tiered.stores.file import FileObjectStore

READER = ROOT / "examples" / "cold_reader.py"
BROKER = "DefaultCluster/broker-a"
RECORDS_1 = ROOT / "tests/tiered/golden/v1-records/bucket"
RECORDS_2 = GOLDEN_RECORDS / "bucket"
AT_START_MS = 1_700_000_000_000
"""Nothing of any golden bucket has expired by then."""


@dataclass(frozen=True, slots=True)
class Ours:
    """The project's reader at a time."""

    reader: ColdReader
    catalog: Catalog
    now_ms: int

    @property
    def topics(self) -> list[str]:
        """Those that live."""
        return sorted(name for name, topic in self.catalog.topics.items() if not topic.deleted)

    def cut_ms(self, topic: str) -> int:
        """The store time from which on messages are visible."""
        return topic_visible_from_ms(self.catalog, topic, now_ms=self.now_ms)

    async def records(self, topic: str, queue_id: int, start: int = 0) -> list[bytes]:
        """Every visible record from an offset on, as a consumer gets them."""
        found: list[bytes] = []
        offset = start
        while True:
            pull = ColdPull(
                topic=topic,
                queue_id=queue_id,
                offset=offset,
                count_max=1_000,
                bytes_max=1 << 20,
                cut_ms=self.cut_ms(topic),
                group="test",
            )
            result = await self.reader.pull(pull)
            if result.status in (ColdPullStatus.ABOVE_END, ColdPullStatus.NO_QUEUE):
                return found
            for data in map(bytes, result.buffers):
                position = 0
                while position < len(data):
                    size_bytes = int.from_bytes(data[position : position + 4], "big")
                    found.append(data[position : position + size_bytes])
                    position += size_bytes
            offset = result.next_offset


@asynccontextmanager
async def opened(bucket: Path, now_ms: int) -> AsyncIterator[Ours]:
    store, cache = FileObjectStore(str(bucket), disk=RealDisk()), FrameCache()
    catalog = await open_catalog(store, BrokerKeys(BROKER))
    reader = ColdReader(store, catalog=lambda: catalog, cache=cache)
    try:
        yield Ours(reader, catalog, now_ms)
    finally:
        await reader.close()
        await cache.close()
        await store.close()


def theirs(bucket: Path, now_ms: int) -> cold_reader.History:
    """The stand-alone reader at a time."""
    return cold_reader.History(bucket, BROKER, now_ms)


def run(*words: str) -> tuple[int, bytes, str]:
    """The stand-alone reader's command line: exit status, what it wrote, and its complaint."""
    written, complaint, status = io.TextIOWrapper(io.BytesIO()), io.StringIO(), 0
    argv, sys.argv = sys.argv, [str(READER), *words]
    try:
        with contextlib.redirect_stdout(written), contextlib.redirect_stderr(complaint):
            cold_reader.main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
        complaint.write("" if isinstance(end.code, int) else str(end.code))
    finally:
        sys.argv = argv
        cold_reader.read.cache_clear()
    written.flush()
    assert isinstance(written.buffer, io.BytesIO)
    return status, written.buffer.getvalue(), complaint.getvalue()


def rows(*words: str) -> list[dict[str, Any]]:
    """The JSON lines that a command writes."""
    status, written, complaint = run(*words)
    assert (status, complaint) == (0, "")
    return [json.loads(line) for line in written.splitlines()]
