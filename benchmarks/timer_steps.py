"""What does a message that waits for its time cost the loop, step by step? `python -m benchmarks.timer_steps`

Workload: messages with 100-byte bodies and usual properties, through the store and the timers alone, in one thread, as
the hot process drives them, under a clock that is moved on; asynchronous flush, a round every second of real time.
Processor time of each step, per message:

    store        the record of a timed message put, a batch at a time
    enqueue      queue -> unit and slot
    release      put into the log once more, with a new unit, as for a log file that is to go
    delivery     two days pass: due messages go to their topics, those due beyond the wheel are rolled

How a whole broker fares with a million of them: `python -m benchmarks.timers`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from random import Random

from thermocline.remoting.records.properties import PropertyName
from thermocline.store.config import StoreConfig
from thermocline.store.files import RealDisk
from thermocline.store.log import MessageDraft
from thermocline.store.message_store import MessageStore
from thermocline.timers.timer_config import TimerConfig
from thermocline.timers.timer_message_store import TimerMessageStore
from thermocline.timers.timer_request import timed_draft

DAY_MS = 86_400_000
BATCH = 200


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Bench:
    """A store with timers under a clock that may be moved on."""

    def __init__(self, folder: str, *, days: int) -> None:
        self.offset_ms = 0
        disk = RealDisk()
        self.config = TimerConfig(root_path=folder, delay_ms_max=(days + 1) * DAY_MS)
        self.store = MessageStore.open(StoreConfig(root_path=folder), disk=disk, clock=self.clock)
        self.timers = TimerMessageStore.open(
            self.store, self.config, disk=disk, clock=self.clock, random=Random(1).random
        )

    def clock(self) -> int:
        return wall_clock_ms() + self.offset_ms

    def close(self) -> None:
        self.timers.close()
        self.store.close()

    def run(self) -> int:
        """Step until nothing is left to do now; how many messages were put."""
        count = 0
        while True:
            due = self.timers.step()
            for message in due:
                self.store.put(message.draft)
            count += len(due)
            self.timers.confirm(len(due))
            if not self.timers.has_more:
                return count

    def drafts(self, times_ms: list[int]) -> Iterator[MessageDraft]:
        now_ms = self.clock()
        for number, deliver_ms in enumerate(times_ms):
            properties = {
                PropertyName.UNIQUE_KEY: f"7F0000017AB84E0E2F2A68B5{number:08X}",
                PropertyName.TIMER_DELIVER_MS: str(deliver_ms),
                PropertyName.WAIT_STORE: "true",
                PropertyName.TAGS: "tag",
            }
            text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
            draft = MessageDraft(
                topic="orders",
                queue_id=number % 4,
                body=b"a body of a hundred bytes".ljust(100),
                properties_text=text,
                born_timestamp_ms=now_ms,
                born_host=("10.0.0.2", 4000),
            )
            timed = timed_draft(draft, properties, self.config, now_ms=now_ms)
            assert timed is not None
            yield timed

    def send(self, times_ms: list[int]) -> tuple[float, float]:
        """Processor time of storing and of enqueueing."""
        drafts, store_s, enqueue_s, round_due_ms = [], 0.0, 0.0, 0
        for draft in self.drafts(times_ms):
            drafts.append(draft)
            if len(drafts) == BATCH:
                began_s = time.process_time()
                self.store.put_batch(drafts)
                self.store.tick()
                drafts.clear()
                stored_s = time.process_time()
                self.run()
                if wall_clock_ms() >= round_due_ms:
                    self.timers.run_round()
                    round_due_ms = wall_clock_ms() + 1_000
                store_s += stored_s - began_s
                enqueue_s += time.process_time() - stored_s
        return store_s, enqueue_s


def report(step: str, used_s: float, count: int) -> None:
    print(f"{step:<9} {used_s / count * 1e6:6.1f} us a message, {count / used_s:,.0f} a second of a core", flush=True)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--days", type=int, default=40)
    options = parser.parse_args()
    chance = Random(1)
    count = options.count - options.count % BATCH
    with tempfile.TemporaryDirectory(prefix="thermocline-bench-") as folder:
        bench = Bench(folder, days=options.days)
        first_ms = bench.clock() + DAY_MS
        times_ms = [first_ms + chance.randrange((options.days - 1) * DAY_MS) for _ in range(count)]
        store_s, enqueue_s = bench.send(times_ms)
        report("store", store_s, count)
        report("enqueue", enqueue_s, count)
        began_s = time.process_time()
        bench.timers.release_below(bench.store.commit_log.append_offset)
        bench.run()
        report("release", time.process_time() - began_s, count)
        delivered = 0
        began_s = time.process_time()
        for _ in range(24):
            bench.offset_ms += DAY_MS // 12
            delivered += bench.run()
        report("delivery", time.process_time() - began_s, delivered)
        bench.close()


if __name__ == "__main__":
    main()
