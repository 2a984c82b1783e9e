"""Traffic that makes a broker use everything that goes on behind its clients' backs: transactions, timers, POP.

    transactions   one third committed, one third rolled back, one third asked about and then committed
    timers         messages that are due within seconds
    POP            half acknowledged, half left to come back once, and acknowledged then

Works on this broker and on the official one, both with `PROPERTIES`.
"""

from __future__ import annotations

import threading
import time

from thermocline import (
    AdminClient,
    ConsumeFromWhere,
    LocalTransactionState,
    Message,
    PopConsumer,
    Producer,
    ReceivedMessage,
    TransactionProducer,
)

PROPERTIES = {"transactionTimeOut": "1000", "transactionCheckInterval": "2000"}
"""Open transactions are asked about soon, so that the traffic has an end."""
GROUP = "BenchFeatures"
TRANSACTION_TOPIC, TIMED_TOPIC, POP_TOPIC = "BenchTransactions", "BenchTimed", "BenchPopped"
COUNT = 300
DELAY_MS = 3_000
INVISIBLE_MS = 5_000
TIMEOUT_S = 120.0
ENDS = (
    LocalTransactionState.COMMIT_MESSAGE,
    LocalTransactionState.ROLLBACK_MESSAGE,
    LocalTransactionState.UNKNOWN,
)


class _Decisions:
    """Ends a transaction as its argument says; what it is asked about, it commits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.checked: set[str] = set()

    def execute_local_transaction(
        self, message: Message, transaction_id: str, argument: object
    ) -> LocalTransactionState:
        assert isinstance(argument, LocalTransactionState)
        return argument

    def check_local_transaction(self, message: ReceivedMessage, transaction_id: str) -> LocalTransactionState:
        with self._lock:
            self.checked.add(transaction_id)
        return LocalTransactionState.COMMIT_MESSAGE


def use_features(namesrv: str) -> None:
    """Send and consume until nothing is open any more.

    Raises:
        TimeoutError: The broker does not come to an end with it.
        MQError: The broker failed.
    """
    with AdminClient(namesrv=namesrv) as admin:
        for topic in (TRANSACTION_TOPIC, TIMED_TOPIC, POP_TOPIC):
            admin.create_topic(topic, queue_nums=4)
    _send_transactions(namesrv)
    with Producer(group=GROUP, namesrv=namesrv) as producer:
        for number in range(COUNT):
            producer.send(Message(TIMED_TOPIC, b"%d" % number, delay_ms=DELAY_MS))
            producer.send(Message(POP_TOPIC, b"%d" % number))
    _pop(namesrv)


def _send_transactions(namesrv: str) -> None:
    decisions = _Decisions()
    producer = TransactionProducer(group=GROUP, namesrv=namesrv)
    producer.register_transaction_listener(decisions)
    with producer:
        for number in range(COUNT):
            producer.send_message_in_transaction(Message(TRANSACTION_TOPIC, b"%d" % number), ENDS[number % len(ENDS)])
        wanted = COUNT // len(ENDS)
        deadline = time.monotonic() + TIMEOUT_S
        while len(decisions.checked) < wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"asked about {len(decisions.checked)} of {wanted} transactions")
            time.sleep(0.2)


def _pop(namesrv: str) -> None:
    done: set[bytes] = set()
    deadline = time.monotonic() + TIMEOUT_S
    consumer = PopConsumer(
        group=GROUP,
        namesrv=namesrv,
        invisible_ms=INVISIBLE_MS,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    with consumer:
        consumer.subscribe(POP_TOPIC)
        while len(done) < COUNT:
            if time.monotonic() > deadline:
                raise TimeoutError(f"popped {len(done)} of {COUNT} messages")
            for message in consumer.receive(16, await_ms=500):
                if int(message.body) % 2 == 0 or message.reconsume_times:
                    consumer.ack(message)
                    done.add(message.body)
