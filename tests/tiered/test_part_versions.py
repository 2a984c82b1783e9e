"""Each kind of part has a version of its own: a later one, with a column more, is read beside the first by a reader
that has both decoders, and refused by one that has not, which leaves it as it is.

The later versions are of this test alone: a column of zeros or ones behind the columns of version 1.
"""

from __future__ import annotations

import asyncio
import itertools
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
import zstandard

from tests.docs.pages import DOCS, table_rows
from tests.tiered.cold_data import START_MS, Log, write_segment
from tests.tiered.scrub.damage import flip_bit
from tests.tiered.scrub.rig import ScrubRig
from thermocline.remoting.records.message_record import decode_record
from thermocline.spark.reading.cold_plan import resolve_plan
from thermocline.spark.reading.frame_reader import FrameReader
from thermocline.spark.reading.source_options import read_options_from
from thermocline.tiered.catalog.ledger_entry import LedgerChanges
from thermocline.tiered.catalog.pack_pieces import PackPieces
from thermocline.tiered.findings.findings import Outcome, Problem
from thermocline.tiered.index_format.index_entry import IndexEntry
from thermocline.tiered.index_format.index_object import IndexObject
from thermocline.tiered.index_format.index_writer import INDEX
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.ledger.ledger_writer import LedgerIdentity, LedgerWriter
from thermocline.tiered.objects.errors import FormatTooNewError, FrameChecksumError
from thermocline.tiered.packs.pack_format import PACK, PACK_MAGIC
from thermocline.tiered.packs.piece_stream import PieceStream
from thermocline.tiered.packs.segment_upload import upload_segment
from thermocline.tiered.reading.cold_pull import ColdPull
from thermocline.tiered.reading.cold_reader import ColdReader
from thermocline.tiered.reading.frame_cache import FrameCache
from thermocline.tiered.segments.key_index import (
    IDX_BLOCK,
    IDX_HEAD,
    KEY_INDEX,
    Hashes,
    KeyIndexFooter,
    decode_key_index_block,
    decode_key_index_footer,
)
from thermocline.tiered.segments.object_keys import BrokerKeys
from thermocline.tiered.segments.part_kind import PartKind
from thermocline.tiered.segments.queue_columns import (
    BLOCK_HEAD,
    COLUMNS,
    CQ_BLOCK,
    CQ_HEAD,
    ColumnsFooter,
    QueueColumns,
    decode_columns,
    decode_columns_footer,
)
from thermocline.tiered.segments.segment_entry import PartLocator, SegmentEntry
from thermocline.tiered.segments.segment_format import (
    FRAME,
    LOG,
    LOG_HEAD,
    MAGIC_BYTES,
    RUN,
    TRAILER,
    TRAILER_CHECKED_BYTES,
    LogFooter,
    decode_footer,
    decode_log_footer,
    decode_trailer,
    decompress,
    encode_footer,
)
from thermocline.tiered.segments.segment_reader import SegmentReader
from thermocline.tiered.segments.segment_writer import FinishedSegment, SegmentOptions
from thermocline.tiered.stores.memory import MemoryObjectStore

TOPIC = "orders"
NOW_MS = START_MS + 3_600_000
KEYS = BrokerKeys.of(cluster="test", broker_name="broker-a")
WIDE_FRAME = np.dtype([*((name, FRAME[name]) for name in FRAME.names or ()), ("record_count", "<u4")])
SQUEEZE = zstandard.ZstdCompressor(level=3, write_checksum=True)
_names = itertools.count()


# -- version 2 of each kind, as a later release might have it ----------------------------------------------------------


def decode_log_2(content: bytes) -> LogFooter:
    """One more column in the table of frames: how many records each holds."""
    head = LOG_HEAD.unpack_from(content)
    frames_start = LOG_HEAD.size + head[7] + head[5] * RUN.itemsize
    frames = np.frombuffer(content, WIDE_FRAME, head[6], frames_start)
    assert (frames["record_count"] == frames["end_offset"] - frames["start_offset"]).all()
    narrow = np.empty(len(frames), FRAME)
    for name in FRAME.names or ():
        narrow[name] = frames[name]
    return replace(LOG.decoders[1](content[:frames_start] + narrow.tobytes()), frames=frames)


def decode_columns_2(content: bytes) -> ColumnsFooter:
    """One more plane behind those of a block: a byte a record."""

    def decode_block(content: bytes, *, queue_id: int, start_offset: int) -> QueueColumns:
        count = BLOCK_HEAD.unpack_from(content)[0]
        assert content[-count:] == bytes([2]) * count
        return decode_columns(content[:-count], queue_id=queue_id, start_offset=start_offset)

    return replace(COLUMNS.decoders[1](content), decode_content=decode_block)


def decode_key_index_2(content: bytes) -> KeyIndexFooter:
    """One more plane behind those of a block: a byte an entry."""

    def decode_block(stored: bytes | memoryview, *, entry_count: int) -> tuple[Hashes, Hashes]:
        content = decompress(stored, raw_bytes=9 * entry_count)
        return decode_key_index_block(SQUEEZE.compress(content[: 8 * entry_count]), entry_count=entry_count)

    return replace(KEY_INDEX.decoders[1](content), decode_block=decode_block)


LOG_2 = PartKind(name=LOG.name, magic=LOG.magic, version=2, decoders={2: decode_log_2})
COLUMNS_2 = PartKind(name=COLUMNS.name, magic=COLUMNS.magic, version=2, decoders={2: decode_columns_2})
KEY_INDEX_2 = PartKind(name=KEY_INDEX.name, magic=KEY_INDEX.magic, version=2, decoders={2: decode_key_index_2})
LATER: dict[str, tuple[PartKind[Any], PartKind[Any]]] = {
    "log": (LOG, LOG_2),
    "cq": (COLUMNS, COLUMNS_2),
    "idx": (KEY_INDEX, KEY_INDEX_2),
}


def as_log_2(part: bytes) -> bytes:
    trailer = decode_trailer(part, magic=LOG.magic)
    body_end = len(part) - trailer.tail_bytes
    footer, content = (
        decode_log_footer(part),
        decompress(part[body_end : len(part) - TRAILER.size], raw_bytes=trailer.footer_raw_bytes),
    )
    frames = np.empty(len(footer.frames), WIDE_FRAME)
    for name in FRAME.names or ():
        frames[name] = footer.frames[name]
    frames["record_count"] = frames["end_offset"] - frames["start_offset"]
    wide = content[: len(content) - footer.frames.nbytes] + frames.tobytes()
    return part[:body_end] + encode_footer(wide, kind=LOG_2, body_end=body_end)


def as_columns_2(part: bytes) -> bytes:
    footer = decode_columns_footer(part)
    body, rows = bytearray(part[:MAGIC_BYTES]), footer.blocks.copy()
    for row in rows:
        position = int(row["position"])
        content = decompress(part[position : position + int(row["stored_bytes"])], raw_bytes=int(row["raw_bytes"]))
        content += bytes([2]) * int(row["end_offset"] - row["start_offset"])
        stored = SQUEEZE.compress(content)
        row["position"], row["stored_bytes"], row["raw_bytes"] = len(body), len(stored), len(content)
        body += stored
    assert rows.dtype == CQ_BLOCK
    identity = footer.segment_id
    head = CQ_HEAD.pack(identity.epoch, identity.sequence, footer.record_count, len(rows))
    return bytes(body) + encode_footer(head + rows.tobytes(), kind=COLUMNS_2, body_end=len(body))


def as_key_index_2(part: bytes) -> bytes:
    footer = decode_key_index_footer(part)
    body, rows = bytearray(part[: MAGIC_BYTES + footer.bloom.size_bytes]), footer.blocks.copy()
    for row in rows:
        position, count = int(row["position"]), int(row["entry_count"])
        content = decompress(part[position : position + int(row["stored_bytes"])], raw_bytes=8 * count)
        stored = SQUEEZE.compress(content + bytes(count))
        row["position"], row["stored_bytes"] = len(body), len(stored)
        body += stored
    assert rows.dtype == IDX_BLOCK
    identity, bloom = footer.segment_id, footer.bloom
    head = IDX_HEAD.pack(
        identity.epoch, identity.sequence, footer.entry_count, bloom.page_bytes, bloom.page_count, len(rows)
    )
    return bytes(body) + encode_footer(head + rows.tobytes(), kind=KEY_INDEX_2, body_end=len(body))


REWRITES = {"log": as_log_2, "cq": as_columns_2, "idx": as_key_index_2}


@contextmanager
def a_later_release(names: tuple[str, ...] = ("log", "cq", "idx")) -> Iterator[None]:
    """A reader that has the decoders of version 2, too."""
    for name in names:
        kind, later = LATER[name]
        kind.decoders[2] = later.decoders[2]
    try:
        yield
    finally:
        for name in names:
            del LATER[name][0].decoders[2]


def test_the_page_names_each_kind_and_the_version_that_is_written() -> None:
    kinds: list[PartKind[Any]] = [LOG, COLUMNS, KEY_INDEX, PACK, INDEX]
    rows = [row.cells for row in table_rows(DOCS / "cold-format.md") if set(row.cells) == {"kind", "magic", "version"}]
    assert [(row["kind"], row["magic"].strip("`"), int(row["version"])) for row in rows] == [
        (kind.name, kind.magic.decode(), kind.version) for kind in kinds
    ]
    assert all(set(kind.decoders) == set(range(1, kind.version + 1)) for kind in kinds), "what was written is read"


# -- a bucket of both --------------------------------------------------------------------------------------------------


def locator(key: str, part: bytes, kind: PartKind[Any]) -> PartLocator:
    footer_start = len(part) - decode_trailer(part, magic=kind.magic).tail_bytes
    return PartLocator(key=key, start=0, end=len(part), footer_start=footer_start, crc32=zlib.crc32(part))


async def put_later(
    store: MemoryObjectStore, entry: SegmentEntry, finished: FinishedSegment, names: tuple[str, ...]
) -> SegmentEntry:
    """Replace some parts of a segment by those that a later release would have written; return its entry."""
    parts = {"log": bytes(finished.log), "cq": finished.cq, "idx": finished.idx}
    changed: dict[str, PartLocator] = {}
    for name in names:
        part, key = REWRITES[name](parts[name]), getattr(entry, name).key
        await store.put(key, part)
        changed[name] = locator(key, part, LATER[name][1])
    return msgspec.structs.replace(entry, **changed)


async def write_mixed(store: MemoryObjectStore, log: Log, names: tuple[str, ...]) -> list[SegmentEntry]:
    """The first half of the log in version 1, the second with the parts of `names` in version 2."""
    writer = await LedgerWriter.open(
        store,
        KEYS,
        identity=LedgerIdentity(store_uuid="versions", cluster="test", broker_name="broker-a"),
        clock_ms=lambda: NOW_MS,
        random=Random(1),
    )
    halves = {queue_id: end // 2 for queue_id, end in log.ends().items()}
    entries: list[SegmentEntry] = []
    for later, starts, ends in (((), {}, halves), (names, halves, log.ends())):
        finished = write_segment(
            log,
            starts=starts,
            ends=ends,
            segment_id=writer.next_segment_id(),
            options=SegmentOptions(frame_bytes=2_000, coarse_frames=2),
        )
        with finished:
            entry = await upload_segment(store, KEYS, finished, created_ms=NOW_MS)
            entry = await put_later(store, entry, finished, later)
        await writer.commit(LedgerChanges(segments_in=(entry,)))
        entries.append(entry)
    await writer.close()
    return entries


def two_queues() -> Log:
    log = Log(TOPIC, Random(5), queue_count=2, other_bytes_max=50)
    log.append_flights(160)
    return log


async def check_cold_reader(store: MemoryObjectStore, entries: list[SegmentEntry], log: Log) -> None:
    """Every record, by offset, by key, by tag and by its place in the log."""
    catalog = await open_catalog(store, KEYS)
    assert [each.segment_id for each in catalog.topics[TOPIC].segments] == [each.segment_id for each in entries]
    reader = ColdReader(store, catalog=lambda: catalog, cache=FrameCache())
    for queue_id, queue in log.queues.items():
        for offset in (0, len(queue.records) // 2):
            data, wanted = b"", queue.records[offset:]
            while offset < len(queue.records):
                pull = ColdPull(
                    topic=TOPIC, queue_id=queue_id, offset=offset, count_max=64, bytes_max=1 << 20, cut_ms=0
                )
                result = await reader.pull(pull)
                assert result.next_offset > offset
                data, offset = data + b"".join(map(bytes, result.buffers)), result.next_offset
            assert data == b"".join(wanted)
        for record in (queue.records[0], queue.records[-1]):
            message = decode_record(record)
            assert message.unique_key is not None
            found = await reader.query_key(TOPIC, message.unique_key, begin_ms=0, end_ms=1 << 60, count_max=9, cut_ms=0)
            assert list(map(bytes, found)) == [record]
            assert bytes(await reader.view(message.physical_offset, cut_ms=lambda _topic: 0)) == record
        columns = await SegmentReader(store, entries[1]).columns(
            queue_id, start_offset=len(queue.records) // 2, end_offset=len(queue.records)
        )
        assert columns.tags_codes.tolist() == queue.tags_codes[len(queue.records) // 2 :]
    await reader.close()


def spark_bodies(url: str, **options: str) -> list[bytes]:
    """What a Spark task reads: its own reader, without a session."""
    checked = read_options_from({"path": url, "topic": TOPIC, "columns": "value"} | options)
    plan = resolve_plan(checked, now_ms=NOW_MS)
    reader = FrameReader(checked)
    return sorted(row["value"] for task in plan.tasks for batch in reader.read(task) for row in batch.to_pylist())


@pytest.mark.parametrize("names", [("log",), ("cq",), ("idx",), ("log", "cq", "idx")], ids=" ".join)
def test_both_versions_are_read_beside_one_another(names: tuple[str, ...]) -> None:
    """By the broker's cold reader, and by Spark's: also by tag and key, which read columns and key indexes there."""
    name, log = f"versions-{next(_names)}", two_queues()
    store = MemoryObjectStore(name)

    async def write_and_read() -> None:
        entries = await write_mixed(store, log, names)
        for part in names:
            later = await store.get(getattr(entries[1], part).key)
            assert decode_trailer(later, magic=LATER[part][0].magic).version == 2
        with a_later_release(names):
            await check_cold_reader(store, entries, log)

    asyncio.run(write_and_read())
    messages = [decode_record(record) for queue in log.queues.values() for record in queue.records]
    with a_later_release(names):
        assert spark_bodies(f"memory://{name}") == sorted(message.body for message in messages)
        by_tag = spark_bodies(f"memory://{name}", tags="UA")
        assert by_tag == sorted(message.body for message in messages if message.tags == "UA")
        key = messages[-1].keys
        assert key is not None
        assert messages[-1].body in spark_bodies(f"memory://{name}", keys=key)


async def test_a_reader_without_the_decoder_refuses_the_part_and_reads_the_rest() -> None:
    store, log = MemoryObjectStore(), two_queues()
    entries = await write_mixed(store, log, ("log", "cq", "idx"))
    catalog = await open_catalog(store, KEYS)
    reader = ColdReader(store, catalog=lambda: catalog, cache=FrameCache())
    old, new = SegmentReader(store, entries[0]), SegmentReader(store, entries[1])
    await old.log_footer()
    for read, kind in (
        (new.log_footer, "records"),
        (new.columns_footer, "columns"),
        (new.key_index_footer, "key index"),
    ):
        with pytest.raises(FormatTooNewError, match=f"kind={kind} format_version=2 versions_read=1"):
            await read()
    pull = ColdPull(topic=TOPIC, queue_id=0, offset=0, count_max=1, bytes_max=1 << 20, cut_ms=0)
    assert (await reader.pull(pull)).message_count == 1
    with pytest.raises(FormatTooNewError):
        await reader.pull(replace(pull, offset=len(log.queues[0].records) - 1))
    await reader.close()


def test_spark_does_not_skip_unreadable_parts() -> None:
    """A part of a later version is not damaged: `onCorruptFrame=skip` would leave messages out that are there."""
    name = f"versions-{next(_names)}"
    asyncio.run(write_mixed(MemoryObjectStore(name), two_queues(), ("log",)))
    for choice in ("fail", "skip"):
        with pytest.raises(FormatTooNewError, match="kind=records format_version=2 versions_read=1"):
            spark_bodies(f"memory://{name}", onCorruptFrame=choice)


def test_a_flipped_version_is_damage() -> None:
    """Else what is damaged would never be healed."""
    with write_segment(two_queues()) as finished:
        parts = {"log": bytes(finished.log), "cq": finished.cq, "idx": finished.idx}
    for name, part in parts.items():
        broken = bytearray(part)
        broken[-16] ^= 2
        assert decode_trailer(broken, magic=LATER[name][0].magic).version == 3
        with pytest.raises(FrameChecksumError):
            decode_footer(bytes(broken), kind=LATER[name][0])


@pytest.fixture
async def rig(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[ScrubRig]:
    rig = ScrubRig(tmp_path, packs=request.param)
    try:
        async with rig.opened():
            for _ in range(2):
                rig.put(TOPIC, 40)
                rig.put("others", 40)
                await rig.seal()
            rig.delete_local()
            yield rig
    finally:
        rig.close()


def stamped(data: bytes, magic: bytes, *, version: int) -> bytes:
    """A part or pack whose trailer says another version; whole otherwise."""
    trailer = decode_trailer(data, magic=magic)
    fields = TRAILER.pack(trailer.part_bytes, trailer.footer_bytes, trailer.footer_raw_bytes, version, 0, 0, magic)
    checked = fields[:TRAILER_CHECKED_BYTES]
    crc32 = zlib.crc32(checked, zlib.crc32(data[-trailer.tail_bytes : -TRAILER.size]))
    return data[: -TRAILER.size] + checked + crc32.to_bytes(4, "little") + magic


@pytest.mark.parametrize("rig", [False], indirect=True)
@pytest.mark.parametrize("part", ["log", "cq", "idx"])
async def test_scrub_and_heal_leave_a_segment_of_a_later_version_as_it_is(rig: ScrubRig, part: str) -> None:
    """Also where another part of it is damaged: only the part of a later format describes the others."""
    entry = rig.catalog.topics[TOPIC].segments[0]
    key, other = getattr(entry, part).key, entry.idx.key if part != "idx" else entry.cq.key
    await rig.store.put(key, stamped(await rig.store.get(key), LATER[part][0].magic, version=2))
    await flip_bit(rig.objects, other, Random(1))
    before, named = rig.objects.objects, rig.catalog.topics[TOPIC]
    report = await rig.scrub(heal=True)
    problems = {finding.key: (finding.problem, finding.outcome) for finding in report.findings}
    assert problems == {key: (Problem.TOO_NEW, Outcome.FOUND), other: (Problem.DAMAGED, Outcome.FOUND)}
    assert rig.catalog.topics[TOPIC] == named
    assert all(rig.objects.objects[each] == before[each] for each in entry.keys)


@pytest.mark.parametrize("rig", [True], indirect=True)
async def test_scrub_heal_and_merge_leave_a_pack_of_a_later_version_as_it_is(rig: ScrubRig) -> None:
    pack = next(iter(rig.catalog.packs.values()))
    later = stamped(await rig.store.get(pack.key), PACK_MAGIC, version=2)
    await rig.store.put(pack.key, later)
    report = await rig.scrub(heal=True)
    (finding,) = report.findings
    assert (finding.key, finding.problem, finding.outcome) == (pack.key, Problem.TOO_NEW, Outcome.FOUND)
    assert "kind=pack format_version=2 versions_read=1" in finding.detail
    with pytest.raises(FormatTooNewError):
        await anext(PieceStream(rig.store, pack).pieces(lambda _: True))  # as a merge reads it
    assert rig.catalog.packs[pack.pack_id] == pack
    assert await rig.store.get(pack.key) == later


@pytest.mark.parametrize("rig", [True], indirect=True)
async def test_the_ledger_says_of_which_version_a_pack_is(rig: ScrubRig) -> None:
    """So that who reads by the ledger alone, without a pack's trailer, does not misread it."""
    pack = next(iter(rig.catalog.packs.values()))
    assert "format_version" not in msgspec.to_builtins(pack)
    changed = msgspec.structs.replace(pack, format_version=2)
    with pytest.raises(FormatTooNewError, match="kind=pack format_version=2 versions_read=1"):
        await PackPieces(rig.store).of_topic(changed, TOPIC)
    PACK.decoders[2] = PACK.decoders[1]
    try:
        assert await PackPieces(rig.store).of_topic(changed, TOPIC)
    finally:
        del PACK.decoders[2]


async def test_an_index_object_of_a_later_version_is_refused_before_a_request() -> None:
    entry = IndexEntry(
        index_id="0000000001-0000000001", ttl_class="forever", key="nothing", object_bytes=1, crc32=0, start=0, end=1,
        topics=b"", min_store_ms=0, max_store_ms=0, record_count=1, key_count=1, page_bytes=16, page_count=1,
        blooms_start=8, chapters_start=24, footer_start=24, directory=b"", created_ms=0, format_version=2,
    )  # fmt: skip
    with pytest.raises(FormatTooNewError, match="kind=index object format_version=2"):
        await IndexObject(MemoryObjectStore(), entry).blooms()
    with pytest.raises(FormatTooNewError, match="kind=index object format_version=2"):
        IndexObject(MemoryObjectStore(), entry).decoders  # noqa: B018
