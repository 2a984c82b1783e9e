"""The decoder on store directories written by the official broker, against what the official client read from them."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard

from thermocline.remoting.records import sys_flag as flags
from thermocline.remoting.records.message_record import is_blank, iterate_records
from thermocline.spark.decoding.arrow_decoder import ArrowDecoder

REPOSITORY = Path(__file__).resolve().parents[3]
COLUMNS = (
    *("topic", "queueId", "queueOffset", "key", "tag", "value", "timestamp", "bornTimestamp"),
    *("msgId", "flag", "sysFlag", "reconsumeTimes", "properties"),
)


def read_fixture(name: str) -> bytes:
    """The decompressed content of one shared fixture; skips the test where there is none."""
    shared = Path(os.environ.get("TEST_SHARED", REPOSITORY.parent / "shared"))
    path = shared / "fixtures" / name
    if not path.is_file():
        pytest.skip(f"the fixture {name} is not on this machine (set TEST_SHARED)")
    with path.open("rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file).read()


def log_files(archive: bytes) -> list[bytes]:
    """The records of every CommitLog file, without the blank at its end."""
    files: list[bytes] = []
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            if not member.name.startswith("./commitlog/") or not member.isfile():
                continue
            content = tar.extractfile(member)
            assert content is not None
            data = content.read()
            end = 0
            while end < len(data) and not is_blank(data, end) and data[end : end + 4] != bytes(4):
                end += int.from_bytes(data[end : end + 4], "big")
            files.append(data[:end])
    return files


def readable(sys_flag: int) -> bool:
    """Whether a record is in a consume queue: prepared and rolled back ones are not."""
    return sys_flag & flags.TRANSACTION_MASK in (flags.TRANSACTION_NONE, flags.TRANSACTION_COMMIT)


@pytest.mark.parametrize("name", ["java-store-clean", "java-store-killed"])
def test_official_stores_decode_as_the_official_client_read_them(name: str) -> None:
    listing = json.loads(read_fixture(f"{name}.json.zst"))
    decoder = ArrowDecoder(COLUMNS)
    rows: dict[tuple[str, int, int], dict[str, Any]] = {}
    for records in log_files(read_fixture(f"{name}.tar.zst")):
        batch = decoder.decode(records)
        batch.validate(full=True)
        # Times as numbers of milliseconds, as the listing has them.
        for column in ("timestamp", "bornTimestamp"):
            place = batch.schema.get_field_index(column)
            batch = batch.set_column(place, column, batch.column(place).cast(pa.int64()))
        witness = {(r.topic, r.queue_id, r.queue_offset, r.physical_offset): r for r in iterate_records(records)}
        assert len(witness) == batch.num_rows
        rows |= {
            (row["topic"], row["queueId"], row["queueOffset"]): row
            for row in batch.to_pylist()
            if readable(row["sysFlag"])
        }
    assert len(listing["messages"]) > 10_000
    for message in listing["messages"]:
        row = rows[(message["topic"], message["queueId"], message["queueOffset"])]
        assert row["key"] == message["keys"]
        assert row["tag"] == message["tags"]
        assert row["msgId"] == (None if message["uniqKey"] == message["offsetMsgId"] else message["uniqKey"])
        assert len(row["value"]) == message["bodyLength"]
        assert hashlib.sha1(row["value"]).hexdigest() == message["bodySha1"]
        assert row["timestamp"] == message["storeTimestamp"] * 1_000
        assert row["bornTimestamp"] == message["bornTimestamp"] * 1_000
        for column in ("flag", "sysFlag", "reconsumeTimes"):
            assert row[column] == message[column], column


def test_every_record_of_an_official_store_decodes_as_the_codec_says() -> None:
    decoder = ArrowDecoder(("queueOffset", "properties", "value"), decompress_body=False)
    for records in log_files(read_fixture("java-store-killed.tar.zst")):
        rows = decoder.decode(records).to_pylist()
        expected = list(iterate_records(records))
        assert [row["queueOffset"] for row in rows] == [record.queue_offset for record in expected]
        assert [dict(row["properties"]) for row in rows] == [record.properties for record in expected]
        assert [row["value"] for row in rows] == [record.body for record in expected]
