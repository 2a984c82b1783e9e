"""Messages that consumers have popped: at the other broker, what was acknowledged stays so, and the rest comes back
when its invisible time is over. Queues that are popped in order continue where they were.
"""

from __future__ import annotations

from pathlib import Path

from tests.clock import now_ms
from tests.interop.cluster import OFFICIAL, Cluster
from tests.interop.exchange.saved_offsets import saved_offsets
from tests.interop.exchange.too_slow import TooSlowError
from tests.interop.java_agent import ReceivedMessage
from tests.interop.popping import OK, Popping, indexes, produce
from tests.waiting import wait_until
from thermocline.pop import order_table
from thermocline.pop.order_table import OrderTable

TOPIC = "PopExchange"
ORDERED_TOPIC = "PopExchangeOrdered"
GROUP, ORDERED_GROUP = "pop-exchange", "pop-exchange-ordered"
SENT = 12
IN_ORDER = SENT // 2
COME_BACK_S = 120.0
SETTINGS = {"flushConsumerOffsetInterval": "500"}


class Pops:
    """Of two topics, one of them popped in order; the messages of even number are acknowledged."""

    def __init__(self) -> None:
        self._visible_ms = 0
        """No popped message is visible again before this time."""
        self._early: list[ReceivedMessage] = []

    def prepare(self, cluster: Cluster) -> None:
        """Make the topics and send; the invisible time does not run yet."""
        cluster.make_topic(TOPIC)
        cluster.make_topic(ORDERED_TOPIC, queue_count=1)
        produce(cluster, TOPIC, SENT)
        produce(cluster, ORDERED_TOPIC, SENT)

    def write(self, cluster: Cluster, *, invisible_ms: int) -> None:
        """Pop and acknowledge at the first broker.

        Raises:
            TooSlowError: The messages were visible again before that was done.
        """
        self._visible_ms = now_ms() + invisible_ms
        for topic, group, in_order in ((TOPIC, GROUP, False), (ORDERED_TOPIC, ORDERED_GROUP, True)):
            popping = Popping(cluster, topic, group)
            count = IN_ORDER if in_order else SENT
            for message in popping.pop_all(count, invisible_ms=invisible_ms, order=in_order):
                if int(message.properties["index"]) % 2 == 0:
                    answer = popping.ack(message)
                    if now_ms() >= self._visible_ms:
                        raise TooSlowError
                    assert answer == OK

    def wait_until_saved(self, store: Path) -> None:
        """Return when the files of a broker of ours hold it all: the official broker reads nothing else."""
        wait_until(lambda: sum(saved_offsets(store, TOPIC, GROUP).values()) == SENT, what="the offsets are saved")
        wait_until(lambda: saved_offsets(store, ORDERED_TOPIC, ORDERED_GROUP) == {0: 1}, what="and the one in order")
        wait_until(lambda: _order_in_file(store) == (1, 0b010101), what="the order info is saved")

    def pop_early(self, cluster: Cluster) -> None:
        """Pop at the second broker at once; `check` judges what comes.

        Raises:
            TooSlowError: The invisible time is over already.
        """
        self._early = Popping(cluster, TOPIC, GROUP).pop() + Popping(cluster, ORDERED_TOPIC, ORDERED_GROUP).pop(
            order=True
        )
        if now_ms() >= self._visible_ms:
            raise TooSlowError

    def check(self, cluster: Cluster) -> None:
        """Everything that was not acknowledged comes, not before its time; what was does not."""
        popping = Popping(cluster, TOPIC, GROUP)
        ordered = Popping(cluster, ORDERED_TOPIC, ORDERED_GROUP)
        assert self._early == []
        again = popping.pop_all(SENT // 2, timeout_s=COME_BACK_S)
        assert indexes(again) == list(range(1, SENT, 2))
        assert {message.reconsume_times for message in again} == {1}
        assert all(message.store_timestamp_ms >= self._visible_ms for message in again)
        assert popping.batch_ack(again) == OK
        assert popping.pop(poll_ms=2_000) == []
        # The official broker gives out what is behind the first message of a batch that was not acknowledged.
        acked_come_again = cluster.kind == OFFICIAL
        expected = list(range(1, SENT)) if acked_come_again else [1, 3, 5, *range(IN_ORDER, SENT)]
        in_order: list[ReceivedMessage] = []
        while len(indexes(in_order)) < len(expected):
            messages = ordered.pop_all(1, timeout_s=COME_BACK_S, order=True)
            in_order += messages
            assert {ordered.ack(message) for message in messages} == {OK}
        assert [int(message.properties["index"]) for message in in_order] == expected


def _order_in_file(store: Path) -> tuple[int, int] | None:
    """Where the ordered group continues and which messages of its batch are acknowledged, as bits."""
    path = store / "config" / order_table.FILE_NAME
    table = OrderTable()
    table.load(path.read_bytes() if path.exists() else None)
    info = table.find(ORDERED_TOPIC, ORDERED_GROUP, 0)
    return None if info is None else (info.next_offset, info.acked_bits)
