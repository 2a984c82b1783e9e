"""Reads a broker's history from its bucket, without Thermocline: written from docs/cold-format.md alone.

    python examples/cold_reader.py DIR ls                                      topics, and the range of each
    python examples/cold_reader.py DIR cat TOPIC [--queue N] [--from OFFSET]   records by queue and offset
    python examples/cold_reader.py DIR key TOPIC KEY                           records with an id or key, newest first
    python examples/cold_reader.py DIR at TOPIC MS                             each queue's first record since a time
    python examples/cold_reader.py DIR id OFFSET_MSG_ID                        the record at a place

DIR: objects as files, as `file://` keeps them, and `aws s3 sync` or `mc mirror` bring them. Prints JSON lines, or with
--raw the records as stored, end to end; nothing expired (now, or at --now MS). --broker CLUSTER/NAME: of several. What
is missing, damaged (by any checksum) or lost ends it with a sentence and status 1. (2.1): a section of that page.
"""

import argparse
import json
import struct
import sys
import time
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address
from itertools import accumulate, chain, islice, pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

import zstandard

Json = dict[str, Any]
WORDS = {"ls": 0, "cat": 1, "key": 2, "at": 2, "id": 1}
SEAL = b',"crc32":"'
TOPIC: Json = {"deleted": False, "ttl_ms": None, "expired_before_ms": 0, "holes": []}
RECORD = "size magic body_crc queue_id flag queue_offset physical_offset sys_flag born_timestamp_ms born_host "
RECORD += "store_timestamp_ms store_host reconsume_times prepared_transaction_offset body"
unzip = zstandard.ZstdDecompressor().decompress


def check(is_good: bool, problem: str) -> None:
    if not is_good:
        raise ValueError(problem)


def columns(data: bytes, position: int, *shapes: tuple[int, int]) -> list[list[int]]:
    """For each (count, width) a column of numbers in byte planes, column behind column (2.3)."""
    found = []
    for count, width in shapes:
        planes = [data[position + count * plane :][:count] for plane in range(width)]
        found.append([int.from_bytes(bytes(each), "little") for each in zip(*planes, strict=True)])
        position += count * width
    return found


def rows_of_hash(data: bytes, count: int, hashed: int, *widths: int) -> list[list[int]]:
    """What stands beside a hash, in columns behind one of hashes, each less the one before (2.4, 2.6)."""
    steps, *others = columns(data, 0, (count, 4), *((count, width) for width in widths))
    return [row for value, *row in zip(accumulate(steps), *others, strict=True) if value % 2**32 == hashed]


def mix(value: int) -> int:
    value = (value ^ value >> 16) * 0x85EBCA6B % 2**32
    value = (value ^ value >> 13) * 0xC2B2AE35 % 2**32
    return value ^ value >> 16


def may_hold(pages: bytes, page_bytes: int, page_count: int, hashed: int, bit_count: int) -> bool:
    """Whether bloom pages do not exclude a hash (2.4, 2.6)."""
    page, mixed = pages[(hashed * page_count >> 32) * page_bytes :], mix(hashed ^ 0x9E3779B9)
    bits = [(mixed + i * (mixed >> 16 | 1)) % (8 * page_bytes) for i in range(bit_count if page_count else 0)]
    return page_count > 0 and all(page[bit >> 3] >> (bit & 7) & 1 for bit in bits)


@lru_cache(maxsize=8)
def read(folder: Path, magic: bytes, key: str, start: int, end: int, footer_start: int, checksum: int) -> Any:
    """A part, or an object that ends like one, and the content of its footer, of a pack of the first section (2.1)."""
    with (folder / key).open("rb") as file:
        file.seek(start)
        data = file.read(end - start)
    check(len(data) == end - start and crc32(data) == checksum, f"{key}: the checksum does not match")
    size, footer_bytes, _, version, _, footer_crc, found = struct.unpack("<QIIHHI8s", data[-32:])
    wanted = end - start, end - footer_start - 32, 1, crc32(data[footer_start - start : -12]), magic, magic
    check((size, footer_bytes, version, footer_crc, found, data[:8]) == wanted, f"{key}: the trailer does not fit")
    return data, unzip(data[footer_start - start : -32])


def describe(record: bytes) -> Json:
    """The fields of a record, and itself as "raw" (2.7)."""
    head = struct.Struct(f">iIIiiqqiq{20 if record[39] & 0x10 else 8}sq{20 if record[39] & 0x20 else 8}siqi")
    fields: Json = dict(zip(RECORD.split(), head.unpack_from(record), strict=True))
    body, rest = record[head.size :][: fields["body"]], record[head.size + fields["body"] :]
    check(crc32(body) & 0x7FFFFFFF == fields["body_crc"], "a record's body is damaged")
    name_start = 2 if fields["magic"] == 0xDAA320AB else 1
    name_end = name_start + int.from_bytes(rest[:name_start], "big")
    pieces = [piece.partition("\x01") for piece in rest[name_end + 2 :].decode("utf-8", "replace").split("\x02")]
    fields["offset_msg_id"] = f"{fields['store_host'].hex().upper()}{fields['physical_offset']:016X}"
    fields |= {name: str(ip_address(fields[name][:-4])) for name in ("born_host", "store_host")}
    fields |= {"topic": rest[name_start:name_end].decode(), "body": b64encode(body).decode(), "raw": record}
    fields["properties"] = found = {name: value for name, _, value in pieces if name and value}
    return fields | {"keys": [*filter(None, [found.get("UNIQ_KEY"), *found.get("KEYS", "").split(" ")])]}


class History:
    """What a bucket holds of one broker, at the newest version. `root`: cluster and broker, as in keys."""

    def __init__(self, folder: Path, root: str, now_ms: int) -> None:
        self.folder, self.root, self.now_ms = folder, root, now_ms
        for path in sorted((folder / root).glob("checkpoints/*/head.json"), reverse=True):  # so without the hint (3.3)
            with suppress(FileNotFoundError):
                return self.follow(int(path.parent.name))
        return self.follow(0)

    def json(self, name: str) -> Json:
        """An object of the ledger; what is not in it is [] (3)."""
        data = (self.folder / self.root / name).read_bytes()
        is_sealed = sum(found == wanted for found, wanted in zip(data[-20:], SEAL, strict=False)) > 5
        end = SEAL + b'%08x"}' % crc32(data[:-20]) if is_sealed else b"}"
        check(data.endswith(end), f"{name}: the checksum does not match")
        found = defaultdict(list, json.loads(data))
        check(found["format"] in (1, 2), f"{name}: newer than this reader")
        return found

    def follow(self, start: int) -> None:
        """Apply what follows a checkpoint, or all for 0. FileNotFoundError: it does not count, or is not whole."""
        self.topics, self.parts = dict[str, Json](), dict[tuple[str, str], Json]()
        self.settings, self.indexed_to, nonce = Json(), 0, ""
        if start:
            head = self.json(f"checkpoints/{start:020}/head.json")
            self.settings, nonce = head["settings"] or {}, head["nonce"]
            for _, key, _, _, checksum in [*head["buckets"], *filter(None, [head["packs"]])]:
                data = (self.folder / key).read_bytes()
                check(crc32(data) == checksum, f"{key}: the checksum does not match")
                named = defaultdict(list, json.loads(unzip(data)))
                for topic in named.pop("topics", []):
                    named["segments_in"] += topic.pop("segments", [])
                    named["quarantine"] += topic.pop("quarantine", [])
                    self.topics[topic["topic"]] = TOPIC | topic
                self.apply(named)
        if self.json(f"ledger/{start or 1:020}.json")["nonce" if start else "previous_nonce"] != nonce:
            raise FileNotFoundError("the checkpoint does not count")
        while (self.folder / self.root / (name := f"ledger/{start + 1:020}.json")).exists():
            entry, start = self.json(name), start + 1
            check((entry["version"], entry["previous_nonce"]) == (start, nonce), f"{name}: it follows another entry")
            nonce = entry["nonce"]
            self.apply(entry)

    def apply(self, entry: Json) -> None:
        """What one commit changed (3). What is in quarantine becomes a segment with "lost"."""
        self.settings, self.indexed_to = entry["settings"] or self.settings, entry["indexed_to"] or self.indexed_to
        for name, incarnation in entry["topics_deleted"]:
            self.life(name, incarnation, deleted=True)
        gone = [("", each) for each in [*entry["packs_out"], *entry["indexes_out"]]]
        for name, part_id in [*gone, *entry["segments_out"], *entry["quarantine_out"]]:
            self.parts.pop((name, part_id), None)
        for change in entry["topics"]:
            topic = self.life(change["topic"], change["incarnation"], ttl_ms=change.get("ttl_ms"))
            topic["expired_before_ms"] = max(topic["expired_before_ms"], change.get("expired_before_ms", 0))
            topic["holes"] = [*topic["holes"], *change.get("holes", [])]
        kept = [each["segment"] | {"lost": each["lost"]} for each in entry["quarantine"]]
        for segment in [*kept, *entry["segments_in"]]:
            self.life(segment["topic"], segment["incarnation"])
            self.parts[segment["topic"], segment["segment_id"]] = segment
        for each in [*entry["packs_in"], *entry["packs"], *entry["indexes_in"], *entry["indexes"]]:
            whole = [each["key"], 0, each["object_bytes"], each["footer_start"], each["crc32"]]
            self.parts["", each.get("pack_id") or each["index_id"]] = each | {"topic": "", "whole": whole}
            if "pieces" in each:
                (incarnations,) = columns(unzip(b64decode(each["pieces"])), 0, (len(each["topics"]), 8))
                for name, incarnation in zip(each["topics"], incarnations, strict=True):
                    self.life(name, incarnation)

    def life(self, name: str, incarnation: int, **changes: Any) -> Json:
        """The topic, changed if it is at this incarnation; afresh when that is a later one."""
        if name not in self.topics or self.topics[name]["incarnation"] < incarnation:
            self.topics[name] = TOPIC | {"topic": name, "incarnation": incarnation}
        self.topics[name] |= changes if self.topics[name]["incarnation"] == incarnation else {}
        return self.topics[name]

    def segments(self, topic: Json) -> list[Json]:
        """Entries of the topic's segments, and of its pieces in packs (2.5)."""
        name, entries = str(topic["topic"]), list(self.parts.values())
        for pack in [each for each in entries if "pieces" in each and name in each["topics"]]:
            if "entries" not in pack:
                data, _ = read(self.folder, b"THERMPAK", *pack["whole"])
                ends = pairwise([pack["footer_start"], *pack["section_ends"]])
                pack["entries"] = [each for start, end in ends for each in json.loads(unzip(data[start:end]))]
            entries += pack["entries"]
        return [each for each in entries if each["topic"] == name and each["incarnation"] == topic["incarnation"]]

    def spans(self, topic: Json) -> list[Any]:
        """Queue id, start, end, greatest store time, segment of each run, or what is lost of it (3.6); in order."""
        spans = list[Any]()
        for segment in self.segments(topic):
            newest = {run[0]: run[4] for run in segment["runs"]}
            spans += [(*run[:3], newest[run[0]], segment) for run in segment.get("lost", list(segment["runs"]))]
        return sorted(spans, key=lambda span: span[:2])

    def records(self, topic: Json, queue: int, first: int = 0, end: int = 2**63, from_ms: int = 0) -> Iterator[Json]:
        """Visible records of queue offsets [first, end), stored at a time or later (2.2)."""
        ttl_ms = self.settings.get("default_ttl_ms") if topic["ttl_ms"] is None else topic["ttl_ms"]
        expired_ms = 0 if ttl_ms is None or ttl_ms < 0 else self.now_ms - ttl_ms
        from_ms, known_end = max(from_ms, expired_ms, topic["expired_before_ms"]), None
        for queue_id, start, stop, newest_ms, segment in self.spans(topic):
            if queue_id == queue and newest_ms >= from_ms and start < end and stop > first:
                for _, hole_start, hole_end in sorted(hole for hole in topic["holes"] if hole[0] == queue):
                    known_end = hole_end if known_end and hole_start <= known_end < hole_end else known_end
                check(start <= (known_end or start), f"queue {queue}: offsets {known_end} to {start} are missing")
                check("lost" not in segment, f"queue {queue}: offsets {start} to {stop} are lost")
                found = self.records_of(segment, queue, first, end)
                yield from (record for record in found if record["store_timestamp_ms"] >= from_ms)
                known_end = stop

    def records_of(self, segment: Json, queue: int, first: int, end: int) -> Iterator[Json]:
        part, footer = read(self.folder, b"THERMLOG", *segment["log"])
        *_, run_count, _, name_bytes = struct.unpack_from("<5Q2IH", footer)
        runs_end = 50 + name_bytes + 60 * run_count
        frames = list(struct.iter_unpack("<QIIQ4q", footer[runs_end:]))
        for queue_id, first_frame, end_frame, *_ in struct.iter_unpack("<iII6q", footer[50 + name_bytes : runs_end]):
            for position, stored_bytes, _, _, start, stop, *_ in frames[first_frame:end_frame]:
                if queue_id == queue and start < end and stop > first:
                    data = memoryview(unzip(part[position : position + stored_bytes]))
                    while data:
                        record = describe(bytes(data[: int.from_bytes(data[:4], "big")]))
                        data = data[record["size"] :]
                        if first <= record["queue_offset"] < end:
                            yield record

    def find_key(self, topic: Json, key: str) -> list[Json]:
        """Visible records with an id or key, newest first: by index objects (2.6), those behind by segments (2.4)."""
        name, incarnation, places = topic["topic"], topic["incarnation"], list[list[int]]()
        hashed, indexes = mix(crc32(key.encode())), [each for each in self.parts.values() if "directory" in each]
        salted = mix(hashed ^ mix(crc32(f"{name}\0{incarnation}".encode())))
        for index in indexes:
            (data, _), page_count = read(self.folder, b"THERMKEY", *index["whole"]), index["page_count"]
            if may_hold(data[index["blooms_start"] :], index["page_bytes"], page_count, salted, 6):
                directory, page = unzip(b64decode(index["directory"])), salted * page_count >> 32
                (counts,) = columns(directory, 0, (page_count, 2))
                (sizes,) = columns(directory, 2 * page_count, (sum(counts), 4))
                frames = [*pairwise(accumulate(sizes, initial=8))]
                for start, end in frames[sum(counts[:page]) : sum(counts[: page + 1])]:
                    places += rows_of_hash(frame := unzip(data[start:end]), len(frame) // 16, salted, 4, 8)
        has_gaps = any(gap[:2] == [name, incarnation] for index in indexes for gap in index.get("gaps", []))
        for segment in (segments := self.segments(topic)):
            if "lost" not in segment and (has_gaps or any(run[8] > self.indexed_to for run in segment["runs"])):
                part, footer = read(self.folder, b"THERMIDX", *segment["idx"])
                ordinals = [[run[0], offset] for run in segment["runs"] for offset in range(run[1], run[2])]
                is_there = may_hold(part[8:], segment["bloom_page_bytes"], segment["bloom_page_count"], hashed, 7)
                for _, _, start, size, count in struct.iter_unpack("<IIQII", footer[36:]) if is_there else []:
                    block = unzip(part[start : start + size])
                    places += [ordinals[ordinal] for (ordinal,) in rows_of_hash(block, count, hashed, 4)]
        near = [self.records(topic, queue, offset, offset + 1) for queue, offset in {*map(tuple, places)}]
        found = [record for records in near for record in records if key in record["keys"]]
        check(bool(found) or all("lost" not in each for each in segments), "it may be among what the topic has lost")
        return sorted(found, key=lambda record: -int(record["physical_offset"]))

    def find_place(self, live: Iterable[Json], place: int) -> Iterator[Json]:
        """The visible record that lay at a place in the log."""
        segments = [(topic, segment) for topic in live for segment in self.segments(topic)]
        for topic, segment in sorted(segments, key=lambda each: "lost" in each[1]):
            for queue, start, end, *_ in [run for run in segment["runs"] if run[7] <= place < run[8]]:
                yield from (each for each in self.records(topic, queue, start, end) if each["physical_offset"] == place)

    def answer(self, command: str, words: list[str], queue: int | None, first: int) -> Iterable[Json]:
        live = {name: topic for name, topic in sorted(self.topics.items()) if not topic["deleted"]}
        if command == "id":
            return islice(self.find_place(live.values(), int(words[0][-16:], 16)), 1)
        if command == "ls":
            return (topic | {"runs": [span[:3] for span in self.spans(topic)]} for topic in live.values())
        check(words[0] in live, "there is no such topic")
        if command == "key":
            return self.find_key(live[words[0]], words[1])
        queues = sorted({span[0] for span in self.spans(live[words[0]]) if queue in (None, span[0])})
        from_ms, count = (int(words[1]), 1) if command == "at" else (0, None)
        return chain(*(islice(self.records(live[words[0]], each, first, from_ms=from_ms), count) for each in queues))


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("words", nargs="+")
    parser.add_argument("--queue", type=int)
    parser.add_argument("--from", type=int, dest="first", default=0)
    parser.add_argument("--now", type=int, default=time.time_ns() // 10**6)
    parser.add_argument("--broker", default="*/*")
    parser.add_argument("--raw", action="store_true")
    given = parser.parse_intermixed_args()
    roots = sorted(path.parent for path in given.folder.glob(f"{given.broker}/ledger"))
    if len(given.words) - 1 != WORDS.get(given.words[0]) or len(roots) != 1:
        parser.error(f"brokers there: {', '.join(map(str, roots))}")
    try:
        history = History(given.folder, roots[0].relative_to(given.folder), given.now)
        for found in history.answer(given.words[0], given.words[1:], given.queue, given.first):
            raw = found.pop("raw", b"")
            sys.stdout.buffer.write(raw if given.raw else json.dumps(found).encode() + b"\n")
    except (OSError, LookupError, TypeError, ValueError, struct.error, zstandard.ZstdError) as error:
        sys.exit(f"cold_reader: {error}")


if __name__ == "__main__":
    main()
