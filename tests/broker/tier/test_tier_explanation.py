"""What the broker says of a queue's future."""

from dataclasses import replace

import msgspec
import pytest

from thermocline.broker.cold.tier_holds import PinHold, QuarantinedRange
from thermocline.broker.tier import tier_explanation
from thermocline.broker.tier.tier_explanation import QueueTierState, TierCondition, TopicTierState, explain, fenced_by
from thermocline.store.retention import FileVerdict
from thermocline.tiered.budgets.tier_config import TierConfig

TIER = TierConfig(cold_url="memory://explained", segment_bytes=1 << 20, frame_bytes=1 << 16, seal_age_ms=60_000)
WAITING = QueueTierState(
    queue_id=3,
    local_min=10,
    local_end=30,
    cold_min=0,
    cold_end=20,
    waiting_messages=10,
    waiting_bytes=1 << 18,
    first_waiting_ms=100_000,
)
TOPIC = TopicTierState(
    topic="orders", tiered=True, ttl_ms=86_400_000, segments=1, raw_bytes=1, stored_bytes=1, queues=[WAITING]
)


def test_a_waiting_queue_says_when_it_is_sealed_and_why() -> None:
    (row,) = explain(TOPIC, TIER, now_ms=130_000, is_tier_away=False)
    assert (row.topic, row.queue_id) == ("orders", 3)
    assert (row.local, row.cold, row.waiting) == ("[10, 30)", "[0, 20)", "10 messages, 256.0 KiB")
    assert row.ttl == "expires after 1 d"
    assert row.next.startswith("sealed in 30 s, ")
    assert row.next.endswith("into a pack; into segments of its own after another 768.0 KiB")


def test_a_seal_that_is_overdue_is_not_in_the_past() -> None:
    (row,) = explain(TOPIC, TIER, now_ms=10_000_000, is_tier_away=False)
    assert row.next.startswith("sealed in 0 ms, ")


@pytest.mark.parametrize(
    ("state", "tier", "away", "expected"),
    [
        (TOPIC, replace(TIER, cold_url="none"), False, "stays local: there is no cold tier (coldUrl=none)"),
        (
            msgspec.structs.replace(TOPIC, tiered=False),
            TIER,
            False,
            "stays local: the broker keeps unfinished work in this topic",
        ),
        (TOPIC, TIER, True, "waits for the tier process, which is away; local files are kept meanwhile"),
    ],
)
def test_the_reasons_that_keep_messages_local_are_named(
    state: TopicTierState, tier: TierConfig, away: bool, expected: str
) -> None:
    (row,) = explain(state, tier, now_ms=0, is_tier_away=away)
    assert row.next == expected


@pytest.mark.parametrize(
    ("local_min", "expected"),
    [
        (10, "all committed; local files go when local retention lets them"),
        (30, "all committed and served from the cold tier"),
    ],
)
def test_a_committed_queue(local_min: int, expected: str) -> None:
    queue = msgspec.structs.replace(
        WAITING, local_min=local_min, cold_end=30, waiting_messages=0, waiting_bytes=0, first_waiting_ms=None
    )
    (row,) = explain(msgspec.structs.replace(TOPIC, queues=[queue], ttl_ms=None), TIER, now_ms=0, is_tier_away=False)
    assert (row.next, row.waiting, row.ttl) == (expected, "none", "kept for ever")


def test_figures_of_the_tier_process_are_unknown_while_it_is_away() -> None:
    queue = msgspec.structs.replace(WAITING, cold_min=None, cold_end=None, waiting_messages=None, waiting_bytes=None)
    (row,) = explain(msgspec.structs.replace(TOPIC, queues=[queue]), TIER, now_ms=0, is_tier_away=True)
    assert (row.cold, row.waiting) == ("unknown", "unknown")


@pytest.mark.parametrize(
    ("segments", "packs", "expected"),
    [
        (2, 0, "2 segments"),
        (0, 3, "3 packs shared with other topics"),
        (2, 3, "2 segments and 3 packs shared with other topics"),
        (0, 0, "nothing"),
        (None, None, "unknown"),
    ],
)
def test_stored_objects_of_a_topic_are_described(segments: int | None, packs: int | None, expected: str) -> None:
    (row,) = explain(msgspec.structs.replace(TOPIC, segments=segments, packs=packs), TIER, now_ms=0, is_tier_away=False)
    assert row.stored == expected


def test_a_fenced_broker_names_the_fencing_broker() -> None:
    """Also while its tier process, which has ended, is away."""
    verdict = FileVerdict(file_name=f"{0:020}", end_offset=1, held_by=(), old_at_ms=0, is_time=True)
    for epoch, expected in ((7, "this broker is fenced by epoch 7"), (0, "this broker is fenced by a later broker")):
        (row,) = explain(
            TOPIC,
            TIER,
            now_ms=0,
            is_tier_away=True,
            condition=TierCondition(fenced_by=fenced_by(epoch)),
            verdicts={3: verdict},
        )
        assert row.next == f"stays local: {expected}, and commits and deletes nothing any more"
        assert row.why_local == f"{expected}, and deletes nothing any more"


@pytest.mark.parametrize(
    ("start", "end", "expected"), [(3, 9, "[3, 9)"), (9, 9, "none"), (None, 9, "unknown"), (9, None, "unknown")]
)
def test_a_range_of_offsets_in_words(start: int | None, end: int | None, expected: str) -> None:
    assert tier_explanation._range(start, end) == expected


def test_quarantined_and_pinned_ranges_are_reported_by_queue() -> None:
    state = msgspec.structs.replace(
        TOPIC,
        ttl_ms=None,
        quarantined=[
            QuarantinedRange(queue_id=3, start_offset=2, end_offset=9, damage="a/b.log missing"),
            QuarantinedRange(queue_id=4, start_offset=0, end_offset=1, damage="of another queue"),
        ],
        pins=[
            PinHold(
                pin_id="job-1", owner="spark on host", until_ms=1_700_000_000_000, object_count=3, stored_bytes=2_048
            )
        ],
    )
    (row,) = explain(state, TIER, now_ms=0, is_tier_away=False)
    assert row.why_in_bucket == (
        "kept for ever; [2, 9) was quarantined by a scrub, and reads of it fail: a/b.log missing;"
        " 3 objects (2.0 KiB) that have left the catalog are held by a pin job-1 until 2023-11-14T22:13:20Z"
        " (spark on host)"
    )


def why(state: TopicTierState, verdict: FileVerdict | None = None, condition: TierCondition | None = None) -> list[str]:
    """Next, why local, why in the bucket."""
    verdicts = {} if verdict is None else {3: verdict}
    (row,) = explain(state, TIER, now_ms=130_000, is_tier_away=False, condition=condition, verdicts=verdicts)
    return [row.next, row.why_local, row.why_in_bucket]


def test_the_condition_that_a_message_waits_for_is_named() -> None:
    away = why(TOPIC, condition=TierCondition(outage_ms=90_000))[0]
    assert away.startswith("waits for the object store, which has not answered for 1.5 min")
    poor = TierCondition(waits_for_budget=frozenset(["orders"]), requests_per_hour=500)
    assert why(TOPIC, condition=poor)[0].startswith("due, and waits for the request budget (500 an hour)")
    yielding = TierCondition(requests_per_hour=500, is_yielding=True)
    assert why(TOPIC, condition=yielding)[0].endswith(
        "; the request budget (500 an hour) is passed now, because local files have to go"
    )


@pytest.mark.parametrize(
    ("held_by", "old_at_ms", "is_time", "expected"),
    [
        ((), None, True, "log file 1024 is the newest, which always stays"),
        (("committed",), 0, True, "log file 1024 stays: not all in it is in the bucket, first of billing"),
        (
            ("index", "timers"),
            0,
            True,
            "log file 1024 stays: the key index has not read it to its end; a message in it waits for its time",
        ),
        ((), 130_000 + 3_600_000, True, "log file 1024 is kept for another 1 h (fileReservedTime)"),
        ((), 0, False, "log file 1024 goes at the next hour for deleting (deleteWhen)"),
        ((), 0, True, "log file 1024 goes within seconds"),
    ],
)
def test_why_a_message_is_still_local(
    held_by: tuple[str, ...], old_at_ms: int | None, is_time: bool, expected: str
) -> None:
    verdict = FileVerdict(
        file_name=f"{1024:020}", end_offset=2048, held_by=held_by, old_at_ms=old_at_ms, is_time=is_time
    )
    assert why(TOPIC, verdict, TierCondition(oldest_waiting="billing"))[1] == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ttl_ms": None}, "kept for ever"),
        ({"first_newest_ms": None}, "unknown"),
        ({"first_newest_ms": 130_000 - 86_400_000}, "the first of it goes with the next sweep, its objects 1 d later"),
        ({"first_newest_ms": 130_000}, "the first of it goes in 1 d, when its newest message has expired"),
    ],
)
def test_why_a_message_is_still_in_the_bucket(changes: dict[str, int | None], expected: str) -> None:
    assert why(msgspec.structs.replace(TOPIC, **changes))[2].startswith(expected)
