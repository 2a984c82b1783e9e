"""State of a recovered store: the time to live that was set last, the offsets to which groups were moved, its files."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.simulated_disk import SimulatedDisk
from thermocline.broker.recovery.directory import was_recovered
from thermocline.broker.recovery.recovered_store import recovering_path, restored_documents, write_recovered_store
from thermocline.broker.state.state_documents import document_paths, read_document
from thermocline.broker.tables.topic_attributes import HOUR_MS
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.files import make_durable_directory, replace_file
from thermocline.store.state.origin import StoreOrigin, load_origin
from thermocline.tiered.catalog.catalog import NEVER_EXPIRES
from thermocline.tiered.segments import BrokerKeys
from thermocline.tiered.state import snapshot as names
from thermocline.tiered.state.recovery_plan import RecoveryPlan, TopicPlan


def plan(ttl_ms: int | None) -> RecoveryPlan:
    """A topic that the ledger has under a time to live."""
    topic = TopicPlan(
        topic="orders",
        incarnation=1,
        start_offset=0,
        deleted=False,
        expired_before_ms=0,
        ttl_ms=ttl_ms,
        is_known=True,
        committed_count=0,
        quarantined_count=0,
        queues=(),
    )
    return RecoveryPlan(log_offset=0, new_queue_offset=0, last_incarnation=1, topics=(topic,))


def documents(attributes: dict[str, str], default_ms: int = 0) -> dict[str, Any]:
    config = {"topicName": "orders", "readQueueNums": 3, "attributes": attributes}
    return {names.TOPICS: {"topicConfigTable": {"orders": config}}, names.DEFAULT_TTL: {"defaultMs": default_ms}}


@pytest.mark.parametrize(
    ("attributes", "default_ms", "ledger_ttl_ms", "is_ledger_newer", "expected"),
    [
        # Extended after the snapshot: by the former time everything would go.
        ({"reserve.time": "1"}, 0, 48 * HOUR_MS, True, {"reserve.time": "48"}),
        ({"reserve.time": "1"}, 0, NEVER_EXPIRES, True, {"thermocline.ttl.ms": "0"}),
        ({"reserve.time": "1"}, 0, 48 * HOUR_MS, False, {"reserve.time": "1"}),
        # Shrunk after it: what has expired does not come back.
        ({}, 0, 1_500, True, {"reserve.time": "1", "thermocline.ttl.ms": "1500"}),
        # Not changed, in either notation.
        ({"reserve.time": "48"}, 0, 48 * HOUR_MS, True, {"reserve.time": "48"}),
        ({"message.type": "FIFO"}, 0, NEVER_EXPIRES, True, {"message.type": "FIFO"}),
        ({}, 5_000, 5_000, True, {}),
        # A topic that the ledger does not name.
        ({"reserve.time": "1"}, 0, None, True, {"reserve.time": "1"}),
    ],
)
def test_the_time_to_live_that_was_set_last(
    attributes: dict[str, str],
    default_ms: int,
    ledger_ttl_ms: int | None,
    is_ledger_newer: bool,
    expected: dict[str, str],
) -> None:
    restored = restored_documents(
        plan(ledger_ttl_ms), documents(attributes, default_ms), is_ledger_newer=is_ledger_newer
    )
    config = restored[names.TOPICS]["topicConfigTable"]["orders"]
    assert config == {"topicName": "orders", "readQueueNums": 3, "attributes": expected}


def test_groups_that_were_handed_over_stay_so() -> None:
    file = {"offsetTable": {"orders@billing": {"0": 7}, "gone@billing": {"0": 3}}, "handOffs": {"billing": ["r1"]}}
    state = documents({}) | {names.CONSUMER_OFFSETS: file}
    restored = restored_documents(plan(None), state, is_ledger_newer=False)[names.CONSUMER_OFFSETS]
    assert restored["handOffs"] == {"billing": ["r1"]}
    assert restored["offsetTable"]["orders@billing"] == {"0": 7}
    without = restored_documents(plan(None), documents({}), is_ledger_newer=False)
    assert without[names.CONSUMER_OFFSETS] == {"offsetTable": {}}


def test_every_document_is_durable_on_return() -> None:
    disk = SimulatedDisk()
    config = StoreConfig(root_path="/store", log_file_bytes=4_096, queue_file_bytes=2_000)
    make_durable_directory(disk, config.own_path)
    replace_file(disk, recovering_path(config), b"", keep_backup=False)
    restored = restored_documents(plan(None), documents({"message.type": "FIFO"}), is_ledger_newer=False)
    restored[names.CONSUMER_OFFSETS]["offsetTable"] = {"orders@billing": {"0": 7}}
    write_recovered_store(
        disk,
        config,
        plan(None),
        documents=restored,
        origin=StoreOrigin(store_id="id", root="root", new_queue_offset=QueueOffset(9), recovered_ms=1),
        log_ceiling=PhysicalOffset(8_192),
        store_timestamp_ms=1,
        report="report\n",
    )
    after = disk.after_power_cut(Random(1), kept_share=0.0)
    assert load_origin(after, config.origin_path) is not None
    paths = document_paths(config)
    assert {name: read_document(after, paths[name], name) for name in restored}.items() >= restored.items()
    assert was_recovered(after, config, BrokerKeys("root")), "whether or not the mark is gone"
