"""Golden stores: directories that an official Apache RocketMQ 5.5.0 broker wrote open, recover and read back complete.

The fixtures are not part of the repository: they are looked for in the folder that TEST_SHARED names, else
beside the repository (`../shared`); without them these tests are skipped. Their listings say what an official client
read.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.clock import Clock
from tests.store.store_parts import draft, open_store, records_of, small_config
from thermocline.remoting.records.compression import decompress
from thermocline.remoting.records.message_id import encode_message_id
from thermocline.remoting.records.message_record import MessageRecord, decode_record
from thermocline.remoting.records.sys_flag import COMPRESSED, compression_type, is_compressed
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.files.disk import RealDisk
from thermocline.store.files.mapped_file_queue import MappedFileQueue
from thermocline.store.index.index_service import IndexService
from thermocline.store.log.log_scan import LogScan
from thermocline.store.message_store import MessageStore

SHARED = Path(os.environ.get("TEST_SHARED") or Path(__file__).parents[3] / "shared")
FIXTURES = SHARED / "fixtures"
LOG_FILE_BYTES = 1 << 20
QUEUE_FILE_BYTES = 20_000
INDEX_SLOT_COUNT = 5_000
INDEX_ENTRY_COUNT = 20_000
FIRST_MS, LAST_MS = 0, 1 << 50

pytestmark = pytest.mark.skipif(
    not (FIXTURES / "java-store-clean.tar.zst").exists(),
    reason="the stores that the official broker wrote are not there (TEST_SHARED)",
)


class JavaStore:
    """One fixture: its folder, unpacked once, and its listing."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        archive = FIXTURES / f"java-store-{kind}.tar.zst"
        with (
            archive.open("rb") as packed,
            zstandard.ZstdDecompressor().stream_reader(packed) as stream,
            tarfile.open(fileobj=stream, mode="r|") as members,
        ):
            for member in members:
                # The wheel is 38 MB of holes and no part of these tests.
                if not member.name.endswith("timerwheel"):
                    members.extract(member, folder, filter="data")
        packed_listing = (FIXTURES / f"java-store-{kind}.json.zst").read_bytes()
        self.listing: dict[str, Any] = json.loads(zstandard.ZstdDecompressor().stream_reader(packed_listing).read())

    @property
    def was_clean(self) -> bool:
        return self.kind == "clean"

    def copy(self, folder: Path) -> StoreConfig:
        """A copy to work on."""
        root = folder / "store"
        shutil.copytree(self.folder, root)
        return config_of(root)

    def acknowledged(self) -> list[dict[str, Any]]:
        """Every answer that a producer got."""
        return [*self.listing["acknowledged"], *self.listing.get("acknowledged_after_listing", [])]


def config_of(root: Path) -> StoreConfig:
    """The sizes that the fixtures were written with."""
    return small_config(
        str(root),
        log_file_bytes=LOG_FILE_BYTES,
        queue_file_bytes=QUEUE_FILE_BYTES,
        index_slot_count=INDEX_SLOT_COUNT,
        index_entry_count=INDEX_ENTRY_COUNT,
    )


@pytest.fixture(scope="module", params=["clean", "killed"])
def java_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> JavaStore:
    return JavaStore(request.param, tmp_path_factory.mktemp(request.param))


def open_java_store(config: StoreConfig) -> MessageStore:
    return open_store(RealDisk(), config, clock=Clock(2_000_000_000_000))


def as_listed(record: MessageRecord) -> dict[str, Any]:
    """A record in the form of the listing."""
    body = record.body
    if is_compressed(record.sys_flag):
        body = decompress(body, compression_type(record.sys_flag))
    message_id = encode_message_id(record.store_host, record.physical_offset)
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "commitLogOffset": record.physical_offset,
        "storeSize": record.size_bytes,
        "uniqKey": record.unique_key or message_id,
        "offsetMsgId": message_id,
        "tags": record.tags,
        "keys": record.keys,
        "bodyLength": len(body),
        "bodySha1": hashlib.sha1(body).hexdigest(),
        "sysFlag": record.sys_flag & ~COMPRESSED,
        "flag": record.flag,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "bornTimestamp": record.born_timestamp_ms,
        "storeTimestamp": record.store_timestamp_ms,
    }


def check_complete(store: MessageStore, java_store: JavaStore) -> None:
    """Every listed message and every acknowledged one is served, in order and unchanged."""
    served = {
        (queue.topic, queue.queue_id): [as_listed(record) for record in records_of(store, queue, count_max=64)]
        for queue in store.queues
    }
    for messages in served.values():
        assert [message["queueOffset"] for message in messages] == list(range(len(messages)))
    for message in java_store.listing["messages"]:
        assert served[message["topic"], message["queueId"]][message["queueOffset"]] == message
    # By queue offset alone: answers for delayed, timed and transactional messages name the user's queue with the offset
    # in the internal topic.
    offsets = {(message["uniqKey"], message["queueOffset"]) for messages in served.values() for message in messages}
    for answer in java_store.acknowledged():
        assert (answer["msgId"], answer["queueOffset"]) in offsets


def remove(*names: str) -> Callable[[Path], None]:
    """Removes files and folders of a store."""

    def change(root: Path) -> None:
        for name in names:
            if (root / name).is_dir():
                shutil.rmtree(root / name)
            else:
                (root / name).unlink(missing_ok=True)

    return change


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(remove(), id="as it is"),
        pytest.param(remove("consumequeue"), id="no queues"),
        pytest.param(remove("consumequeue", "checkpoint", "index"), id="nothing derived"),
        pytest.param(remove("checkpoint"), id="no checkpoint"),
        pytest.param(lambda root: (root / "abort").touch(), id="taken for unclean"),
    ],
)
def test_store_reads_back_complete(java_store: JavaStore, tmp_path: Path, change: Callable[[Path], None]) -> None:
    """Whatever is derived may be missing."""
    config = java_store.copy(tmp_path)
    change(Path(config.root_path))
    store = open_java_store(config)
    assert not store.recovery_report.used_queue_ends
    check_complete(store, java_store)
    store.close()


def test_store_reads_back_complete_after_it_was_ours(java_store: JavaStore, tmp_path: Path) -> None:
    """What we leave opens again by our rules, and by Apache RocketMQ's."""
    config = java_store.copy(tmp_path)
    open_java_store(config).close()

    store = open_java_store(config)
    assert store.recovery_report.used_queue_ends
    assert store.recovery_report.record_count == 0
    check_complete(store, java_store)
    store.close()

    shutil.rmtree(config.own_path)
    store = open_java_store(config)
    assert not store.recovery_report.used_queue_ends
    check_complete(store, java_store)
    store.close()


def test_log_goes_on_where_it_ended(java_store: JavaStore, tmp_path: Path) -> None:
    """The next message of a queue gets the next offset, and its record is written right behind the last one."""
    config = java_store.copy(tmp_path)
    store = open_java_store(config)
    queue = store.queues.find("FxPlain", 3)
    assert queue is not None
    next_offset, append_offset = queue.next_offset, store.commit_log.append_offset
    last = list(records_of(store, queue))[-1]
    results = store.put_batch([draft("FxPlain", 3, body) for body in (b"a", b"b")])
    assert [result.queue_offset for result in results] == [next_offset, next_offset + 1]
    assert results[0].physical_offset == append_offset
    assert results[0].store_timestamp_ms >= last.store_timestamp_ms
    store.close()

    store = open_java_store(config)
    check_complete(store, java_store)
    queue = store.queues.find("FxPlain", 3)
    assert queue is not None
    assert [record.body for record in records_of(store, queue)][-2:] == [b"a", b"b"]
    store.close()


def test_killed_store_ends_at_the_official_brokers_offset(tmp_path: Path) -> None:
    """Queue ends after recovery are those of the official broker, but for what its services put afterwards."""
    java_store = JavaStore("killed", tmp_path / "unpacked")
    store = open_java_store(java_store.copy(tmp_path))
    for end in java_store.listing["after_recovery_by_official_broker"]:
        queue = store.queues.find(end["topic"], end["queueId"])
        found = 0 if queue is None else queue.next_offset
        assert found <= end["maxOffset"]
        if end["topic"].startswith("Fx"):
            assert found == end["maxOffset"], end
    store.close()


@pytest.mark.parametrize("from_scratch", [False, True])
def test_index_finds_every_record_once(java_store: JavaStore, tmp_path: Path, *, from_scratch: bool) -> None:
    """Taken over from the official broker, or made anew: entry for entry the same, none missing, none doubled."""
    config = java_store.copy(tmp_path)
    if from_scratch:
        shutil.rmtree(config.index_path)
    store = open_java_store(config)
    index = IndexService.open(
        RealDisk(),
        config,
        log_end_offset=store.commit_log.append_offset,
        was_clean=store.recovery_report.was_clean,
        clock=Clock(2_000_000_000_000),
    )
    assert (index.next_offset == 0) is from_scratch
    while index.build(store.commit_log.flush_offset):
        continue

    files = MappedFileQueue(RealDisk(), config.commit_log_path, file_bytes=LOG_FILE_BYTES)
    files.load()
    expected: dict[tuple[str, str, str], list[int]] = {}
    for scanned in LogScan(files, 0):
        record = decode_record(files.find(scanned.physical_offset).view, scanned.physical_offset % LOG_FILE_BYTES)
        words = {record.unique_key, *(record.keys or "").split(" ")} - {None, ""}
        wanted = [("K", word) for word in words] + ([("T", record.tags)] if record.tags else [])
        for index_type, key in wanted:
            assert key is not None
            expected.setdefault((record.topic, index_type, key), []).append(record.physical_offset)
    for (topic, index_type, key), offsets in list(expected.items())[::3]:
        found = index.query(topic, key, begin_ms=FIRST_MS, end_ms=LAST_MS, count_max=100_000, index_type=index_type)
        # Other keys with the same hash may be among them; the caller looks.
        mine = set(offsets)
        assert [offset for offset in found if offset in mine] == offsets[::-1], (topic, index_type, key)
    files.close()
    index.close()
    store.close()


def test_index_of_a_clean_store_has_the_official_entries(tmp_path: Path) -> None:
    """Made anew from the log, the files hold byte for byte the entries that the official broker wrote."""
    java_store = JavaStore("clean", tmp_path / "unpacked")
    config = java_store.copy(tmp_path)
    official = [_entries(path) for path in sorted(Path(config.index_path).iterdir())]
    shutil.rmtree(config.index_path)
    store = open_java_store(config)
    index = IndexService.open(
        RealDisk(), config, log_end_offset=store.commit_log.append_offset, was_clean=True, clock=Clock(1_000_000)
    )
    while index.build(store.commit_log.flush_offset):
        continue
    index.close()
    store.close()
    ours = [_entries(path) for path in sorted(Path(config.index_path).iterdir())]
    assert len(ours) == len(official) == 3
    for our_entries, official_entries in zip(ours, official, strict=True):
        assert our_entries == official_entries


def _entries(path: Path) -> list[tuple[int, int, int]]:
    """Hash, physical offset and previous entry of each entry: seconds depend on a header of the file before."""
    data = path.read_bytes()
    count = int.from_bytes(data[36:40], "big")
    start = 40 + INDEX_SLOT_COUNT * 4
    found = []
    for number in range(1, count):
        entry = data[start + number * 20 : start + (number + 1) * 20]
        found.append(
            (
                int.from_bytes(entry[:4], "big"),
                int.from_bytes(entry[4:12], "big"),
                int.from_bytes(entry[16:], "big"),
            )
        )
    return found
