"""State snapshots for tests."""

from __future__ import annotations

from thermocline.tiered.state.snapshot import QueueEnd, StateName, StateSnapshot, TopicState


def snapshot(name: StateName, *, log_offset: int = 0, log_ceiling: int = 1_000) -> StateSnapshot:
    """A whole one of that name, of a broker with one topic."""
    return StateSnapshot(
        format=1,
        epoch=name.epoch,
        sequence=name.sequence,
        store_uuid="store-1",
        cluster="DefaultCluster",
        broker_name="broker-a",
        captured_ms=1,
        log_offset=log_offset,
        log_ceiling=log_ceiling,
        record_bytes_min=91,
        topics=(TopicState(topic="orders", incarnation=1, ends=(QueueEnd(0, 10),)),),
        documents={"topics.json": {"topicConfigTable": {}}},
    )
