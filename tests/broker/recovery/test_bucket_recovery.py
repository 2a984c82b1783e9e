"""Bucket recovery of the golden bucket: once, again after that disk is lost too, and what is refused.

Covers `broker/recovery/recovery_report.py`, `broker/recovery/readable_counts.py`.
"""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from random import Random

import pytest

from tests.simulated_disk import SimulatedDisk
from tests.tiered.broker_golden import GOLDEN, PLAIN, VERSION, golden_bucket
from thermocline.broker.recovery.bucket_recovery import recover_from_bucket
from thermocline.broker.recovery.recovery_report import RecoveryReport
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.remoting.errors import InvalidRequestError
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.message_store import MessageStore
from thermocline.store.state.origin import load_origin
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.segments.object_keys import BrokerKeys
from thermocline.tiered.state.newest_state import list_names, read_newest
from thermocline.tiered.state.snapshot import CONSUMER_OFFSETS, decode_state, encode_state
from thermocline.tiered.stores.memory import MemoryObjectStore

KEYS = BrokerKeys.of(cluster="DefaultCluster", broker_name="broker-a")
UNITS_PER_FILE = 1_000
STORE = StoreConfig(root_path="/store", log_file_bytes=1 << 20, queue_file_bytes=20 * UNITS_PER_FILE)
RESERVE_BYTES = 64 << 20
LATER_MS = 4_000_000_000_000
ENDS = {
    topic: {int(queue_id): queue["end"] for queue_id, queue in queues.items()}
    for topic, queues in json.loads((GOLDEN / VERSION / "expected.json").read_text())["topics"].items()
}
numbers = count()


@pytest.fixture
async def bucket() -> MemoryObjectStore:
    return await golden_bucket()


async def recover(
    bucket: MemoryObjectStore, disk: SimulatedDisk, *, now_ms: int = LATER_MS, broker_name: str = "broker-a"
) -> RecoveryReport | None:
    return await recover_from_bucket(
        bucket,
        broker=BrokerConfig(broker_name=broker_name),
        store=STORE,
        tier=TierConfig(cold_url="memory://golden", reserve_bytes=RESERVE_BYTES),
        disk=disk,
        clock=lambda: now_ms,
        random=Random(1),
        make_id=lambda: f"{next(numbers):032x}",
    )


async def recovered(bucket: MemoryObjectStore, *, now_ms: int = LATER_MS) -> tuple[RecoveryReport, SimulatedDisk]:
    disk = SimulatedDisk()
    report = await recover(bucket, disk, now_ms=now_ms)
    assert report is not None
    return report, disk


def open_recovered(disk: SimulatedDisk) -> MessageStore:
    return MessageStore.open(STORE, disk=disk, clock=lambda: LATER_MS)


async def test_a_recovery_reports_the_state_that_it_used(bucket: MemoryObjectStore) -> None:
    state, before = await read_newest(bucket, KEYS), await open_catalog(bucket, KEYS)
    assert state is not None
    report, disk = await recovered(bucket)
    assert (report.root, report.captured_ms, report.recovered_ms) == (KEYS.root, state.captured_ms, LATER_MS)
    assert report.epoch == before.epoch + 1
    counts = {topic.topic: topic.committed_count for topic in report.topics}
    assert counts[PLAIN] == sum(ENDS[PLAIN].values())
    assert next(report.lines()).startswith(f"recovered root={KEYS.root} epoch={report.epoch} ")
    assert disk.read(f"{STORE.own_path}/recovery.txt").decode().splitlines() == list(report.lines())
    store = open_recovered(disk)
    for queue_id, end in ENDS[PLAIN].items():
        queue = store.queues.find(PLAIN, queue_id)
        assert queue is not None
        start = -(-state.queue_ceiling(end) // UNITS_PER_FILE) * UNITS_PER_FILE  # of a file
        assert queue.next_offset == queue.min_offset == start
    assert store.commit_log.append_offset >= state.log_ceiling
    origin = load_origin(disk, STORE.origin_path)
    assert origin is not None
    assert (origin.root, origin.recovered_ms, origin.store_id) == (KEYS.root, LATER_MS, store.identity.store_id)
    store.close()


async def test_two_snapshots_reserve_the_log_before_the_store_is_made(bucket: MemoryObjectStore) -> None:
    _, disk = await recovered(bucket)
    state = await read_newest(bucket, KEYS)
    assert state is not None
    assert len(await list_names(bucket, KEYS)) >= 2
    store = open_recovered(disk)
    assert state.log_offset == store.commit_log.append_offset
    assert state.log_ceiling == state.log_offset + RESERVE_BYTES
    assert (state.store_uuid, state.captured_ms) == (store.identity.store_id, LATER_MS)
    store.close()


async def test_a_disk_that_is_lost_before_its_first_message_loses_nothing_more(bucket: MemoryObjectStore) -> None:
    """The second report has the time of the state that the first one used, and what was lost then."""
    first, _ = await recovered(bucket)
    second, disk = await recovered(bucket, now_ms=LATER_MS + 5_000)
    assert second.captured_ms == first.captured_ms < LATER_MS
    assert second.recovered_ms == LATER_MS + 5_000
    assert second.epoch == first.epoch + 1
    assert {each.topic: each.known_lost_count for each in second.topics} == {
        each.topic: each.known_lost_count for each in first.topics
    }
    assert {each.topic: each.committed_count for each in second.topics} == {
        each.topic: each.committed_count for each in first.topics
    }
    open_recovered(disk).close()


async def test_an_offset_that_a_client_made_up_is_no_obstacle(bucket: MemoryObjectStore) -> None:
    """The broker takes any offset that a consumer commits, as RocketMQ does."""
    for name in await list_names(bucket, KEYS):
        key = KEYS.state(epoch=name.epoch, sequence=name.sequence)
        snapshot = decode_state(await bucket.get(key), name=name)
        offsets = snapshot.documents[CONSUMER_OFFSETS]["offsetTable"]
        offsets[f"{PLAIN}@made-up"] = {"0": 2**63 - 1}
        await bucket.put(key, encode_state(snapshot))
    _, disk = await recovered(bucket)
    store = open_recovered(disk)
    queues = [store.queues.find(PLAIN, queue_id) for queue_id in sorted(ENDS[PLAIN])]
    assert len({queue.next_offset for queue in queues if queue is not None}) == 1, "queue 0 goes on as the others do"
    store.close()


async def test_a_directory_is_recovered_once(bucket: MemoryObjectStore) -> None:
    _, disk = await recovered(bucket)
    before = await open_catalog(bucket, KEYS)
    assert await recover(bucket, disk) is None
    assert (await open_catalog(bucket, KEYS)).version == before.version, "nothing is claimed"


async def test_nothing_is_touched_without_a_ledger_or_a_state(bucket: MemoryObjectStore) -> None:
    disk = SimulatedDisk()
    with pytest.raises(InvalidRequestError, match=f"there={KEYS.root}"):
        await recover(bucket, disk, broker_name="broker-b")
    state_keys = [each.key async for each in bucket.list(KEYS.state_prefix)]
    assert state_keys
    for key in state_keys:
        await bucket.delete(key)
    before = await open_catalog(bucket, KEYS)
    with pytest.raises(InvalidRequestError):
        await recover(bucket, disk)
    assert (await open_catalog(bucket, KEYS)).version == before.version
    assert not disk.exists(STORE.identity_path)
    assert Path(STORE.own_path).parent == Path(STORE.root_path)
