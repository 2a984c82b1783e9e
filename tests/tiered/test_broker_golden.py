"""The golden bucket of a broker: its objects, and the messages that each reader finds in them.

Spark, `thermocline cold read` and the reader in examples/ are held against the cold reader in `test_golden_readers.py`
and `test_stand_alone_reader.py`, which go over every golden bucket; here that one is held against what the broker gave.
A broker comes back from a copy of it in `tests/crash/test_golden_bucket.py`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from hashlib import sha256

import pytest

from tests.crash.bucket import KEYS
from tests.tiered.broker_golden import FLEETING, FLEETING_TTL_MS, GOLDEN, GONE, GROUP, LARGE, PIN, PLAIN, VERSION
from tests.tiered.stand_alone import opened, rows
from thermocline.remoting.records.message_record import decode_record
from thermocline.tiered.index_format.index_writer import INDEX
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.ledger.pins import find_pin
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.packs.pack_format import PACK
from thermocline.tiered.packs.ttl_classes import ttl_class
from thermocline.tiered.segments.key_index import KEY_INDEX
from thermocline.tiered.segments.queue_columns import COLUMNS
from thermocline.tiered.segments.segment_format import LOG, MAGIC_BYTES, TRAILER, decode_trailer
from thermocline.tiered.state.carried_state import find_carried
from thermocline.tiered.state.newest_state import find_newest, list_names, read_newest
from thermocline.tiered.state.snapshot import CONSUMER_OFFSETS, GROUPS, TOPICS
from thermocline.tiered.stores.object_store_url import open_object_store

BUCKET = GOLDEN / VERSION / "bucket"
EXPECTED = json.loads((GOLDEN / VERSION / "expected.json").read_text())
WRITTEN_MS = EXPECTED["written_ms"]
BYTES_MAX = 300 * 1024
SHORT_CLASS = ttl_class(FLEETING_TTL_MS)
KINDS = {kind.magic: kind for kind in (LOG, COLUMNS, KEY_INDEX, PACK, INDEX)}


@pytest.fixture
async def bucket() -> AsyncIterator[ObjectStore]:
    """The bucket; opened to read."""
    store = await open_object_store(BUCKET.as_uri())
    yield store
    await store.close()


async def test_it_is_small_and_has_every_kind_of_object(bucket: ObjectStore) -> None:
    paths = [path for path in BUCKET.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in paths) < BYTES_MAX
    catalog = await open_catalog(bucket, KEYS)
    assert catalog.version == EXPECTED["version"]
    kinds = {path.relative_to(BUCKET / KEYS.root).parts[0] for path in paths}
    assert kinds == {"checkpoints", "head-hint", "indexes", "ledger", "packs", "pins", "state", "topics"}
    assert {pack.ttl_class for pack in catalog.packs.values()} == {"forever", SHORT_CLASS}
    assert {index.ttl_class for index in catalog.indexes.values()} == {"forever", SHORT_CLASS, "places"}
    assert any(pack.level for pack in catalog.packs.values()), "merged"
    assert catalog.topics[LARGE].segments
    assert catalog.topics[GONE].deleted


def test_each_part_is_of_a_version_that_is_read() -> None:
    """By its trailer and the table of its kind, parts in packs and in segments of one object as well."""
    seen: Counter[bytes] = Counter()
    for path in BUCKET.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        if data[:MAGIC_BYTES] in KINDS:
            # Parts that are in one object end where the next one begins, or the object does.
            ends = [len(data), *(data.find(magic, MAGIC_BYTES) for magic in KINDS)]
            for magic, kind in KINDS.items():
                for end in filter(lambda end: end > TRAILER.size, ends):
                    if magic not in data[end - TRAILER.size : end]:
                        continue
                    version = decode_trailer(data[:end], magic=magic).version
                    assert kind.decoder(version) is kind.decoders[1]
                    seen[magic] += 1
    assert seen.keys() == KINDS.keys()


@pytest.mark.parametrize("topic", sorted(EXPECTED["topics"]))
async def test_every_record_is_the_one_that_the_broker_gave(topic: str) -> None:
    async with opened(BUCKET, WRITTEN_MS) as ours:
        assert ours.catalog.queue_bounds(topic).keys() == {int(queue_id) for queue_id in EXPECTED["topics"][topic]}
        for queue_id, queue in EXPECTED["topics"][topic].items():
            records = await ours.records(topic, int(queue_id))
            offsets = [decode_record(record).queue_offset for record in records]
            assert offsets == list(range(queue["start"], queue["end"]))
            assert sha256(b"".join(records)).hexdigest() == queue["sha256"]
            if queue["last_key"]:
                found = await ours.reader.query_key(
                    topic, queue["last_key"], begin_ms=0, end_ms=1 << 60, count_max=9, cut_ms=ours.cut_ms(topic)
                )
                assert records[-1] in [bytes(each) for each in found]


async def test_messages_of_a_short_time_to_live_are_hidden_once_it_is_over() -> None:
    for now_ms, is_visible in ((WRITTEN_MS, True), (WRITTEN_MS + FLEETING_TTL_MS, False)):
        async with opened(BUCKET, now_ms) as ours:
            assert ours.catalog.ttl_ms(FLEETING) == FLEETING_TTL_MS
            assert bool(await ours.records(FLEETING, 0)) == is_visible
            assert await ours.records(PLAIN, 0)
        assert bool(rows(str(BUCKET), "cat", FLEETING, "--now", str(now_ms))) == is_visible


async def test_state_and_pin(bucket: ObjectStore) -> None:
    """The state of an entry is the newer one; by the objects alone the group may be behind."""
    catalog = await open_catalog(bucket, KEYS)
    carried = await find_carried(bucket, KEYS, version=catalog.state_version)
    newest = await read_newest(bucket, KEYS)
    assert carried is not None
    assert newest is not None
    assert len(await list_names(bucket, KEYS)) == 2
    assert (await find_newest(bucket, KEYS)).snapshot is not None
    offsets = dict(enumerate(EXPECTED["group_offsets"][PLAIN]))
    table = newest.documents[CONSUMER_OFFSETS]["offsetTable"][f"{PLAIN}@{GROUP}"]
    assert {int(queue_id): offset for queue_id, offset in table.items()} == offsets
    assert {PLAIN, LARGE, FLEETING} <= newest.documents[TOPICS]["topicConfigTable"].keys()
    assert GROUP in newest.documents[GROUPS]["subscriptionGroupTable"]
    pin = await find_pin(bucket, KEYS, PIN)
    assert pin is not None
    assert pin.version <= catalog.version
