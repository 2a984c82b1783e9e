"""Checks every byte of a part of a bucket: the objects of a topic, or one object, by the checks of a scrub.

A scrub (`scrub/`) checks everything; this checks one topic or key on demand. Findings are checked once more, by a newer
catalog, as a broker may have removed the object meanwhile.
"""

from __future__ import annotations

import asyncio

import msgspec

from thermocline.remoting.errors import InvalidRequestError, TopicNotFoundError
from thermocline.tiered.bucket.opened_bucket import BrokerTier, opened_bucket
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.findings import Finding
from thermocline.tiered.index_format import IndexEntry
from thermocline.tiered.ledger import open_catalog
from thermocline.tiered.packs import PackEntry
from thermocline.tiered.scrub import IndexCheck, PackCheck, SegmentCheck, quarantine_findings
from thermocline.tiered.segments import SegmentEntry


class VerifyReport(msgspec.Struct, kw_only=True):
    """What one broker's part was found to be."""

    broker: str
    segment_count: int = 0
    pack_count: int = 0
    index_count: int = 0
    read_bytes: int = 0
    findings: tuple[Finding, ...] = ()


def verify(url: str, *, topic: str | None, key: str | None, broker: str | None = None) -> list[VerifyReport]:
    """Check a topic, or the segment or pack that an object belongs to; a report for each broker that has it.

    Raises as `opened_bucket`, and
        TopicNotFoundError: No broker has the topic.
        InvalidRequestError: No catalog names the object.
    """
    assert (topic is None) != (key is None)

    async def run() -> list[VerifyReport]:
        only = None if topic is None else frozenset([topic])
        async with opened_bucket(url, broker=broker, only_topics=only) as tiers:
            reports = [report for tier in tiers if (report := await _verify(tier, topic, key)) is not None]
        if not reports and topic is not None:
            raise TopicNotFoundError("the bucket holds no topic of this name", topic=topic)
        if not reports:
            raise InvalidRequestError("this object holds no live segment, pack or index object", key=key)
        return reports

    return asyncio.run(run())


async def _verify(tier: BrokerTier, topic: str | None, key: str | None) -> VerifyReport | None:
    segments, packs, indexes = _parts(tier.catalog, topic, key)
    entry = tier.catalog.topics.get(topic) if topic is not None else None
    lost = [each for each in quarantine_findings(tier.catalog) if each.topic == topic or each.key == key]
    is_known = bool(segments or packs or lost) or (entry is not None and not entry.deleted)
    if not is_known and (topic is not None or not indexes):
        return None
    report = VerifyReport(
        broker=tier.catalog.broker_name,
        segment_count=len(segments),
        pack_count=len(packs),
        index_count=len(indexes),
    )
    findings: list[Finding] = []
    for segment in segments:
        check = SegmentCheck(tier.store, segment)
        findings += await check.run()
        report.read_bytes += check.read_bytes
    for pack in packs:
        pack_check = PackCheck(tier.store, pack)
        findings += await pack_check.run()
        report.read_bytes += pack_check.read_bytes
    for index in indexes:
        index_check = IndexCheck(tier.store, index)
        findings += await index_check.run()
        report.read_bytes += index_check.read_bytes
    if findings:
        newest = await open_catalog(tier.store, tier.keys, only_topics=tier.catalog.only_topics)
        segments, packs, indexes = _parts(newest, topic, key)
        live = {each.segment_id for each in segments} | {each.pack_id for each in packs}
        live |= {each.index_id for each in indexes}
        findings = [finding for finding in findings if finding.segment_id in live]
    report.findings = (*findings, *lost)
    return report


def _parts(
    catalog: Catalog, topic: str | None, key: str | None
) -> tuple[list[SegmentEntry], list[PackEntry], list[IndexEntry]]:
    indexes = list(catalog.indexes.values())
    if topic is not None:
        entry, packed = catalog.topics.get(topic), catalog.packed.get(topic)
        names = packed.packs if packed is not None else ()
        return (
            list(entry.segments) if entry is not None else [],
            [catalog.packs[name] for name in names],
            [index for index in indexes if index.may_hold(topic)],
        )
    return (
        [each for entry in catalog.topics.values() for each in entry.segments if key in each.keys],
        [pack for pack in catalog.packs.values() if pack.key == key],
        [index for index in indexes if index.key == key],
    )
