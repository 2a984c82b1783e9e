"""POP at a slave that stands in: messages for other masters, the group that goes on, its master's POPs in flight."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.popping import GROUP, INVISIBLE_MS, TOPIC, PopClient, Popped, bodies, popped
from tests.broker.slave_config import slave_config
from tests.clock import Clock
from tests.store.store_parts import draft
from tests.waiting import until
from thermocline.broker.pops import EscapedPops, RecordPlace
from thermocline.broker.pops.escaped_pops import AGAIN_MS, EXPIRE_MS
from thermocline.pop.ack_record import AckRecord
from thermocline.pop.check_point import CheckPoint
from thermocline.pop.pop_store import Take
from thermocline.remoting.errors import BrokerBusyError, ServiceUnavailableError
from thermocline.remoting.handles import REVIVE_GROUP
from thermocline.remoting.handles.pop_topics import revive_topic
from thermocline.remoting.offsets import LOG_START, QueueOffset
from thermocline.store.log import MessageDraft

POP, ACK, BATCH_ACK, CHANGE = 200_050, 200_051, 200_151, 200_053
PLACE = RecordPlace(broker_name="broker-b", queue_id=5)
REVIVE_TOPIC = revive_topic("DefaultCluster")


class Home:
    """Stands for the way to another master, which takes records, refuses them, or lets them wait."""

    def __init__(self) -> None:
        self.drafts: list[MessageDraft] = []
        self.due_ms: list[int | None] = []
        self.topics: list[str] = []
        self.is_away = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def record_place(self, topic: str) -> RecordPlace:
        self.topics.append(topic)
        return PLACE

    async def send(self, draft: MessageDraft, *, place: RecordPlace | None = None, due_ms: int | None = None) -> None:
        await self.may_answer.wait()
        if self.is_away:
            raise ServiceUnavailableError("away")
        assert place == PLACE
        assert (draft.topic, draft.queue_id) == (REVIVE_TOPIC, PLACE.queue_id)
        self.drafts.append(draft)
        self.due_ms.append(due_ms)

    @property
    def check_points(self) -> list[CheckPoint]:
        return [CheckPoint.parse(bytes(each.body), broker_name="") for each in self.drafts if b'"it":' in each.body]

    @property
    def acknowledged(self) -> list[int]:
        records = [AckRecord.parse(bytes(each.body), broker_name="") for each in self.drafts if b'"ao":' in each.body]
        return [offset for record in records for offset in record.offsets]


class Slave:
    """A slave with a copy of its master's log, and a client of it."""

    def __init__(self, broker: DataBroker, home: Home) -> None:
        self.broker = broker
        self.home = home
        self.client = PopClient(broker)
        assert broker.parts.pops.escaped is not None
        self.escaped: EscapedPops = broker.parts.pops.escaped
        self.lacking: set[int] = set()

    def begin(self) -> None:
        steps = self.escaped.begin(
            self.home, offsets_log_offset=LOG_START, has=lambda topic, queue_id, offset: offset not in self.lacking
        )
        assert len(list(steps)) > 0

    @property
    def offset(self) -> int | None:
        return self.broker.parts.tables.offsets.query(TOPIC, GROUP, 0)

    @property
    def in_flight_count(self) -> int:
        return len(self.broker.parts.pops.store.in_flight)

    async def pop(self, **fields: Any) -> list[Popped]:
        return await self.client.pop_later(**fields)

    async def ask(self, code: int, message: Popped, **fields: Any) -> int:
        """The code of the answer about a message."""
        ask = {
            "consumerGroup": GROUP,
            "topic": message.topic,
            "queueId": message.receipt.queue_id,
            "offset": message.receipt.queue_offset,
            "extraInfo": message.receipt.text(),
        }
        return (await self.client.wait_answer(self.client.ask(code, **ask, **fields))).code


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def slave(tmp_path: Path, clock: Clock) -> AsyncIterator[Slave]:
    """The master has given out `a` and `b` together, and `c` alone, but not `d` and `e`; `b` was acknowledged."""
    async with data_broker(tmp_path, topics=[TOPIC], clock=clock, start=False) as master:
        client = PopClient(master)
        client.send(b"a", b"b", b"c", b"d", b"e")
        _, second = client.pop(maxMsgNums=2)
        client.pop(maxMsgNums=1)
        client.ack(second)
    config = slave_config(slave_acting_master=True)
    async with data_broker(tmp_path, config=config, clock=clock, start=False) as broker:
        found = Slave(broker, Home())
        yield found
        await found.escaped.end()


def log_end(slave: Slave) -> int:
    return slave.broker.store.commit_log.append_offset


async def test_a_group_goes_on_when_another_master_has_its_check_point(slave: Slave, clock: Clock) -> None:
    end = log_end(slave)
    slave.begin()
    slave.home.may_answer.clear()
    opaque = slave.client.ask_pop(maxMsgNums=1)
    await asyncio.sleep(0)
    assert slave.offset == 3, "the offset that the master's last check point says"
    assert await slave.pop() == [], "the queue is busy"
    slave.home.may_answer.set()
    (message,) = popped(await slave.client.wait_answer(opaque))
    assert (message.body, slave.offset) == (b"d", 4)
    (check_point,) = slave.home.check_points
    assert (check_point.offsets, check_point.broker_name, check_point.topic) == ((3,), "broker-a", TOPIC)
    assert message.receipt.revive_queue_id == PLACE.queue_id
    assert slave.home.due_ms == [clock.now_ms + INVISIBLE_MS - 1_000]
    assert slave.home.topics == [TOPIC], "where the group pops what comes back"
    assert log_end(slave) == end, "a slave's log is its master's"


async def test_without_another_master_nothing_is_popped(slave: Slave) -> None:
    slave.begin()
    slave.home.is_away = True
    answer = await slave.client.wait_answer(slave.client.ask_pop())
    assert answer.code == 14  # SERVICE_NOT_AVAILABLE
    assert (slave.offset, len(slave.escaped)) == (3, 0)
    slave.home.is_away = False
    assert bodies(await slave.pop()) == [b"d", b"e"]


async def test_a_pop_that_waits_is_answered_when_it_is_recorded(slave: Slave) -> None:
    slave.begin()
    await slave.pop()
    opaque = slave.client.ask_pop(pollTime=60_000)
    result = slave.broker.store.put(draft(topic=TOPIC, body=b"f"))
    assert result.queue_offset == 5
    queue = slave.broker.store.queues.find(TOPIC, 0)
    assert queue is not None
    slave.broker.long_polling.arrived([queue])
    assert bodies(popped(await slave.client.wait_answer(opaque))) == [b"f"]
    assert slave.home.check_points[-1].offsets == (5,)


async def test_acknowledgements_follow_their_check_point(slave: Slave) -> None:
    slave.begin()
    first, second = await slave.pop()
    assert await slave.ask(ACK, first) == 0
    assert slave.home.acknowledged == [3]
    assert slave.escaped.message_count(TOPIC, GROUP, 0) == 1
    slave.home.is_away = True
    assert await slave.ask(ACK, second) == 14, "it is not noted"
    slave.home.is_away = False
    assert await slave.ask(ACK, second) == 0
    assert await slave.ask(ACK, second) == 0, "a second time nothing is put"
    assert slave.home.acknowledged == [3, 4]
    assert (len(slave.escaped), slave.escaped.message_count(TOPIC, GROUP, 0)) == (0, 0)


async def test_a_longer_time_is_a_new_check_point_and_an_acknowledgement(slave: Slave, clock: Clock) -> None:
    slave.begin()
    first, _ = await slave.pop()
    assert await slave.ask(CHANGE, first, invisibleTime=5_000) == 0
    renewed = slave.home.check_points[-1]
    assert (renewed.offsets, renewed.invisible_ms, renewed.start_offset) == ((3,), 5_000, 3)
    assert renewed.pop_time_ms > first.receipt.pop_time_ms
    assert slave.home.acknowledged == [3]
    assert await slave.ask(CHANGE, first, invisibleTime=9_000) == 0, "the old receipt is worth nothing"
    assert slave.home.check_points[-1] == renewed


async def test_what_the_master_had_in_flight_comes_back_elsewhere(slave: Slave, clock: Clock) -> None:
    slave.begin()
    assert slave.in_flight_count == 2
    assert await slave.escaped.forward_due() is not None
    assert slave.home.check_points == []
    clock.now_ms += INVISIBLE_MS
    await slave.escaped.forward_due()
    first, second = slave.home.check_points
    assert (first.offsets, first.acked_bits, second.offsets) == ((0, 1), 0b10, (2,))
    assert slave.in_flight_count == 0
    slave.escaped.note_progress()
    progress = [slave.broker.parts.tables.offsets.query(REVIVE_TOPIC, REVIVE_GROUP, number) for number in range(8)]
    for number, done in enumerate(progress):
        queue = slave.broker.store.queues.find(REVIVE_TOPIC, number)
        assert done == (None if queue is None else queue.next_offset - 1)


async def test_the_masters_check_points_hold_its_progress_until_they_are_elsewhere(slave: Slave, clock: Clock) -> None:
    slave.begin()
    slave.home.is_away = True
    clock.now_ms += INVISIBLE_MS
    assert await slave.escaped.forward_due() is None
    await slave.escaped.end()
    done = [slave.broker.parts.tables.offsets.query(REVIVE_TOPIC, REVIVE_GROUP, number) for number in range(8)]
    assert set(done) <= {None, -1}, "the master is to read them all again"
    slave.home.is_away = False
    slave.begin()
    await slave.escaped.forward_due()
    assert len(slave.home.check_points) == 2


async def test_one_that_failed_is_tried_again_later(slave: Slave, clock: Clock) -> None:
    slave.begin()
    slave.home.is_away = True
    clock.now_ms += INVISIBLE_MS
    await slave.escaped.forward_due()
    slave.home.is_away = False
    await slave.escaped.forward_due()
    assert slave.home.check_points == []
    clock.now_ms += AGAIN_MS
    await slave.escaped.forward_due()
    assert len(slave.home.check_points) == 2


async def test_one_whose_forwarding_was_cut_off_is_tried_again_later(slave: Slave, clock: Clock) -> None:
    slave.begin()
    slave.home.may_answer.clear()
    clock.now_ms += INVISIBLE_MS
    forwarding = asyncio.create_task(slave.escaped.forward_due())
    await until(lambda: len(slave.home.topics) == 2)
    forwarding.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await forwarding
    slave.home.may_answer.set()
    await slave.escaped.forward_due()
    assert slave.home.check_points == []
    clock.now_ms += AGAIN_MS
    await slave.escaped.forward_due()
    assert len(slave.home.check_points) == 2


async def test_a_message_that_the_slave_lacks_waits_for_the_master(slave: Slave, clock: Clock) -> None:
    slave.lacking = {0}
    slave.begin()
    clock.now_ms += INVISIBLE_MS
    await slave.escaped.forward_due()
    assert [each.offsets for each in slave.home.check_points] == [(2,)]
    assert slave.in_flight_count == 1


async def test_a_check_point_that_a_third_broker_had_put_at_the_master_goes_on(slave: Slave, clock: Clock) -> None:
    """Its messages are at that broker, whatever is in the queues here."""
    log = slave.broker.parts.pops.store.log
    check_point = CheckPoint(
        topic=TOPIC,
        group=GROUP,
        queue_id=3,
        start_offset=70,
        offsets=(70,),
        pop_time_ms=clock.now_ms,
        invisible_ms=1_000,
        broker_name="broker-c",
    )
    slave.broker.store.put(log.check_point_draft(check_point, 1))
    slave.lacking = {70}
    slave.begin()
    clock.now_ms += 1_000
    await slave.escaped.forward_due()
    assert slave.home.check_points == [check_point]


async def test_acknowledgements_of_what_the_master_gave_out_are_kept_in_memory(slave: Slave, clock: Clock) -> None:
    slave.begin()
    (pending,) = [each for each in slave.broker.parts.pops.store.in_flight if each.check_point.offsets == (2,)]
    check_point = pending.check_point
    extra = f"2 {check_point.pop_time_ms} {INVISIBLE_MS} {pending.revive_queue_id} 0 broker-a 0 2"
    place = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "offset": 2, "extraInfo": extra}
    end = log_end(slave)
    assert (await slave.client.wait_answer(slave.client.ask(ACK, **place))).code == 0
    clock.now_ms += INVISIBLE_MS
    await slave.escaped.forward_due()
    assert [each.offsets for each in slave.home.check_points] == [(0, 1)]
    assert log_end(slave) == end


async def test_after_the_end_late_receipts_are_still_good_and_nothing_is_popped(slave: Slave, clock: Clock) -> None:
    slave.begin()
    first, second = await slave.pop()
    waiting = slave.client.ask_pop(pollTime=60_000)
    await slave.escaped.end()
    assert slave.in_flight_count == 0
    queue = slave.broker.store.queues.find(TOPIC, 0)
    assert queue is not None
    slave.broker.long_polling.arrived([queue])
    assert (await slave.client.wait_answer(waiting)).code == 2  # SYSTEM_BUSY
    assert await slave.ask(ACK, first) == 0
    assert slave.home.acknowledged == [3]
    clock.now_ms += INVISIBLE_MS
    assert await slave.ask(ACK, second) == 2, "it has come back: this slave has nothing to say any more"


async def test_nothing_is_popped_before_everything_in_flight_was_read(slave: Slave) -> None:
    steps = slave.escaped.begin(slave.home, offsets_log_offset=LOG_START, has=lambda topic, queue_id, offset: True)
    next(steps)
    assert not slave.escaped.is_open
    await slave.escaped.end()
    assert slave.in_flight_count == 0
    slave.begin()
    assert slave.in_flight_count == 2


async def test_the_end_waits_for_a_claim_that_is_under_way(slave: Slave) -> None:
    slave.begin()
    slave.home.may_answer.clear()
    opaque = slave.client.ask_pop()
    await until(lambda: slave.home.topics, what="the record is on its way")
    ending = asyncio.create_task(slave.escaped.end())
    await asyncio.sleep(0)
    assert not ending.done()
    slave.home.may_answer.set()
    await ending
    assert slave.offset == 5
    assert bodies(popped(await slave.client.wait_answer(opaque))) == [b"d", b"e"]


async def test_what_is_remembered_is_bounded_and_forgotten_when_it_comes_back(slave: Slave, clock: Clock) -> None:
    slave.broker.parts.pops.store.pending_max = 1
    slave.begin()
    assert bodies(await slave.pop(maxMsgNums=1)) == [b"d"]
    answer = await slave.client.wait_answer(slave.client.ask_pop())
    assert (answer.code, slave.offset) == (209, 4)  # POLLING_FULL
    clock.now_ms += max(INVISIBLE_MS, EXPIRE_MS)
    await slave.escaped.forward_due()
    assert len(slave.escaped) == slave.escaped.message_count(TOPIC, GROUP, 0) == 0
    assert bodies(await slave.pop()) == [b"e"]


async def test_one_that_expires_on_its_way_and_fails_is_forgotten_once(slave: Slave, clock: Clock) -> None:
    slave.begin()
    slave.home.may_answer.clear()
    opaque = slave.client.ask_pop(maxMsgNums=1, invisibleTime=1)
    await until(lambda: len(slave.escaped))
    clock.now_ms += EXPIRE_MS
    slave.escaped._expire(clock())
    assert len(slave.escaped) == 0
    slave.home.is_away = True
    slave.home.may_answer.set()
    assert (await slave.client.wait_answer(opaque)).code == 14, "as of a master that is away, no bug of ours"
    assert slave.escaped.message_count(TOPIC, GROUP, 0) == 0


async def test_what_comes_back_is_looked_for_once_in_a_while(slave: Slave, clock: Clock) -> None:
    """At the end of that time, not a millisecond before it."""
    slave.begin()
    slave.escaped._expire(clock())
    assert bodies(await slave.pop(maxMsgNums=1, invisibleTime=1)) == [b"d"]
    for pause_ms, is_held in ((EXPIRE_MS - 1, True), (1, False)):
        clock.now_ms += pause_ms
        slave.escaped._expire(clock())
        assert bool(len(slave.escaped)) is is_held


async def test_claims_at_once_keep_to_the_bound(slave: Slave) -> None:
    slave.begin()
    slave.broker.parts.pops.store.pending_max = 2
    takes = [
        Take(topic=TOPIC, queue_id=0, offsets=[QueueOffset(offset)], next_offset=QueueOffset(offset + 1))
        for offset in range(4)
    ]
    claims = [slave.escaped.claim(GROUP, [each], invisible_ms=INVISIBLE_MS) for each in takes]
    results = await asyncio.gather(*claims, return_exceptions=True)
    assert sum(isinstance(result, BrokerBusyError) for result in results) == 2
    assert len(slave.escaped) == 2


async def test_order_is_kept_in_memory(slave: Slave) -> None:
    end = log_end(slave)
    slave.begin()
    fields = {"order": True, "queueId": 0}
    first, second = popped(slave.client.pop_answer(**fields))
    assert slave.client.pop_answer(**fields).code == 210, "they are not acknowledged"
    assert slave.offset == 3
    for message in (first, second):
        assert slave.client.ack(message).code == 0
    assert (slave.offset, log_end(slave)) == (5, end)
    await slave.escaped.end()
    assert len(slave.broker.parts.pops.store.orders) == 0
    assert await slave.ask(ACK, second) == 2, "order is the master's again"


async def test_a_claim_of_another_claims_messages_gets_nothing(slave: Slave) -> None:
    """Both have found them before either began."""
    slave.begin()
    first, second = slave.client.ask_pop(), PopClient(slave.broker)
    opaque = second.ask_pop()
    assert bodies(popped(await slave.client.wait_answer(first))) == [b"d", b"e"]
    assert popped(await second.wait_answer(opaque)) == []
    assert len(slave.home.check_points) == 1


async def test_a_slave_that_does_not_stand_in_claims_nothing(slave: Slave) -> None:
    with pytest.raises(BrokerBusyError):
        await slave.escaped.claim(GROUP, [], invisible_ms=1)
