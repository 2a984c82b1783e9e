"""A master hands over: it takes no writes until a slave has its whole log, and for a bounded time."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import draft, open_store
from tests.waiting import until
from thermocline.remoting.errors import BrokerBusyError, ServiceUnavailableError
from thermocline.remoting.offsets import LOG_START
from thermocline.replication.hand_over import HANDS_OVER, HandOver
from thermocline.replication.sync_state_set import SyncStateSet
from thermocline.store.message_store import MessageStore

LONG_MS, SHORT_MS = 10_000, 50


class Master:
    """A store whose slaves 2 and 3 report what the test says; one of two is enough for a put."""

    def __init__(self, *, least_in_sync: int = 1) -> None:
        self.store: MessageStore = open_store(SimulatedDisk())
        log = self.store.commit_log
        self.enough: list[bool] = []
        self.set = SyncStateSet(
            1,
            members=frozenset({1, 2, 3}),
            set_epoch=1,
            epoch_start=LOG_START,
            confirm_offset=LOG_START,
            log_end=lambda: log.append_offset,
            acks_needed=lambda: 1,
            timeout_ms=lambda: 1_000,
            lag_ms_max=lambda: 10_000,
            least_in_sync=lambda: least_in_sync,
            on_enough=self.enough.append,
        )
        self.hand_over = HandOver(log, self.set)
        for number in (2, 3):
            self.set.connected(number, number, is_learner=False, now_ms=0)
        self.put()

    def put(self) -> None:
        self.store.put(draft("t", 0, b"x"))

    def reported(self, number: int) -> None:
        """A slave has the whole log."""
        self.set.reported(number, number, self.store.commit_log.append_offset, now_ms=0)

    @property
    def takes_writes(self) -> bool:
        return self.store.commit_log.refusal is None


async def test_what_waits_to_be_written_is_in_the_log_that_others_get() -> None:
    master = Master()
    for number in (2, 3):
        master.reported(number)
    master.hand_over.write_last = master.put
    end = master.store.commit_log.append_offset
    switch = asyncio.create_task(master.hand_over.begin(2, pause_ms=LONG_MS))
    await until(lambda: not master.takes_writes, what="writes are refused")
    assert master.store.commit_log.append_offset > end
    assert not switch.done(), "the broker lacks what was written last"
    master.reported(2)
    assert await switch
    master.hand_over.close()


async def test_it_waits_for_the_broker_that_is_to_be_elected() -> None:
    master = Master()
    switch = asyncio.create_task(master.hand_over.begin(2, pause_ms=LONG_MS))
    await until(lambda: not master.takes_writes, what="writes are refused")
    with pytest.raises(ServiceUnavailableError, match=HANDS_OVER):
        master.put()
    master.reported(3)
    await asyncio.sleep(0)
    assert not switch.done()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await until(lambda: loop.time() > begun + 0.1, what="the slave was late")
    master.reported(2)
    assert await switch
    assert not master.takes_writes
    assert master.hand_over.is_under_way
    resumption = master.hand_over._resumption
    assert resumption is not None
    assert resumption.when() > begun + 0.1 + LONG_MS / 1_000, "the election has the whole pause"
    master.hand_over.close()
    assert not master.hand_over.is_under_way


async def test_without_a_broker_all_of_the_set_have_to_have_it() -> None:
    master = Master()
    stop = asyncio.create_task(master.hand_over.begin(None, pause_ms=LONG_MS, resumes=False))
    await until(lambda: not master.takes_writes, what="writes are refused")
    master.reported(2)
    await asyncio.sleep(0)
    assert not stop.done()
    master.reported(3)
    assert await stop


async def test_writes_are_taken_again_when_no_election_comes() -> None:
    master = Master()
    master.reported(2)
    assert await master.hand_over.begin(2, pause_ms=SHORT_MS)
    await until(lambda: master.takes_writes, what="writes are taken again")
    assert not await master.hand_over.begin(3, pause_ms=SHORT_MS), "it has reported nothing"
    assert master.takes_writes
    assert master.enough == [True, True], "what else refuses writes is asked again"
    assert not await master.hand_over.begin(9, pause_ms=SHORT_MS), "there is no such slave"
    master.put()


async def test_a_pause_does_not_end_the_refusal_of_a_set_that_is_too_small() -> None:
    master = Master(least_in_sync=4)
    assert master.enough == [False]
    assert not await master.hand_over.begin(3, pause_ms=SHORT_MS)
    assert master.enough == [False, False]


@pytest.mark.parametrize("has_all", [True, False], ids=["the slave has all", "it has not"])
async def test_a_pause_does_not_end_a_refusal_for_another_reason(has_all: bool) -> None:
    """Another broker writes to the cold tier: the controllers will tell."""
    master = Master()
    log = master.store.commit_log
    if has_all:
        master.reported(2)
    log.refuse_all("fenced")
    assert await master.hand_over.begin(2, pause_ms=SHORT_MS) is has_all
    await until(lambda: log.refusal != HANDS_OVER, what="the pause is over")
    assert log.refusal == log.lasting_refusal == "fenced"
    log.refuse_no_more("fenced")
    assert master.takes_writes


async def test_one_at_a_time() -> None:
    master = Master()
    first = asyncio.create_task(master.hand_over.begin(2, pause_ms=LONG_MS))
    await until(lambda: not master.takes_writes, what="writes are refused")
    with pytest.raises(BrokerBusyError):
        await master.hand_over.begin(3, pause_ms=LONG_MS)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert master.takes_writes
