"""The state in the bucket is as new as the moment it was saved: files that are written late are written for it, and the
entry of a round carries it."""

from __future__ import annotations

from tests.crash.bucket import KEYS
from tests.crash.points.play import Play
from tests.crash.points.runs import KEEPING, STATES_SAVED_MS
from tests.crash.points.small_broker import STATE_INTERVAL_MS
from tests.crash.points.tape import Tape
from tests.crash.points.trial import make_world
from tests.virtual_loop import run_virtually
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.state.newest_state import find_last, read_newest
from thermocline.tiered.state.snapshot import CONSUMER_OFFSETS, StateSnapshot

GROUP = "readers"


def offset_in(snapshot: StateSnapshot | None) -> int | None:
    """Where the group goes on, as a snapshot says."""
    assert snapshot is not None
    table = snapshot.documents.get(CONSUMER_OFFSETS, {}).get("offsetTable", {})
    offset: int | None = table.get(f"{KEEPING}@{GROUP}", {}).get("0")
    return offset


async def started() -> Play:
    """A broker with some messages of a topic, sealed, its state saved."""
    play = Play(make_world("tiering", 1), Tape())
    await play.start()
    await play.make_topic(KEEPING)
    play.append(KEEPING, 6)
    await play.seal()
    await play.sleep(STATES_SAVED_MS)
    return play


def test_a_snapshot_has_offsets_that_no_file_had() -> None:
    async def run() -> None:
        play = await started()
        play.broker.parts.tables.offsets.commit(KEEPING, GROUP, 0, 2)
        await play.sleep(2 * STATE_INTERVAL_MS)
        assert offset_in(await read_newest(play.world.bucket, KEYS)) == 2
        await play.stop()

    run_virtually(run)


def test_a_recovery_goes_on_from_the_state_that_an_entry_carries() -> None:
    async def run() -> None:
        play = await started()
        bucket = play.world.bucket
        while (await open_catalog(bucket, KEYS)).state_version == 0:
            play.broker.parts.tables.offsets.commit(KEEPING, GROUP, 0, 1)
            play.append(KEEPING, 1)
            await play.sleep(STATE_INTERVAL_MS * 3 // 4)  # between two snapshots
            play.broker.parts.tables.offsets.commit(KEEPING, GROUP, 0, 2)
            await play.seal_packs()
        catalog = await open_catalog(bucket, KEYS)
        assert offset_in((await find_last(bucket, KEYS, epoch=catalog.epoch)).snapshot) != 2
        assert offset_in(await read_newest(bucket, KEYS)) == 2
        await play.lose_disk()
        await play.recover()
        assert play.broker.parts.tables.offsets.query(KEEPING, GROUP, 0) == 2
        await play.stop()

    run_virtually(run)
