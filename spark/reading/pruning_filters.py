"""PruningFilters: the parts of a query's condition by which queues, segments and frames are not fetched.

    topic, brokerName, queueId    any comparison: a queue is read or not
    queueOffset                   comparisons, IN and their negations, as spans of offsets
    not null                      of these and `timestamp`: always true; is null: never
    timestamp                     bounds, by which segments and frames are pruned
    tag                           = and IN, as the option `tags`
    key                           = and IN, by the first word of the value, as the option `keys`

All comparisons that are given have to hold. Everything else rules out nothing: a value that is null or of a type that
its column does not have, other columns and comparisons. Spark applies the whole condition to the rows that are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.offsets import QueueOffset
from thermocline.spark.decoding.arrow_decoder import INT64_MAX
from thermocline.spark.decoding.key_words import words_of
from thermocline.spark.decoding.offset_spans import EVERY_OFFSET, OFFSET_MAX, OffsetSpans

MICROSECONDS_PER_MS = 1_000
_NEVER_NULL = frozenset({"topic", "brokername", "queueid", "queueoffset", "timestamp"})
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


class SimpleFilter(msgspec.Struct, frozen=True, array_like=True):
    """One comparison of a column with a value (In: with several), named as Spark names it: EqualTo, IsNull and so on.

    Times are microseconds since 1970.
    """

    comparison: str
    column: str
    value: str | int | float | bool | list[str | int | float | bool | None] | None = None
    negated: bool = False


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
class PruningFilters:
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


NO_FILTERS = PruningFilters()


def prune_by(filters: Iterable[SimpleFilter]) -> PruningFilters:
    """What these filters rule out together."""
    found = NO_FILTERS
    for each in filters:
        found = _narrowed(found, each.column.lower(), each.comparison, each.value, negated=each.negated)
    return found


def filters_text(filters: Sequence[SimpleFilter]) -> str:
    """The filters as the option `where` carries them."""
    return msgspec.json.encode(filters).decode()


def parse_filters(text: str | None) -> PruningFilters:
    """Parse the option `where`; None prunes nothing. InvalidRequestError for a text not made by `filters_text`."""
    if text is None:
        return NO_FILTERS
    try:
        filters = msgspec.json.decode(text, type=list[SimpleFilter])
    except msgspec.DecodeError as error:
        raise InvalidRequestError("read_cold writes this option; give it the condition", option="where") from error
    return prune_by(filters)


def _narrowed(found: PruningFilters, column: str, comparison: str, value: Any, *, negated: bool) -> PruningFilters:
    if comparison in ("IsNull", "IsNotNull"):
        is_true = (comparison == "IsNotNull") != negated
        return found if is_true or column not in _NEVER_NULL else replace(found, spans=OffsetSpans(()))
    values = (tuple(value) if isinstance(value, list) else ()) if comparison == "In" else (value,)
    if column in _OF_QUEUES:
        if not _all_of(values, _OF_QUEUES[column]) or comparison not in _COMPARISONS:
            return found
        test = QueueTest(
            column=column, comparison=comparison, value=values if comparison == "In" else value, negated=negated
        )
        return replace(found, queue_tests=(*found.queue_tests, test))
    if column == "queueoffset":
        spans = _offset_spans(comparison, values) if _all_of(values, int) else None
        if spans is None:
            return found
        return replace(found, spans=found.spans.intersect(spans.complement() if negated else spans))
    if negated:
        return found
    if column == "timestamp":
        return _narrowed_time(found, comparison, values)
    if comparison in ("EqualTo", "EqualNullSafe", "In") and _all_of(values, str):
        if column == "tag":
            tags = frozenset(values)
            return replace(found, tags=tags if found.tags is None else found.tags & tags)
        if column == "key" and all(words_of(text) for text in values):
            return replace(found, keys=(*found.keys, frozenset(words_of(text)[0] for text in values)))
    return found


def _narrowed_time(found: PruningFilters, comparison: str, values: Sequence[Any]) -> PruningFilters:
    """Bounds that hold whatever a value has below the millisecond."""
    if not values or not _all_of(values, int):
        return found
    least_ms, greatest_ms = (value // MICROSECONDS_PER_MS for value in (min(values), max(values)))
    match comparison:
        case "EqualTo" | "EqualNullSafe" | "In":
            start_ms, end_ms = least_ms, greatest_ms + 1
        case "GreaterThan" | "GreaterThanOrEqual":
            start_ms, end_ms = least_ms, INT64_MAX
        case "LessThan" | "LessThanOrEqual":
            start_ms, end_ms = 0, greatest_ms + 1
        case _:
            return found
    return replace(found, start_ms=max(found.start_ms, start_ms), end_ms=min(found.end_ms, end_ms))


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
    return OffsetSpans.of((QueueOffset(max(start, 0)), QueueOffset(min(end, OFFSET_MAX))) for start, end in spans)


def _all_of(values: Sequence[Any], kind: type) -> bool:
    """Whether every value is of this type; a truth value is no number."""
    return all(isinstance(value, kind) and not isinstance(value, bool) for value in values)
