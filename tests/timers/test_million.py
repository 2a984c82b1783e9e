"""Many timers: what a million that wait cost in memory and at a restart, and how fast they go out.

The quick run takes a slice of them, `make soak` all. Real files, a clock of the test's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.clock import Clock
from tests.timers.timer_parts import NOW_MS, World
from thermocline.remoting.records.properties import PropertyName
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.files.disk import RealDisk
from thermocline.store.log.message_draft import MessageDraft
from thermocline.timers.timer_config import TimerConfig
from thermocline.timers.timer_request import timed_draft

DAY_MS = 86_400_000
BATCH = 200
MEMORY_BYTES_MAX = 150 << 20
RESTART_S_MAX = 10.0
RATE = 5_000


def resident_bytes() -> int:
    """Memory of this process, mapped files included."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def world_in(folder: Path) -> World:
    root = str(folder / "store")
    return World(
        RealDisk(),
        store_config=StoreConfig(root_path=root, log_file_bytes=1 << 30),
        config=TimerConfig(root_path=root, delay_ms_max=41 * DAY_MS),
        clock=Clock(NOW_MS),
    )


def send_many(world: World, deliver_times_ms: list[int], *, rounds: bool = True) -> None:
    """Send messages, as a busy broker would: batches, steps, rounds and ticks in between."""
    drafts = []
    for number, deliver_ms in enumerate(deliver_times_ms):
        properties = {
            PropertyName.UNIQUE_KEY: f"7F0000017AB84E0E2F2A68B5{number:08X}",
            PropertyName.TIMER_DELIVER_MS: str(deliver_ms),
            PropertyName.WAIT_STORE: "true",
            PropertyName.TAGS: "tag",
        }
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
        draft = MessageDraft(
            topic="orders",
            queue_id=3,
            body=b"a body of a hundred bytes".ljust(100),
            properties_text=text,
            born_timestamp_ms=NOW_MS,
            born_host=("10.0.0.2", 4000),
        )
        timed = timed_draft(draft, properties, world.config, now_ms=world.clock.now_ms)
        assert timed is not None
        drafts.append(timed)
        if len(drafts) == BATCH:
            world.store.put_batch(drafts)
            drafts.clear()
            world.run()
            world.store.tick()
            if rounds and number % (25 * BATCH) == BATCH - 1:
                world.clock.now_ms += 250
                world.timers.run_round()
    if drafts:
        world.store.put_batch(drafts)
    world.run()


def test_a_million_over_40_days_cost_little_memory_and_a_short_restart(
    tmp_path: Path, case_count: Callable[..., int]
) -> None:
    count = case_count(quick=10_000, soak=1_000_000)
    world = world_in(tmp_path)
    random = Random(1)
    send_many(world, [NOW_MS + DAY_MS] * BATCH)
    before = resident_bytes()
    times = [NOW_MS + DAY_MS + random.randrange(40 * DAY_MS) for _ in range(count)]
    random.shuffle(times)
    times_bytes = resident_bytes() - before
    send_many(world, times)
    more = resident_bytes() - before - times_bytes
    assert world.timers.status().pending_count == count + BATCH
    assert more < MEMORY_BYTES_MAX

    # The process dies: nothing is closed.
    world.timers.run_round()
    due_offset = world.timers.checkpoint.queue_offset
    world.store.commit_log.flush()
    world.store.close()
    started_s = time.monotonic()
    again = world.reopen()
    elapsed_s = time.monotonic() - started_s
    assert elapsed_s < RESTART_S_MAX
    assert again.timers.checkpoint.queue_offset == due_offset == count + BATCH
    assert resident_bytes() - before - times_bytes < MEMORY_BYTES_MAX
    again.run()
    assert again.timers.status().pending_count == count + BATCH
    # The first day's, at once, after a jump over all of it.
    due = sum(1 for time_ms in times if time_ms <= NOW_MS + 2 * DAY_MS) + BATCH
    assert len(again.jump(NOW_MS + 2 * DAY_MS + 20)) == due
    again.close()


def test_five_thousand_a_second_take_a_part_of_a_core(tmp_path: Path, case_count: Callable[..., int]) -> None:
    """Processor time, so that a busy machine does not matter: less than a second for each second of messages."""
    seconds = case_count(quick=1, soak=60)
    world = world_in(tmp_path)
    start_ms = NOW_MS + 3_600_000
    times = [start_ms + number * 1_000 // RATE for number in range(seconds * RATE)]
    Random(2).shuffle(times)
    send_many(world, times)
    used_s = 0.0
    count = 0
    for now_ms in range(start_ms, start_ms + seconds * 1_000 + 21, 20):
        world.clock.now_ms = now_ms
        began_s = time.process_time()
        count += len(world.run())
        used_s += time.process_time() - began_s
        if now_ms % 1_000 == 0:
            world.store.tick()
            world.timers.run_round()
    assert count == seconds * RATE
    assert used_s < 0.7 * seconds
    world.close()
