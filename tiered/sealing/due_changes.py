"""Due changes: computes the content of the next ledger entry from the hot process's reports and the catalog.

    come      sealed segments and packs, except those of topics deleted meanwhile
    topics    a changed time to live, or a deletion; a topic is named from its first segment or pack on
    go        segments and packs that have expired completely, once in a sweep interval. With a request budget the
              removal waits for a commit that is made for another reason: expired records are invisible anyway
    holes     offsets lost to a full disk that no segment holds (pending_holes.py)

Decides, and commits nothing. Belongs to the tier service.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence

import msgspec

from thermocline.remoting.offsets import QueueOffset
from thermocline.tiered.budgets import TierConfig
from thermocline.tiered.catalog import (
    NEVER_EXPIRES,
    Catalog,
    LedgerChanges,
    QueueHole,
    TopicChange,
    TopicDelete,
    TopicEntry,
    expired_packs,
    sweep,
)
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.packs import PackEntry, ttl_class
from thermocline.tiered.sealing.pending_holes import PendingHoles
from thermocline.tiered.sealing.sweep_turn import Sweeps, SweepTurn
from thermocline.tiered.segments import SegmentEntry

SWEEPS_WAITED_MAX = 3
"""How many sweep intervals an expired pack may wait for a commit that is made for another reason."""


class TopicReport(msgspec.Struct, frozen=True, kw_only=True):
    """One topic as the hot process reports it. `ttl_ms`: in effect now; None keeps messages for ever. `cut_ms`:
    messages stored before it have expired for good. `expired_before_ms`: the part of the cut that changes of the time
    to live have fixed."""

    topic: str
    incarnation: int
    ttl_ms: int | None
    expired_before_ms: int
    cut_ms: int
    tiered: bool
    deleted: bool


class DueChanges:
    """See the module's header. `reports`: the newest report of each topic."""

    def __init__(
        self, writer: LedgerWriter, config: TierConfig, *, can_pay: Callable[[int], bool], now_ms: int
    ) -> None:
        """`can_pay`: whether the request budget allows that many requests now."""
        self._writer = writer
        self._config = config
        self._can_pay = can_pay
        self._holes = PendingHoles()
        interval_ms = config.sweep_interval_ms
        self._segment_sweep = SweepTurn(interval_ms=interval_ms, waited_max_ms=0, now_ms=now_ms)
        self._pack_sweep = SweepTurn(
            interval_ms=interval_ms, waited_max_ms=SWEEPS_WAITED_MAX * interval_ms, now_ms=now_ms
        )
        self.reports: dict[str, TopicReport] = {}

    def ttl_ms(self, topic: str) -> int | None:
        """The time to live in effect, as the hot process reports it; None keeps messages for ever."""
        report = self.reports.get(topic)
        return report.ttl_ms if report is not None else self._writer.catalog.ttl_ms(topic)

    def class_of(self, topic: str) -> str:
        """The TTL class that a topic is in now."""
        return ttl_class(self.ttl_ms(topic))

    def drop(self, topic: str, incarnation: int, hole: QueueHole) -> None:
        """Note offsets that the hot process has dropped."""
        self._holes.add(topic, incarnation, hole)

    def hasten_sweep(self) -> None:
        """Remove expired segments and packs with the next commit."""
        self._segment_sweep.hasten()
        self._pack_sweep.hasten()

    @property
    def sweeps(self) -> Sweeps:
        """The last committed sweeps, and the next ones."""
        return Sweeps(segments=self._segment_sweep.state, packs=self._pack_sweep.state)

    def committed(self) -> None:
        """The changes that `take_changes` returned last are committed, or were empty."""
        self._segment_sweep.committed()
        self._pack_sweep.committed()

    def take_changes(
        self,
        segments: Sequence[SegmentEntry] = (),
        packs: Sequence[PackEntry] = (),
        *,
        now_ms: int,
        coming: Sequence[PackEntry] | None = None,
    ) -> LedgerChanges:
        """Return the changes of one commit, and count them as no longer due: the next sweep is scheduled, pending holes
        are cleared.

        `segments` and `packs` are added; segments of deleted topics give their ids up. `coming`: all sealed packs that
        may still enter the ledger, including `packs`; with None no holes are declared.
        """
        catalog = self._writer.catalog
        deletes: list[TopicDelete] = []
        changes: list[TopicChange] = []
        new_topics = {segment.topic for segment in segments} | {topic for pack in packs for topic in pack.topics}
        for report in self.reports.values():
            entry = catalog.topics.get(report.topic)
            is_named = entry is not None and not entry.deleted
            ended = report.incarnation if report.deleted else report.incarnation - 1
            if entry is not None and is_named and entry.incarnation <= ended:
                deletes.append(TopicDelete(report.topic, entry.incarnation))
                is_named = False
            if report.deleted or not (is_named or report.topic in new_topics):
                continue
            known_ttl_ms = catalog.ttl_ms(report.topic) if is_named else None
            known_cut_ms = entry.expired_before_ms if entry is not None and is_named else 0
            holes: tuple[QueueHole, ...] = ()
            if self._holes and coming is not None:
                holes = self._holes_of(report, entry if is_named else None, segments, coming)
            if known_ttl_ms != report.ttl_ms or known_cut_ms < report.expired_before_ms or holes:
                changes.append(
                    TopicChange(
                        topic=report.topic,
                        incarnation=report.incarnation,
                        ttl_ms=NEVER_EXPIRES if report.ttl_ms is None else report.ttl_ms,
                        expired_before_ms=report.expired_before_ms,
                        holes=holes,
                    )
                )
        live = [
            segment
            for segment in segments
            if (report := self.reports[segment.topic]).incarnation == segment.incarnation and not report.deleted
        ]
        for segment in segments:
            if segment not in live:
                self._writer.abandon(segment.id, segment.keys)
        # Expired segments are invisible anyway: their removal may wait for a commit that is made for another reason.
        cuts_ms, is_made = self.cuts_ms(catalog), bool(live or packs or changes or deletes)
        swept = LedgerChanges()
        if self._segment_sweep.is_on(now_ms=now_ms, is_made=is_made, can_pay=self._can_pay_commit):
            self._segment_sweep.begin(cuts_ms, now_ms=now_ms)
            swept = sweep(catalog, cuts_ms)
        ending = frozenset(delete.topic for delete in deletes)
        is_made = is_made or bool(swept.segments_out)
        packs_out: tuple[str, ...] = ()
        if self._pack_sweep.is_on(now_ms=now_ms, is_made=is_made, can_pay=self._can_pay_commit):
            self._pack_sweep.begin(cuts_ms, now_ms=now_ms)
            packs_out = expired_packs(catalog, cuts_ms, ending=ending)
        grace_ms = self._config.grace_ms
        is_known = catalog.settings.grace_ms == grace_ms
        return LedgerChanges(
            segments_in=tuple(live),
            segments_out=tuple(gone for gone in swept.segments_out if gone.topic not in ending),
            topics=tuple(changes),
            topics_deleted=tuple(deletes),
            packs_in=tuple(packs),
            packs_out=packs_out,
            quarantine_out=tuple(gone for gone in swept.quarantine_out if gone.topic not in ending),
            settings=None if is_known else msgspec.structs.replace(catalog.settings, grace_ms=grace_ms),
        )

    def _holes_of(
        self,
        report: TopicReport,
        entry: TopicEntry | None,
        segments: Sequence[SegmentEntry],
        coming: Sequence[PackEntry],
    ) -> tuple[QueueHole, ...]:
        """The topic's dropped offsets that no segment or pack holds, including sealed ones not committed yet."""
        topic, incarnation = report.topic, report.incarnation
        self._holes.forget_before(topic, incarnation)

        def held() -> Iterator[tuple[int, QueueOffset, QueueOffset]]:
            catalog = self._writer.catalog
            packed = catalog.packed.get(topic) if entry is not None else None
            packs = [catalog.packs[pack_id] for pack_id in packed.packs] if packed is not None else []
            for each in itertools.chain(
                (*entry.ranges(), *entry.holes) if entry is not None else (),
                (run for segment in segments if segment.topic == topic for run in segment.runs),
                (queue for pack in (*packs, *coming) for queue in pack.ranges_of(topic, incarnation)),
            ):
                yield each.queue_id, each.start_offset, each.end_offset

        return self._holes.take_declared(topic, incarnation, held())

    def cuts_ms(self, catalog: Catalog) -> dict[str, int]:
        """Topic -> cut, of the topics that the hot process and the catalog have under the same incarnation."""
        return {
            report.topic: report.cut_ms
            for report in self.reports.values()
            if not report.deleted
            and (entry := catalog.topics.get(report.topic)) is not None
            and entry.incarnation == report.incarnation
        }

    def _can_pay_commit(self) -> bool:
        return self._can_pay(self._writer.commit_cost_max)


def changed_topics(changes: LedgerChanges, before: Catalog) -> frozenset[str]:
    """The topics whose cold ranges or settings a commit upon `before` changed."""
    topics = {segment.topic for segment in changes.segments_in} | {kept.segment.topic for kept in changes.quarantine}
    topics |= {gone.topic for gone in (*changes.segments_out, *changes.quarantine_out)}
    topics |= {gone.topic for gone in changes.topics_deleted}
    topics |= {topic for pack in changes.packs_in for topic in pack.topics}
    topics |= {topic for pack_id in changes.packs_out for topic in before.packs[pack_id].topics}
    return frozenset(topics | {change.topic for change in changes.topics})
