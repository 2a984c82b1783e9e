"""Can a broker hold a million messages that wait for their time, and deliver 5 000 a second when it has come?

`python -m benchmarks.timers [--count 1000000] [--days 40] [--rate 5000] [--seconds 30]`

One broker (`thermocline dev`), its hot process on the first core, everything else on the second; bodies of 100 B.

    memory     proportional set size of all its processes, when some thousand messages wait, and when `count` more do,
               at random times in the days that follow; each after a rest
    idle       the share of a core that all of them use while these wait and nothing else happens
    restart    seconds from the start of the processes to their being ready, after `kill -9` and after a clean stop, and
               to the broker's having counted again what waits
    lateness   `rate` messages fall due in each of so many seconds, spread evenly, while the others wait: from the
               requested time to the message in its queue, and to a consumer that pulls by long polling

Every message is looked for: the exit status is 1 when one is missing, early, or came twice. What a message costs the
loop, step by step: `python -m benchmarks.timer_steps`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.broker_under_test import BrokerUnderTest, start_thermocline
from benchmarks.pipelined_sends import send_all
from thermocline.remoting.clients import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.headers.broker import CreateTopicRequestHeader
from thermocline.remoting.headers.read import PullMessageRequestHeader
from thermocline.remoting.headers.send import SendMessageRequestHeader, encode_send_header
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.message_record import iterate_records
from thermocline.remoting.records.properties import PropertyName, find_property
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

HOT_CPUS, OTHER_CPUS = {0}, {1}
TOPIC, QUEUES = "Timed", 4
BODY_BYTES = 100
DAY_MS = 86_400_000
ANY_DISK = dict.fromkeys(("diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio"), "99")
"""How full this machine's disk is decides nothing."""
FIRST_COUNT = 10_000
"""Messages that wait from the first, so that what the timers need for a few is not charged to the many."""
SETTLE_S = 30.0
IDLE_S = 20.0
SENT_IN_A_S = 4_000
"""How many are sent in a second at the least, while none may fall due yet."""
LEAD_MS = 5_000
LATE_MS_MAX = 60_000
"""How long a message is waited for."""
SUSPEND_MS = 15_000
TIMEOUT_MS = 30_000
PULL_COUNT = 32
SUSPEND_BIT, SUBSCRIPTION_BIT = 0x2, 0x4
DELIVER = PropertyName.TIMER_DELIVER_MS.encode()
TIME_MARK, NUMBER_MARK = "9876543210123", "ABCDEF98"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# -- sending -----------------------------------------------------------------------------------------------------------


def timed_frames(times_ms: Sequence[int], *, first_number: int) -> Iterator[bytes]:
    """A send request for each time, to the queues in turn; the number stands in its unique key."""
    text = (
        f"{PropertyName.UNIQUE_KEY}\x010A0700016AE04E0E2F2A68B4{NUMBER_MARK}\x02"
        f"{PropertyName.TIMER_DELIVER_MS}\x01{TIME_MARK}\x02{PropertyName.WAIT_STORE}\x01true\x02"
    )
    code = RequestCode.SEND_MESSAGE_V2
    models = []
    for queue_id in range(QUEUES):
        header = SendMessageRequestHeader(producer_group="timers", topic=TOPIC, queue_id=queue_id, properties=text)
        fields = encode_send_header(code, header)
        models.append(RemotingCommand.request(code, ext_fields=fields, body=bytes(BODY_BYTES)).encode())
    time_mark, number_mark = TIME_MARK.encode(), NUMBER_MARK.encode()
    for number, time_ms in enumerate(times_ms, start=first_number):
        time_text, number_text = b"%d" % time_ms, b"%08X" % number
        assert len(time_text) == len(time_mark)
        yield models[number % QUEUES].replace(time_mark, time_text, 1).replace(number_mark, number_text, 1)


def send_timed(broker: BrokerUnderTest, times_ms: Sequence[int], *, first_number: int) -> float:
    """Send a message for each time; messages per second."""
    began_s = time.monotonic()
    asyncio.run(send_all(broker.address, timed_frames(times_ms, first_number=first_number)))
    return len(times_ms) / (time.monotonic() - began_s)


async def make_topic(broker: BrokerUnderTest) -> None:
    connection = await ClientConnection.open(broker.address)
    try:
        header = CreateTopicRequestHeader(topic=TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        command = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        await connection.request(command, timeout_ms=TIMEOUT_MS)
    finally:
        connection.close()


def wait_for_count(broker: BrokerUnderTest, count: int) -> None:
    """Until so many messages have their slot; SystemExit when there are more, or fewer after a minute."""
    deadline_s = time.monotonic() + 60.0
    while True:
        info = broker.runtime_info()
        found = int(info["timerCongestNum"])
        if found == count and info["timerOffsetBehind"] == "0":
            return
        if found > count or time.monotonic() > deadline_s:
            raise SystemExit(f"{found} messages wait instead of {count}")
        time.sleep(0.1)


# -- receiving ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Deliveries:
    """What a consumer saw. Milliseconds after the requested time, by unique key."""

    stored_ms: list[int] = field(default_factory=list)
    received_ms: list[int] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)

    @property
    def repeated_count(self) -> int:
        return len(self.stored_ms) - len(self.keys)


async def consume(broker: BrokerUnderTest, *, count: int, until_ms: int) -> Deliveries:
    """Pull all queues until so many messages came, or the time is over."""
    found = Deliveries()

    async def pull_queue(queue_id: int) -> None:
        connection = await ClientConnection.open(broker.address)
        offset = 0
        try:
            while len(found.stored_ms) < count:
                header = PullMessageRequestHeader(
                    consumer_group="timers",
                    topic=TOPIC,
                    queue_id=queue_id,
                    queue_offset=QueueOffset(offset),
                    max_msg_nums=PULL_COUNT,
                    sys_flag=SUSPEND_BIT | SUBSCRIPTION_BIT,
                    suspend_timeout_millis=SUSPEND_MS,
                    subscription="*",
                    expression_type="TAG",
                )
                command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
                answer = await connection.call(command, timeout_ms=TIMEOUT_MS)
                received_ms = now_ms()
                if answer.code != ResponseCode.SUCCESS:
                    continue
                for record in iterate_records(answer.body):
                    asked_ms = int(find_property(record.properties_text, DELIVER) or b"0")
                    found.stored_ms.append(record.store_timestamp_ms - asked_ms)
                    found.received_ms.append(received_ms - asked_ms)
                    found.keys.add(record.unique_key or "")
                    offset = record.queue_offset + 1
        finally:
            connection.close()

    tasks = [asyncio.create_task(pull_queue(queue_id)) for queue_id in range(QUEUES)]
    # The one that takes the last message ends.
    await asyncio.wait(tasks, timeout=(until_ms - now_ms()) / 1_000, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
            raise outcome
    return found


# -- steps -------------------------------------------------------------------------------------------------------------


def memory_of(broker: BrokerUnderTest) -> dict[str, float]:
    return {part: broker.resident_mb(part) for part in ("Pss", "Pss_Anon", "Pss_File")}


def measure_waiting(broker: BrokerUnderTest, options: argparse.Namespace) -> None:
    """Memory and idle load."""
    chance = random.Random(1)
    first_ms = now_ms() + DAY_MS
    send_timed(broker, [first_ms + chance.randrange(DAY_MS) for _ in range(FIRST_COUNT)], first_number=0)
    wait_for_count(broker, FIRST_COUNT)
    broker.pin(hot_cpus=HOT_CPUS, other_cpus=OTHER_CPUS)
    time.sleep(SETTLE_S)
    before = memory_of(broker)
    span_ms = (options.days - 1) * DAY_MS
    times_ms = [first_ms + chance.randrange(span_ms) for _ in range(options.count)]
    rate = send_timed(broker, times_ms, first_number=FIRST_COUNT)
    print(f"send      {rate:,.0f} timed messages a second", flush=True)
    wait_for_count(broker, FIRST_COUNT + options.count)
    time.sleep(SETTLE_S)
    after = memory_of(broker)
    more = {part: after[part] - before[part] for part in after}
    print(f"memory    {before['Pss']:.0f} MB, with {options.count:,} more that wait {after['Pss']:.0f} MB")
    print(
        f"          {more['Pss']:+.0f} MB: of no file {more['Pss_Anon']:+.0f}, mapped files {more['Pss_File']:+.0f}",
        flush=True,
    )
    used_s = broker.cpu_s()
    time.sleep(IDLE_S)
    print(f"idle      {(broker.cpu_s() - used_s) / IDLE_S:.2%} of a core", flush=True)


def measure_restart(folder: Path, properties: dict[str, str], count: int, *, name: str) -> None:
    os.sched_setaffinity(0, HOT_CPUS | OTHER_CPUS)
    began_s = time.monotonic()
    with start_thermocline(folder, properties=properties) as broker:
        ready_s = time.monotonic() - began_s
        wait_for_count(broker, count)
        counted_s = time.monotonic() - began_s
    print(f"restart   after {name}: ready in {ready_s:.1f} s, all counted again after {counted_s:.1f} s", flush=True)
    os.sched_setaffinity(0, OTHER_CPUS)


def measure_lateness(broker: BrokerUnderTest, options: argparse.Namespace, *, first_number: int) -> bool:
    """Whether every message came once and none was early."""
    count = options.rate * options.seconds
    start_ms = now_ms() + LEAD_MS + count * 1_000 // SENT_IN_A_S
    times_ms = [start_ms + number * 1_000 // options.rate for number in range(count)]
    random.Random(2).shuffle(times_ms)
    send_timed(broker, times_ms, first_number=first_number)
    if now_ms() >= start_ms:
        raise SystemExit("messages fell due while they were sent")
    broker.pin(hot_cpus=HOT_CPUS, other_cpus=OTHER_CPUS)
    time.sleep(max(0, start_ms - now_ms() - LEAD_MS // 2) / 1_000)
    used_s, began_s = broker.cpu_s(), time.monotonic()
    found = asyncio.run(consume(broker, count=count, until_ms=max(times_ms) + LATE_MS_MAX))
    share = (broker.cpu_s() - used_s) / (time.monotonic() - began_s)
    missing = count - len(found.keys)
    for name, late_ms in (("in queue", sorted(found.stored_ms)), ("received", sorted(found.received_ms))):
        quantiles = "/".join(f"{late_ms[int(len(late_ms) * part)]}" for part in (0.5, 0.99, 0.999))
        print(f"lateness  {name}: least {late_ms[0]} ms, p50/p99/p99.9 {quantiles} ms, most {late_ms[-1]} ms")
    print(
        f"          {len(found.keys):,} at {options.rate:,} a second; missing {missing}, repeated"
        f" {found.repeated_count}; {share:.0%} of a core, all processes"
    )
    return not missing and not found.repeated_count and min(found.stored_ms) >= 0


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--days", type=int, default=40)
    parser.add_argument("--rate", type=int, default=5_000)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--directory", type=Path, help="where the store is written (default: the temporary directory)")
    options = parser.parse_args()
    properties = {"timerMaxDelaySec": str((options.days + 1) * DAY_MS // 1_000), **ANY_DISK}
    os.sched_setaffinity(0, OTHER_CPUS)
    waiting_count = FIRST_COUNT + options.count
    with tempfile.TemporaryDirectory(prefix="thermocline-bench-", dir=options.directory) as name:
        folder = Path(name)
        with start_thermocline(folder, properties=properties) as broker:
            broker.pin(hot_cpus=HOT_CPUS, other_cpus=OTHER_CPUS)
            asyncio.run(make_topic(broker))
            measure_waiting(broker, options)
            broker.processes[0].kill()
        measure_restart(folder, properties, waiting_count, name="kill -9")
        measure_restart(folder, properties, waiting_count, name="a clean stop")
        with start_thermocline(folder, properties=properties) as broker:
            broker.pin(hot_cpus=HOT_CPUS, other_cpus=OTHER_CPUS)
            is_good = measure_lateness(broker, options, first_number=waiting_count)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
