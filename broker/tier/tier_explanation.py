"""Tier explanation: states in a sentence for each queue where its messages are, what happens to them next, and why:
why the local log still holds them, why they are not in the bucket yet, why they are not deleted there."""

from datetime import UTC, datetime

import msgspec

from thermocline.broker.cold import PinHold, QuarantinedRange
from thermocline.remoting.offsets import QueueOffset
from thermocline.store.retention import FileVerdict
from thermocline.tiered.budgets import TierConfig

HELD_BY = {
    "index": "the key index has not read it to its end",
    "held": "a delayed message or a POP check point in it is not done with",
    "timers": "a message in it waits for its time",
    "transactions": "a transaction in it is open",
    "flush": "it is not durable yet",
    "recovery": "what is derived from it is not durable yet",
}


class QueueTierState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One queue; ranges are half-open queue offsets, None for a cold range while the tier process is away."""

    queue_id: int
    local_min: QueueOffset
    local_end: QueueOffset
    cold_min: QueueOffset | None
    cold_end: QueueOffset | None
    waiting_messages: int | None
    waiting_bytes: int | None
    first_waiting_ms: int | None


class TopicTierState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One topic. `ttl_ms` None keeps messages for ever."""

    topic: str
    tiered: bool
    ttl_ms: int | None
    segments: int | None
    raw_bytes: int | None
    stored_bytes: int | None
    queues: list[QueueTierState]
    packs: int | None = None
    first_newest_ms: int | None = None
    quarantined: list[QuarantinedRange] = []
    pins: list[PinHold] = []


class QueueExplanation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One queue in words."""

    topic: str
    queue_id: int
    local: str
    cold: str
    stored: str
    waiting: str
    ttl: str
    next: str
    why_local: str
    why_in_bucket: str


class TierCondition(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of all topics, from the tier process. `oldest_waiting`: the topic that holds back the log;
    `fenced_by`: see `fenced_by`, empty while this broker is the one that commits. `is_yielding`: the request budget is
    passed because local files have to go."""

    outage_ms: int = 0
    waits_for_budget: frozenset[str] = frozenset()
    requests_per_hour: int = 0
    is_yielding: bool = False
    oldest_waiting: str = ""
    fenced_by: str = ""


def fenced_by(later_epoch: int) -> str:
    """A text: this broker is fenced, with the epoch of the broker that has taken over if known (not 0)."""
    return f"this broker is fenced by {f'epoch {later_epoch}' if later_epoch else 'a later broker'}"


def explain(
    state: TopicTierState,
    tier: TierConfig,
    *,
    now_ms: int,
    is_tier_away: bool,
    condition: TierCondition | None = None,
    verdicts: dict[int, FileVerdict] | None = None,
) -> list[QueueExplanation]:
    """One row a queue. `verdicts`: by queue id, why the log still holds the queue's first local message."""
    condition = condition if condition is not None else TierCondition()
    topic_waiting_bytes = sum(queue.waiting_bytes or 0 for queue in state.queues)
    times = [queue.first_waiting_ms for queue in state.queues if queue.first_waiting_ms is not None]
    oldest_ms = min(times, default=None)
    return [
        QueueExplanation(
            topic=state.topic,
            queue_id=queue.queue_id,
            local=_range(queue.local_min, queue.local_end),
            cold=_range(queue.cold_min, queue.cold_end),
            stored=_stored(state),
            waiting=_waiting(queue),
            ttl="kept for ever" if state.ttl_ms is None else f"expires after {_duration(state.ttl_ms)}",
            next=_next(
                state,
                queue,
                tier,
                now_ms=now_ms,
                is_tier_away=is_tier_away,
                topic_waiting_bytes=topic_waiting_bytes,
                oldest_ms=oldest_ms,
                condition=condition,
            ),
            why_local=_why_local(state, queue, (verdicts or {}).get(queue.queue_id), condition, now_ms=now_ms),
            why_in_bucket=_why_in_bucket(state, queue, tier, now_ms=now_ms),
        )
        for queue in state.queues
    ]


def _next(
    state: TopicTierState,
    queue: QueueTierState,
    tier: TierConfig,
    *,
    now_ms: int,
    is_tier_away: bool,
    topic_waiting_bytes: int,
    oldest_ms: int | None,
    condition: TierCondition,
) -> str:
    if not tier.is_enabled:
        return "stays local: there is no cold tier (coldUrl=none)"
    if not state.tiered:
        return "stays local: the broker keeps unfinished work in this topic"
    if condition.fenced_by:
        return f"stays local: {condition.fenced_by}, and commits and deletes nothing any more"
    if is_tier_away:
        return "waits for the tier process, which is away; local files are kept meanwhile"
    if queue.waiting_messages == 0:
        if queue.local_min < queue.local_end:
            return "all committed; local files go when local retention lets them"
        return "all committed and served from the cold tier"
    if oldest_ms is None:
        return "waits to be flushed and counted"
    if condition.outage_ms:
        return (
            f"waits for the object store, which has not answered for {_duration(condition.outage_ms)};"
            " local files are kept meanwhile"
        )
    if state.topic in condition.waits_for_budget:
        return (
            f"due, and waits for the request budget ({condition.requests_per_hour} an hour); sealed when that allows"
            " it, or local files have to go"
        )
    yields = (
        f"; the request budget ({condition.requests_per_hour} an hour) is passed now, because local files have to go"
        if condition.is_yielding
        else ""
    )
    due_in_ms = max(0, oldest_ms + tier.seal_age_ms - now_ms)
    missing = max(0, tier.segment_bytes - topic_waiting_bytes)
    return (
        f"sealed in {_duration(due_in_ms)}, when the topic's oldest waiting message is"
        f" {_duration(tier.seal_age_ms)} old, or sooner with another topic's, into a pack; into segments of its own"
        f" after another {_size(missing)}{yields}"
    )


def _why_local(
    state: TopicTierState,
    queue: QueueTierState,
    verdict: FileVerdict | None,
    condition: TierCondition,
    *,
    now_ms: int,
) -> str:
    """Why the queue's first local message is still in the log."""
    if queue.local_min >= queue.local_end:
        return "nothing is local"
    if condition.fenced_by:
        return f"{condition.fenced_by}, and deletes nothing any more"
    if verdict is None:
        return "unknown"
    first = condition.oldest_waiting
    return why_file_stays(verdict, now_ms=now_ms, whose="this topic" if first == state.topic else first)


def why_file_stays(verdict: FileVerdict, *, now_ms: int, whose: str = "") -> str:
    """Why a log file is kept, or when it is deleted. `whose`: the topic whose message waits for its commit."""
    file = f"log file {int(verdict.file_name)}"
    if verdict.old_at_ms is None:
        return f"{file} is the newest, which always stays"
    reasons = [HELD_BY[name] for name in verdict.held_by if name in HELD_BY]
    if "committed" in verdict.held_by:
        reasons.insert(0, "not all in it is in the bucket" + (f", first of {whose}" if whose else ""))
    if reasons:
        return f"{file} stays: {'; '.join(reasons)}"
    if verdict.old_at_ms > now_ms:
        return f"{file} is kept for another {_duration(verdict.old_at_ms - now_ms)} (fileReservedTime)"
    if not verdict.is_time:
        return f"{file} goes at the next hour for deleting (deleteWhen)"
    return f"{file} goes within seconds"


def _why_in_bucket(state: TopicTierState, queue: QueueTierState, tier: TierConfig, *, now_ms: int) -> str:
    """Why the queue's cold messages are still in the bucket, and which of them cannot be read."""
    parts = [_why_kept(state, queue, tier, now_ms=now_ms)]
    parts += [
        f"[{each.start_offset}, {each.end_offset}) was quarantined by a scrub, and reads of it fail: {each.damage}"
        for each in state.quarantined
        if each.queue_id == queue.queue_id
    ]
    parts += [
        f"{each.object_count} objects ({_size(each.stored_bytes)}) that have left the catalog are held by a pin"
        f" {each.pin_id} until {_moment(each.until_ms)} ({each.owner})"
        for each in state.pins
    ]
    return "; ".join(parts)


def _why_kept(state: TopicTierState, queue: QueueTierState, tier: TierConfig, *, now_ms: int) -> str:
    if queue.cold_min is None or queue.cold_end is None:
        return "unknown"
    if queue.cold_min >= queue.cold_end:
        return "nothing is in the bucket"
    if state.ttl_ms is None:
        return "kept for ever"
    if state.first_newest_ms is None:
        return "unknown"
    left_ms = state.first_newest_ms + state.ttl_ms - now_ms
    if left_ms <= 0:
        return f"the first of it goes with the next sweep, its objects {_duration(tier.grace_ms)} later (coldGraceMs)"
    return (
        f"the first of it goes in {_duration(left_ms)}, when its newest message has expired,"
        f" its objects {_duration(tier.grace_ms)} later (coldGraceMs)"
    )


def _stored(state: TopicTierState) -> str:
    """The objects that hold the topic's cold messages."""
    if state.segments is None or state.packs is None:
        return "unknown"
    parts = [f"{state.segments} segments"] if state.segments else []
    parts += [f"{state.packs} packs shared with other topics"] if state.packs else []
    return " and ".join(parts) or "nothing"


def _range(start: int | None, end: int | None) -> str:
    if start is None or end is None:
        return "unknown"
    return f"[{start}, {end})" if start < end else "none"


def _waiting(queue: QueueTierState) -> str:
    if queue.waiting_messages is None:
        return "unknown"
    if queue.waiting_messages == 0:
        return "none"
    return f"{queue.waiting_messages} messages, {_size(queue.waiting_bytes or 0)}"


def _size(size_bytes: int) -> str:
    value, units = float(size_bytes), ("B", "KiB", "MiB", "GiB", "TiB")
    for unit in units:
        if value < 1024 or unit == units[-1]:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def _moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _duration(duration_ms: int) -> str:
    for unit_ms, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if duration_ms >= unit_ms:
            return f"{duration_ms / unit_ms:.3g} {unit}"
    return f"{duration_ms} ms"
