"""Index objects under damage: a scrub finds it, the writer rebuilds the object, and no answer needs it.

missing, truncated, bit-flipped, exchanged, extra   x   objects of keys, objects of places

Covers `tiered/healing/index_healer.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from tests.full_cases import full
from tests.tiered.ledger_data import KEYS
from tests.tiered.scrub.damage import DAMAGE, flip_bit, objects_of, swap
from tests.tiered.scrub.rig import ScrubRig
from thermocline.remoting.records.message_record import decode_record
from thermocline.tiered.findings.findings import ObjectKind, Outcome, Problem
from thermocline.tiered.indexes.bloom_cache import BloomCache
from thermocline.tiered.indexes.fresh_index import FreshIndex
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.objects.errors import QuarantinedError
from thermocline.tiered.reading.cold_reader import ColdReader
from thermocline.tiered.reading.frame_cache import FrameCache
from thermocline.tiered.segments.segment_format import SegmentId

TOPICS = ("orders", "audits")
SEALS = 14


@pytest.fixture(params=[False, True], ids=["own segments", "packs"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ScrubRig]:
    rig = ScrubRig(tmp_path, packs=request.param)
    try:
        async with rig.opened():
            for _ in range(SEALS):
                rig.put("orders", 12)
                rig.put("audits", 5)
                await rig.seal()
                await rig.index()
            yield rig
    finally:
        rig.close()


async def check_lookups(rig: ScrubRig, *, blooms: BloomCache | None = None, fresh: FreshIndex | None = None) -> None:
    """Every record is found by its key and by its place; a missing key finds none."""
    cache = FrameCache()
    reader = ColdReader(rig.store, catalog=lambda: rig.catalog, cache=cache, blooms=blooms, fresh=fresh)
    try:
        await reader.load_lookups()
        for topic in TOPICS:
            by_key: dict[str, list[tuple[int, bytes]]] = {}
            for records in rig.hot(topic).values():
                for record in records:
                    message = decode_record(record)
                    by_key.setdefault(message.keys or "", []).append((message.physical_offset, record))
                    assert bytes(await reader.view(message.physical_offset, cut_ms=lambda _: 0)) == record
            for key, expected in by_key.items():
                found = await reader.query_key(topic, key, begin_ms=0, end_ms=1 << 60, count_max=64, cut_ms=0)
                assert [bytes(each) for each in found] == [record for _, record in sorted(expected, reverse=True)]
            assert await reader.query_key(topic, "missing", begin_ms=0, end_ms=1 << 60, count_max=64, cut_ms=0) == []
    finally:
        await reader.close()
        await cache.close()


async def check_whole(rig: ScrubRig) -> None:
    for report in (await rig.scrub(), await rig.scrub_bucket(), await rig.scrub(deep=False)):
        assert report.findings == ()
        assert report.index_count == len(rig.catalog.indexes)
    assert await open_catalog(rig.store, KEYS) == rig.catalog
    for fresh in (None, FreshIndex(), rig.fresh):
        await check_lookups(rig, blooms=BloomCache(), fresh=fresh)


async def test_a_sound_tier_has_index_objects_and_no_findings(rig: ScrubRig) -> None:
    classes = {index.ttl_class for index in rig.catalog.indexes.values()}
    assert classes == {"places", "forever"}
    assert len(rig.catalog.indexes) >= 4
    await check_whole(rig)


@pytest.mark.parametrize("damage", ["missing", *full(*(damage for damage in DAMAGE if damage != "missing"))])
async def test_damage_is_found_answers_stay_and_it_is_made_anew(rig: ScrubRig, damage: str) -> None:
    random = Random(damage)
    keys = objects_of(rig, ObjectKind.INDEX)
    for folder in ("places", "forever"):
        key = random.choice([key for key in keys if f"/{folder}/" in key])
        await DAMAGE[damage](rig.objects, key, random)
        await check_lookups(rig)
        for report in (await rig.scrub(), await rig.scrub_bucket()):
            (finding,) = report.findings
            assert (finding.key, finding.kind, finding.outcome) == (key, ObjectKind.INDEX, Outcome.FOUND)
        healed = await rig.scrub(heal=True)
        assert [finding.outcome for finding in healed.findings] == [Outcome.HEALED]
        await check_whole(rig)


async def test_two_that_are_exchanged_are_made_anew(rig: ScrubRig) -> None:
    one, two = objects_of(rig, ObjectKind.INDEX)[:2]
    await swap(rig.objects, one, two)
    await check_lookups(rig)
    assert {finding.key for finding in (await rig.scrub_bucket()).findings} == {one, two}
    report = await rig.scrub(heal=True)
    assert {finding.key for finding in report.findings} == {one, two}
    assert report.is_sound
    await check_whole(rig)


async def test_an_unnamed_index_object_is_found_and_collected(rig: ScrubRig) -> None:
    key = KEYS.index("forever", SegmentId(0, 7))
    await rig.objects.put(key, b"an orphan")
    report = await rig.scrub()
    assert [(finding.key, finding.problem) for finding in report.findings] == [(key, Problem.EXTRA)]
    assert (await rig.scrub(heal=True)).is_sound
    assert key not in rig.objects.objects
    await check_whole(rig)


async def test_records_that_come_out_of_quarantine_are_found(rig: ScrubRig) -> None:
    """A range is indexed while records of it are in quarantine; restored later, they are found by id and place."""
    for _ in range(4):
        rig.put("orders", 12)
        await rig.seal()
    catalog = rig.catalog
    newest = max(objects_of(rig, ObjectKind.PACK if rig.packs else ObjectKind.LOG))
    kept = rig.objects.objects[newest]
    rig.delete_local()
    await flip_bit(rig.objects, newest, Random(5))
    await rig.scrub(heal=True)
    assert sum(len(topic.quarantine) for topic in rig.catalog.topics.values()) == 1
    before = rig.catalog.indexed_to
    await rig.index()
    assert rig.catalog.indexed_to > before
    assert any(index.gaps for index in rig.catalog.indexes.values()), catalog.version
    (quarantined,) = [kept for topic in rig.catalog.topics.values() for kept in topic.quarantine]
    place = quarantined.lost[0]
    lost = decode_record(rig.hot(quarantined.segment.topic)[place.queue_id][place.start_offset])
    cache = FrameCache()
    reader = ColdReader(rig.store, catalog=lambda: rig.catalog, cache=cache)
    with pytest.raises(QuarantinedError):
        await reader.view(lost.physical_offset, cut_ms=lambda _: 0)
    await reader.close()
    await cache.close()
    await rig.objects.put(newest, kept)
    await rig.scrub(heal=True)
    assert not any(topic.quarantine for topic in rig.catalog.topics.values())
    await check_whole(rig)
