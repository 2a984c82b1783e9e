"""Messages with a time of delivery: the other broker delivers each once and not before its time, save recalled ones.

Golden stores of the official broker, among them ones that a killed broker left, are opened by
tests/timers/test_java_timers.py.
"""

from __future__ import annotations

from pathlib import Path

from tests.clock import now_ms
from tests.interop.cluster import OFFICIAL, Cluster
from tests.waiting import wait_until
from thermocline.remoting.records.properties import PropertyName
from thermocline.store.files.disk import RealDisk
from thermocline.timers.timer_checkpoint import TimerCheckpoint

TOPIC = "TimedExchange"
SENT = 12
STEP_MS = 250
RECALLED = 5
EARLY_MS_MAX = 1_000
"""The official broker rounds down to a tick."""
NEXT_TICKS_MS = 2_500
PRODUCER = "timed-producer"
COME_S = 120.0
SETTINGS = {"recallMessageEnable": "true", "mappedFileSizeTimerLog": str(1 << 20)}


class Timers:
    """Sent by the official client; one of them is recalled."""

    def __init__(self) -> None:
        self._times_ms: dict[str, int] = {}
        """By body: the requested time."""

    def write(self, cluster: Cluster, *, delay_ms: int) -> None:
        """Send and recall at the first broker; the first is due after `delay_ms`."""
        cluster.make_topic(TOPIC)
        delays_ms = [delay_ms + STEP_MS * number for number in range(SENT)]
        # When the last has come, whatever is delivered twice, with the others, has come twice.
        delays_ms.append(delays_ms[-1] + NEXT_TICKS_MS)
        names = {"name": PRODUCER, "group": "timed-producers", "namesrv": cluster.namesrv, "topic": TOPIC}
        handle = None
        for number, each_ms in enumerate(delays_ms):
            deliver_at_ms = now_ms() + each_ms
            (answer,) = cluster.agent.produce(
                kind="sync", count=1, start=number, prefix=TOPIC, deliver_at_ms=deliver_at_ms, **names
            )
            assert answer.recall_handle is not None
            if number == RECALLED:
                handle = answer.recall_handle
            else:
                self._times_ms[f"{TOPIC}-{number}"] = deliver_at_ms
        cluster.agent.call("recall", handle=handle, **names)
        cluster.agent.call("stop_producer", name=PRODUCER)

    def wait_until_saved(self, store: Path) -> None:
        """Return when the timer log of a broker of ours holds them, as far as its checkpoint reaches."""

        def is_saved() -> bool:
            checkpoint = TimerCheckpoint.load(RealDisk(), str(store / "config" / "timercheck"))
            return checkpoint is not None and checkpoint.queue_offset >= SENT + 2  # the last one and the recall

        wait_until(is_saved, what="the timers are saved")

    def check(self, cluster: Cluster) -> None:
        """Wait until all have come at the second broker: each once, none early, none that was recalled."""
        agent, times_ms = cluster.agent, self._times_ms
        last = max(times_ms, key=times_ms.__getitem__)
        wait_until(
            lambda: last in {message.body.decode() for message in agent.read_topic(cluster.namesrv, TOPIC)},
            what="the last message has come",
            timeout_s=COME_S,
        )
        wait_until(
            lambda: len(agent.read_topic(cluster.namesrv, TOPIC)) >= len(times_ms),
            what="all messages have come",
            timeout_s=COME_S,
        )
        read = agent.read_topic(cluster.namesrv, TOPIC)
        assert sorted(message.body.decode() for message in read) == sorted(times_ms)
        for message in read:
            asked_ms = times_ms[message.body.decode()]
            assert message.store_timestamp_ms >= asked_ms - (EARLY_MS_MAX if cluster.kind == OFFICIAL else 0)
            assert int(message.properties[PropertyName.TIMER_DEQUEUE_MS]) >= asked_ms
