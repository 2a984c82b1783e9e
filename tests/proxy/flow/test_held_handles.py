"""Receipt handles that are renewed: when, for how long, for which client, and how that ends.

Covers `proxy/flow/broker_slots.py`.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.proxy.fake_messaging import FakeMessaging, handle_at
from thermocline.proxy.flow import HeldHandles, RenewalRules, retry_delay_ms
from thermocline.proxy.flow.held_handles import DUE_SPARE_MAX, RENEWAL_MS, RENEWALS_MAX
from thermocline.proxy.messaging import HandleExpiredError
from thermocline.remoting.bodies import ExponentialRetryPolicy, GroupRetryPolicy, SubscriptionGroupConfig
from thermocline.remoting.errors import BrokerBusyError, InvalidRequestError, UnavailableError

RULES = RenewalRules(handles_max=5, client_handles_max=3, ms_max=1_000_000_000)


class Holding:
    """Handles of a client "c" in the group "g", at a time of the test's own."""

    def __init__(self, rules: RenewalRules = RULES) -> None:
        self.now_ms = [1_000_000]
        self.messaging = FakeMessaging(now_ms=self.now_ms)
        self.is_listening = True
        self.handles = HeldHandles(
            self.messaging,
            rules,
            is_listening=lambda client_id: self.is_listening,
            retry_delay_ms=self._retry_delay_ms,
            clock_ms=lambda: self.now_ms[0],
        )

    async def _retry_delay_ms(self, group: str, broker_name: str, reconsume_times: int) -> int:
        return 10_000 + reconsume_times

    def hold(self, offset: int = 7, *, client_id: str = "c") -> None:
        handle = handle_at(self.now_ms[0], offset=offset)
        self.handles.hold(client_id, "g", "T", f"m{offset}", handle, reconsume_times=4)

    async def pass_ms(self, elapsed_ms: int) -> int:
        """Let so much time pass, and what is due be done; how many renewals began."""
        self.now_ms[0] += elapsed_ms
        count = self.handles.renew_due()
        await self.settle()
        return count

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


async def test_a_handle_is_renewed_shortly_before_its_time_is_over_for_longer_and_longer() -> None:
    holding = Holding()
    holding.hold()
    assert await holding.pass_ms(49_999) == 0
    assert await holding.pass_ms(1) == 1
    for _ in range(7):
        await holding.pass_ms(holding.messaging.asked[-1][1] - 10_000)
    assert [invisible_ms for _, invisible_ms in holding.messaging.asked] == [
        *RENEWAL_MS,
        RENEWAL_MS[-1],
        RENEWAL_MS[-1],
    ]


@pytest.mark.parametrize("ahead_ms", [-3_600_000, -20_000, 3_600_000])
async def test_the_brokers_clock_may_differ(ahead_ms: int) -> None:
    """As after a step of either clock: what counts is how long ago the handle came."""
    holding = Holding()
    first = handle_at(1_000_000 + ahead_ms)
    holding.handles.hold("c", "g", "T", "m7", first, reconsume_times=0)
    assert await holding.pass_ms(49_999) == 0
    assert await holding.pass_ms(1) == 1
    assert holding.messaging.asked == [("change", 60_000)]
    taken = await holding.handles.take_handle("c", "g", "m7", first)
    taken.check_fresh(1 << 60)


async def test_what_a_client_has_had_for_too_long_is_over() -> None:
    holding = Holding()
    holding.hold()
    holding.now_ms[0] += 60_000  # with no look in between
    taken = await holding.handles.take_handle("c", "g", "m7", handle_at(1_000_000))
    with pytest.raises(HandleExpiredError):
        taken.check_fresh(0)
    with pytest.raises(HandleExpiredError):
        (await holding.handles.take_handle("c", "g", "m7", handle_at(1_000_000))).check_fresh(1_060_000)


async def test_the_first_handle_of_a_delivery_finds_the_present_one() -> None:
    holding = Holding()
    holding.hold()
    first = handle_at(1_000_000)
    await holding.pass_ms(50_000)
    present = (await holding.handles.take_handle("c", "g", "m7", first)).handle
    assert (present.receipt.pop_time_ms, present.place) == (1_050_000, first.place)
    assert len(holding.handles) == 0
    assert (await holding.handles.take_handle("c", "g", "m7", first)).handle is first  # not held any more
    assert await holding.pass_ms(100_000) == 0


async def test_of_two_deliveries_of_one_message_the_given_handle_decides() -> None:
    holding = Holding()
    holding.handles.hold("c", "g", "T", "m", handle_at(1_000_000, offset=1), reconsume_times=0)
    holding.handles.hold("c", "g", "T", "m", handle_at(1_000_000, offset=2), reconsume_times=1)
    taken = await holding.handles.take_handle("c", "g", "m", handle_at(5, offset=2))
    assert taken.handle.receipt.queue_offset == 2
    assert holding.handles.held_by("c") == 1


async def test_an_acknowledgement_waits_for_a_renewal_under_way() -> None:
    holding = Holding()
    holding.hold()
    holding.messaging.gate = gate = asyncio.get_running_loop().create_future()
    await holding.pass_ms(50_000)
    taking = asyncio.create_task(holding.handles.take_handle("c", "g", "m7", handle_at(1_000_000)))
    await holding.settle()
    assert not taking.done()
    assert holding.handles.take_now("c", "g", "m7", handle_at(1_000_000)) is None
    assert len(holding.handles) == 1
    gate.set_result(None)
    assert (await taking).handle.receipt.pop_time_ms == 1_050_000
    assert len(holding.handles) == 0


async def test_a_delivery_whose_end_was_not_confirmed_is_held_on() -> None:
    holding = Holding()
    holding.hold()
    first = handle_at(1_000_000)
    await holding.pass_ms(50_000)
    taken = await holding.handles.take_handle("c", "g", "m7", first)
    holding.handles.put_back(taken)
    holding.handles.put_back(taken)
    assert len(holding.handles) == 1
    assert await holding.pass_ms(50_000) == 1
    again = await holding.handles.take_handle("c", "g", "m7", first)
    assert again.handle.receipt.pop_time_ms == 1_100_000
    holding.is_listening = False
    holding.handles.put_back(again)
    assert len(holding.handles) == 0


async def test_a_broker_that_does_not_answer_holds_up_no_renewal_at_another() -> None:
    holding = Holding(RenewalRules())
    holding.messaging.gate = asyncio.get_running_loop().create_future()
    for offset in range(RENEWALS_MAX + 1):
        holding.hold(offset)
    await holding.pass_ms(50_000)
    holding.messaging.gate = None  # of what is under way alone
    other = handle_at(1_050_000, broker_name="broker-b")
    holding.handles.hold("c", "g", "T", "m", other, reconsume_times=0)
    assert await holding.pass_ms(50_000) == 1
    assert holding.messaging.asked == [("change", 60_000)]
    await asyncio.wait_for(holding.handles.take_handle("c", "g", "m", other), timeout=60)


async def test_a_failed_renewal_is_tried_again_so_often_and_then_given_up() -> None:
    holding = Holding()
    holding.hold()
    holding.messaging.failures["change"] = [UnavailableError("away")] * 3
    assert [await holding.pass_ms(step) for step in (50_000, 5_000, 4_000)] == [1, 1, 0]
    assert len(holding.handles) == 1
    assert await holding.pass_ms(1_000) == 1
    assert len(holding.handles) == 0


@pytest.mark.parametrize("error", [InvalidRequestError("invalid"), HandleExpiredError("over")])
async def test_a_handle_that_the_broker_does_not_know_is_dropped(error: InvalidRequestError) -> None:
    holding = Holding()
    holding.hold()
    holding.messaging.failures["change"] = [error]
    await holding.pass_ms(50_000)
    assert len(holding.handles) == 0


async def test_a_message_that_is_held_for_too_long_comes_back_after_the_groups_delay() -> None:
    holding = Holding(RenewalRules(ms_max=60_000))
    holding.hold()
    await holding.pass_ms(50_000)
    await holding.pass_ms(50_000)
    assert [invisible_ms for _, invisible_ms in holding.messaging.asked] == [60_000, 10_004]
    assert len(holding.handles) == 0


async def test_a_client_that_is_not_heard_of_is_renewed_nothing() -> None:
    holding = Holding()
    holding.hold()
    holding.is_listening = False
    assert await holding.pass_ms(50_000) == 0
    assert len(holding.handles) == 1
    assert await holding.pass_ms(10_000) == 0
    assert len(holding.handles) == 0


async def test_what_a_gone_client_held_becomes_visible_soon() -> None:
    holding = Holding()
    holding.hold(1)
    holding.hold(2)
    holding.hold(3, client_id="other")
    holding.handles.release_client("c")
    await holding.settle()
    assert holding.messaging.asked == [("change", 1_000), ("change", 1_000)]
    assert (holding.handles.held_by("c"), len(holding.handles)) == (0, 1)


async def test_a_client_that_goes_during_a_renewal_leaves_nothing_invisible() -> None:
    holding = Holding()
    holding.hold()
    holding.messaging.gate = gate = asyncio.get_running_loop().create_future()
    await holding.pass_ms(50_000)
    holding.handles.release_client("c")
    gate.set_result(None)
    holding.messaging.gate = None
    await holding.settle()
    assert holding.messaging.asked == [("change", 60_000), ("change", 1_000)]


async def test_closing_lets_everything_become_visible() -> None:
    holding = Holding()
    holding.handles.start()
    holding.hold(1)
    holding.hold(2)
    await holding.handles.close()
    assert holding.messaging.names() == ["change", "change"]
    assert len(holding.handles) == 0


async def test_handles_are_bounded_for_a_client_and_in_all() -> None:
    holding = Holding()
    for offset in range(3):
        holding.hold(offset)
    holding.handles.check_room("other", 2)
    with pytest.raises(BrokerBusyError, match="the client holds too many"):
        holding.handles.check_room("c", 1)
    with pytest.raises(BrokerBusyError, match="clients of this proxy"):
        holding.handles.check_room("other", 3)


def test_the_delay_before_a_message_is_consumed_again() -> None:
    config = SubscriptionGroupConfig()
    assert [retry_delay_ms(config, times) for times in (0, 1, 15, 99, -1)] == [
        10_000,
        30_000,
        7_200_000,
        7_200_000,
        10_000,
    ]
    config.group_retry_policy = GroupRetryPolicy(
        type="EXPONENTIAL", exponential_retry_policy=ExponentialRetryPolicy(initial=100, max=1_000, multiplier=3)
    )
    assert [retry_delay_ms(config, times) for times in (0, 1, 2, 3, 1 << 20)] == [100, 300, 900, 1_000, 1_000]


async def test_handles_that_were_taken_leave_nothing_behind() -> None:
    holding = Holding()
    holding.hold(offset=0)
    for offset in range(1, 5_000):
        holding.hold(offset=offset)
        await holding.handles.take_handle("c", "g", f"m{offset}", handle_at(holding.now_ms[0], offset=offset))
    assert len(holding.handles) == 1
    assert len(holding.handles._due) <= 2 * len(holding.handles) + DUE_SPARE_MAX
    assert await holding.pass_ms(50_000) == 1
