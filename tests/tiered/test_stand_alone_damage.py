"""What the stand-alone reader in examples/ says of lost records, of damage, and of ledgers that are not whole."""

from __future__ import annotations

import json
import shutil
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.cold_reader import describe, read
from tests.docs.pages import ROOT
from tests.tiered.packs.make_golden import LARGE
from tests.tiered.record_variants import LONG_TOPIC
from tests.tiered.stand_alone import AT_START_MS, BROKER, RECORDS_1, RECORDS_2, opened, run, theirs
from thermocline.tiered.objects.checked_json import seal_json
from thermocline.tiered.objects.errors import QuarantinedError


async def test_lost_records_are_an_error() -> None:
    bucket = ROOT / "tests/tiered/golden/v1-checked/bucket"
    async with opened(bucket, AT_START_MS) as ours:
        with pytest.raises(QuarantinedError):
            await ours.records("broken", 0)
    for words in (("cat", "broken"), ("key", "broken", "IPV6"), ("at", "broken", "0")):
        status, written, complaint = run(str(bucket), *words, "--now", str(AT_START_MS))
        assert (status, written) == (1, b"")
        assert "lost" in complaint


def damages(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    """Ways in which an object may be damaged: every so many bytes one bit flipped, cut short, grown, gone."""
    step = max(1, len(data) // 16)
    for position in [*range(0, len(data), step), len(data) - 1]:
        yield f"bit flipped at {position}", data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
    yield "cut short", data[:-1]
    yield "empty", b""
    yield "missing", None


@pytest.mark.parametrize(
    ("golden", "pattern", "words"),
    [
        (RECORDS_1, "topics/variants/*1.log", ("at", "variants", "0")),
        (RECORDS_1, "topics/variants/*2.log", ("cat", "variants")),
        (RECORDS_1, "topics/variants/*2.idx", ("key", "variants", "shared")),
        (RECORDS_2, "packs/h015/*03.pack", ("cat", "variants")),
        (RECORDS_2, "packs/forever/*22.pack", ("cat", LONG_TOPIC)),
        (RECORDS_2, "packs/forever/*22.pack", ("ls",)),
        (RECORDS_2, "indexes/forever/*.index", ("key", LARGE, "LARGE-1")),
        (RECORDS_2, "checkpoints/*/head.json", ("ls",)),
        (RECORDS_2, "checkpoints/*/000-*.zst", ("ls",)),
        (RECORDS_2, "checkpoints/*/packs-*.zst", ("ls",)),
        (RECORDS_2, "ledger/*4.json", ("ls",)),
        (RECORDS_2, "ledger/*6.json", ("ls",)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damage_is_named(golden: Path, pattern: str, words: tuple[str, ...], tmp_path: Path) -> None:
    """Whatever is wrong with an object, nothing is read from it, and the complaint names it."""
    bucket = tmp_path / "bucket"
    shutil.copytree(golden, bucket)
    command = (str(bucket), *words, "--now", str(AT_START_MS))
    assert run(*command)[0] == 0
    (path,) = (bucket / BROKER).glob(pattern)
    data = path.read_bytes()
    for problem, damaged in damages(data):
        if (damaged is None and path.parts[-2] == "ledger") or (damaged is None and "checkpoints" in path.parts):
            continue  # a ledger without one of these is another ledger: see below
        path.unlink()
        if damaged is not None:
            path.write_bytes(damaged)
        status, _, complaint = run(*command)
        assert status == 1, problem
        assert path.name in complaint, problem
        assert complaint.startswith("cold_reader: ")
        assert "\n" not in complaint


def test_a_checkpoint_that_is_not_whole_is_passed_over(tmp_path: Path) -> None:
    """Step 2 of section 3.3: as long as entries go back to another one, or to the first."""
    bucket = tmp_path / "bucket"
    shutil.copytree(RECORDS_2, bucket)
    expected = run(str(bucket), "ls")
    assert expected[0] == 0
    for name in ("head-hint", "checkpoints/00000000000000000004/packs-0000000001.zst"):
        (bucket / BROKER / name).unlink()
        assert run(str(bucket), "ls") == expected
    (bucket / BROKER / f"ledger/{1:020}.json").unlink()
    status, written, complaint = run(str(bucket), "ls")
    assert (status, written) == (1, b"")
    assert f"{1:020}.json" in complaint


def test_misuse(tmp_path: Path) -> None:
    bucket = str(RECORDS_1)
    for words in ((bucket, "cat"), (bucket, "ls", "more"), (bucket, "list"), (str(tmp_path), "ls")):
        assert run(*words)[0] == 2
    status, _, complaint = run(bucket, "cat", "no-such-topic")
    assert (status, complaint) == (1, "cold_reader: there is no such topic")
    shutil.copytree(RECORDS_1 / BROKER, tmp_path / "c" / "one")
    shutil.copytree(RECORDS_1 / BROKER, tmp_path / "c" / "two")
    assert run(str(tmp_path), "ls")[0] == 2
    assert run(str(tmp_path), "ls", "--broker", "c/two")[0] == 0


def rewrite(path: Path, **changes: Any) -> None:
    """Change members of an object of the ledger, its checksum with them."""
    found = json.loads(path.read_bytes())
    del found["crc32"]
    path.write_bytes(seal_json(json.dumps(found | changes, separators=(",", ":")).encode()))


def test_a_checkpoint_of_another_entry_does_not_count(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    shutil.copytree(RECORDS_2, bucket)
    expected = run(str(bucket), "ls")
    packs = bucket / BROKER / "checkpoints/00000000000000000004/packs-0000000001.zst"
    rewrite(packs.parent / "head.json", nonce="of another writer", packs=None)
    assert run(str(bucket), "ls") == expected  # by the entries from the first on


@pytest.mark.parametrize("name", [f"ledger/{7:020}.json", f"checkpoints/{4:020}/head.json"])
def test_a_newer_format_is_refused(name: str, tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    shutil.copytree(RECORDS_2, bucket)
    rewrite(bucket / BROKER / name, format=3)
    status, written, complaint = run(str(bucket), "ls")
    assert (status, written) == (1, b"")
    assert "newer" in complaint


def test_an_entry_that_follows_another_one_is_refused(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    shutil.copytree(RECORDS_2, bucket)
    rewrite(bucket / BROKER / f"ledger/{6:020}.json", previous_nonce="of another writer")
    status, _, complaint = run(str(bucket), "ls")
    assert status == 1
    assert "follows another" in complaint


def test_offsets_may_be_missing_only_where_holes_are_declared() -> None:
    history = theirs(RECORDS_2, AT_START_MS)
    topic = history.topics["variants"]
    offsets = [each["queue_offset"] for each in history.records(topic, 0)]
    assert offsets == list(range(26))
    (pack,) = [key for key in history.parts if key[1].endswith("-0000000008")]
    del history.parts[pack]
    with pytest.raises(ValueError, match="queue 0: offsets 10 to 12 are missing"):
        list(history.records(topic, 0))
    topic["holes"] = [[1, 0, 50], [0, 11, 12], [0, 10, 11]]
    assert [each["queue_offset"] for each in history.records(topic, 0)] == [*range(10), *range(12, 26)]


def test_expired_messages_do_not_come_back() -> None:
    history = theirs(RECORDS_2, AT_START_MS)
    topic = history.topics["variants"]
    records = list(history.records(topic, 0))
    cut_ms = records[5]["store_timestamp_ms"]
    change = {"topic": "variants", "incarnation": topic["incarnation"], "ttl_ms": -1, "expired_before_ms": cut_ms}
    history.apply(defaultdict(list, topics=[change]))
    history.apply(defaultdict(list, topics=[change | {"expired_before_ms": cut_ms - 3}]))
    history.now_ms = AT_START_MS * 2
    visible = [each["raw"] for each in records if each["store_timestamp_ms"] >= cut_ms]
    assert 0 < len(visible) < len(records)
    assert [each["raw"] for each in history.records(topic, 0)] == visible
    history.apply(defaultdict(list, topics=[change | {"ttl_ms": None}], settings={"default_ttl_ms": 1}))
    assert list(history.records(topic, 0)) == []


def test_segments_leave_for_quarantine_and_for_good() -> None:
    history = theirs(RECORDS_1, AT_START_MS)
    topic = history.topics["variants"]
    first, second = history.segments(topic)
    everything = list(history.records(topic, 0))
    lost = {"segment": second, "damage": [[second["log"][0], "missing"]], "lost": [[0, 7, 10, -1]]}
    history.apply(defaultdict(list, quarantine=[lost | {"lost": [[0, 5, 10, -1]]}]))
    history.apply(defaultdict(list, quarantine=[lost]))
    assert [span[:3] for span in history.spans(topic)] == [(0, 0, 5), (0, 7, 10), (1, 0, 3)]
    topic["holes"] = [[0, 5, 7]]
    found = history.records(topic, 0)
    assert [next(found) for _ in range(5)] == everything[:5]
    with pytest.raises(ValueError, match="queue 0: offsets 7 to 10 are lost"):
        next(found)
    history.apply(defaultdict(list, quarantine_out=[["variants", second["segment_id"]]]))
    assert list(history.records(topic, 0)) == everything[:5]
    history.apply(defaultdict(list, segments_in=[second], segments_out=[["variants", first["segment_id"]]]))
    assert list(history.records(topic, 0)) == everything[5:]


def test_records_in_a_gap_of_an_index_are_found_by_their_own_keys() -> None:
    history = theirs(RECORDS_2, AT_START_MS)
    topic = history.topics["variants"]
    expected = [each["raw"] for each in history.find_key(topic, "shared")]
    (index,) = [
        key for key, entry in history.parts.items() if entry.get("ttl_class") == "h015" and "directory" in entry
    ]
    del history.parts[index]
    found = [each["raw"] for each in history.find_key(topic, "shared")]
    assert found == expected[: len(found)]
    assert len(found) < len(expected)  # those behind the index objects
    (places,) = [entry for entry in history.parts.values() if entry.get("ttl_class") == "places"]
    places["gaps"] = [["variants", topic["incarnation"], 0, 0, 10]]
    assert [each["raw"] for each in history.find_key(topic, "shared")] == expected


@pytest.mark.parametrize("position", [0, -9, -16, -22, -30, -40])
def test_a_trailer_that_does_not_fit_is_refused(position: int, tmp_path: Path) -> None:
    """Magics, checksum of the footer, version, its sizes, or the footer: even where the catalog has its checksum."""
    segment = next(iter(theirs(RECORDS_1, AT_START_MS).parts.values()))
    key, start, end, footer_start, _ = segment["log"]
    data = bytearray((RECORDS_1 / key).read_bytes())
    data[position] ^= 2
    (tmp_path / "part").write_bytes(data)
    with pytest.raises(ValueError, match="trailer does not fit"):
        read(tmp_path, b"THERMLOG", "part", start, end, footer_start, zlib.crc32(data))


def test_a_body_that_is_damaged_is_refused() -> None:
    history = theirs(RECORDS_1, AT_START_MS)
    record = bytearray(next(history.records(history.topics["variants"], 0))["raw"])
    assert describe(bytes(record))["raw"] == record
    record[90] ^= 1
    with pytest.raises(ValueError, match="body is damaged"):
        describe(bytes(record))
