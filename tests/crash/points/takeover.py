"""Takeover: a broker sleeps at one of its requests while a successor works, mostly for longer than the grace period;
then it wakes and goes on.

    sleeper     tiers, saves its state ... sleeps at request n ............................. goes on with its script
    successor                                  recovers from the bucket, on a disk of its own,
                                               appends, seals, collects garbage ............. and again, behind it

One in three successors has collected nothing yet when the sleeper wakes: it then finds every version unchanged,
and behind them those of another.

Whatever the sleeper still does, in the end
  - the successor has every message that was committed when it began, and all of its own, each once, and finds them by
    key and place; its bucket holds what its ledger names and nothing more;
  - the sleeper detects that it is fenced, and what it acknowledged and the ledger does not hold is on its own disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Coroutine
from dataclasses import replace
from random import Random

from tests.crash.bucket import KEYS
from tests.crash.points.lookups import check_lookups
from tests.crash.points.play import Play
from tests.crash.points.promises import Promises
from tests.crash.points.runs import EXPIRING, KEEPING, STATES_SAVED_MS
from tests.crash.points.slumber import Slumber
from tests.crash.points.small_broker import GRACE_MS, STATE_INTERVAL_MS
from tests.crash.points.tape import Io, Layer, Point, Side, Tape
from tests.crash.points.trial import Trial, make_world
from tests.crash.points.verdict import check_bucket, check_messages, check_nothing_missing
from tests.simulated_disk import SimulatedDisk
from tests.store.inline_executor import InlineExecutor
from tests.virtual_loop import run_virtually
from thermocline.remoting.errors import ClosedError, FencedError, UnavailableError
from thermocline.remoting.records.message_record import iterate_records
from thermocline.store.log.message_draft import GetStatus
from thermocline.store.message_store import MessageStore
from thermocline.tiered.ledger.ledger_reader import open_catalog

RUN = "takeover"
COLLECTS = 2 / 3
LOG_FILE_MESSAGES = 20
"""More than a log file holds."""
SCRIPT_S = 120.0
"""Virtual time after which a sleeper that has woken has done all it will ever do."""
FENCED_S = 60
"""Virtual time of two rounds."""


async def prepare(play: Play) -> None:
    """Run until a state is in the bucket: a recovery needs one."""
    await play.start()
    await play.make_topic(KEEPING)
    await play.make_topic(EXPIRING)
    play.append(KEEPING, 5)
    play.append(EXPIRING, 3)
    await play.seal()
    play.append(KEEPING, 2)
    play.append(EXPIRING, 2)
    await play.seal_packs()
    await play.sleep(STATES_SAVED_MS)


async def work(play: Play) -> None:
    """What the sleeper sleeps in."""
    play.append(KEEPING, 4)
    await play.seal()
    play.append(EXPIRING, 5)
    await play.seal()
    await play.delete_local_files()
    play.append(KEEPING, 3)
    play.append(EXPIRING, 2)
    await play.seal_packs()
    await play.merge()
    await play.set_ttl(EXPIRING, 1)
    await play.sleep(STATES_SAVED_MS)  # else the time to live is the bucket's, and the ledger's another
    await play.seal()
    await play.restart_tier()
    play.append(KEEPING, 4)
    await play.seal_packs()
    await play.purge(EXPIRING)
    for _ in range(5):
        play.append(KEEPING, 1)
        await play.seal()
    await play.index()
    await play.sleep(GRACE_MS)
    await play.collect()


async def go_on(play: Play) -> None:
    """And what it does when it is through with that, awake again: enough to meet its successor."""
    for _ in range(2):
        play.append(KEEPING, LOG_FILE_MESSAGES)
        await play.seal()
        await play.delete_local_files()


def carry_out(trial: Trial) -> list[Io]:
    """Try it; the requests that there are to sleep at. Raises as `trial.carry_out`."""
    try:
        return run_virtually(lambda: _carry_out(trial))
    except BaseException as error:
        error.add_note(f"replay: {trial.line}")
        raise


async def _carry_out(trial: Trial) -> list[Io]:
    world, tape, slumber = make_world(trial.run, trial.seed), Tape(trial.point), Slumber()
    sleeper = Play(world, tape, slumber=slumber)
    await prepare(sleeper)
    first, places = len(tape.ios), []

    async def script() -> None:
        with contextlib.suppress(FencedError):  # said to the script itself; the broker has to find out, too
            await work(sleeper)
        places.extend(io for io in tape.ios[first:] if io.layer is Layer.OBJECT)
        await go_on(sleeper)

    try:
        await _play_both(trial, sleeper, slumber, script())
    finally:
        slumber.woken.set()  # nothing of it waits when something failed
    return places


async def _play_both(trial: Trial, sleeper: Play, slumber: Slumber, script: Coroutine[object, object, None]) -> None:
    world = sleeper.world
    running = asyncio.ensure_future(script)
    falling = asyncio.ensure_future(slumber.asleep.wait())
    await asyncio.wait((running, falling), return_when=asyncio.FIRST_COMPLETED)
    if not slumber.asleep.is_set():
        running.result()
        falling.cancel()
        sleeper.broker.die()
        return
    successor = Play(
        replace(world, disk=SimulatedDisk(), seed=world.seed + 1, stores=[], settings=world.settings.on_demand), Tape()
    )
    successor.promises = copy.deepcopy(sleeper.promises)
    await _succeed(successor, collects=Random(f"{trial.point} collects").random() < COLLECTS)
    slumber.woken.set()
    await asyncio.wait((running,), timeout=SCRIPT_S)
    await _end_of(running)
    for _ in range(FENCED_S * 10):  # its tier process may be about to say so
        if sleeper.broker.fenced is not None:
            break
        await asyncio.sleep(0.1)
    sleeper_is_fenced = sleeper.broker.fenced is not None
    sleeper.broker.die()
    await _judge(successor)
    assert sleeper_is_fenced, "the sleeper has not noticed"
    await _check_kept(sleeper)


async def _succeed(play: Play, *, collects: bool) -> None:
    """Recover, and work: for longer than the grace period, so that garbage is collected, or a moment."""
    promises = play.promises
    promises.pending = None
    promises.disk_lost(await open_catalog(play.world.bucket, KEYS))
    await play.recover()
    # What the bucket knew last of topics is right: the sleeper may have changed one since.
    for name, topic in promises.topics.items():
        topic.ttl_ms = play.broker.parts.tables.topics.time_to_live_ms(name)
    await check_messages(play.broker, promises, settles=True)
    play.append(KEEPING, 3)
    await play.seal_packs()
    for _ in range(3 if collects else 0):
        play.append(KEEPING, 3)
        await play.seal()
        await play.merge()
        await play.delete_local_files()
        await play.sleep(GRACE_MS)
        await play.seal()
    if collects:
        await play.index()
        await play.collect()
        await play.sleep(GRACE_MS)
        await play.collect()


async def _judge(play: Play) -> None:
    """When the sleeper is awake, and has done what it does."""
    head = await open_catalog(play.world.bucket, KEYS)
    assert head.version >= play.broker.service.catalog.version, "a reader does not find what the successor committed"
    await check_nothing_missing(play.world.bucket, play.world.now_ms())
    await check_messages(play.broker, play.promises, settles=False)
    await check_lookups(play.broker, play.promises)
    play.append(KEEPING, 3)
    await play.seal()
    await play.index()
    await play.delete_local_files()
    await play.sleep(STATE_INTERVAL_MS)
    await play.seal()
    await play.collect()
    await check_bucket(play.world.bucket, play.world.now_ms())
    await check_messages(play.broker, play.promises, settles=False)
    await check_lookups(play.broker, play.promises)
    await play.stop()


async def _end_of(running: asyncio.Future[None]) -> None:
    """The sleeper's script, ended: it may have been refused anything, and still wait for an answer."""
    running.cancel()
    try:
        await running
    except (UnavailableError, ClosedError, asyncio.CancelledError):
        return


async def _check_kept(play: Play) -> None:
    """What the sleeper acknowledged is in the ledger, or in its own log."""
    world, promises = play.world, play.promises
    catalog = await open_catalog(world.bucket, KEYS)
    store = MessageStore.open(
        world.store_config, disk=world.disk, clock=world.now_ms, allocator_executor=InlineExecutor(), process_id=1
    )
    try:
        for name, queue_id, bodies in _acknowledged(promises, world.now_ms()):
            committed = catalog.queue_ends(name).get(queue_id, 0)
            local = _local_bodies(store, name, queue_id)
            for queue_offset, body in bodies:
                assert queue_offset < committed or body in local, f"{name}/{queue_id}/{queue_offset} was given up"
    finally:
        store.close()


def _acknowledged(promises: Promises, now_ms: int) -> list[tuple[str, int, list[tuple[int, bytes]]]]:
    """What may not be lost, by queues: topics whose time to live was being changed left out."""
    pending = promises.pending
    return [
        (
            name,
            queue_id,
            [
                (each.queue_offset, each.body)
                for each in queue
                if each.is_durable
                and each.queue_offset is not None
                and each.store_ms is not None
                and each.store_ms >= topic.cut_ms(now_ms)
            ],
        )
        for name, topic in promises.topics.items()
        for queue_id, queue in topic.queues.items()
        if pending is None or pending.name != name
    ]


def _local_bodies(store: MessageStore, topic: str, queue_id: int) -> set[bytes]:
    queue = store.queues.find(topic, queue_id)
    bodies: set[bytes] = set()
    offset = queue.min_offset if queue is not None else 0
    while queue is not None:
        result = store.get(topic, queue_id, offset, count_max=32, bytes_max=1 << 20)
        if result.status not in (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE):
            break
        bodies.update(record.body for buffer in result.buffers for record in iterate_records(buffer))
        offset = result.next_begin_offset
    return bodies


def trials_of(seed: int) -> list[Trial]:
    """One for each request of the script, and each side of it."""
    ios = carry_out(Trial(RUN, seed))
    return [Trial(RUN, seed, Point(io.number, side)) for io in ios for side in (Side.SLEPT_BEFORE, Side.SLEPT_AFTER)]
