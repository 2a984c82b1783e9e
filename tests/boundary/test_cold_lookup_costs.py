"""Lookups of records that a broker sealed a moment ago, and of records that a restarted tier process finds.

A lookup costs the requests for the records found; one that finds no record costs none. The parts are assembled as
in brokers.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.boundary.whole_broker import WholeBroker
from tests.crash import wire
from tests.crash.bucket import newest
from thermocline.tiered.indexes.log_items import LogItems
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.stores.object_store_url import ObjectStoreOptions
from thermocline.tiered.wrappers import MeteringObjectStore
from thermocline.tiered.wrappers.wrapping import Verb

TOPIC = "Steam"
SEALS, MESSAGES = 3, 20
PLACE_MAX, KEY_MAX = 2, 3


class MeteredBroker(WholeBroker):
    """A whole broker whose tier process's reads are counted, from its start on."""

    store_meter: MeteringObjectStore

    async def _open_crashing_store(self, url: str, options: ObjectStoreOptions) -> ObjectStore:
        self.store_meter = MeteringObjectStore(await super()._open_crashing_store(url, options))
        return self.store_meter

    @property
    def read_count(self) -> int:
        """Parts of objects read: the ledger is read by whole objects."""
        return self.store_meter.counters.requests[Verb.GET_RANGE]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for a socket."""
    path = Path(tempfile.mkdtemp(prefix="tc-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
async def broker(folder: Path) -> AsyncIterator[MeteredBroker]:
    broker = MeteredBroker(folder)
    await broker.start()
    yield broker
    await broker.stop(is_crash=False)
    await broker.remove_objects()


async def check_costs(broker: MeteredBroker, places: list[int]) -> None:
    for number in range(0, len(places), 7):
        before = broker.read_count
        assert await wire.query_key(broker.connection, TOPIC, f"missing {number}") == []
        assert broker.read_count == before
        (found,) = await wire.query_key(broker.connection, TOPIC, f"key{number}")
        assert found.physical_offset == places[number]
        assert broker.read_count - before <= KEY_MAX
        before = broker.read_count
        assert (await wire.view(broker.connection, places[number])).keys == f"key{number}"
        assert broker.read_count - before <= PLACE_MAX


async def test_the_newest_costs_no_more_than_the_rest(broker: MeteredBroker) -> None:
    """Of what it has sealed itself it reads nothing back; a tier process that begins reads it once."""
    await wire.make_topic(broker.connection, TOPIC, queues=2)
    places: list[int] = []
    for _ in range(SEALS):
        for _ in range(MESSAGES):
            properties = f"KEYS\x01key{len(places)}\x02"
            answer = await wire.send(broker.connection, TOPIC, len(places) % 2, b"." * 300, properties=properties)
            places += answer.physical_offsets
        await broker.report()
        await wire.seal(broker.connection)
        broker.clock.now_ms += 1_000
    await broker.delete_local_files()
    cold = [place for place in places if place < broker.store.commit_log.min_offset]
    assert len(cold) > 2 * MESSAGES
    assert broker.read_count == 0
    await check_costs(broker, cold)

    await broker.stop_tier()
    await broker.start_tier()
    catalog = await newest(broker.objects)
    items = list(LogItems.of_catalog(catalog).between(catalog.indexed_to, 1 << 62).items)
    assert len(items) == SEALS
    work = broker.tier_role._work
    assert work is not None
    await broker._until(lambda: work._fresh.count == len(items))
    assert broker.read_count == len(items), "one for each pack"
    await check_costs(broker, cold)


async def test_a_tier_process_starts_although_objects_to_load_are_damaged(broker: MeteredBroker) -> None:
    """Lookups ask for it again, and say so; a scrub heals it."""
    await wire.make_topic(broker.connection, TOPIC, queues=1)
    answer = await wire.send(broker.connection, TOPIC, 0, b"." * 3_000, properties="KEYS\x01key\x02")
    await wire.send(broker.connection, TOPIC, 0, b"." * 3_000, properties="KEYS\x01other\x02")
    await broker.report()
    await wire.seal(broker.connection)
    broker.clock.now_ms += 1_000
    await broker.delete_local_files()
    assert broker.store.commit_log.min_offset > 0
    (key,) = [key for key in broker.objects.objects if key.endswith(".pack")]
    whole = broker.objects.objects[key]
    await broker.objects.put(key, whole[:-20] + bytes(20))
    await broker.stop_tier()
    await broker.start_tier()
    broker.store_meter.counters.requests.clear()
    with pytest.raises(wire.Refused):
        await wire.view(broker.connection, answer.physical_offsets[0])
    await broker.objects.put(key, whole)
    assert (await wire.view(broker.connection, answer.physical_offsets[0])).keys == "key"
