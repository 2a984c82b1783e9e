"""Tier figures: the tier process's report for metrics, and how it is shown.

The request names the topics that have a label; the other topics are reported as one sum. Computed on request.
"""

from __future__ import annotations

import msgspec

from thermocline.broker.cold import SteadyReport
from thermocline.broker.metrics.labelled_topics import OTHER
from thermocline.remoting.health import Exposition


class TierFiguresRequest(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """TIER_METRICS. `topics`: to be reported one by one."""

    topics: list[str]


class TopicFigures(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """One topic, or all others together."""

    topic: str
    waiting_bytes: int
    waiting_ms: int
    stored_bytes: int


class PurposeFigures(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Requests to the object store for one purpose."""

    purpose: str
    requests: dict[str, int]
    errors: int
    sent_bytes: int
    received_bytes: int


class TopicRequestFigures(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Requests to the object store for one topic: for its own objects, and its fraction of those for shared objects."""

    topic: str
    requests: dict[str, float]
    errors: float


class TierFigures(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Answer to TIER_METRICS. `budget_left` None: there is no budget; `scrub_ms` None: no scrub has ended yet."""

    topics: list[TopicFigures]
    purposes: list[PurposeFigures]
    removed_bytes: int
    ledger_version: int
    committed_ms: int
    outage_ms: int
    is_widened: bool
    budget_left: int | None
    scrub_ms: int | None
    scrub_broken: int
    cache_bytes: int
    cache_hits: int
    cache_misses: int
    cache_bytes_max: int
    yielded_requests: int | None = None
    """Made beyond the budget; None: there is none."""
    topic_requests: list[TopicRequestFigures] = []
    steady: SteadyReport | None = None


def show_tier(page: Exposition, figures: TierFigures) -> None:
    """Add the tier process's report."""
    for each in figures.topics:
        labels = {"topic": each.topic}
        page.add("thermocline_tier_waiting_bytes", each.waiting_bytes, labels)
        page.add("thermocline_tier_waiting_seconds", each.waiting_ms / 1_000, labels)
        page.add("thermocline_tier_stored_bytes", each.stored_bytes, labels)
    for purpose in figures.purposes:
        labels = {"purpose": purpose.purpose}
        for kind, count in purpose.requests.items():
            page.add("thermocline_store_requests_total", count, labels | {"kind": kind})
        page.add("thermocline_store_errors_total", purpose.errors, labels)
        page.add("thermocline_store_sent_bytes_total", purpose.sent_bytes, labels)
        page.add("thermocline_store_received_bytes_total", purpose.received_bytes, labels)
    for topic in figures.topic_requests:
        labels = {"topic": topic.topic}
        for kind, amount in topic.requests.items():
            page.add("thermocline_topic_store_requests_total", amount, labels | {"kind": kind})
        page.add("thermocline_topic_store_errors_total", topic.errors, labels)
    page.add("thermocline_tier_removed_bytes", figures.removed_bytes)
    page.add("thermocline_tier_ledger_version", figures.ledger_version)
    page.add("thermocline_tier_committed_timestamp_seconds", figures.committed_ms / 1_000)
    page.add("thermocline_tier_outage_seconds", figures.outage_ms / 1_000)
    page.add("thermocline_tier_seal_age_widened", figures.is_widened)
    if figures.budget_left is not None:
        page.add("thermocline_tier_request_budget_left", figures.budget_left)
    if figures.yielded_requests is not None:
        page.add("thermocline_tier_request_budget_yielded_total", figures.yielded_requests)
    if figures.scrub_ms is not None:
        page.add("thermocline_tier_scrub_timestamp_seconds", figures.scrub_ms / 1_000)
    page.add("thermocline_tier_scrub_broken", figures.scrub_broken)
    if figures.steady is not None:
        _show_steady(page, figures.steady)
    page.add("thermocline_cache_bytes", figures.cache_bytes)
    page.add("thermocline_cache_limit_bytes", figures.cache_bytes_max)
    page.add("thermocline_cache_hits_total", figures.cache_hits)
    page.add("thermocline_cache_misses_total", figures.cache_misses)


def _show_steady(page: Exposition, steady: SteadyReport) -> None:
    """The automatic scrub."""
    page.add("thermocline_tier_scrub_bytes_per_day", steady.bytes_per_day)
    page.add("thermocline_tier_scrub_read_bytes_total", steady.read_bytes_total)
    if steady.remaining_bytes is not None:
        page.add("thermocline_tier_scrub_unread_bytes", steady.remaining_bytes)
    if steady.days_needed is not None:
        page.add("thermocline_tier_scrub_days_needed", steady.days_needed)
    if steady.pass_started_ms:
        page.add("thermocline_tier_scrub_pass_timestamp_seconds", steady.pass_started_ms / 1_000)
    if steady.whole_ended_ms:
        page.add("thermocline_tier_scrub_whole_timestamp_seconds", steady.whole_ended_ms / 1_000)


def sum_of_others(others: list[TopicFigures]) -> TopicFigures:
    """Topics without a label of their own: sums, and the greatest age."""
    return TopicFigures(
        topic=OTHER,
        waiting_bytes=sum(each.waiting_bytes for each in others),
        waiting_ms=max((each.waiting_ms for each in others), default=0),
        stored_bytes=sum(each.stored_bytes for each in others),
    )
