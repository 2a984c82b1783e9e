"""Golden stores: transactions that an official Apache RocketMQ 5.5.0 broker left open are asked about and decided here.

The fixtures are looked for as tests/store/test_java_stores.py does; without them these tests are skipped.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.clock import Clock
from tests.store.store_parts import records_of
from tests.store.test_java_stores import FIXTURES, JavaStore
from tests.transactions.transaction_parts import Kept, World
from thermocline.remoting import json_dialect
from thermocline.remoting.records.message_record import decode_record
from thermocline.remoting.topic_validation import (
    TRANSACTION_GROUP,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_HALF_TOPIC,
)
from thermocline.store.files.disk import RealDisk

TOPIC, QUEUES = "FxTx", 2
LATER_MS = 2_000_000_000_000

pytestmark = pytest.mark.skipif(
    not (FIXTURES / "java-store-clean.tar.zst").exists(),
    reason="the stores that the official broker wrote are not there (TEST_SHARED)",
)


def world_of(java_store: JavaStore, folder: Path) -> World:
    config = java_store.copy(folder)
    table = json_dialect.loads(Path(config.config_path, "consumerOffset.json").read_bytes())["offsetTable"]
    progress = (
        int(table[f"{TRANSACTION_HALF_TOPIC}@{TRANSACTION_GROUP}"][0]),
        int(table[f"{TRANSACTION_OP_HALF_TOPIC}@{TRANSACTION_GROUP}"][0]),
    )
    return World(
        Kept(RealDisk(), progress),
        clock=Clock(LATER_MS),
        root_path=config.root_path,
        log_file_bytes=config.log_file_bytes,
        queue_file_bytes=config.queue_file_bytes,
        index_slot_count=config.index_slot_count,
        index_entry_count=config.index_entry_count,
    )


def visible(world: World) -> Counter[str | None]:
    queues = [world.store.queues.find(TOPIC, queue_id) for queue_id in range(QUEUES)]
    return Counter(record.unique_key for queue in queues if queue for record in records_of(world.store, queue))


@pytest.mark.parametrize(("kind", "open_count"), [("clean", 0), ("killed", 20)])
def test_transactions_open_at_the_official_broker_are_decided_once(kind: str, open_count: int, tmp_path: Path) -> None:
    """In the clean store all that was never decided has been parked."""
    world = world_of(JavaStore(kind, tmp_path / "unpacked"), tmp_path)
    counts = json_dialect.loads(Path(world.store.config.config_path, "transactionMetrics").read_bytes())
    assert counts["transactionCount"][TOPIC]["count"] == open_count == world.counts[TOPIC]
    before = visible(world)
    questions = world.check()
    asked = Counter(decode_record(question.record).unique_key for question in questions)
    assert len(asked) == open_count
    assert set(asked.values()) <= {1}
    assert not asked.keys() & before.keys()
    for question in questions:
        assert question.producer_group
        world.end(question, group=question.producer_group)
    assert visible(world) == before + asked
    assert world.check() == []
    world.stop().close()
