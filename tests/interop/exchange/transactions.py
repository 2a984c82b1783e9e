"""Transactions: the other broker keeps each decision, and checks the open transactions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.interop.cluster import Cluster
from tests.interop.exchange.saved_offsets import saved_offsets
from tests.interop.java_agent import JavaAgent
from tests.interop.transaction_producers import ASK_SOON, OFFICIAL_NOTES, Producers, indexes
from tests.waiting import wait_until
from thermocline.remoting.topic_validation import TRANSACTION_GROUP, TRANSACTION_HALF_TOPIC, TRANSACTION_OP_HALF_TOPIC
from thermocline.transactions.op_message import decode_op_body

TOPIC = "TransactionExchange"
COUNT = 12
LOCAL = ["commit", "unknown", "rollback", "unknown"]
UNKNOWN = {index for index in range(COUNT) if LOCAL[index % len(LOCAL)] == "unknown"}
NOT_ROLLED_BACK = Counter(index for index in range(COUNT) if LOCAL[index % len(LOCAL)] != "rollback")
CHECK_TIMEOUT_S = 120.0
SETTINGS = {**ASK_SOON, **OFFICIAL_NOTES, "transactionCheckMax": "1000"}
OFFICIAL_SETTINGS = {"transactionCheckInterval": "4000"}
"""An answer that comes after the next round has the official broker ask, and commit, twice."""


class Transactions:
    """A quarter committed, a quarter rolled back; the rest is open until the second broker asks for the second time."""

    def __init__(self, agent: JavaAgent, *, store: Path) -> None:
        self._agent = agent
        self._store = store
        self._producers = Producers(agent, TOPIC)

    def write(self, cluster: Cluster) -> None:
        """Send at the first broker."""
        cluster.make_topic(TOPIC, queue_count=2)
        self._producers.transact(cluster, count=COUNT, local=LOCAL, check=["unknown,commit"], is_undecided=True)

    def wait_until_checked(self, cluster: Cluster) -> None:
        """Return when all that are open were asked about, so put again, and the log says what has ended."""
        wait_until(
            lambda: self._producers.checks().keys() == UNKNOWN, what="the first checks", timeout_s=CHECK_TIMEOUT_S
        )
        self._producers.stop("one")
        wait_until(
            lambda: self._open(cluster) == UNKNOWN,
            what="the log says which transactions have ended",
            timeout_s=CHECK_TIMEOUT_S,
        )

    def go_on(self, cluster: Cluster) -> None:
        """Have the second broker find a producer that it can ask."""
        self._producers.start(cluster, "two")

    def check(self, cluster: Cluster) -> None:
        """Everything but what was rolled back is visible once, and no transaction stays open."""
        wait_until(
            lambda: self._visible(cluster).keys() == NOT_ROLLED_BACK.keys(),
            what="everything but what was rolled back is visible",
            timeout_s=CHECK_TIMEOUT_S,
        )
        wait_until(lambda: not self._open(cluster), what="no transaction is open", timeout_s=CHECK_TIMEOUT_S)
        assert self._visible(cluster) == NOT_ROLLED_BACK, "each once"
        checks = self._producers.checks("two")
        assert checks.keys() == UNKNOWN
        assert min(checks.values()) >= 2

    def close(self) -> None:
        """Stop the producers."""
        self._producers.close()

    def _visible(self, cluster: Cluster) -> Counter[int]:
        return Counter(indexes(self._agent.read_topic(cluster.namesrv, TOPIC)))

    def _open(self, cluster: Cluster) -> set[int]:
        """The messages with a half message that is neither noted as ended nor passed by the group of the checks."""
        # Halves first: what ends meanwhile is not taken for open.
        halves = self._agent.read_topic(cluster.namesrv, TRANSACTION_HALF_TOPIC)
        notes = self._agent.read_topic(cluster.namesrv, TRANSACTION_OP_HALF_TOPIC)
        ended = {offset for note in notes for offset in decode_op_body(note.body)}
        (first,) = saved_offsets(self._store, TRANSACTION_HALF_TOPIC, TRANSACTION_GROUP).values() or (0,)
        open_halves = [half for half in halves if half.queue_offset >= first and half.queue_offset not in ended]
        return set(indexes(open_halves))
