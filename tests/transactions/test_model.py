"""Transactions beside a model that fits on a page: whatever is sent, decided, asked, stopped, killed and deleted.

Each transaction has one outcome that all producers have, or none yet. In the end, when all is decided and checked:
committed is visible exactly once, rolled back never.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transactions.transaction_parts import COMMIT, GROUP, ROLL_BACK, TIMEOUT_MS, TOPIC, Named, World
from thermocline.remoting.errors import IllegalOperationError, InvalidRequestError
from thermocline.remoting.records.message_record import decode_record
from thermocline.transactions.check_round import CheckBack
from thermocline.transactions.transaction_config import TransactionConfig
from thermocline.transactions.transaction_coordinator import Decision

OPERATIONS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 3)),
    st.tuples(st.just("decide"), st.integers(0, 100)),
    st.tuples(st.just("decide again"), st.integers(0, 100)),
    st.tuples(st.just("wait"), st.integers(1, 2 * TIMEOUT_MS)),
    st.tuples(st.just("check"), st.integers(0, 2)),
    st.tuples(st.just("write"), st.just(0)),
    st.tuples(st.just("promise"), st.just(0)),
    st.tuples(st.just("save"), st.just(0)),
    st.tuples(st.just("delete files"), st.just(0)),
    st.tuples(st.just("stop"), st.just(0)),
    st.tuples(st.just("kill"), st.integers(0, 1)),
)
IMMUNITY = ({}, {}, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "1"}, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "20"})


@dataclass(eq=False)
class Expected:
    """A transaction of the model."""

    body: bytes
    truth: Decision
    references: list[Named] = field(default_factory=list)
    """References that its producers got: the half message and the copies of its checks."""
    is_decided: bool = False


class Producers:
    """All producers of the group, and what became visible."""

    def __init__(self) -> None:
        self.transactions: list[Expected] = []
        self.visible: Counter[bytes] = Counter()

    def decide(self, world: World, transaction: Expected, named: Named | CheckBack, *, waits: bool) -> None:
        """Tell the truth; a refusal means that it is too late, or known."""
        before = len(world.committed())
        try:
            world.end(named, transaction.truth, group=GROUP, waits=waits)
        except IllegalOperationError:
            pass
        except InvalidRequestError:
            # Its log file is gone: an early copy, or what has ended long ago.
            assert named.physical_offset < world.store.commit_log.min_offset
        transaction.is_decided = True
        self.visible.update(world.committed()[before:])

    def check(self, world: World, *, answered: int) -> None:
        """A round; every `answered`-th question is answered at once, 0 for none."""
        for number, question in enumerate(world.check()):
            body = decode_record(question.record).body
            transaction = next(each for each in self.transactions if each.body == body)
            transaction.references.append(Named(question.half_offset, question.physical_offset))
            if answered and number % answered == 0:
                self.decide(world, transaction, question, waits=False)


@settings(max_examples=150, deadline=None)
@given(operations=st.lists(OPERATIONS, max_size=60))
def test_committed_is_visible_once_and_rolled_back_never(operations: list[tuple[str, int]]) -> None:
    world = World(config=TransactionConfig(op_bytes_max=8, check_max=1_000), log_file_bytes=8_192)
    producers = Producers()
    for name, value in operations:
        transactions = producers.transactions
        if name == "send":
            truth = COMMIT if len(transactions) % 3 else ROLL_BACK
            body = b"%d" % len(transactions)
            transactions.append(Expected(body, truth, [world.send(body, **IMMUNITY[value])]))
        elif name.startswith("decide") and transactions:
            transaction = transactions[value % len(transactions)]
            if not transaction.is_decided or name == "decide again":
                named = transaction.references[value % len(transaction.references)]
                producers.decide(world, transaction, named, waits=value % 5 == 0)
        elif name == "wait":
            world.clock.now_ms += value
        elif name == "check":
            producers.check(world, answered=value)
        elif name == "write":
            world.coordinator.write_ops()
        elif name == "promise":
            world.store.sync_derived()
        elif name == "save":
            world.store.commit_log.flush()
            world.save_progress()
        elif name == "delete files":
            world.retain()
        elif name == "stop":
            world = world.stop()
        elif name == "kill":
            world = world.kill()
            if value:
                world = world.kill()  # before anything else was written
        world.coordinator.catch_up()
        assert world.counts[TOPIC] == world.coordinator.table.open_count
    for _ in range(3):
        world.clock.now_ms += 60_000
        producers.check(world, answered=1)
    assert world.check() == []
    assert world.counts[TOPIC] == 0
    for transaction in producers.transactions:
        expected = 1 if transaction.truth is COMMIT else 0
        assert producers.visible[transaction.body] == expected, transaction
