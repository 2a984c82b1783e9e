"""Promotion: a slave's store becomes the master's, and is stopped at any input or output of that.

    master    tiers, seals, deletes local files ...................... is lost for good
    slave     copies the log and the tables ......................... takes the ledger over  point  takes it over

By its seed the slave has the whole log and the tables of its master; or the whole log and older tables, in which a
topic is of an earlier life, and one is missing; or the older log, too: then what it lacks is read from the bucket.
In the end every message that was copied or committed is there, once, at its place; the bucket holds what its ledger
names and nothing more; and the old master, when it starts again, is refused.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from random import Random

from tests.crash.bucket import KEYS
from tests.crash.points.play import Play
from tests.crash.points.runs import EXPIRING, KEEPING, STATES_SAVED_MS
from tests.crash.points.small_broker import SmallBroker
from tests.crash.points.tape import Io, Point, Tape
from tests.crash.points.trial import Trial, come_back, make_world
from tests.simulated_disk import SimulatedDisk
from tests.store.inline_executor import InlineExecutor
from tests.virtual_loop import run_virtually
from thermocline.broker.state import document_paths
from thermocline.remoting.errors import FencedError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.replication.log_copy import LogCopy
from thermocline.store.files.disk import make_durable_directory, replace_file
from thermocline.store.message_store import MessageStore
from thermocline.store.state.enrolment import Enrolment, save_enrolment
from thermocline.store.state.incarnation import Incarnation
from thermocline.tiered.ledger.ledger_reader import open_catalog

RUN = "promotion"
OPERATION = "take over"
LATER = "Later"
SLAVE_ID = "5" * 16
LACKS = ("nothing", "tables", "log")
"""By seed: how much of the master's last messages the slave lacks."""


async def _work(play: Play) -> None:
    """What the master does before the slave's copy may end."""
    await play.start()
    await play.make_topic(KEEPING)
    await play.make_topic(EXPIRING)
    play.append(KEEPING, 8)
    play.append(EXPIRING, 5)
    await play.seal()
    await play.delete_local_files()
    play.append(KEEPING, 6)
    await play.seal_packs()
    play.append(EXPIRING, 3)
    await play.sleep(STATES_SAVED_MS)


async def _work_on(play: Play) -> None:
    """What it does behind that: a topic is new, one is made anew."""
    await play.make_topic(LATER)
    play.append(LATER, 3)
    play.append(KEEPING, 5)
    await play.delete_topic(EXPIRING)
    await play.make_topic(EXPIRING)
    play.append(EXPIRING, 4)
    await play.seal()
    play.append(KEEPING, 2)
    play.append(LATER, 2)
    play.append(EXPIRING, 3)


@dataclass(frozen=True, slots=True)
class Tables:
    """A master's, as its slave has followed them last."""

    incarnations: dict[str, Incarnation]
    files: dict[str, bytes]

    @classmethod
    def of(cls, master: SmallBroker) -> Tables:
        config, disk, table = master.world.store_config, master.world.disk, master.store.incarnations
        paths = (*document_paths(config).values(), config.topic_births_path)
        return cls(
            {topic: table.find(topic) for topic in table.topics},
            {path: disk.read(path) for path in paths if disk.exists(path)},
        )


def copy_of(master: SmallBroker, tables: Tables, *, end: PhysicalOffset) -> SimulatedDisk:
    """The disk of a slave that has the master's log up to there, and these tables."""
    world, log = master.world, master.store.commit_log
    disk = SimulatedDisk()
    slave = MessageStore.open(
        world.store_config,
        disk=disk,
        clock=world.now_ms,
        allocator_executor=InlineExecutor(),
        make_id=lambda: SLAVE_ID,
        process_id=1,
    )
    for topic, incarnation in tables.incarnations.items():
        slave.incarnations.follow(topic, incarnation)
    slave.incarnations.save(disk, world.store_config.incarnation_path)
    copy, start = LogCopy(slave), log.min_offset
    while start < end:
        size_bytes = min(end - start, log.file_bytes - start % log.file_bytes)
        copy.receive(start, log.record_view(start, size_bytes))
        start = PhysicalOffset(start + size_bytes)
    assert slave.commit_log.append_offset == end
    make_durable_directory(disk, world.store_config.config_path)
    for path, data in tables.files.items():
        replace_file(disk, path, data, keep_backup=False)
    enrolment = Enrolment(store_id=SLAVE_ID, master_store_id=master.store.identity.store_id)
    save_enrolment(disk, world.store_config.enrolment_path, enrolment)
    slave.close()
    return disk


def carry_out(trial: Trial) -> list[Io]:
    """Try it; the inputs and outputs of a take-over. Raises as `trial.carry_out`."""
    try:
        return run_virtually(lambda: _carry_out(trial))
    except BaseException as error:
        error.add_note(f"replay: {trial.line}")
        raise


async def _carry_out(trial: Trial) -> list[Io]:
    random = Random(f"{trial.seed} {trial.point} end")
    world = make_world(RUN, trial.seed)
    master = Play(world, Tape())
    await _work(master)
    tables, log_end = Tables.of(master.broker), master.broker.store.commit_log.append_offset
    await _work_on(master)
    await master.sleep(STATES_SAVED_MS)
    lack = LACKS[trial.seed % len(LACKS)]
    if lack != "log":
        log_end = master.broker.store.commit_log.append_offset
    if lack == "nothing":
        tables = Tables.of(master.broker)
    disk = copy_of(master.broker, tables, end=log_end)
    master.broker.die()
    await asyncio.sleep(0.1)
    for store in world.stores:
        await store.arrive()
    has_died = asyncio.Event()
    tape = Tape(trial.point, died=has_died.set)
    slave = Play(replace(world, disk=disk, seed=world.seed + 1, stores=[]), tape)
    slave.promises = master.promises
    slave.promises.slave_is_left(await open_catalog(world.bucket, KEYS), log_end=log_end)
    await _take_over_until_death(slave, has_died)
    ios = [io for io in tape.ios if io.operation == OPERATION]
    if has_died.is_set() and random.random() < 0.5:
        slave.world.disk = disk.after_power_cut(random)
    await come_back(slave, random)
    await _check_refused(master, slave)
    return ios


async def _take_over_until_death(play: Play, has_died: asyncio.Event) -> None:
    taking = asyncio.ensure_future(play.take_over())
    dying = asyncio.ensure_future(has_died.wait())
    await asyncio.wait((taking, dying), return_when=asyncio.FIRST_COMPLETED)
    if not has_died.is_set():
        taking.result()
    play.broker.disk.die()
    running = asyncio.all_tasks() - {asyncio.current_task()}
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def _check_refused(master: Play, slave: Play) -> None:
    """The old master comes back: it commits nothing, and says why."""
    before = (await open_catalog(slave.world.bucket, KEYS)).version
    try:
        await master.start("come back")
    except FencedError:
        pass
    else:
        raise AssertionError("the old master runs")
    fenced = master.broker.fenced
    assert fenced is not None
    assert fenced.is_refused
    master.broker.die()
    assert (await open_catalog(slave.world.bucket, KEYS)).version == before


def trials_of(seed: int) -> list[Trial]:
    """One for each input and output of a take-over, and each of its sides."""
    ios = carry_out(Trial(RUN, seed))
    return [Trial(RUN, seed, Point(io.number, side)) for io in ios for side in io.sides]
