"""Trial: one run, stopped at one point; what comes back is judged.

    script ........ point            the process stops there, or the store's answer goes astray and it stops at the end
                    the machine's power goes too, or not: what was not synced is then dropped, torn or kept
    start           on the same files and bucket, with no faults any more
    verdict         messages, keys and places
    work, seal, delete local files, the grace period, index objects, one garbage collection: the only one since
    verdict         messages, bucket, keys and places

One line says all of a trial: `python -m tests.crash.points.replay RUN SEED NUMBER SIDE`. It stands in every failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from random import Random
from unittest.mock import patch

from tests.crash.points.lookups import check_lookups
from tests.crash.points.play import Play, check_pinned
from tests.crash.points.runs import RUNS, SETTINGS
from tests.crash.points.small_broker import GRACE_MS, Settings, World
from tests.crash.points.tape import Io, Point, Side, Tape
from tests.crash.points.verdict import check_bucket, check_messages, check_nothing_missing
from tests.simulated_disk import SimulatedDisk
from tests.virtual_loop import run_virtually
from thermocline.store.config.store_config import FlushDiskType
from thermocline.store.files.disk import Disk
from thermocline.tiered.garbage.garbage_rounds import GarbageRounds
from thermocline.tiered.objects.object_store import ObjectStore
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import FaultInjectingObjectStore

UNSEEN_COUNTS = (2, 3, 8)
"""By how many writes a listing that is stale lags: often a creation and the deletion of what that supersedes."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What is tried. `point` None: the script runs to its end."""

    run: str
    seed: int
    point: Point | None = None

    @property
    def line(self) -> str:
        """Replays it."""
        point = "" if self.point is None else f" {self.point.number} {self.point.side}"
        return f"python -m tests.crash.points.replay {self.run} {self.seed}{point}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it. `ios`: of the script."""

    ios: list[Io]
    digest: str
    is_reached: bool
    power_was_cut: bool


def make_world(
    run: str, seed: int, *, disk: Disk | None = None, bucket: ObjectStore | None = None, root: str = "/store"
) -> World:
    """Files and bucket, in memory unless they are given."""
    random = Random(f"{seed} world")
    return World(
        disk=disk if disk is not None else SimulatedDisk(),
        bucket=bucket if bucket is not None else MemoryObjectStore(),
        seed=seed,
        root_path=root,
        flush=random.choice(list(FlushDiskType)),
        is_retrying=random.random() < 0.5,
        settings=SETTINGS.get(run, Settings()),
    )


def carry_out(trial: Trial) -> Outcome:
    """Try it. AssertionError, or an error of the broker's, when something is not as it should be."""
    with _line_shown(trial):
        return run_virtually(lambda: _carry_out(trial))


async def _carry_out(trial: Trial) -> Outcome:
    random = Random(f"{trial.seed} {trial.point} end")
    world = make_world(trial.run, trial.seed)
    world.history.unseen_max = random.choice(UNSEEN_COUNTS)
    has_died = asyncio.Event()
    tape = Tape(trial.point, died=has_died.set)
    play = Play(world, tape)
    await run_until_death(play, trial.run, has_died)
    power_is_cut = random.random() < 0.5
    if power_is_cut:
        disk = world.disk
        assert isinstance(disk, SimulatedDisk)
        world.disk = disk.after_power_cut(random)
    else:
        play.promises.survived()
    await come_back(play, random)
    return Outcome(tape.ios, tape.digest, tape.is_reached, power_is_cut)


async def run_until_death(play: Play, run: str, has_died: asyncio.Event) -> None:
    """Run a script until the process stops, or to its end and kill it then. Nothing of it runs any more on return."""
    script = asyncio.ensure_future(RUNS[run](play))
    dying = asyncio.ensure_future(has_died.wait())
    await asyncio.wait((script, dying), return_when=asyncio.FIRST_COMPLETED)
    if not has_died.is_set():
        script.result()
    play.broker.die()
    running_tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in running_tasks:
        task.cancel()
    await asyncio.gather(*running_tasks, return_exceptions=True)


async def come_back(play: Play, random: Random) -> None:
    """Start again on what is left, and judge."""
    world, promises = play.world, play.promises
    play.tape = Tape()
    world.settings = world.settings.on_demand
    if promises.is_promoted:
        await play.take_over()
    stores = list(world.stores)
    late_first = random.random() < 0.5
    if late_first:
        await _arrive(stores)
    with _collected_on_demand():
        if promises.is_recovering:
            await play.recover()
        else:
            await play.start()
        await check_messages(play.broker, promises, settles=True)
        await check_lookups(play.broker, promises)
        await check_nothing_missing(world.bucket, world.now_ms())
        await _arrive(stores)
        for topic in sorted(promises.topics):
            play.append(topic, 3)
        await play.seal()
        await play.delete_local_files()
        await play.sleep(GRACE_MS)
        await play.seal()
        await play.index()
        await play.collect()
        await check_bucket(world.bucket, world.now_ms())
        await check_pinned(world.bucket, promises, world.now_ms())
        await check_messages(play.broker, promises, settles=False)
        await check_lookups(play.broker, promises)
        await play.stop()


def _collected_on_demand() -> AbstractContextManager[object]:
    """No round collects garbage: only requested collections run."""

    async def leave(_rounds: GarbageRounds, _now_ms: int) -> None:
        return

    return patch.object(GarbageRounds, "collect_due", leave)


async def _arrive(stores: list[FaultInjectingObjectStore]) -> None:
    """What dead processes have sent."""
    for store in stores:
        await store.arrive()


@contextlib.contextmanager
def _line_shown(trial: Trial) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"replay: {trial.line}")
        raise


def trials_of(run: str, seed: int, *, operation: str | None = None) -> list[Trial]:
    """One for every point of a run, or of one operation of it, in an order in which the first are of every kind."""
    by_kind: dict[tuple[str, str, Side], list[Trial]] = {}
    for io in carry_out(Trial(run, seed)).ios:
        if operation not in (None, io.operation):
            continue
        for side in io.sides:
            by_kind.setdefault((io.operation, io.verb, side), []).append(Trial(run, seed, Point(io.number, side)))
    random = Random(f"{run} {seed} order")
    for trials in by_kind.values():
        random.shuffle(trials)
    kinds = list(by_kind.values())
    random.shuffle(kinds)
    return [trial for row in itertools.zip_longest(*kinds) for trial in row if trial is not None]
