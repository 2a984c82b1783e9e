"""Packs under damage: a scrub finds every damaged object, heals it from local files, or names the lost ranges.

pack            missing, truncated, bit-flipped, swapped, extra; in logs, columns, indexes, sections, trailer
its catalog     the checkpoints' object of packs, as every object of the ledger
merged object   a segment of its own whose three parts are one object

Covers `tiered/healing/log_parts.py`, `tiered/healing/pack_healer.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from tests.full_cases import full
from tests.tiered.ledger_data import KEYS
from tests.tiered.scrub.damage import DAMAGE, flip_bit, objects_of, swap
from tests.tiered.scrub.rig import GRACE_MS, ScrubRig
from thermocline.tiered.catalog.pack_pieces import PackPieces
from thermocline.tiered.findings.findings import Finding, ObjectKind, Outcome, Problem, ScrubReport
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.objects.errors import QuarantinedError
from thermocline.tiered.packs.pack_entry import PackEntry
from thermocline.tiered.reading.cold_pull import ColdPull
from thermocline.tiered.reading.cold_reader import ColdReader
from thermocline.tiered.reading.frame_cache import FrameCache
from thermocline.tiered.segments.segment_entry import SegmentEntry
from thermocline.tiered.segments.segment_format import SegmentId

TOPICS = tuple(f"topic-{number}" for number in range(5))
PLACES = ("log", "cq", "idx", "sections", "trailer")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[ScrubRig]:
    """Six packs of five topics with two queues each, all of it hot."""
    rig = ScrubRig(tmp_path, packs=True)
    try:
        async with rig.opened():
            await fill(rig, 6)
            yield rig
    finally:
        rig.close()


async def fill(rig: ScrubRig, count: int) -> None:
    for _ in range(count):
        for number, topic in enumerate(TOPICS):
            rig.put(topic, 6 + 2 * number)
        await rig.seal()


def packs_of(rig: ScrubRig) -> list[PackEntry]:
    return list(rig.catalog.packs.values())


async def check_whole(rig: ScrubRig) -> None:
    """No scrub finds damage any more, and reads return the records of the log."""
    for report in (await rig.scrub(), await rig.scrub_bucket()):
        assert report.findings == ()
        assert report.notes == ()
    for topic in TOPICS:
        assert await rig.cold(topic) == rig.hot(topic)
    found = await open_catalog(rig.store, KEYS)
    assert (found.topics, found.packs, found.packed) == (rig.catalog.topics, rig.catalog.packs, rig.catalog.packed)


def outcomes(report: ScrubReport) -> list[tuple[ObjectKind, str, Outcome]]:
    return [(finding.kind, finding.key, finding.outcome) for finding in report.findings]


async def flip_in(rig: ScrubRig, pack: PackEntry, place: str, random: Random) -> SegmentEntry:
    """One bit of a pack, in a part of one of its pieces or behind them; the piece."""
    piece = random.choice(await PackPieces(rig.store).all_of(pack))
    bounds = {
        "log": (piece.log.start, piece.log.end),
        "cq": (piece.cq.start, piece.cq.end),
        "idx": (piece.idx.start, piece.idx.end),
        "sections": (pack.footer_start, pack.section_ends[-1]),
        "trailer": (pack.section_ends[-1], pack.object_bytes),
    }
    data = bytearray(rig.objects.objects[pack.key])
    data[random.randrange(*bounds[place])] ^= 1 << random.randrange(8)
    await rig.objects.put(pack.key, bytes(data))
    return piece


async def test_a_sound_tier_has_no_findings(rig: ScrubRig) -> None:
    assert len(packs_of(rig)) == 6
    for report in (
        await rig.scrub(),
        await rig.scrub(deep=False),
        await rig.scrub_bucket(),
        await rig.scrub_bucket(deep=False),
    ):
        assert report.findings == ()
        assert (report.segment_count, report.pack_count) == (0, 6)
    assert (await rig.scrub()).deep_segment_count == 6
    await check_whole(rig)


@pytest.mark.parametrize("damage", ["truncated", *full(*(damage for damage in DAMAGE if damage != "truncated"))])
async def test_damage_is_found_and_healed(rig: ScrubRig, damage: str) -> None:
    random = Random(f"pack/{damage}")
    for key in random.sample([pack.key for pack in packs_of(rig)], 3):
        await DAMAGE[damage](rig.objects, key, random)
        for report in (await rig.scrub_bucket(), await rig.scrub()):
            assert outcomes(report) == [(ObjectKind.PACK, key, Outcome.FOUND)]
        healed = await rig.scrub(heal=True)
        assert outcomes(healed) == [(ObjectKind.PACK, key, Outcome.HEALED)]
        assert key not in rig.catalog.live_keys()
        await check_whole(rig)


@pytest.mark.parametrize("place", PLACES)
async def test_a_bit_anywhere_in_a_pack_is_found_and_healed(rig: ScrubRig, place: str) -> None:
    random = Random(place)
    for _ in range(4):
        pack = random.choice(packs_of(rig))
        await flip_in(rig, pack, place, random)
        assert outcomes(await rig.scrub_bucket()) == [(ObjectKind.PACK, pack.key, Outcome.FOUND)]
        assert outcomes(await rig.scrub(heal=True)) == [(ObjectKind.PACK, pack.key, Outcome.HEALED)]
        await check_whole(rig)


async def test_a_shallow_scrub_finds_missing_objects_and_other_sizes(rig: ScrubRig) -> None:
    one, two = [pack.key for pack in packs_of(rig)][:2]
    await rig.objects.delete(one)
    await rig.objects.put(two, rig.objects.objects[two] + b"?")
    found = {finding.key: finding.problem for finding in (await rig.scrub(deep=False)).findings}
    assert found == {one: Problem.MISSING, two: Problem.SIZE}


@pytest.mark.parametrize("is_hot", [True, False])
async def test_two_that_are_exchanged_are_both_found_and_healed(rig: ScrubRig, is_hot: bool) -> None:
    if not is_hot:
        rig.delete_local()
    one, two = packs_of(rig)[0].key, packs_of(rig)[-1].key
    await swap(rig.objects, one, two)
    for report in (await rig.scrub_bucket(), await rig.scrub(heal=True)):
        assert {finding.key for finding in report.findings} == {one, two}
        assert {finding.problem for finding in report.findings} <= {Problem.MISPLACED, Problem.SIZE}
    assert report.is_sound
    await check_whole(rig)


async def test_extra_objects_are_found_and_deleted_if_allowed(rig: ScrubRig) -> None:
    unknown = KEYS.pack("forever", SegmentId(9, 1))
    await rig.objects.put(unknown, b"unknown content")
    async with rig.opened():
        orphan = KEYS.pack("h015", SegmentId(1, 900))
        await rig.objects.put(orphan, b"unknown content")
        report = await rig.scrub(heal=True)
        assert {(each.kind, each.key, each.problem, each.outcome) for each in report.findings} == {
            (ObjectKind.PACK, unknown, Problem.EXTRA, Outcome.FOUND),
            (ObjectKind.PACK, orphan, Problem.EXTRA, Outcome.HEALED),
        }
        assert orphan not in rig.objects.objects
        await rig.objects.delete(unknown)
        await check_whole(rig)


@pytest.mark.parametrize("damage", DAMAGE)
async def test_the_catalog_of_packs_is_put_back(rig: ScrubRig, damage: str) -> None:
    random = Random(damage)
    keys = [key for key in objects_of(rig, ObjectKind.CHECKPOINT_BUCKET) if "/packs-" in key]
    assert keys
    before = rig.objects.objects[keys[-1]]
    await DAMAGE[damage](rig.objects, keys[-1], random)
    assert not (await rig.scrub_bucket()).is_sound
    assert outcomes(await rig.scrub(heal=True)) == [(ObjectKind.CHECKPOINT_BUCKET, keys[-1], Outcome.HEALED)]
    assert rig.objects.objects[keys[-1]] == before
    await check_whole(rig)


async def test_the_catalog_of_packs_exchanged_with_another(rig: ScrubRig) -> None:
    keys = [key for key in objects_of(rig, ObjectKind.CHECKPOINT_BUCKET) if "/packs-" in key]
    one, two, before = keys[0], keys[-1], rig.objects.objects
    assert before[one] != before[two]
    await swap(rig.objects, one, two)
    assert {one, two} <= {finding.key for finding in (await rig.scrub_bucket()).findings}
    report = await rig.scrub(heal=True)
    assert {finding.key for finding in report.findings} == {one, two}
    assert report.is_sound
    assert (rig.objects.objects[one], rig.objects.objects[two]) == (before[one], before[two])
    await check_whole(rig)


# -- what is not hot any more ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["cq", "idx", "sections", "trailer"])
async def test_records_that_can_be_read_are_not_lost(rig: ScrubRig, place: str) -> None:
    """Columns, indexes and the pack's own footer can be made anew from the records."""
    rig.delete_local()
    pack = packs_of(rig)[2]
    await flip_in(rig, pack, place, Random(place))
    assert outcomes(await rig.scrub(heal=True)) == [(ObjectKind.PACK, pack.key, Outcome.HEALED)]
    await check_whole(rig)


async def refused(rig: ScrubRig) -> dict[tuple[str, int], list[int]]:
    """Which offsets are refused by name; every other record is the one that was sent."""
    reader = ColdReader(rig.store, catalog=lambda: rig.catalog, cache=FrameCache())
    found: dict[tuple[str, int], list[int]] = {}
    for topic in TOPICS:
        for queue_id, records in rig.hot(topic).items():
            for offset, record in enumerate(records):
                pull = ColdPull(topic=topic, queue_id=queue_id, offset=offset, count_max=1, bytes_max=1 << 20, cut_ms=0)
                try:
                    assert bytes((await reader.pull(pull)).buffers[0]) == record
                except QuarantinedError as error:
                    found.setdefault((str(error.context["topic"]), queue_id), []).append(offset)
    await reader.close()
    return found


def said_to_be_lost(findings: tuple[Finding, ...]) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = {}
    for finding in findings:
        for text in finding.lost:
            queue_id, _, bounds = text.partition(":[")
            start, end = map(int, bounds.rstrip(")").split(", "))
            found.setdefault((finding.topic, int(queue_id)), []).extend(range(start, end))
    return found


async def test_a_damaged_frame_takes_only_its_own_records(rig: ScrubRig) -> None:
    rig.delete_local()
    pack = packs_of(rig)[3]
    pieces = await PackPieces(rig.store).all_of(pack)
    piece = pieces[1]
    before = rig.objects.objects[pack.key]
    data = bytearray(before)
    data[piece.log.start + piece.coarse[0].position + 40] ^= 4
    await rig.objects.put(pack.key, bytes(data))
    report = await rig.scrub(heal=True)
    assert outcomes(report)[0] == (ObjectKind.PACK, pack.key, Outcome.QUARANTINED)
    assert not report.is_sound
    lost = said_to_be_lost(report.findings)
    assert list(lost) == [(piece.topic, piece.runs[0].queue_id)]
    assert await refused(rig) == lost
    (kept,) = rig.catalog.topics[piece.topic].quarantine
    assert kept.segment == piece
    assert (await open_catalog(rig.store, KEYS)).topics == rig.catalog.topics
    again = await rig.scrub()
    assert [(each.problem, each.outcome) for each in again.findings] == [(Problem.LOST, Outcome.QUARANTINED)]
    await rig.objects.put(pack.key, before)
    assert (await rig.scrub(heal=True)).is_sound
    await check_whole(rig)


@pytest.mark.parametrize("how", ["whole", "sections and logs"])
async def test_a_lost_pack_is_named_by_topic_queue_and_offsets_and_comes_back(rig: ScrubRig, how: str) -> None:
    """Also by a scrub without the entries of its pieces: the ledger's ranges are enough."""
    rig.delete_local()
    pack = packs_of(rig)[1]
    before = rig.objects.objects[pack.key]
    pieces = await PackPieces(rig.store).all_of(pack)
    if how == "whole":
        await rig.objects.delete(pack.key)
    else:
        await rig.objects.put(pack.key, bytes(len(before)))
    report = await rig.scrub(heal=True)
    expected = {
        (piece.topic, run.queue_id): list(range(run.start_offset, run.end_offset))
        for piece in pieces
        for run in piece.runs
    }
    assert said_to_be_lost(report.findings) == expected
    assert await refused(rig) == expected
    assert pack.pack_id not in rig.catalog.packs
    ends = {topic: rig.catalog.queue_ends(topic) for topic in TOPICS}
    assert ends == {topic: {queue: len(each) for queue, each in rig.hot(topic).items()} for topic in TOPICS}
    # What may be restored is not collected, however long it takes.
    rig.clock.now_ms += 10 * GRACE_MS
    await rig.objects.put(pack.key, before)
    await rig.service.run_once()
    assert pack.key in rig.objects.objects
    async with rig.opened():
        report = await rig.scrub(heal=True)
        assert report.is_sound, report.findings
        assert not any(topic.quarantine for topic in rig.catalog.topics.values())
        await check_whole(rig)
        rig.clock.now_ms += 10 * GRACE_MS
        await rig.service.run_once()
        assert pack.key not in rig.objects.objects


async def test_a_purge_names_a_broken_pack_that_is_kept(rig: ScrubRig) -> None:
    """Without its sections no reader can tell which other topics the pack holds."""
    rig.delete_local()
    pack = packs_of(rig)[1]
    damaged = bytearray(rig.objects.objects[pack.key])
    piece = (await PackPieces(rig.store).all_of(pack))[0]
    damaged[piece.log.start + piece.coarse[0].position + 40] ^= 4
    await rig.objects.put(pack.key, bytes(damaged))
    assert not (await rig.scrub(heal=True)).is_sound
    rig.cut_ms = rig.clock.now_ms
    other = next(topic for topic in TOPICS if topic != piece.topic)
    kept = rig.catalog.topics[piece.topic].quarantine
    rig.kept_from_ms[piece.topic] = 0
    rig.report()
    report = await rig.purger.purge(other)
    assert rig.catalog.topics[piece.topic].quarantine == kept
    assert [held.key for held in report.remaining] == [pack.key]


async def test_some_pieces_are_hot_and_some_are_lost(rig: ScrubRig) -> None:
    pack = packs_of(rig)[4]
    pieces = await PackPieces(rig.store).all_of(pack)
    rig.local_from = sorted(piece.min_physical_offset for piece in pieces)[2]
    await rig.objects.delete(pack.key)
    report = await rig.scrub(heal=True)
    lost = said_to_be_lost(report.findings)
    assert len({topic for topic, _ in lost}) == 2, "two of five lay before what is hot"
    assert await refused(rig) == lost


async def test_a_topic_that_was_deleted_is_not_brought_back(rig: ScrubRig) -> None:
    pack = packs_of(rig)[0]
    rig.deleted.add(TOPICS[0])
    await rig.seal()
    await rig.objects.delete(pack.key)
    assert (await rig.scrub(heal=True)).is_sound
    assert TOPICS[0] not in rig.catalog.packed
    assert all(not each.indexes_of(TOPICS[0]) or each.pack_id in before_ids(rig) for each in packs_of(rig))
    for topic in TOPICS[1:]:
        assert await rig.cold(topic) == rig.hot(topic)


def before_ids(rig: ScrubRig) -> set[str]:
    """Packs that were sealed, not healed."""
    return {pack.pack_id for pack in packs_of(rig) if pack.level == 0}


async def test_a_deep_scrub_goes_on_where_its_budget_ended(rig: ScrubRig) -> None:
    seen = 0
    cursor = ""
    for _ in range(6):
        report = await rig.scrub(budget_bytes=1, cursor=cursor)
        seen += report.deep_segment_count
        cursor = report.cursor
        if report.is_complete:
            break
    assert (seen, cursor) == (6, "")


# -- segments that merging made ----------------------------------------------------------------------------------------


@pytest.fixture
async def merged(tmp_path: Path) -> AsyncIterator[ScrubRig]:
    """Topics with segments of their own, each one object of three parts."""
    rig = ScrubRig(tmp_path, packs=True)
    rig.own_bytes = 1 << 10
    try:
        async with rig.opened():
            await fill(rig, 6)
            while await rig.merging.run_once() is not None:
                pass
            assert all(rig.catalog.topics[topic].segments for topic in TOPICS)
            yield rig
    finally:
        rig.close()


def segments_of(rig: ScrubRig) -> list[SegmentEntry]:
    return [segment for topic in rig.catalog.topics.values() for segment in topic.segments]


@pytest.mark.parametrize("damage", [*DAMAGE, "longer"])
async def test_damage_to_a_merged_segment_is_found_and_healed(merged: ScrubRig, damage: str) -> None:
    random = Random(damage)
    key = random.choice(segments_of(merged)).log.key
    assert key.endswith(".pack")
    if damage == "longer":
        await merged.objects.put(key, merged.objects.objects[key] + b"?")
        assert not (await merged.scrub(deep=False)).is_sound
    else:
        await DAMAGE[damage](merged.objects, key, random)
    assert {finding.key for finding in (await merged.scrub_bucket()).findings} == {key}
    report = await merged.scrub(heal=True)
    assert [finding.outcome for finding in report.findings] == [Outcome.HEALED]
    await check_whole(merged)


@pytest.mark.parametrize("is_hot", [True, False])
async def test_merged_segments_that_are_exchanged(merged: ScrubRig, is_hot: bool) -> None:
    if not is_hot:
        merged.delete_local()
    one, two = segments_of(merged)[0].log.key, segments_of(merged)[-1].log.key
    await swap(merged.objects, one, two)
    report = await merged.scrub(heal=True)
    assert {finding.key for finding in report.findings} == {one, two}
    assert report.is_sound
    await check_whole(merged)


async def test_merging_meets_a_damaged_pack_and_goes_on_once_it_is_healed(rig: ScrubRig) -> None:
    await flip_in(rig, packs_of(rig)[0], "log", Random(1))
    assert await rig.merging.run_once() is None, "what cannot be read is not merged"
    assert (await rig.scrub(heal=True)).is_sound
    count = len(packs_of(rig))
    await fill(rig, 2)
    assert await rig.merging.run_once() is not None
    assert len(packs_of(rig)) < count + 2
    await check_whole(rig)


async def test_flips_of_a_restart(rig: ScrubRig) -> None:
    await flip_bit(rig.objects, packs_of(rig)[0].key, Random(3))
    assert (await rig.scrub(heal=True)).is_sound
    async with rig.opened():
        await check_whole(rig)
