"""What do timers cost? `python -m benchmarks.timers [--count 1000000] [--rate 5000] [--seconds 20]`

Workload: messages with 100-byte bodies and usual properties, through the store and the timers alone, in one thread, as
the hot process would drive them; asynchronous flush, a round every second of the clock.

    store        records of timed messages put, a batch at a time
    enqueue      queue -> units and slots, beside it
    memory       of this process, mapped files included, before and after
    restart      after the process died: store and timers open, ready to deliver
    release      all that waits put into the log again, as for a log file that is to go
    delivery     two days pass: processor time per message that falls due or is rolled
    lateness     in real time at the rate asked for: from the time asked for to the message in its queue
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from thermocline.remoting.properties import PropertyName
from thermocline.store.disk import RealDisk
from thermocline.store.message_draft import MessageDraft
from thermocline.store.message_store import MessageStore
from thermocline.store.store_config import StoreConfig
from thermocline.timers.due_message import DueKind
from thermocline.timers.timer_config import TimerConfig
from thermocline.timers.timer_message_store import TimerMessageStore
from thermocline.timers.timer_request import timed_draft

DAY_MS = 86_400_000
BATCH = 200
PAUSE_S = 0.02
SENT_IN_A_MS = 5
"""How many messages are sent in a millisecond at the least."""
DELIVER_AT_MARK = b"TIMER_DELIVER_MS\x01"


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Bench:
    """A store with timers under a clock that may be set."""

    def __init__(self, folder: Path) -> None:
        self.offset_ms = 0
        self.disk = RealDisk()
        self.store_config = StoreConfig(root_path=str(folder))
        self.config = TimerConfig(root_path=str(folder), delay_ms_max=41 * DAY_MS)
        self.open()

    def clock(self) -> int:
        return wall_clock_ms() + self.offset_ms

    def open(self) -> None:
        self.store = MessageStore.open(self.store_config, disk=self.disk, clock=self.clock)
        self.timers = TimerMessageStore.open(
            self.store, self.config, disk=self.disk, clock=self.clock, random=Random(1).random
        )

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
        if drafts:
            self.store.put_batch(drafts)
            self.run()
        return store_s, enqueue_s


def resident_bytes() -> dict[str, int]:
    found = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "RssAnon", "RssFile"):
            found[name] = int(value.split()[0]) * 1024
    return found


def megabytes(value: float) -> str:
    return f"{value / (1 << 20):.1f} MB"


def waiting(bench: Bench, count: int) -> None:
    random = Random(1)
    bench.send([bench.clock() + DAY_MS] * BATCH)
    times = [bench.clock() + DAY_MS + random.randrange(39 * DAY_MS) for _ in range(count)]
    before = resident_bytes()
    store_s, enqueue_s = bench.send(times)
    after = resident_bytes()
    print(f"store     {store_s / count * 1e6:8.1f} us a message")
    print(f"enqueue   {enqueue_s / count * 1e6:8.1f} us a message, {count / enqueue_s:,.0f} a second of a core")
    more = {name: megabytes(after[name] - before[name]) for name in after}
    print(f"memory    {bench.timers.status().pending_count:,} wait: {more} more")
    began_s = time.monotonic()
    bench.timers.run_round()
    print(f"round     {time.monotonic() - began_s:8.3f} s, the last one")
    bench.store.commit_log.flush()
    bench.store.close()  # the timers are not: for them the process has died
    began_s = time.monotonic()
    bench.open()
    opened_s = time.monotonic() - began_s
    bench.run()
    print(f"restart   {opened_s:8.3f} s, counted again after {time.monotonic() - began_s:.3f} s")
    after = resident_bytes()
    print(f"memory    after the restart {megabytes(after['VmRSS'] - before['VmRSS'])} more")


def release(bench: Bench) -> None:
    count = bench.timers.status().pending_count
    began_s = time.process_time()
    bench.timers.release_below(bench.store.commit_log.append_offset)
    bench.run()
    used_s = time.process_time() - began_s
    print(f"release   {used_s / count * 1e6:8.1f} us a message, put and enqueued again")


def delivery(bench: Bench) -> None:
    count = 0
    began_s = time.process_time()
    for _ in range(24):
        bench.offset_ms += DAY_MS // 12
        count += bench.run()
    used_s = time.process_time() - began_s
    delivered = bench.timers.status().delivered_count
    print(
        f"delivery  {used_s / count * 1e6:8.1f} us a message, {count / used_s:,.0f} a second of a core; {delivered=:,}"
    )


async def lateness(bench: Bench, rate: int, seconds: int) -> None:
    start_ms = bench.clock() + 3_000 + rate * seconds // SENT_IN_A_MS
    times = [start_ms + number * 1_000 // rate for number in range(rate * seconds)]
    Random(2).shuffle(times)
    bench.send(times)
    assert bench.clock() < start_ms, "messages fell due while they were sent"
    late_ms: list[int] = []
    slowest_s, used_s, round_due_ms = 0.0, time.process_time(), 0
    started_s = time.monotonic()
    loop = asyncio.get_running_loop()
    while len(late_ms) < len(times) and bench.clock() < start_ms + seconds * 1_000 + 20_000:
        began_s = time.thread_time()
        due = bench.timers.step()
        slowest_s = max(slowest_s, time.thread_time() - began_s)
        for message in due:
            bench.store.put(message.draft)
            if message.kind is DueKind.DELIVER:
                text = message.draft.properties_text
                start = text.find(DELIVER_AT_MARK) + len(DELIVER_AT_MARK)
                late_ms.append(bench.clock() - int(text[start : text.find(b"\x02", start)]))
        bench.timers.confirm(len(due))
        if wall_clock_ms() >= round_due_ms:
            bench.store.tick()
            timer_round = bench.timers.begin_round()
            if timer_round is not None:
                is_written = False
                while not is_written:
                    is_written = timer_round.advance()
                    await asyncio.sleep(0)
                await loop.run_in_executor(None, timer_round.commit)
                bench.timers.end_round(timer_round, committed=True)
            round_due_ms = wall_clock_ms() + 1_000
        await asyncio.sleep(0 if bench.timers.has_more else PAUSE_S)
    late_ms.sort()
    share = (time.process_time() - used_s) / (time.monotonic() - started_s)
    quantiles = {name: late_ms[int(len(late_ms) * part)] for name, part in (("p50", 0.5), ("p99", 0.99))}
    print(
        f"lateness  {len(late_ms):,} at {rate:,} a second: least {late_ms[0]} ms, {quantiles}, most {late_ms[-1]} ms; "
        f"{share:.0%} of a core; longest step {slowest_s * 1e3:.1f} ms of processor time"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=5_000)
    parser.add_argument("--seconds", type=int, default=20)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="timers-"))
    try:
        bench = Bench(folder / "lateness")
        asyncio.run(lateness(bench, options.rate, options.seconds))
        bench.timers.close()
        bench.store.close()
        bench = Bench(folder / "waiting")
        waiting(bench, options.count)
        release(bench)
        delivery(bench)
        bench.timers.close()
        bench.store.close()
        print(f"peak      {megabytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
