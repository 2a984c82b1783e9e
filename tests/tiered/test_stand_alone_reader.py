"""The stand-alone reader in examples/, written from docs/cold-format.md alone, and ours agree on every golden bucket.

Where it and the page disagree, the page is wrong.

Covers `tiered/catalog/pack_pieces.py`, `tiered/catalog/pack_search.py`, `tiered/reading/cold_query.py`,
`tiered/reading/record_lookups.py`, `tiered/segments/segment_readers.py`.
"""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from base64 import b64decode
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.tiered.packs.make_golden import GOLDEN_RECORDS, LARGE
from tests.tiered.stand_alone import AT_START_MS, READER, opened, rows, run, theirs
from thermocline.remoting.errors import QueryNotFoundError
from thermocline.remoting.records.message_id import encode_message_id
from thermocline.remoting.records.message_record import decode_record
from thermocline.tiered.objects.errors import QuarantinedError
from thermocline.tiered.reading.cold_reader import Boundary

LINES_MAX = 300
BUCKETS = sorted(ROOT.glob("tests/tiered/**/golden/*/bucket"))
DAY_MS = 24 * 3_600_000
WEEK_LATER_MS = AT_START_MS + 7 * DAY_MS + 61_000
"""Something of every bucket has expired by then, but not all, where topics have a time to live."""
COUNT_MAX = 1_000_000

every_bucket = pytest.mark.parametrize("bucket", BUCKETS, ids=lambda path: f"{path.parts[-4]}-{path.parts[-2]}")
at_two_times = pytest.mark.parametrize("now_ms", [AT_START_MS, WEEK_LATER_MS])


# -- what it is --------------------------------------------------------------------------------------------------------


def test_it_is_short_and_imports_nothing_of_ours() -> None:
    text = READER.read_text()
    assert len(text.splitlines()) <= LINES_MAX
    imported: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert node.module is not None
            imported.add(node.module.split(".")[0])
        assert not (isinstance(node, ast.Name) and node.id in ("__import__", "exec", "eval"))
    assert "importlib" not in imported
    assert imported - sys.stdlib_module_names == {"zstandard"}


def test_it_runs_by_itself(tmp_path: Path) -> None:
    """As a program, alone in a directory, where nothing of ours can be imported from."""
    program = tmp_path / "reader.py"
    shutil.copy(READER, program)
    bucket = GOLDEN_RECORDS / "bucket"
    done = subprocess.run(
        [sys.executable, "-I", program, bucket, "cat", LARGE, "--raw"], capture_output=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, b"")
    expected = json.loads((GOLDEN_RECORDS / "expected.json").read_text())
    assert sha256(done.stdout).hexdigest() == expected["large"]


def test_there_are_buckets_of_every_kind() -> None:
    kinds = {path.relative_to(bucket).parts[2] for bucket in BUCKETS for path in bucket.rglob("*") if path.is_file()}
    assert {"ledger", "checkpoints", "topics", "packs", "indexes"} <= kinds
    assert {bucket.parent.name for bucket in BUCKETS} >= {
        "v1",
        "v1-checked",
        "v1-records",
        "v2",
        "v2-logs",
        "v2-records",
    }


# -- it agrees with ours -----------------------------------------------------------------------------------------------


@every_bucket
@at_two_times
async def test_records_by_offset(bucket: Path, now_ms: int) -> None:
    """Byte for byte, of each queue and of all of a topic, from its start and from within."""
    seen = 0
    async with opened(bucket, now_ms) as ours:
        for topic in ours.topics:
            if ours.catalog.topics[topic].quarantine:
                continue
            together = b""
            for queue_id in sorted(ours.catalog.queue_bounds(topic)):
                records = await ours.records(topic, queue_id)
                together += b"".join(records)
                seen += len(records)
                words = (str(bucket), "cat", topic, "--queue", str(queue_id), "--now", str(now_ms))
                assert run(*words, "--raw") == (0, b"".join(records), "")
                if records:
                    offset = decode_record(records[len(records) // 2]).queue_offset
                    later = b"".join(await ours.records(topic, queue_id, offset))
                    assert run(*words, "--raw", "--from", str(offset)) == (0, later, "")
            assert run(str(bucket), "cat", topic, "--raw", "--now", str(now_ms)) == (0, together, "")
    assert seen > 10


@every_bucket
async def test_topics_and_their_fields(bucket: Path) -> None:
    async with opened(bucket, AT_START_MS) as ours:
        listed = {row["topic"]: row for row in rows(str(bucket), "ls")}
        assert sorted(listed) == ours.topics
        for topic, row in listed.items():
            entry = ours.catalog.topics[topic]
            assert (row["incarnation"], row["ttl_ms"]) == (entry.incarnation, entry.ttl_ms)
            assert row["expired_before_ms"] == entry.expired_before_ms
            assert row["holes"] == [[hole.queue_id, hole.start_offset, hole.end_offset] for hole in entry.holes]
            bounds: dict[int, tuple[int, int]] = {}
            for queue_id, start, end in row["runs"]:
                bounds[queue_id] = (bounds.get(queue_id, (start, end))[0], end)
            assert bounds == ours.catalog.queue_bounds(topic)


@every_bucket
@at_two_times
async def test_keys(bucket: Path, now_ms: int) -> None:
    """Every id and key of every record finds the same records, in the same order; what is no key finds none."""
    history, seen = theirs(bucket, now_ms), 0
    async with opened(bucket, now_ms) as ours:
        for topic in ours.topics:
            if ours.catalog.topics[topic].quarantine:
                continue
            keys = {"no such key"}
            for queue_id in ours.catalog.queue_bounds(topic):
                for record in await ours.records(topic, queue_id):
                    message = decode_record(record)
                    keys |= {each for each in [message.unique_key, *(message.keys or "").split(" ")] if each}
            for key in sorted(keys):
                found = await ours.reader.query_key(
                    topic, key, begin_ms=0, end_ms=1 << 60, count_max=COUNT_MAX, cut_ms=ours.cut_ms(topic)
                )
                records = [record["raw"] for record in history.find_key(history.topics[topic], key)]
                assert records == [bytes(each) for each in found], (topic, key)
                assert bool(records) == (key != "no such key")
                seen += len(records)
    assert seen > 10


@every_bucket
@at_two_times
async def test_times(bucket: Path, now_ms: int) -> None:
    """The first visible record at or after every store time, the instant before and the instant after it."""
    history = theirs(bucket, now_ms)
    async with opened(bucket, now_ms) as ours:
        for topic in ours.topics:
            if ours.catalog.topics[topic].quarantine:
                continue
            queues = sorted(ours.catalog.queue_bounds(topic))
            records = [record for queue_id in queues for record in await ours.records(topic, queue_id)]
            times = {decode_record(record).store_timestamp_ms + step for record in records for step in (-1, 0, 1)}
            for time_ms in sorted({0, *times})[:: 1 + len(times) // 60]:
                expected = [
                    (queue_id, offset)
                    for queue_id in queues
                    if (
                        offset := await ours.reader.offset_by_time(
                            topic, queue_id, time_ms, boundary=Boundary.LOWER, cut_ms=ours.cut_ms(topic)
                        )
                    )
                    is not None
                ]
                found = history.answer("at", [topic, str(time_ms)], None, 0)
                assert [(each["queue_id"], each["queue_offset"]) for each in found] == expected


@every_bucket
@at_two_times
async def test_places(bucket: Path, now_ms: int) -> None:
    """Every record by its place in the log, and nothing at the byte behind its first; expired ones are not there."""
    history = theirs(bucket, now_ms)
    async with opened(bucket, AT_START_MS) as before, opened(bucket, now_ms) as ours:
        whole = [topic for topic in ours.topics if not ours.catalog.topics[topic].quarantine]
        records = [
            decode_record(record)
            for topic in whole
            for queue_id in ours.catalog.queue_bounds(topic)
            for record in await before.records(topic, queue_id)
        ]
        owners = Counter(record.physical_offset for record in records)
        # In the oldest buckets every topic has a log of its own: one physical offset names several records.
        alone = [record for record in records if owners[record.physical_offset] == 1]
        assert len(alone) > 10
        for record in alone:
            name = encode_message_id(record.store_host, record.physical_offset)
            try:
                expected = [bytes(await ours.reader.view(record.physical_offset, cut_ms=ours.cut_ms))]
            except QueryNotFoundError:
                expected = []
            except QuarantinedError:
                with pytest.raises(ValueError, match="lost"):
                    list(history.answer("id", [name], None, 0))
                continue
            assert [each["raw"] for each in history.answer("id", [name], None, 0)] == expected
            if len(whole) == len(ours.topics):
                behind = encode_message_id(record.store_host, record.physical_offset + 1)
                assert list(history.answer("id", [behind], None, 0)) == []


@every_bucket
async def test_fields(bucket: Path) -> None:
    """The reader returns the same fields as our decoder: IPv6, long names, flags, properties and bodies too."""
    async with opened(bucket, AT_START_MS) as ours:
        for topic in ours.topics:
            if ours.catalog.topics[topic].quarantine:
                continue
            queues = sorted(ours.catalog.queue_bounds(topic))
            records = [record for queue_id in queues for record in await ours.records(topic, queue_id)]
            found = rows(str(bucket), "cat", topic, "--now", str(AT_START_MS))
            for row, message in zip(found, map(decode_record, records), strict=True):
                assert row["topic"] == message.topic == topic
                assert row["properties"] == message.properties
                assert b64decode(row["body"]) == message.body
                assert (row["born_host"], row["store_host"]) == (message.born_host[0], message.store_host[0])
                assert row["offset_msg_id"] == encode_message_id(message.store_host, message.physical_offset)
                for name in ("queue_id", "flag", "queue_offset", "physical_offset", "sys_flag", "reconsume_times"):
                    assert row[name] == getattr(message, name)
                for name in ("born_timestamp_ms", "store_timestamp_ms", "prepared_transaction_offset"):
                    assert row[name] == getattr(message, name)
