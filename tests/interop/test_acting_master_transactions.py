"""Transactions that are open when a master dies: another master asks the producers, and the master hears of none.

Brokers and NameServer of ours as processes.
Covers `broker/acting/half_escapes.py`.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.interop.acting_set import TOPIC, acting_set
from tests.interop.cluster import BROKER_NAME
from tests.interop.killable_broker import name_server
from tests.interop.test_acting_master import Consumer
from tests.interop.transaction_producers import ASK_SOON
from thermocline.client import LocalTransactionState, Message, ReceivedMessage, TransactionProducer
from thermocline.remoting.topic_validation import TRANSACTION_GROUP, TRANSACTION_HALF_TOPIC

COUNT = 6


class Listener:
    """Has the outcome only after `may_commit`."""

    def __init__(self) -> None:
        self.may_commit = threading.Event()

    def execute_local_transaction(
        self, message: Message, transaction_id: str, argument: object
    ) -> LocalTransactionState:
        return LocalTransactionState.UNKNOWN

    def check_local_transaction(self, message: ReceivedMessage, transaction_id: str) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE if self.may_commit.is_set() else LocalTransactionState.UNKNOWN


@pytest.mark.full
def test_open_transactions_end_at_another_master_while_theirs_is_dead(tmp_path: Path) -> None:
    listener = Listener()
    with (
        name_server(tmp_path / "namesrv", supportActingMaster="true") as namesrv,
        acting_set(tmp_path, namesrv, settings=ASK_SOON, other_settings=ASK_SOON) as acted,
        Consumer(namesrv) as consumer,
    ):
        producer = TransactionProducer(group="deciding", namesrv=namesrv)
        producer.register_transaction_listener(listener)
        with producer:
            of_set: set[bytes] = set()
            bodies = [b"%d" % number for number in range(COUNT)]
            for body in bodies:
                result = producer.send_message_in_transaction(Message(TOPIC, body))
                if result.queue.broker_name == BROKER_NAME:
                    of_set.add(body)
            assert 0 < len(of_set) < COUNT
            acted.wait_followed()
            acted.master.kill()
            acted.wait_acting()
            listener.may_commit.set()
            consumer.wait_for(*bodies)
            progress = acted.committed(acted.slave, TRANSACTION_GROUP, TRANSACTION_HALF_TOPIC)
            assert progress[0] >= len(of_set), "the slave has sent all of them"
            acted.master.start()
            acted.wait_ended()
            acted.wait_followed()
            assert acted.committed(acted.master, TRANSACTION_GROUP, TRANSACTION_HALF_TOPIC)[0] >= len(of_set)
            producer.send_message_in_transaction(Message(TOPIC, b"after"))
            consumer.wait_for(b"after")
            assert sorted(consumer.bodies) == sorted([*bodies, b"after"]), "nothing was committed twice"
