"""Which half messages of a dead master go to another one, and how far the master's progress moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.acting.bridge import Bridge
from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.transacting import COMMIT, GROUP, HALF, ROLL_BACK, TOPIC, TransactionClient
from tests.clock import Clock
from thermocline.broker.acting.half_escapes import REST_MS, HalfEscapes
from thermocline.broker.due import recover_open
from thermocline.remoting.records.properties import decode_properties
from thermocline.remoting.topic_validation import TRANSACTION_GROUP
from thermocline.transactions.transaction_table import TransactionTable

WAIT_MS = 500


class Slave:
    """A slave with the log and the progress of its master."""

    def __init__(self, broker: DataBroker) -> None:
        self.broker = broker
        self.bridge: Any = Bridge()
        self.escapes = HalfEscapes(
            broker.store,
            broker.parts.tables.offsets,
            self.bridge,
            recover=self._recover,
            wait_ms=lambda: WAIT_MS,
            clock=broker.clock,
        )

    def _recover(self) -> TransactionTable:
        parts = self.broker.parts
        return recover_open(parts.base.settings, parts.base.store, parts.tables.offsets, clock=self.broker.clock).table

    def begin(self) -> None:
        """And wait as long as it waits."""
        self.escapes.begin()
        self.broker.clock.now_ms += WAIT_MS

    @property
    def bodies(self) -> list[bytes]:
        return [bytes(draft.body) for draft in self.bridge.halves]

    @property
    def progress(self) -> int | None:
        return self.broker.parts.tables.offsets.query(HALF, TRANSACTION_GROUP, 0)


@pytest.fixture
async def slave(tmp_path: Path) -> AsyncIterator[Slave]:
    """The master has the end of the first and the third of five transactions; no note of the third is in the log."""
    clock = Clock()
    async with data_broker(tmp_path, topics=[TOPIC], clock=clock, start=False) as master:
        client = TransactionClient(master)
        halves = [await client.send_half(body) for body in (b"0", b"1", b"2", b"3", b"4")]
        await client.end(halves[0], ROLL_BACK)
        client.end_one_way(halves[2], COMMIT)
        yield Slave(master)


async def test_open_ones_go_out_in_order_as_their_producers_sent_them(slave: Slave) -> None:
    slave.begin()
    assert await slave.escapes.deliver_slice() == REST_MS
    assert slave.bodies == [b"1", b"3", b"4"]
    assert slave.progress == 5
    draft = slave.bridge.halves[0]
    properties = decode_properties(draft.properties_text)
    assert (draft.topic, properties["TRAN_MSG"], properties["PGROUP"]) == (TOPIC, "true", GROUP)
    assert not {"REAL_TOPIC", "REAL_QID", "TRAN_PREPARED_QUEUE_OFFSET"} & properties.keys()
    assert await slave.escapes.deliver_slice() == REST_MS
    assert len(slave.bodies) == 3, "each of them once"
    slave.escapes.end()
    slave.begin()
    await slave.escapes.deliver_slice()
    assert len(slave.bodies) == 3, "also when it stands in again"


async def test_they_wait_as_long_as_a_check_round(slave: Slave) -> None:
    slave.escapes.begin()
    assert await slave.escapes.deliver_slice() == WAIT_MS
    assert (slave.bodies, slave.progress) == ([], None)


async def test_one_that_no_master_takes_holds_up_the_progress(slave: Slave) -> None:
    """It is not passed over: the master would not ask about it any more."""
    slave.bridge.refused = {b"3"}
    slave.begin()
    assert await slave.escapes.deliver_slice() is None
    assert slave.progress == 3
    slave.bridge.refused = set()
    await slave.escapes.deliver_slice()
    assert slave.progress == 5
    assert b"3" in slave.bodies


async def test_one_of_a_deleted_topic_is_passed_over(slave: Slave) -> None:
    await slave.broker.parts.tables.topics.delete(TOPIC)
    slave.begin()
    await slave.escapes.deliver_slice()
    assert (slave.bodies, slave.progress) == ([], 5)
