"""State of a recovered store: the time to live that was set last, and the offsets to which groups were moved."""

from __future__ import annotations

from typing import Any

import pytest

from thermocline.broker.recovery.recovered_store import restored_documents
from thermocline.broker.tables.topic_attributes import HOUR_MS
from thermocline.tiered.catalog.catalog import NEVER_EXPIRES
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
