"""What a slave process reports as committed, over a real ledger and local files, in orders that a seed chooses."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import cast

import msgspec
import pytest

from tests.tiered.ledger_data import KEYS, commit_segment, open_writer
from tests.tiered.sealing.test_seal_backlog import LocalStore
from thermocline.broker.follower.slave_process import FOREIGN, NOT_ENROLLED, SlaveRole
from thermocline.broker.helpers import CatalogTable, HelperLink, HelperRequestCode, QueueState, QueueTable, TopicState
from thermocline.remoting.records.message_record import iterate_records
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.ledger.ledger_writer import LedgerIdentity
from thermocline.tiered.sealing.seal_backlog import SealPolicy
from thermocline.tiered.stores.memory import MemoryObjectStore

TOPICS = ("orders", "bills")
QUEUES = 2
STEPS = 60


class Link:
    """The hot process's end."""

    def __init__(self) -> None:
        self.tables: list[CatalogTable] = []

    def tell(self, code: HelperRequestCode, body: msgspec.Struct) -> None:
        assert code == HelperRequestCode.CATALOG_TABLE
        assert isinstance(body, CatalogTable)
        self.tables.append(body)


class Slave:
    """A role without a process, and its local files."""

    def __init__(self, folder: Path, master_uuid: str) -> None:
        self.store = LocalStore(folder)
        self.link = Link()
        self.role = SlaveRole()
        self.role._backlog = self.store.backlog(SealPolicy())
        self.role._master_uuid = master_uuid

    def report(self, sequence: int, *, cut_ms: int = 0) -> None:
        """What the hot process sends after a tick."""
        self.store.write()
        assert self.role._backlog is not None
        table = QueueTable(
            sequence=sequence,
            log_offset=len(self.store.log),
            topics=[
                TopicState(
                    topic=topic,
                    incarnation=1,
                    ttl_ms=None,
                    expired_before_ms=0,
                    cut_ms=cut_ms,
                    tiered=True,
                    deleted=False,
                )
                for topic in TOPICS
            ],
            queues=[
                QueueState(topic=topic, queue_id=queue_id, min_offset=0, end_offset=len(units) // 20)
                for (topic, queue_id), units in self.store.units.items()
            ],
            pressure=False,
        )
        self.role._add_table(self.role._backlog, table)

    def follow(self, catalog: Catalog) -> bool:
        """The ledger has moved."""
        is_accepted = self.role._accepts(catalog)
        if is_accepted:
            self.role._tell(cast("HelperLink", self.link), catalog)
            self.role._told_version = catalog.version
        return is_accepted

    def check(self, catalog: Catalog) -> None:
        """Fail if a record that the ledger lacks is below the offset that was reported last."""
        committed_offset = self.link.tables[-1].committed_offset
        for record in iterate_records(bytes(self.store.log)):
            if record.physical_offset < committed_offset:
                ends = catalog.queue_ends(record.topic)
                assert record.queue_offset < ends.get(record.queue_id, 0), f"{record.topic}/{record.queue_id}"


@pytest.mark.parametrize("seed", range(20))
async def test_no_record_that_the_ledger_lacks_is_reported_as_committed(seed: int, tmp_path: Path) -> None:
    random, bucket = Random(seed), MemoryObjectStore()
    writer = await open_writer(bucket)
    slave = Slave(tmp_path, "store-1")
    stored, sealed = dict[tuple[str, int], int](), dict[tuple[str, int], int]()
    for step in range(STEPS):
        place = (random.choice(TOPICS), random.randrange(QUEUES))
        match random.choice(("put", "put", "report", "seal", "follow")):
            case "put":
                slave.store.put(*place, store_ms=step)
                stored[place] = stored.get(place, 0) + 1
            case "report":
                slave.report(step)
            case "seal":
                start = sealed.get(place, 0)
                count = random.randint(0, max(0, stored.get(place, 0) - start))
                if count:
                    await commit_segment(writer, topic=place[0], queue_id=place[1], start=start, count=count)
                    sealed[place] = start + count
            case _:
                assert slave.follow(writer.catalog)
                slave.check(writer.catalog)
    for (topic, queue_id), count in stored.items():
        start = sealed.get((topic, queue_id), 0)
        if start < count:
            await commit_segment(writer, topic=topic, queue_id=queue_id, start=start, count=count - start)
    slave.report(STEPS)
    slave.follow(writer.catalog)
    slave.check(writer.catalog)
    assert slave.link.tables[-1].committed_offset == len(slave.store.log)


async def test_what_has_expired_waits_for_no_commit(tmp_path: Path) -> None:
    writer, slave = await open_writer(MemoryObjectStore()), Slave(tmp_path, "store-1")
    for store_ms in (1, 2, 30):
        slave.store.put("orders", 0, store_ms=store_ms)
    slave.report(1, cut_ms=2)
    slave.follow(writer.catalog)
    first, *_ = (record.size_bytes for record in iterate_records(bytes(slave.store.log)))
    assert slave.link.tables[-1].committed_offset == first
    slave.report(2, cut_ms=20)
    await commit_segment(writer, topic="bills")
    slave.follow(writer.catalog)
    assert slave.link.tables[-1].committed_offset == 2 * first


async def test_only_the_masters_ledger_is_followed(tmp_path: Path) -> None:
    bucket = MemoryObjectStore()
    writer = await open_writer(bucket)
    await commit_segment(writer)
    slave = Slave(tmp_path, "")
    assert not slave.follow(writer.catalog)
    assert slave.role._refusal == NOT_ENROLLED
    slave.role._master_uuid = "store-1"
    assert slave.follow(writer.catalog)
    assert slave.role._refusal == ""
    other = LedgerIdentity(
        store_uuid="store-2", cluster="DefaultCluster", broker_name="broker-a", predecessor="store-1"
    )
    await open_writer(bucket, seed=2, identity=other)
    assert not slave.follow(await open_catalog(bucket, KEYS))
    assert slave.role._refusal == FOREIGN
