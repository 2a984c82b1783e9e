"""Masters are killed while flights are sent: who kills, who sends all the same, and a picture of both."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from followers import wait_until
from replica_set import ReplicaSet
from rich.panel import Panel
from rich.text import Text

from thermocline import Message, MessageQueue, MQError, Producer, SendStatus, select_by_hash

RATE = 9_000
"""Messages a second, of all airports together: a year of flights lasts long enough for several masters."""
BATCH = 100
QUIET_S = 3.0
"""Between a set that is whole again and the next kill."""
DOWN_S = 2.0
SAMPLE_S = 0.25
BARS = " ▁▂▃▄▅▆▇█"


@dataclass(slots=True)
class Timeline:
    """What happened when; times in seconds since the start."""

    started: float = field(default_factory=time.monotonic)
    acknowledged: list[tuple[float, int]] = field(default_factory=list)
    """Messages that were acknowledged at a time."""
    roles: list[tuple[float, dict[int, str]]] = field(default_factory=list)
    """`M`aster, `S`lave in sync, `-` a slave that is not, or ` ` for a dead one, by the brokers' numbers."""
    kills: list[float] = field(default_factory=list)
    unanswered: int = 0
    """Batches that were sent again, since no answer came, or another one than SEND_OK."""

    def begin(self) -> None:
        """Count from now on."""
        self.started = time.monotonic()

    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def pauses(self) -> list[float]:
        """For each kill the seconds until a message was acknowledged again, by another master."""
        times = sorted(at for at, _ in self.acknowledged)
        return [next((at for at in times if at > kill), self.now()) - kill for kill in self.kills]

    def picture(self, numbers: Sequence[int], *, columns: int) -> Panel:
        """Throughput over time, and each broker's role."""
        width = max((at for at, _ in self.acknowledged), default=1.0) / columns
        sums = [0] * columns
        for at, count in self.acknowledged:
            sums[min(columns - 1, int(at / width))] += count
        highest = max(max(sums), 1)
        text = Text(f"{highest / width:8,.0f}/s ", style="dim")
        text.append("".join(BARS[-(-count * (len(BARS) - 1) // highest)] for count in sums), style="green")
        for number in numbers:
            text.append(f"\n  broker {number} ", style="dim")
            for column in range(columns):
                role = self._role(number, (column + 0.5) * width)
                text.append({"M": "█", "S": "─", "-": "·"}.get(role, " "), style="red" if role == "M" else "blue")
        text.append(f"\n{'':11}0 s{'':{columns - 9}}{width * columns:4.0f} s", style="dim")
        text.append("\n█ master   ─ in sync   · catches up   (blank) killed", style="dim")
        return Panel(text, title="Masters are killed while flights are sent", expand=False)

    def _role(self, number: int, at: float) -> str:
        last = [roles for when, roles in self.roles if when <= at]
        return last[-1].get(number, " ") if last else " "


class MasterKiller:
    """Kills the master again and again, starts it again, and watches the roles, until it is stopped."""

    def __init__(self, brokers: ReplicaSet, timeline: Timeline) -> None:
        self._brokers = brokers
        self._timeline = timeline
        self._dead: set[int] = set()
        self._stops = threading.Event()
        self._pool = ThreadPoolExecutor(2)
        self._work: list[Future[None]] = []

    def __enter__(self) -> "MasterKiller":
        wait_until(self._is_whole, "all brokers to be in sync")
        self._work = [self._pool.submit(work) for work in (self._watch, self._kill)]
        return self

    def __exit__(self, *exception: object) -> None:
        self._stops.set()
        self._pool.shutdown()
        for each in self._work:
            each.result()
        wait_until(self._is_whole, "all brokers to be in sync again")

    def _is_whole(self) -> bool:
        return self._brokers.in_sync() == set(self._brokers.numbers) and self._brokers.master() > 0

    def _kill(self) -> None:
        while not self._stops.wait(QUIET_S):
            master = self._brokers.master()
            self._dead.add(master)
            self._brokers.kill(master)
            self._timeline.kills.append(self._timeline.now())
            self._stops.wait(DOWN_S)
            self._brokers.start(master)
            self._dead.discard(master)
            wait_until(self._is_whole, "all brokers to be in sync again")

    def _watch(self) -> None:
        while not self._stops.wait(SAMPLE_S):
            state = self._brokers.state()
            roles = {replica.broker_id: "-" for replica in state.not_in_sync_replicas if replica.alive}
            roles |= {replica.broker_id: "S" for replica in state.in_sync_replicas if replica.alive}
            if state.master_broker_id:
                roles[state.master_broker_id] = "M"
            living = {number: role for number, role in roles.items() if number not in self._dead}
            self._timeline.roles.append((self._timeline.now(), living))


def send_through_failures(brokers: ReplicaSet, streams: Sequence[Sequence[Message]], timeline: Timeline) -> int:
    """Send each airport's flights in order, a batch when the one before is acknowledged; how many were sent."""
    whole = sum(map(len, streams))

    def send(messages: Sequence[Message]) -> int:
        sent, rate = 0, RATE * len(messages) / whole
        with Producer(group="demo-producer", namesrv=brokers.name_server, send_timeout_ms=2_000) as producer:
            queues = sorted(producer.fetch_publish_queues(messages[0].topic))
            queue = select_by_hash(queues, messages[0], messages[0].properties["origin"])
            for start in range(0, len(messages), BATCH):
                batch = messages[start : start + BATCH]
                _send_until_acknowledged(producer, batch, queue, timeline)
                sent += len(batch)
                time.sleep(max(0.0, sent / rate - timeline.now()))
        return sent

    with ThreadPoolExecutor(len(streams)) as pool:
        return sum(pool.map(send, streams))


def _send_until_acknowledged(
    producer: Producer, batch: Sequence[Message], queue: MessageQueue, timeline: Timeline
) -> None:
    while True:
        try:
            results = producer.send_batch(batch, queue=queue)
        except MQError:
            results = []
        if results and all(result.status is SendStatus.SEND_OK for result in results):
            timeline.acknowledged.append((timeline.now(), len(batch)))
            return
        timeline.unanswered += 1
        time.sleep(0.02)
