"""PushedFilters: what of a query's own filters the read takes over, so that what they rule out is never fetched.

    topic, brokerName, queueId    any comparison; a queue is read or not: exact
    queueOffset                   comparisons, IN and their negations, as spans of offsets: exact
    not null                      of these and the two times: always true; is null: never
    timestamp                     bounds, so that segments and frames are pruned; Spark filters again
    tag                           = and IN, as the option `tags`; Spark filters again
    key                           = and IN, by the first word of the value, as the option `keys`; Spark filters again

Everything else goes back to Spark untouched. Filters that are pushed are all to hold. A value that is null, or of a
type that its column does not have, is left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from thermocline.spark.decoding.arrow_decoder import INT64_MAX
from thermocline.spark.decoding.key_words import words_of
from thermocline.spark.decoding.offset_spans import EVERY_OFFSET, OFFSET_MAX, OffsetSpans

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_NEVER_NULL = frozenset({"topic", "brokername", "queueid", "queueoffset", "timestamp", "borntimestamp"})
_OF_QUEUES: dict[str, type] = {"topic": str, "brokername": str, "queueid": int}

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda mine, value: bool(mine == value),
    "EqualNullSafe": lambda mine, value: bool(mine == value),
    "GreaterThan": lambda mine, value: bool(mine > value),
    "GreaterThanOrEqual": lambda mine, value: bool(mine >= value),
    "LessThan": lambda mine, value: bool(mine < value),
    "LessThanOrEqual": lambda mine, value: bool(mine <= value),
    "In": lambda mine, value: mine in value,
    "StringStartsWith": lambda mine, value: bool(mine.startswith(value)),
    "StringEndsWith": lambda mine, value: bool(mine.endswith(value)),
    "StringContains": lambda mine, value: value in mine,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTest:
    """One comparison with a queue's topic, broker or number."""

    column: str
    comparison: str
    value: Any
    negated: bool

    def holds(self, *, topic: str, broker_name: str, queue_id: int) -> bool:
        """Whether the queue passes."""
        mine: Any = {"topic": topic, "brokername": broker_name, "queueid": queue_id}[self.column]
        return _COMPARISONS[self.comparison](mine, self.value) != self.negated


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedFilters:
    """See the module's header. Store times are half-open, ms; `keys`: of each set one has to be among the keys."""

    queue_tests: tuple[QueueTest, ...] = ()
    spans: OffsetSpans = EVERY_OFFSET
    start_ms: int = 0
    end_ms: int = INT64_MAX
    tags: frozenset[str] | None = None
    keys: tuple[frozenset[str], ...] = ()

    def wants_queue(self, *, topic: str, broker_name: str, queue_id: int) -> bool:
        """Whether any message of the queue may pass."""
        return bool(self.spans.spans) and all(
            test.holds(topic=topic, broker_name=broker_name, queue_id=queue_id) for test in self.queue_tests
        )


NO_FILTERS = PushedFilters()


def push_filters(filters: Iterable[Filter]) -> tuple[PushedFilters, list[Filter]]:
    """What is taken over, and the filters that Spark has to apply itself (again)."""
    pushed, rest = NO_FILTERS, []
    for each in filters:
        negated = type(each).__name__ == "Not"
        plain: Any = each.child if negated else each  # type: ignore[attr-defined]
        if len(plain.attribute) != 1:
            rest.append(each)
            continue
        column, comparison = plain.attribute[0].lower(), type(plain).__name__
        value = getattr(plain, "value", None)
        taken, is_exact = _push(pushed, column, comparison, value, negated)
        if taken is not None:
            pushed = taken
        if not is_exact:
            rest.append(each)
    return pushed, rest


def _push(
    pushed: PushedFilters, column: str, comparison: str, value: Any, negated: bool
) -> tuple[PushedFilters | None, bool]:
    """With one filter more (None: nothing of it can be used), and whether it is settled by that."""
    if comparison in ("IsNull", "IsNotNull"):
        if column not in _NEVER_NULL:
            return None, False
        is_true = (comparison == "IsNotNull") != negated
        return (pushed if is_true else replace(pushed, spans=OffsetSpans(()))), True
    values = tuple(value) if comparison == "In" else (value,)
    if column in _OF_QUEUES:
        if not _all_of(values, _OF_QUEUES[column]) or comparison not in _COMPARISONS:
            return None, False
        test = QueueTest(
            column=column, comparison=comparison, value=values if comparison == "In" else value, negated=negated
        )
        return replace(pushed, queue_tests=(*pushed.queue_tests, test)), True
    if column == "queueoffset":
        spans = _offset_spans(comparison, values) if _all_of(values, int) else None
        if spans is None:
            return None, False
        return replace(pushed, spans=pushed.spans.intersect(spans.complement() if negated else spans)), True
    if negated:
        return None, False
    if column == "timestamp":
        return _push_time(pushed, comparison, values), False
    if comparison in ("EqualTo", "EqualNullSafe", "In") and _all_of(values, str):
        if column == "tag":
            tags = frozenset(values)
            return replace(pushed, tags=tags if pushed.tags is None else pushed.tags & tags), False
        if column == "key" and all(words_of(text) for text in values):
            return replace(pushed, keys=(*pushed.keys, frozenset(words_of(text)[0] for text in values))), False
    return None, False


def _push_time(pushed: PushedFilters, comparison: str, values: Sequence[Any]) -> PushedFilters | None:
    """Bounds that hold whatever a value has below the millisecond."""
    if not values or not _all_of(values, datetime) or any(value.tzinfo is None for value in values):
        return None
    least_ms, greatest_ms = (int((value - _EPOCH) // _MILLISECOND) for value in (min(values), max(values)))
    match comparison:
        case "EqualTo" | "EqualNullSafe" | "In":
            start_ms, end_ms = least_ms, greatest_ms + 1
        case "GreaterThan" | "GreaterThanOrEqual":
            start_ms, end_ms = least_ms, INT64_MAX
        case "LessThan" | "LessThanOrEqual":
            start_ms, end_ms = 0, greatest_ms + 1
        case _:
            return None
    return replace(pushed, start_ms=max(pushed.start_ms, start_ms), end_ms=min(pushed.end_ms, end_ms))


def _offset_spans(comparison: str, values: Sequence[int]) -> OffsetSpans | None:
    """The offsets that pass, within those that there are."""
    value = values[0] if values else 0
    match comparison:
        case "EqualTo" | "EqualNullSafe" | "In":
            spans = [(each, each + 1) for each in values if each >= 0]
        case "GreaterThan":
            spans = [(value + 1, OFFSET_MAX)]
        case "GreaterThanOrEqual":
            spans = [(value, OFFSET_MAX)]
        case "LessThan":
            spans = [(0, value)]
        case "LessThanOrEqual":
            spans = [(0, value + 1)]
        case _:
            return None
    return OffsetSpans.of((max(start, 0), min(end, OFFSET_MAX)) for start, end in spans)


def _all_of(values: Sequence[Any], kind: type) -> bool:
    """Whether every value is of this type; a truth value is no number."""
    return all(isinstance(value, kind) and not isinstance(value, bool) for value in values)
