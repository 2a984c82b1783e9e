"""`kill -9` of the tier process, and of the whole broker, while index objects are made and merged: no key is lost.

In the end local files are gone, and every acknowledged key and place is looked for in the bucket, some through the
broker, too: what is below `indexed_to` by index objects, the rest by what is in memory, and by the parts of segments.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash import wire
from tests.crash.broker_process import TINY_FILES_GO_AT_ONCE, BrokerProcess
from tests.crash.bucket import newest
from tests.crash.mixed_load import KEYED, MixedLoad
from tests.crash.test_kill_nine import move_to_cold, write_log_files
from tests.waiting import until
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.records.message_record import iterate_records
from thermocline.store.files.disk import RealDisk
from thermocline.tiered.indexes.bloom_cache import BloomCache
from thermocline.tiered.indexes.fresh_index import FreshIndex
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.reading.cold_reader import ColdReader
from thermocline.tiered.reading.frame_cache import FrameCache
from thermocline.tiered.stores.file import FileObjectStore

SEED = 20_261_122
KEYS_ASKED = 100
END_OF_TIME_MS = 1 << 62
SETTINGS = {**TINY_FILES_GO_AT_ONCE, "mappedFileSizeCommitLog": str(256 << 10), "coldMergeFanIn": "4"}


def newest_index(cold: Path) -> str:
    """The name of the index object that was written last, committed or not."""
    return max((path.name for path in cold.glob("*/*/indexes/*/*.index")), default="")


@pytest.mark.crash
async def test_no_key_is_lost_by_kills_while_indexing(tmp_path: Path, case_count: Callable[..., int]) -> None:
    chance = random.Random(SEED)
    cold = tmp_path / "cold"
    store = FileObjectStore(str(cold), disk=RealDisk())
    broker = BrokerProcess(tmp_path / "broker", {**SETTINGS, "coldUrl": f"file://{cold}"})
    await broker.start()
    load = MixedLoad(broker, SEED, large_bytes_max=4_000, pause_s=0.005)
    await load.start(4)
    try:
        for number in range(case_count(quick=1, full=6, soak=60)):
            if chance.random() < 0.5:
                # As soon as one more has been written: its commit is under way, or the next one's upload.
                before = newest_index(cold)
                await until(lambda before=before: newest_index(cold) > before, timeout_s=wire.PATIENCE_S)
            else:
                await until_indexed(store, beyond=(await newest(store)).indexed_to)
            if chance.random() < 0.7:
                broker.kill_helper("tier")
            else:
                await broker.kill(helpers_first=chance.random() < 0.5)
                await broker.start()
            assert load.acknowledged_count >= number
        await write_log_files(broker, 2)
        await load.stop()
        await move_to_cold(broker)
        await until_indexed(store)
        await check_bucket(store, load)
        await check_answers(broker, load, chance)
        broker.check_log()
    finally:
        try:
            await load.stop()
        finally:
            if broker.is_running:
                await broker.kill()
            await store.close()


async def until_indexed(store: ObjectStore, *, beyond: int = 0) -> None:
    """Wait until the ledger names index objects of records behind a physical offset."""

    async def is_indexed() -> bool:
        return (await newest(store)).indexed_to > beyond

    await wire.until_true(is_indexed)


async def check_bucket(store: ObjectStore, load: MixedLoad) -> None:
    """Each acknowledged key finds its message alone, with in memory what lookups keep there, and with nothing; the
    message is found by its place."""
    cache, catalog = FrameCache(), await newest(store)
    assert {index.ttl_class for index in catalog.indexes.values()} == {"forever", "places"}
    assert load.keyed
    for blooms, fresh in ((BloomCache(), FreshIndex()), (None, None)):
        reader = ColdReader(store, catalog=lambda: catalog, cache=cache, blooms=blooms, fresh=fresh)
        await reader.load_lookups()
        for key, body in load.keyed.items():
            found = await reader.query_key(KEYED, key, begin_ms=0, end_ms=END_OF_TIME_MS, count_max=32, cut_ms=0)
            records = list(iterate_records(b"".join(found)))
            assert [record.body for record in records] == [body], key
            viewed = await reader.view(records[0].physical_offset, cut_ms=lambda _topic: 0)
            assert bytes(viewed) == bytes(found[0])
        await reader.close()
    await cache.close()


async def check_answers(broker: BrokerProcess, load: MixedLoad, chance: random.Random) -> None:
    """The same of some keys, and that others are not there, by the broker's answers."""
    connection = await ClientConnection.open(broker.address)
    try:
        for key in chance.sample(sorted(load.keyed), min(KEYS_ASKED, len(load.keyed))):
            found = await wire.patiently(lambda key=key: wire.query_key(connection, KEYED, key))
            assert [record.body for record in found] == [load.keyed[key]], key
            place = found[0].physical_offset
            viewed = await wire.patiently(lambda place=place: wire.view(connection, place))
            assert viewed.body == load.keyed[key]
            assert await wire.patiently(lambda key=key: wire.query_key(connection, KEYED, f"no {key}")) == []
    except UnavailableError as error:
        raise AssertionError(f"the broker is gone: {broker.log_tail()}") from error
    finally:
        connection.close()
