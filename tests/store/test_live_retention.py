"""Settings of local retention are followed while the store is open."""

from __future__ import annotations

from dataclasses import replace

from tests.clock import Clock
from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import draft, open_store, small_config
from thermocline.store.retention import RetentionGate


def test_changed_settings_count_from_the_next_plan_on() -> None:
    clock = Clock(1_000_000)
    store = open_store(SimulatedDisk(), small_config(delete_when_hours=()), clock=clock)
    for number in range(12):
        store.put(draft(body=bytes([number]) * 900))
    store.tick()
    store.flush.flush()
    sync = store.begin_derived_sync()
    while not sync.advance():
        pass
    sync.commit()
    store.end_derived_sync(sync, committed=True)
    clock.now_ms += 10 * 60_000
    gate = RetentionGate()
    assert store.retention.plan(gate, now_ms=clock.now_ms, hour=12).is_empty
    store.retention.follow(replace(store.config, file_reserved_ms=60_000))
    assert not store.retention.plan(gate, now_ms=clock.now_ms, hour=12).is_empty
    store.close()
