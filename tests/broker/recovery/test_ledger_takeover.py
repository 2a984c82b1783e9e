"""A take-over of the golden bucket's ledger by a slave that has copied nothing of it; what is refused."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from tests.simulated_disk import SimulatedDisk
from tests.tiered.broker_golden import golden_bucket
from thermocline.broker.recovery.ledger_takeover import TakeoverReport, check_ledger, take_over
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.remoting.errors import SettingError
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.message_store import MessageStore
from thermocline.store.state.enrolment import Enrolment, load_enrolment, save_enrolment
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.objects.errors import ForeignLedgerError
from thermocline.tiered.segments.object_keys import BrokerKeys
from thermocline.tiered.state.newest_state import read_newest
from thermocline.tiered.state.snapshot import QueueEnd, StateName, TopicState, encode_state
from thermocline.tiered.stores.memory import MemoryObjectStore

KEYS = BrokerKeys.of(cluster="DefaultCluster", broker_name="broker-a")
STORE = StoreConfig(root_path="/store", log_file_bytes=1 << 20, queue_file_bytes=20_000)
LATER_MS = 4_000_000_000_000
SLAVE_ID = "5" * 32
EXPIRED, EXPIRED_END = "Expired", 7


@pytest.fixture
async def bucket() -> MemoryObjectStore:
    return await golden_bucket()


def open_slave(disk: SimulatedDisk, config: StoreConfig = STORE) -> MessageStore:
    return MessageStore.open(config, disk=disk, clock=lambda: LATER_MS, make_id=lambda: SLAVE_ID)


async def slave_of(bucket: MemoryObjectStore, *, has_ledger: bool = True) -> SimulatedDisk:
    """The disk of a slave that is enrolled and has no message."""
    disk = SimulatedDisk()
    open_slave(disk).close()
    owner = (await open_catalog(bucket, KEYS)).store_uuid
    enrolment = Enrolment(store_id=SLAVE_ID, master_store_id=owner, has_ledger=has_ledger)
    save_enrolment(disk, STORE.enrolment_path, enrolment)
    return disk


async def promote(
    bucket: MemoryObjectStore, disk: SimulatedDisk, *, broker_name: str = "broker-a"
) -> TakeoverReport | None:
    return await take_over(
        bucket,
        broker=BrokerConfig(broker_name=broker_name),
        store=STORE,
        tier=TierConfig(cold_url="memory://golden"),
        disk=disk,
        clock=lambda: LATER_MS,
        random=Random(1),
        open_local=lambda config: open_slave(disk, config),
    )


async def test_no_queue_begins_anew(bucket: MemoryObjectStore) -> None:
    catalog, state = await open_catalog(bucket, KEYS), await read_newest(bucket, KEYS)
    assert state is not None
    # All that this topic had has expired, so the ledger does not know it any more.
    topics = (*state.topics, TopicState(topic=EXPIRED, ends=(QueueEnd(2, EXPIRED_END),)))
    newer = StateName(state.epoch, state.sequence + 1)
    await bucket.put(
        KEYS.state(epoch=newer.epoch, sequence=newer.sequence),
        encode_state(msgspec.structs.replace(state, sequence=newer.sequence, topics=topics)),
    )
    disk = await slave_of(bucket)
    report = await promote(bucket, disk)
    assert report is not None
    assert report.next_offset >= report.ledger_end > report.log_end == 0
    local = open_slave(disk)
    assert local.commit_log.append_offset == report.next_offset, "no log offset of the ledger is given out again"
    assert {queue.topic for queue in local.queues} > {EXPIRED}
    for topic in topics:
        if not topic.deleted:
            cold_ends = catalog.queue_ends(topic.topic) if topic.topic in catalog.topics else {}
            for end in topic.ends:
                queue = local.queues.find(topic.topic, end.queue_id)
                next_offset = 0 if queue is None else queue.next_offset
                assert next_offset == max(end.end_offset, cold_ends.get(end.queue_id, 0)), topic
    assert EXPIRED not in {queue.topic for queue in report.queues}, "none of it is in the bucket"
    assert load_enrolment(disk, STORE.enrolment_path, store_id=SLAVE_ID) is None


async def test_another_name_than_the_masters_is_refused(bucket: MemoryObjectStore) -> None:
    disk, before = await slave_of(bucket), await open_catalog(bucket, KEYS)
    with pytest.raises(SettingError, match="brokerName and brokerClusterName have to be the master's"):
        await promote(bucket, disk, broker_name="broker-b")
    assert load_enrolment(disk, STORE.enrolment_path, store_id=SLAVE_ID) is not None
    assert (await open_catalog(bucket, KEYS)).version == before.version
    assert await promote(bucket, disk) is not None


async def test_a_master_that_never_had_a_ledger_is_followed_by_a_first_writer(bucket: MemoryObjectStore) -> None:
    disk = await slave_of(bucket, has_ledger=False)
    report = await promote(MemoryObjectStore(), disk)
    assert report is not None
    assert (report.epoch, report.ledger_end) == (1, 0)


async def test_a_master_on_an_empty_directory_is_refused_where_a_ledger_is(bucket: MemoryObjectStore) -> None:
    disk = SimulatedDisk()
    with pytest.raises(ForeignLedgerError):
        await check_ledger(bucket, broker=BrokerConfig(), store=STORE, disk=disk)
    await check_ledger(bucket, broker=BrokerConfig(broker_name="broker-b"), store=STORE, disk=disk)
    assert not disk.exists(STORE.identity_path), "a check changes nothing"
