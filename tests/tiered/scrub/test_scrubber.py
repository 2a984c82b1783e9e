"""What a scrub finds and heals: nothing where nothing is wrong, and every kind of damage in every kind of object.

    missing, truncated, bit-flipped, swapped, extra   x   parts, entries, checkpoints' heads and buckets, hint, pins,
                                                          state snapshots

A pin that is missing was removed by its owner: no check can tell. An extra one was made by another reader.
Packs, and the checkpoints' objects that name them: test_packs.py; index objects: test_indexes.py; ballots and
proposals: test_fencing_objects.py.

Covers `tiered/healing/ledger_healer.py`, `tiered/healing/state_healer.py`, `tiered/scrub/ledger_check.py`,
`tiered/scrub/listing_check.py`, `tiered/wrappers/ledger_copy.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from tests.full_cases import full
from tests.tiered.ledger_data import IDENTITY, KEYS
from tests.tiered.scrub.damage import DAMAGE, flip_bit, objects_of, swap
from tests.tiered.scrub.rig import START_MS, ScrubRig
from thermocline.store.files.disk import RealDisk
from thermocline.tiered.findings.findings import ObjectKind, Outcome, Problem, ScrubReport
from thermocline.tiered.healing.ledger_healer import restore_damaged
from thermocline.tiered.ledger.ledger_reader import LedgerReader, open_catalog
from thermocline.tiered.ledger.pins import Pin, create_pin, list_pins
from thermocline.tiered.objects.errors import LedgerCorruptError, StateCorruptError
from thermocline.tiered.segments.segment_format import SegmentId
from thermocline.tiered.state.newest_state import find_newest
from thermocline.tiered.state.snapshot import KEPT_COUNT, StateName, StateSnapshot, decode_state
from thermocline.tiered.wrappers.ledger_copy import LedgerCopyStore

SEALS = 10
PARTS = (ObjectKind.LOG, ObjectKind.COLUMNS, ObjectKind.KEY_INDEX)
LEDGER = (ObjectKind.LEDGER_ENTRY, ObjectKind.CHECKPOINT_HEAD, ObjectKind.CHECKPOINT_BUCKET)
KINDS = (*PARTS, *LEDGER, ObjectKind.HEAD_HINT, ObjectKind.PIN, ObjectKind.STATE)
ELSEWHERE = (ObjectKind.PACK, ObjectKind.INDEX, ObjectKind.BALLOT, ObjectKind.PROPOSAL, ObjectKind.OTHER)
UNTELLABLE = {(ObjectKind.PIN, "missing")}
TOPICS = ("orders", "audits")


async def fill(rig: ScrubRig) -> None:
    """Some segments of two topics, some checkpoints, two pins."""
    for _ in range(SEALS):
        rig.put("orders", 40)
        rig.put("audits", 16)
        await rig.seal()
    for number in (1, 2):
        pin = Pin(pin_id=f"job-{number}", version=rig.catalog.version - number, until_ms=START_MS * 2, owner="a test")
        await create_pin(rig.store, KEYS, pin)
        await rig.save_state()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[ScrubRig]:
    rig = ScrubRig(tmp_path)
    try:
        async with rig.opened():
            await fill(rig)
            yield rig
    finally:
        rig.close()


def found_keys(report: ScrubReport) -> set[str]:
    return {finding.key for finding in report.findings}


def states_of(rig: ScrubRig) -> list[StateSnapshot]:
    """What the bucket says that the broker was, oldest first; StateCorruptError when one of them does not."""
    found: list[StateSnapshot] = []
    for key in objects_of(rig, ObjectKind.STATE):
        place = KEYS.state_of(key)
        assert place is not None
        found.append(decode_state(rig.objects.objects[key], name=StateName(*place)))
    return found


async def check_whole(rig: ScrubRig) -> None:
    """No scrub finds damage any more, and reads return the records of the log."""
    assert len(states_of(rig)) == KEPT_COUNT
    for report in (await rig.scrub(), await rig.scrub_bucket()):
        assert report.findings == ()
        assert report.notes == ()
    for topic in TOPICS:
        assert await rig.cold(topic) == rig.hot(topic)
    assert (await open_catalog(rig.store, KEYS)).topics == rig.catalog.topics


def test_each_kind_of_object_has_its_rows() -> None:
    assert {*KINDS, *ELSEWHERE} == set(ObjectKind)


async def test_a_sound_tier_has_no_findings(rig: ScrubRig) -> None:
    for report in (
        await rig.scrub(),
        await rig.scrub(deep=False),
        await rig.scrub_bucket(),
        await rig.scrub_bucket(deep=False),
    ):
        assert report.findings == ()
        assert report.notes == ()
        assert report.is_sound
        assert report.garbage_count == 0
        assert report.segment_count == 2 * SEALS
    assert report.checkpoint_count >= 2
    healed = await rig.scrub(heal=True)
    assert healed.findings == ()
    await check_whole(rig)


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("kind", KINDS)
async def test_damage_is_found_and_healed(rig: ScrubRig, kind: ObjectKind, damage: str) -> None:
    if (kind, damage) in UNTELLABLE:
        return
    random = Random(f"{kind}/{damage}")
    state = states_of(rig)[-1]
    for place in {-1, random.randrange(len(objects_of(rig, kind)))}:
        key = objects_of(rig, kind)[place]
        before = rig.objects.objects[key]
        await DAMAGE[damage](rig.objects, key, random)
        report = await rig.scrub()
        assert found_keys(report) == {key}, report.findings
        assert (report.findings[0].kind, report.findings[0].outcome) == (kind, Outcome.FOUND)
        healed = await rig.scrub(heal=True)
        assert [finding.outcome for finding in healed.findings] == [Outcome.HEALED], healed.findings
        if kind in LEDGER:
            assert rig.objects.objects[key] == before
        await check_whole(rig)
        for each in states_of(rig):
            assert each.says_the_same(state)
            assert each.log_ceiling == state.log_ceiling


@pytest.mark.parametrize("damage", ["bit-flipped", *full(*(damage for damage in DAMAGE if damage != "bit-flipped"))])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_reader_of_the_bucket_finds_it_too(rig: ScrubRig, kind: ObjectKind, damage: str) -> None:
    if (kind, damage) in UNTELLABLE:
        return
    random = Random(f"bucket/{kind}/{damage}")
    # Only its writer can tell that the newest entry is gone.
    key = random.choice(objects_of(rig, kind)[: -1 if kind is ObjectKind.LEDGER_ENTRY else None])
    await DAMAGE[damage](rig.objects, key, random)
    report = await rig.scrub_bucket()
    if (kind, damage) == (ObjectKind.STATE, "missing"):
        assert [finding.kind for finding in report.findings] == [kind]  # which of the two it was nothing tells
    else:
        assert key in found_keys(report)
    assert not report.is_sound


async def test_history_without_any_state_is_no_backup(rig: ScrubRig) -> None:
    keys = objects_of(rig, ObjectKind.STATE)
    for key in keys:
        await rig.objects.delete(key)
    (finding,) = (await rig.scrub_bucket(deep=False)).findings
    assert (finding.kind, finding.problem) == (ObjectKind.STATE, Problem.MISSING)
    assert finding.detail == "there is none at all"
    assert found_keys(await rig.scrub(deep=False)) == set(keys)
    assert (await rig.scrub(heal=True)).is_sound
    await check_whole(rig)


async def test_both_states_damaged_at_once_are_saved_anew(rig: ScrubRig) -> None:
    state = states_of(rig)[-1]
    for key in objects_of(rig, ObjectKind.STATE):
        await flip_bit(rig.objects, key, Random(key))
    with pytest.raises(StateCorruptError):
        await find_newest(rig.store, KEYS)
    healed = await rig.scrub(heal=True)
    assert [finding.outcome for finding in healed.findings] == [Outcome.HEALED] * KEPT_COUNT
    await check_whole(rig)
    assert states_of(rig)[-1].says_the_same(state)


async def test_old_states_are_garbage_and_go(rig: ScrubRig) -> None:
    async with rig.opened():  # a later epoch
        name = StateName(1, 1)
        await rig.objects.put(KEYS.state(epoch=name.epoch, sequence=name.sequence), b"whatever it says")
        for report in (await rig.scrub(), await rig.scrub_bucket()):
            assert (report.findings, report.garbage_count) == ((), 1)
        await rig.scrub(heal=True)
        await check_whole(rig)


async def test_an_old_state_is_no_garbage_while_there_are_not_two_newer_ones_that_can_be_read(rig: ScrubRig) -> None:
    kept = objects_of(rig, ObjectKind.STATE)
    async with rig.opened():  # a later epoch, and another writer was faster
        foreign = KEYS.state(epoch=rig.writer.epoch, sequence=9)
        await rig.objects.put(foreign, b"whatever it says")
        for report in (await rig.scrub(), await rig.scrub_bucket()):
            assert (found_keys(report), report.garbage_count) == ({foreign}, 0)
        await rig.scrub(heal=True)
        assert set(kept) <= set(rig.objects.objects)
        await rig.objects.delete(foreign)
        await check_whole(rig)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not ObjectKind.HEAD_HINT])
async def test_two_that_are_exchanged_are_both_found_and_healed(rig: ScrubRig, kind: ObjectKind) -> None:
    keys = objects_of(rig, kind)
    one, two = keys[0], keys[-1]
    before = rig.objects.objects
    assert before[one] != before[two]
    await swap(rig.objects, one, two)
    assert {one, two} <= found_keys(await rig.scrub_bucket())
    report = await rig.scrub(heal=True)
    assert found_keys(report) == {one, two}
    assert all(finding.outcome is Outcome.HEALED for finding in report.findings)
    if kind is not ObjectKind.STATE and kind not in PARTS:
        assert (rig.objects.objects[one], rig.objects.objects[two]) == (before[one], before[two])
    await check_whole(rig)


async def test_a_second_search_repeats_no_finding(rig: ScrubRig) -> None:
    """It follows the repair of the head, and finds the unknown object again, which stays."""
    head, unknown = objects_of(rig, ObjectKind.CHECKPOINT_HEAD)[-1], KEYS.checkpoint_head(rig.catalog.version + 9)
    await flip_bit(rig.objects, head, Random(1))
    await rig.objects.put(unknown, b"unknown content")
    report = await rig.scrub(heal=True)
    outcomes = [(finding.key, finding.outcome) for finding in report.findings]
    assert sorted(outcomes) == [(head, Outcome.HEALED), (unknown, Outcome.FOUND)]


async def test_a_hint_exchanged_with_a_pin(rig: ScrubRig) -> None:
    pin = objects_of(rig, ObjectKind.PIN)[0]
    await swap(rig.objects, KEYS.head_hint, pin)
    report = await rig.scrub(heal=True)
    assert found_keys(report) == {KEYS.head_hint, pin}
    assert report.is_sound
    await check_whole(rig)


async def test_extra_objects_are_found_and_deleted_if_allowed(rig: ScrubRig) -> None:
    head = rig.catalog.version
    unknown = {
        f"{KEYS.topics_prefix}orders/notes.txt": ObjectKind.OTHER,
        f"{KEYS.pins_prefix}README": ObjectKind.OTHER,
        f"{KEYS.head_hint}.bak": ObjectKind.OTHER,
        KEYS.ledger_entry(head + 7): ObjectKind.LEDGER_ENTRY,
        KEYS.checkpoint_head(head + 9): ObjectKind.CHECKPOINT_HEAD,
        KEYS.checkpoint_bucket(head + 9, 0, epoch=1): ObjectKind.CHECKPOINT_BUCKET,
        KEYS.segment("orders", SegmentId(9, 1))[0]: ObjectKind.LOG,
        KEYS.segment("orders", SegmentId(9, 1))[1]: ObjectKind.COLUMNS,
        KEYS.segment("orders", SegmentId(9, 1))[2]: ObjectKind.KEY_INDEX,
        KEYS.state(epoch=9, sequence=1): ObjectKind.STATE,
        f"{KEYS.state_prefix}latest": ObjectKind.OTHER,
        f"{KEYS.ballots_prefix}README": ObjectKind.OTHER,
        f"{KEYS.proposals_prefix}1.json": ObjectKind.OTHER,
        f"{KEYS.doctor_prefix}README": ObjectKind.OTHER,
        KEYS.merged_segment("orders", SegmentId(9, 1)): ObjectKind.PACK,
        KEYS.pack("forever", SegmentId(9, 1)): ObjectKind.PACK,
        KEYS.index("forever", SegmentId(9, 1)): ObjectKind.INDEX,
        KEYS.checkpoint_packs(head + 9, epoch=1): ObjectKind.CHECKPOINT_BUCKET,
    }
    for key in unknown:
        await rig.objects.put(key, b"unknown content")
    async with rig.opened():  # a later epoch
        orphans = KEYS.segment("orders", SegmentId(1, 900))
        relic = KEYS.checkpoint_bucket(2, 5, epoch=1)
        for key in (*orphans, relic):
            await rig.objects.put(key, b"unknown content")
        looked = await rig.scrub_bucket()
        assert found_keys(looked) == set(unknown)
        assert looked.garbage_count == len(orphans) + 1
        report = await rig.scrub()
        assert {finding.key: finding.kind for finding in report.findings if finding.key in unknown} == unknown
        assert found_keys(report) == {*unknown, *orphans}
        assert {finding.problem for finding in report.findings} == {Problem.EXTRA}
        healed = await rig.scrub(heal=True)
        assert {finding.key for finding in healed.findings if finding.outcome is Outcome.HEALED} == set(orphans)
        assert not healed.is_sound
        remaining = set(rig.objects.objects)
        assert set(unknown) <= remaining, "what is not ours is never deleted"
        assert not {*orphans, relic} & remaining
        for key in unknown:
            await rig.objects.delete(key)
        await check_whole(rig)


async def test_a_foreign_state_of_this_epoch(rig: ScrubRig) -> None:
    """Its writer detects that it is none of its own; a reader of the bucket sees that its content is invalid."""
    key = KEYS.state(epoch=rig.writer.epoch, sequence=99)
    await rig.objects.put(key, b"unknown content")
    assert [(each.key, each.problem) for each in (await rig.scrub_bucket()).findings] == [(key, Problem.DAMAGED)]
    assert [(each.key, each.problem) for each in (await rig.scrub()).findings] == [(key, Problem.EXTRA)]
    healed = await rig.scrub(heal=True)
    assert [(each.key, each.outcome) for each in healed.findings] == [(key, Outcome.FOUND)]
    await rig.objects.delete(key)
    await check_whole(rig)


async def test_a_restart_reads_healed_segments(rig: ScrubRig) -> None:
    random = Random(5)
    for kind in KINDS:
        await flip_bit(rig.objects, random.choice(objects_of(rig, kind)), random)
    report = await rig.scrub(heal=True)
    assert len(report.findings) == len(KINDS)
    assert report.is_sound
    async with rig.opened():
        await check_whole(rig)


async def test_without_a_copy_the_newest_catalog_is_made_safe(rig: ScrubRig, tmp_path: Path) -> None:
    """What older versions need is broken still; a new reader, and the next writer, need none of it."""
    for copy in (tmp_path / "copy").iterdir():
        copy.unlink()
    damaged = [objects_of(rig, kind)[-1] for kind in LEDGER]
    for key in damaged:
        await flip_bit(rig.objects, key, Random(key))
    topics = rig.catalog.topics
    report = await rig.scrub(heal=True)
    assert found_keys(report) == set(damaged)
    assert not report.is_sound
    assert (await open_catalog(rig.store, KEYS)).topics == topics
    async with rig.opened():
        for topic in TOPICS:
            assert await rig.cold(topic) == rig.hot(topic)


async def test_a_damaged_pin_keeps_objects_that_it_may_have_pinned(rig: ScrubRig) -> None:
    key = objects_of(rig, ObjectKind.PIN)[0]
    await flip_bit(rig.objects, key, Random(1))
    objects = set(rig.objects.objects)
    rig.clock.now_ms += 100 * 3_600_000
    await rig.service.run_once()
    assert set(rig.objects.objects) >= objects, "nothing is deleted while a pin cannot be read"
    assert (await rig.scrub(heal=True)).is_sound
    pins = {pin.pin_id: pin for pin in await list_pins(rig.store, KEYS)}
    assert pins["job-1"].version == rig.catalog.readable_from


async def test_a_budget_reads_a_part_and_the_next_goes_on(rig: ScrubRig) -> None:
    segments = sorted(
        (segment for topic in rig.catalog.topics.values() for segment in topic.segments),
        key=lambda segment: (segment.topic, segment.segment_id),
    )
    budget_bytes = segments[0].stored_bytes + segments[1].stored_bytes
    await flip_bit(rig.objects, segments[-1].log.key, Random(3))
    cursor, rounds, read_count = "", 0, 0
    while True:
        report = await rig.scrub(budget_bytes=budget_bytes, cursor=cursor)
        rounds, read_count, cursor = rounds + 1, read_count + report.deep_segment_count, report.cursor
        assert 1 <= report.deep_segment_count <= 3
        assert report.is_complete == (not cursor)
        if report.is_complete:
            break
        assert report.findings == ()
    assert found_keys(report) == {segments[-1].log.key}
    assert read_count == len(segments)
    assert rounds > 3


@pytest.mark.parametrize("kind", LEDGER)
async def test_a_ledger_that_cannot_be_opened_is_mended_first(rig: ScrubRig, tmp_path: Path, kind: ObjectKind) -> None:
    await rig.writer.close()
    before = rig.objects.objects
    key = objects_of(rig, kind)[-1]
    await flip_bit(rig.objects, key, Random(7))
    copy = LedgerCopyStore(rig.store, keys=KEYS, disk=RealDisk(), folder=str(tmp_path / "copy"))
    assert await restore_damaged(copy, KEYS, store_uuid="another store", find_copy=copy.find) == (
        kind is ObjectKind.CHECKPOINT_BUCKET  # which says nothing of whose it is: its head does
    )
    await rig.objects.put(key, b"{" + before[key][1:-1])
    assert await restore_damaged(copy, KEYS, store_uuid=IDENTITY.store_uuid, find_copy=copy.find) == 1
    assert rig.objects.objects == before
    async with rig.opened():
        await check_whole(rig)


async def test_a_ledger_whose_only_way_in_has_lost_an_object_is_mended_first(rig: ScrubRig, tmp_path: Path) -> None:
    """Every checkpoint has lost one, and the first entries are collected: a typed error, then whole from the copy."""
    await rig.writer.close()
    before = rig.objects.objects
    copy = LedgerCopyStore(rig.store, keys=KEYS, disk=RealDisk(), folder=str(tmp_path / "copy"))
    lost = objects_of(rig, ObjectKind.CHECKPOINT_BUCKET)
    for key in (*lost, KEYS.ledger_entry(1)):
        await rig.objects.delete(key)
    with pytest.raises(LedgerCorruptError, match="an object of a checkpoint is missing"):
        await LedgerReader.open(rig.objects, KEYS)
    assert await restore_damaged(copy, KEYS, store_uuid=IDENTITY.store_uuid, find_copy=lambda _key: None) == 0
    assert await restore_damaged(copy, KEYS, store_uuid=IDENTITY.store_uuid, find_copy=lambda _key: b"torn") == 0
    assert await restore_damaged(copy, KEYS, store_uuid=IDENTITY.store_uuid, find_copy=copy.find) == len(lost)
    assert {key: rig.objects.objects[key] for key in lost} == {key: before[key] for key in lost}
    assert (await LedgerReader.open(rig.objects, KEYS)).catalog == rig.catalog
    async with rig.opened():
        assert (await rig.scrub(heal=True)).is_sound
        await check_whole(rig)


async def test_a_damaged_newest_entry_does_not_prevent_commits(rig: ScrubRig) -> None:
    await flip_bit(rig.objects, KEYS.ledger_entry(rig.catalog.version), Random(2))
    rig.put("orders", 20)
    await rig.seal()
    assert (await rig.scrub(heal=True)).is_sound
    await check_whole(rig)


async def test_extra_or_missing_entries_beside_the_newest_one(rig: ScrubRig) -> None:
    """A reader of the bucket sees an entry behind a gap; the writer detects that it has written none there."""
    for _ in range(2):
        rig.put("orders", 20)
        await rig.seal()
    head = rig.catalog.version
    data = rig.objects.objects[KEYS.ledger_entry(head)]
    await rig.objects.delete(KEYS.ledger_entry(head - 1))
    (finding,) = (await rig.scrub_bucket()).findings
    assert (finding.key, finding.problem) == (KEYS.ledger_entry(head - 1), Problem.MISSING)
    assert (await rig.scrub(heal=True)).is_sound
    assert rig.objects.objects[KEYS.ledger_entry(head)] == data
    await check_whole(rig)
