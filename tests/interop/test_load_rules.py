"""The rules of mixed load see what breaks them: each case is a load that went well, with one thing made wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.interop.load_cluster import SURVIVOR, VICTIM
from tests.interop.load_journal import SEND_OK, Received, Sent
from tests.interop.load_mix import BODY_BYTES, GROUPS, QUEUES, SHARDS, MessageName
from tests.interop.load_rules import REFIND_MS, Events, GroupReceptions, Outage, StoredMessages

CONSUMERS_KILLED_MS = 100_000
OUTAGE = Outage(killed_ms=200_000, back_ms=202_000)
EVENTS = Events(consumers_started_ms=0, consumers_killed_ms=CONSUMERS_KILLED_MS, outages=[OUTAGE])
BY_NAME = {group.name: group for group in GROUPS}
COUNT = 32


def sent(number: int, sent_ms: int = 50_000, *, due_ms: int = 0, outcome: str = SEND_OK) -> Sent:
    return Sent(number=number, sent_ms=sent_ms, answered_ms=sent_ms + 1, due_ms=due_ms, outcome=outcome)


def there(name: str, received_ms: int = 50_010, **more: int | bool) -> Received:
    """A message as a consumer received it, or as its topic stores it."""
    message = MessageName.read(name)
    received = Received(
        received_ms=received_ms,
        is_taken=True,
        topic=message.producer.topic,
        queue_id=message.number % SHARDS % QUEUES,
        queue_offset=message.number,
        reconsume_times=0,
        store_ms=received_ms - 5,
        body_bytes=BODY_BYTES,
        name=name,
    )
    return replace(received, **more)  # type: ignore[arg-type]


def check_stored(producer: str, stored: list[Received], outcomes: list[Sent], events: Events = EVENTS) -> Counter[str]:
    begun = {producer: COUNT}
    return StoredMessages(stored, {producer: {each.number: each for each in outcomes}}, begun, events).check()


def check_group(group: str, received: list[tuple[str, Received]]) -> GroupReceptions:
    """The receptions of messages that were all sent, and are in their topics once."""
    names = {each.name: MessageName.read(each.name) for _, each in received}
    outcomes: dict[str, dict[int, Sent]] = {}
    for message in names.values():
        outcomes.setdefault(message.producer.name, {})[message.number] = sent(message.number)
    stored = StoredMessages(map(there, names), outcomes, {}, EVENTS)
    return GroupReceptions(BY_NAME[group], received, stored, EVENTS)


# -- topics ------------------------------------------------------------------------------------------------------------


def test_acknowledged_messages_are_stored_once() -> None:
    names = [f"java-sync-{number}" for number in range(3)]
    outcomes = [sent(0), sent(1), sent(2, outcome="no answer")]
    assert check_stored("java-sync", list(map(there, names)), outcomes)["messages"] == 3
    with pytest.raises(AssertionError, match="java-sync-1 was acknowledged, and is not in its topic"):
        check_stored("java-sync", [there(names[0])], outcomes)
    with pytest.raises(AssertionError, match="is in its topic 2 times"):
        check_stored("java-sync", [*map(there, names), there(names[0])], outcomes)
    with pytest.raises(AssertionError, match="was never sent"):
        check_stored("java-sync", [there(f"java-sync-{COUNT}")], [])


def test_a_send_that_the_kill_met_may_be_there_twice() -> None:
    met = replace(sent(0, OUTAGE.killed_ms - 10), answered_ms=OUTAGE.back_ms + 100)
    copies = [there("java-sync-0", at) for at in (met.sent_ms + 1, met.answered_ms)]
    assert check_stored("java-sync", copies, [met])["retried"] == 1
    with pytest.raises(AssertionError, match="is in its topic 4 times"):
        check_stored("java-sync", copies * 2, [met])


def test_nothing_is_early_and_a_rollback_is_never_seen() -> None:
    with pytest.raises(AssertionError, match="1 ms early"):
        check_stored("java-timed", [there("java-timed-0", 60_005)], [sent(0, due_ms=60_001)])
    with pytest.raises(AssertionError, match="was rolled back"):
        check_stored("java-transaction", [there("java-transaction-2")], [sent(2)])
    with pytest.raises(AssertionError, match="received what was rolled back"):
        check_group("java-push", [(SURVIVOR, there("java-transaction-4"))]).check()


def test_a_message_may_fall_due_twice_around_the_kill_only() -> None:
    around = [there("java-delayed-0", at) for at in (OUTAGE.killed_ms - 500, OUTAGE.back_ms + 50)]
    assert check_stored("java-delayed", around, [sent(0)])["due twice"] == 1
    with pytest.raises(AssertionError, match="is in its topic 2 times"):
        check_stored("java-delayed", [there("java-delayed-0"), around[1]], [sent(0)])


def test_a_timed_message_may_come_twice_of_a_broker_of_rocketmq_that_took_over_while_it_waited() -> None:
    waits = sent(0, OUTAGE.killed_ms - 500, due_ms=OUTAGE.back_ms + 1_000)
    copies = [there("java-timed-0", waits.due_ms + 10)] * 2
    of_both = replace(EVENTS, is_queued_twice=True)
    assert check_stored("java-timed", copies, [waits], of_both)["queued twice"] == 1
    before = there("java-timed-0", OUTAGE.killed_ms - 400)
    soon = replace(waits, due_ms=before.store_ms)
    assert check_stored("java-timed", [before, *copies], [soon], of_both)["queued twice"] == 2
    for producer, outcome, events in (
        ("java-timed", waits, EVENTS),
        ("java-timed", sent(0, OUTAGE.killed_ms - 60_000), of_both),
        ("java-timed", sent(0, OUTAGE.back_ms + 10_000), of_both),
        ("java-delayed", waits, of_both),
    ):
        twice = [replace(copy, name=f"{producer}-0") for copy in copies]
        with pytest.raises(AssertionError, match="is in its topic 2 times"):
            check_stored(producer, twice, [outcome], events)


# -- groups ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "first", "again", "cause"),
    [
        ("java-push", (VICTIM, 99_000), (SURVIVOR, 101_000), "consumer"),
        ("java-push", (VICTIM, 90_000), (SURVIVOR, 101_000), None),
        ("java-pop", (VICTIM, 90_000), (SURVIVOR, 101_000), "consumer"),
        ("java-push", (SURVIVOR, 99_000), (SURVIVOR, 101_000), None),
        ("java-push", (SURVIVOR, 199_000), (SURVIVOR, 203_000), "broker"),
        ("java-push", (SURVIVOR, 150_000), (SURVIVOR, 203_000), None),
        ("java-broadcast", (SURVIVOR, 199_000), (SURVIVOR, 203_000), None),
    ],
)
def test_repetitions_have_a_cause(
    group: str, first: tuple[str, int], again: tuple[str, int], cause: str | None
) -> None:
    receptions = check_group(group, [(part, there("java-sync-0", at)) for part, at in (first, again)])
    if cause is None:
        with pytest.raises(AssertionError, match="1 repetitions without a cause"):
            receptions.check()
    else:
        assert receptions.check()[cause] == 1


def test_a_repetition_of_a_refused_message_is_allowed() -> None:
    refused = there("java-sync-0", is_taken=False)
    again = there("java-sync-0", 52_000, reconsume_times=1)
    assert check_group("java-push", [(SURVIVOR, refused), (SURVIVOR, again)]).check()["refused"] == 1


def test_each_refusal_makes_one_copy_in_the_retry_topic() -> None:
    """The outage has the message come twice, and both times it is refused; the copies come long after it."""
    refused = [there("java-sync-0", at_ms, is_taken=False) for at_ms in (OUTAGE.killed_ms - 100, OUTAGE.back_ms + 100)]
    copies = [
        there("java-sync-0", OUTAGE.back_ms + after_ms, reconsume_times=1) for after_ms in (60_000, 61_000, 62_000)
    ]
    received = [(SURVIVOR, each) for each in refused + copies]
    assert check_group("java-push", received[:-1]).check()["refused"] == 3
    with pytest.raises(AssertionError, match="1 repetitions without a cause"):
        check_group("java-push", received).check()


def test_messages_sent_back_by_the_victim_may_be_sent_back_again() -> None:
    def copy(at: int, store_ms: int) -> tuple[str, Received]:
        return SURVIVOR, there("java-sync-0", at, reconsume_times=1, store_ms=store_ms)

    first = copy(101_100, CONSUMERS_KILLED_MS + 1_000)
    second = copy(101_700, CONSUMERS_KILLED_MS + 1_600)
    assert check_group("java-push", [first, second]).check()["sent back twice"] == 1
    with pytest.raises(AssertionError, match="1 repetitions without a cause"):
        check_group("java-push", [first, (SURVIVOR, replace(first[1], received_ms=101_700))]).check()
    with pytest.raises(AssertionError, match="1 repetitions without a cause"):
        check_group("java-push", [copy(51_000, 50_000), copy(51_600, 50_500)]).check()


@pytest.mark.parametrize("copies_after_kill", [(0, 1), (1, 0)])
def test_each_copy_of_a_message_stored_twice_has_its_own_repetitions(copies_after_kill: tuple[int, int]) -> None:
    """It fell due before and after the kill: its first copy is received again and its second for the first time."""
    name = "java-delayed-0"
    due = [there(name, at) for at in (OUTAGE.killed_ms - 500, OUTAGE.back_ms + 1_000)]
    due[1] = replace(due[1], queue_offset=due[0].queue_offset + 3)
    stored = StoredMessages(due, {"java-delayed": {0: sent(0)}}, {}, EVENTS)
    after_ms = OUTAGE.back_ms + REFIND_MS + 5_000
    later = [replace(due[copy], received_ms=after_ms) for copy in copies_after_kill]
    group = GroupReceptions(BY_NAME["java-push"], [(SURVIVOR, each) for each in [due[0], *later]], stored, EVENTS)
    found = group.check()
    assert (found["broker"], found["stored"]) == (1, 1)
    third = replace(due[1], received_ms=after_ms + 20_000)
    received = [(SURVIVOR, each) for each in [due[0], *later, third]]
    with pytest.raises(AssertionError, match="1 repetitions without a cause"):
        GroupReceptions(BY_NAME["java-push"], received, stored, EVENTS).check()


def test_filters_hold() -> None:
    assert check_group("java-tags", [(SURVIVOR, there("java-sync-0"))]).check()["messages"] == 1
    with pytest.raises(AssertionError, match="does not want"):
        check_group("java-tags", [(SURVIVOR, there("java-sync-1"))]).check()
    with pytest.raises(AssertionError, match="does not want"):
        check_group("java-sql", [(SURVIVOR, there("java-sync-0"))]).check()


# -- order -------------------------------------------------------------------------------------------------------------


def of_one_shard(steps: list[int]) -> GroupReceptions:
    """The first, second, third message of a shard, in the order in which they were received."""
    received = [(SURVIVOR, there(f"java-ordered-{step * SHARDS}", 50_000 + place)) for place, step in enumerate(steps)]
    return check_group("java-orderly", received)


def test_order_allows_to_go_back_and_on_from_there() -> None:
    assert of_one_shard([0, 1, 2, 3]).check_order() == 0
    assert of_one_shard([0, 2, 3]).check_order() == 0  # message 1 may be missing
    assert of_one_shard([0, 1, 2, 1, 2, 3]).check_order() == 1


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([0, 2, 1, 3], "do not rise"),
        ([0, 1, 2, 3, 1, 3], "goes from 8 to 24, not to 16"),
        ([0, 1, 0, 1, 0, 1, 0, 1], "went back 3 times"),
    ],
)
def test_order_that_is_broken_is_seen(steps: list[int], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        of_one_shard(steps).check_order()
