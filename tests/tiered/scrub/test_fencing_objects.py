"""What a scrub says of the objects of `coldFencing=ballots` and of store doctors at work.

    missing, truncated, bit-flipped, exchanged, extra   x   ballots, proposals

No code reads the content of a ballot, so only that of the highest is compared byte by byte. A proposal that is missing
was settled.

Covers `tiered/findings/findings.py`, `tiered/healing/fencing_healer.py`, `tiered/scrub/fencing_check.py`,
`tiered/scrub/segment_check.py`, `tiered/scrub/state_check.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from tests.tiered.ledger_data import IDENTITY, KEYS
from tests.tiered.scrub.damage import DAMAGE, flip_bit, objects_of, swap
from tests.tiered.scrub.rig import ScrubRig
from thermocline.remoting.errors import FencedError
from thermocline.tiered.catalog.ledger_entry import LedgerEntry, decode_entry, encode_entry
from thermocline.tiered.doctor.bench import Bench
from thermocline.tiered.findings.findings import ObjectKind, Outcome, Problem
from thermocline.tiered.ledger.fencing import BALLOT_BYTES, BallotArbiter, FencingMode
from thermocline.tiered.ledger.ledger_writer import LedgerWriter
from thermocline.tiered.objects.errors import LedgerCorruptError

OLD_BALLOT = f"{0:020}-{7:032x}"
"""Of a writer that the rig's writer has fenced."""


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[ScrubRig]:
    """A broker by ballots, in its third life."""
    rig = ScrubRig(tmp_path, fencing=FencingMode.BALLOTS)
    try:
        for _ in range(2):
            async with rig.opened():
                rig.put("orders", 20)
                await rig.seal()
        async with rig.opened():
            await rig.objects.put(KEYS.ballot(OLD_BALLOT), BALLOT_BYTES)
            yield rig
    finally:
        rig.close()


def next_entry(rig: ScrubRig) -> bytes:
    """An entry as a fenced writer might propose it for the next version."""
    version = rig.catalog.version
    last = decode_entry(rig.objects.objects[KEYS.ledger_entry(version)], version=version)
    return encode_entry(
        LedgerEntry(
            format=last.format,
            version=version + 1,
            epoch=last.epoch,
            nonce="proposed",
            previous_nonce=last.nonce,
            committed_ms=last.committed_ms,
            store_uuid=last.store_uuid,
            cluster=last.cluster,
            broker_name=last.broker_name,
        )
    )


async def check_sound(rig: ScrubRig, *, garbage_count: int = 0) -> None:
    for report in (await rig.scrub(), await rig.scrub(deep=False), await rig.scrub_bucket()):
        assert (report.findings, report.notes, report.garbage_count) == ((), (), garbage_count)


async def test_ballots_and_a_doctor_at_work_are_no_findings(rig: ScrubRig) -> None:
    assert len(objects_of(rig, ObjectKind.BALLOT)) == 4
    await check_sound(rig)
    await rig.objects.put(f"{KEYS.doctor_prefix}{Random(1).getrandbits(64):016x}/race/1", b"who wins")
    bench = Bench(rig.objects, parent=KEYS.doctor_prefix, random=Random(2), is_flat=True)  # as when a broker starts
    await bench.put(bench.key("race/1"), b"who wins")
    await check_sound(rig)


async def test_proposals_that_were_settled_are_garbage_and_go(rig: ScrubRig) -> None:
    settled = KEYS.proposal(rig.catalog.version, OLD_BALLOT)
    await rig.objects.put(settled, b"whatever it was")
    await check_sound(rig, garbage_count=1)
    async with rig.opened():  # who begins takes them
        assert (await rig.scrub()).findings == ()
        assert settled not in rig.objects.objects


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("place", [0, -1], ids=["an old one", "the writer's own"])
async def test_a_damaged_ballot_is_found_if_it_matters_and_put_back(rig: ScrubRig, place: int, damage: str) -> None:
    key = objects_of(rig, ObjectKind.BALLOT)[place]
    await DAMAGE[damage](rig.objects, key, Random(damage))
    if place == 0 and damage != "truncated":
        await check_sound(rig)
        return
    (finding,) = (await rig.scrub(deep=False)).findings
    assert (finding.kind, finding.key) == (ObjectKind.BALLOT, key)
    looked = {each.key for each in (await rig.scrub_bucket()).findings}
    assert looked == (set() if damage == "missing" else {key}), "a reader of the bucket sees no other"
    (healed,) = (await rig.scrub(heal=True)).findings
    assert healed.outcome is Outcome.HEALED
    assert rig.objects.objects[key] == BALLOT_BYTES
    await check_sound(rig)


async def test_a_ballot_exchanged_with_a_proposal(rig: ScrubRig) -> None:
    ballot, proposal = objects_of(rig, ObjectKind.BALLOT)[-1], KEYS.proposal(rig.catalog.version + 1, OLD_BALLOT)
    await rig.objects.put(proposal, next_entry(rig))
    await swap(rig.objects, ballot, proposal)
    assert {finding.key for finding in (await rig.scrub_bucket()).findings} == {ballot, proposal}
    report = await rig.scrub(heal=True)
    assert {finding.key for finding in report.findings} == {ballot, proposal}
    assert report.is_sound
    rig.put("orders", 5)
    await rig.seal()
    await check_sound(rig, garbage_count=1)


@pytest.mark.parametrize("damage", ["truncated", "bit-flipped"])
async def test_a_damaged_proposal_for_the_next_version_is_found_and_settled(rig: ScrubRig, damage: str) -> None:
    proposal = KEYS.proposal(rig.catalog.version + 1, OLD_BALLOT)
    await rig.objects.put(proposal, next_entry(rig))
    await check_sound(rig)
    await DAMAGE[damage](rig.objects, proposal, Random(damage))
    for report in (await rig.scrub(), await rig.scrub_bucket()):
        assert [(each.kind, each.key, each.problem) for each in report.findings] == [
            (ObjectKind.PROPOSAL, proposal, Problem.DAMAGED)
        ]
    (healed,) = (await rig.scrub(heal=True)).findings
    assert healed.outcome is Outcome.HEALED
    await check_sound(rig, garbage_count=1)


async def test_a_proposal_of_another_version_without_a_ballot_or_for_later(rig: ScrubRig) -> None:
    data, following = next_entry(rig), rig.catalog.version + 1
    misplaced = KEYS.proposal(following, OLD_BALLOT)
    missing_ballot = f"{0:020}-{8:032x}"
    extra = KEYS.proposal(following + 3, OLD_BALLOT)
    await rig.objects.put(misplaced, rig.objects.objects[KEYS.ledger_entry(following - 1)])
    await rig.objects.put(KEYS.proposal(following, missing_ballot), data)
    await rig.objects.put(extra, data)
    found = {(each.kind, each.key, each.problem) for each in (await rig.scrub_bucket()).findings}
    assert found == {
        (ObjectKind.PROPOSAL, misplaced, Problem.MISPLACED),
        (ObjectKind.BALLOT, KEYS.ballot(missing_ballot), Problem.MISSING),
        (ObjectKind.PROPOSAL, extra, Problem.EXTRA),
    }
    healed = {each.key: each.outcome for each in (await rig.scrub(heal=True)).findings}
    assert healed.pop(extra) is Outcome.FOUND, "what is not ours is never deleted"
    assert set(healed.values()) == {Outcome.HEALED}


async def test_a_damaged_proposal_that_may_have_been_chosen_is_never_published(rig: ScrubRig) -> None:
    """A writer died with its proposal stored: its heir would make it an entry. Damaged, it stops the heir instead."""
    proposal = KEYS.proposal(rig.catalog.version + 1, OLD_BALLOT)
    await rig.objects.put(proposal, next_entry(rig))
    await flip_bit(rig.objects, proposal, Random(4))
    version = rig.catalog.version

    async def claim(seed: int) -> LedgerWriter:
        arbiter = BallotArbiter(rig.objects, KEYS, random=Random(f"heir/{seed}"))
        return await LedgerWriter.open(
            rig.objects, KEYS, identity=IDENTITY, clock_ms=rig.clock, random=Random(seed), arbiter=arbiter
        )

    with pytest.raises(LedgerCorruptError):
        await claim(90)
    assert KEYS.ledger_entry(version + 1) not in rig.objects.objects
    assert [each.key for each in (await rig.scrub_bucket()).findings] == [proposal]
    await rig.objects.delete(proposal)  # its writer is known to be dead
    await claim(91)
    rig.put("orders", 5)
    with pytest.raises(FencedError):
        await rig.seal()
