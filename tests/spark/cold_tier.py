"""A real cold tier for tests: segments written by the segment writer and committed by the ledger writer."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

from tests.spark.message_rows import expected_rows
from tests.tiered.cold_data import START_MS, Log, write_segment
from thermocline.spark.access.store_options import StoreOptions
from thermocline.spark.access.store_url import open_cold_store, split_url
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.catalog.ledger_entry import LedgerChanges
from thermocline.tiered.ledger.ledger_writer import LedgerIdentity, LedgerWriter
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.packs.segment_upload import upload_segment
from thermocline.tiered.segments.object_keys import BrokerKeys
from thermocline.tiered.segments.segment_entry import SegmentEntry
from thermocline.tiered.segments.segment_format import FrameInfo, decode_log_footer
from thermocline.tiered.segments.segment_writer import SegmentOptions
from thermocline.tiered.state.snapshot import StateSnapshot
from thermocline.tiered.state.state_log import StateLog

FRAME_BYTES = 8 << 10
NOW_MS = START_MS + 3_600_000


class ColdTier:
    """One broker's cold tier under a URL; every call opens the store anew, and one writer goes on over the calls."""

    def __init__(
        self,
        url: str,
        *,
        cluster: str = "test",
        broker_name: str = "broker-a",
        options: StoreOptions = StoreOptions(),  # noqa: B008 - frozen
        frame_bytes: int = FRAME_BYTES,
    ) -> None:
        self.url = url
        self.broker_name = broker_name
        self.keys = BrokerKeys.of(cluster=cluster, broker_name=broker_name)
        self._bucket = options.for_bucket(split_url(url)[1])
        self._identity = LedgerIdentity(store_uuid=f"uuid-{broker_name}", cluster=cluster, broker_name=broker_name)
        self._segment_options = SegmentOptions(frame_bytes=frame_bytes, coarse_frames=4)
        self._random = Random(broker_name)
        self.version = 0

    def seal(self, log: Log, *, ends: dict[int, int] | None = None, starts: dict[int, int] | None = None) -> Catalog:
        """Commit one segment with offsets [starts, ends) of every queue of `log`; all there is by default."""
        return asyncio.run(self._seal(log, starts, ends))

    def seal_in_pieces(self, log: Log, count: int) -> Catalog:
        """Commit everything in `count` segments, one after another."""
        ends = log.ends()
        cuts = [{queue: end * piece // count for queue, end in ends.items()} for piece in range(count + 1)]
        for before, after in itertools.pairwise(cuts):
            catalog = self.seal(log, starts=before, ends=after)
        return catalog

    def commit(self, changes: LedgerChanges) -> Catalog:
        """Commit anything else."""
        return asyncio.run(self._commit(changes))

    def entries(self, topic: str) -> tuple[SegmentEntry, ...]:
        """The live segments of a topic."""
        return self._catalog.topics[topic].segments

    def frame_at(self, entry: SegmentEntry, position: int) -> FrameInfo:
        """The frame of a segment that holds a byte position of its object."""
        footer = decode_log_footer(self.read_object(entry.log.key)[entry.log.footer_start : entry.log.end])
        return next(
            info
            for run in footer.runs
            for info in footer.frames_of(run, start_offset=run.start_offset, end_offset=run.end_offset)
            if info.position <= position < info.position + info.stored_bytes
        )

    def change_object(self, key: str, *, position: int) -> None:
        """Damage one byte of an object."""
        data = bytearray(self.read_object(key))
        data[position] ^= 0xFF
        self.write_object(key, bytes(data))

    def delete_object(self, key: str) -> None:
        """Remove an object behind the ledger's back."""
        asyncio.run(self._delete_object(key))

    def read_object(self, key: str) -> bytes:
        """A whole object."""
        return asyncio.run(self._read_object(key))

    def write_object(self, key: str, data: bytes) -> None:
        """Replace an object behind the ledger's back."""
        asyncio.run(self._write_object(key, data))

    def save_state(self, documents: dict[str, dict[str, Any]]) -> None:
        """Save the broker's state with these documents, as its tier process does."""
        asyncio.run(self._save_state(documents))

    async def _open(self) -> tuple[ObjectStore, LedgerWriter]:
        store = await open_cold_store(self.url, self._bucket)
        writer = await LedgerWriter.open(
            store, self.keys, identity=self._identity, clock_ms=lambda: NOW_MS, random=self._random
        )
        return store, writer

    async def _seal(self, log: Log, starts: dict[int, int] | None, ends: dict[int, int] | None) -> Catalog:
        store, writer = await self._open()
        finished = write_segment(
            log, starts=starts, ends=ends, segment_id=writer.next_segment_id(), options=self._segment_options
        )
        with finished:
            entry = await upload_segment(store, self.keys, finished, created_ms=NOW_MS)
        return await self._finish(store, writer, LedgerChanges(segments_in=(entry,)))

    async def _commit(self, changes: LedgerChanges) -> Catalog:
        store, writer = await self._open()
        return await self._finish(store, writer, changes)

    async def _finish(self, store: ObjectStore, writer: LedgerWriter, changes: LedgerChanges) -> Catalog:
        self._catalog = await writer.commit(changes)
        self.version = self._catalog.version
        await writer.close()
        await store.close()
        return self._catalog

    async def _save_state(self, documents: dict[str, dict[str, Any]]) -> None:
        store, writer = await self._open()
        states = StateLog(writer)
        name = states.next_name()
        await states.write(
            StateSnapshot(
                format=1,
                epoch=name.epoch,
                sequence=name.sequence,
                store_uuid=self._identity.store_uuid,
                cluster=self._identity.cluster,
                broker_name=self.broker_name,
                captured_ms=NOW_MS,
                log_offset=0,
                log_ceiling=0,
                record_bytes_min=91,
                documents=documents,
            )
        )
        await writer.close()
        await store.close()

    async def _read_object(self, key: str) -> bytes:
        store = await open_cold_store(self.url, self._bucket)
        data = await store.get(key)
        await store.close()
        return data

    async def _write_object(self, key: str, data: bytes) -> None:
        store = await open_cold_store(self.url, self._bucket)
        await store.put(key, data)
        await store.close()

    async def _delete_object(self, key: str) -> None:
        store = await open_cold_store(self.url, self._bucket)
        await store.delete(key)
        await store.close()


def flights(topic: str, count: int, *, seed: int = 1, queue_count: int = 4) -> Log:
    """A log of `count` JSON messages with ids, keys and tags."""
    log = Log(topic=topic, random=Random(seed), queue_count=queue_count)
    log.append_flights(count)
    return log


def rows_of(log: Log, *, broker_name: str = "broker-a") -> list[dict[str, Any]]:
    """All columns of every message of the log, by queue and offset."""
    records = b"".join(record for _, queue in sorted(log.queues.items()) for record in queue.records)
    return expected_rows(records, broker_name=broker_name)


def by_place(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, str, int, int], dict[str, Any]]:
    """Rows by broker, topic, queue and offset; a place that comes twice fails."""
    placed: dict[tuple[str, str, int, int], dict[str, Any]] = {}
    for row in rows:
        place = (row["brokerName"], row["topic"], row["queueId"], row["queueOffset"])
        assert place not in placed, f"{place} comes twice"
        placed[place] = row
    return placed


def directory_url(path: Path) -> str:
    """The URL of a directory."""
    return f"file://{path}"
