"""Orders and their messages, both or neither: a message is seen by consumers if, and only if, its order is kept.

    thermocline dev --set transactionCheckInterval=1000 --set transactionTimeOut=1000
    python examples/transactions.py [NAMESERVER]

The broker asks about transactions whose end it did not receive, here sooner than by default (every 30 s).
"""

import sqlite3
import sys
import threading

from thermocline import (
    AdminClient,
    ConsumeFromWhere,
    LocalTransactionState,
    Message,
    PullConsumer,
    ReceivedMessage,
    TransactionProducer,
)

TOPIC = "shipments"


class Orders:
    """The shop's database, and the local transactions on it. The transaction's id is stored with the order."""

    def __init__(self) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.execute("create table orders (number text, transaction_id text primary key)")
        self._lock = threading.Lock()
        self.was_asked = threading.Event()

    def execute_local_transaction(
        self, message: Message, transaction_id: str, argument: object
    ) -> LocalTransactionState:
        """Keep the order, or not. A process that dies behind this leaves the broker as uncertain as "slow" does."""
        if argument == "sold out":
            return LocalTransactionState.ROLLBACK_MESSAGE
        with self._lock, self._database:
            self._database.execute("insert into orders values (?, ?)", (message.body.decode(), transaction_id))
        return LocalTransactionState.UNKNOWN if argument == "slow" else LocalTransactionState.COMMIT_MESSAGE

    def check_local_transaction(self, message: ReceivedMessage, transaction_id: str) -> LocalTransactionState:
        """The broker asks: is the order there?"""
        with self._lock:
            found = self._database.execute(
                "select 1 from orders where transaction_id = ?", (transaction_id,)
            ).fetchone()
        self.was_asked.set()
        return LocalTransactionState.COMMIT_MESSAGE if found else LocalTransactionState.ROLLBACK_MESSAGE


def main(namesrv: str) -> None:
    """Three orders: one is kept, one is not, and the end of one reaches the broker only by its check."""
    with AdminClient(namesrv=namesrv) as admin:
        admin.create_topic(TOPIC, queue_nums=1)
    orders = Orders()
    producer = TransactionProducer(group="shop", namesrv=namesrv)
    producer.register_transaction_listener(orders)
    with (
        producer,
        PullConsumer(
            group="warehouse",
            namesrv=namesrv,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer,
    ):
        consumer.subscribe(TOPIC)
        for number, fate in ((b"order 1", "kept"), (b"order 2", "sold out"), (b"order 3", "slow")):
            result = producer.send_message_in_transaction(Message(TOPIC, number), fate)
            print(f"{number.decode()}: {result.local_transaction_state.name}")
        orders.was_asked.wait(timeout=60)
        shipped: list[str] = []
        while len(shipped) < 2:
            shipped += [message.body.decode() for message in consumer.poll(timeout_ms=30_000)]
        print(f"to ship: {', '.join(shipped)}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["127.0.0.1:9876"])
