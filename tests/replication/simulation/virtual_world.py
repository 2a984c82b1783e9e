"""Virtual world: time, chance, machines, network and trace of one run; all of it follows from one seed.

    world.later(20, action)                 in 20 ms of virtual time
    world.later(20, action, machine=m)      likewise by a process of that machine: when it is frozen, once it goes on;
                                            never if the process has ended by then
    await world.run_until(60_000)           events, in the order of their time

A machine has a wall clock, which may be wrong, jump and stand still, and a steady clock, which may go too fast or too
slow. Neither is the clock of the world.
The trace has a line for each event that matters. Two runs of one seed have the same trace.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from random import Random

Action = Callable[[], Awaitable[None] | None]

WALL_START_MS = 1_700_000_000_000


class Machine:
    """What a process runs on: two clocks, and whether it runs."""

    def __init__(self, world: World, name: str) -> None:
        random = world.random
        self.name = name
        self.life = 0
        """Rises at each end of the process."""
        self.frozen_until_ms = 0
        self.is_on = True
        """Whether it has power."""
        self._world = world
        self._rate = random.choice((1.0, 1.0, 0.97, 1.04))
        self._wall_skew_ms = random.choice((0, 0, -70_000, 40, 3_600_000))
        self._stopped_wall_ms: int | None = None

    @property
    def is_frozen(self) -> bool:
        """Whether the process makes no step now."""
        return self._world.now_ms < self.frozen_until_ms

    def steady_ms(self) -> int:
        """The clock for intervals."""
        return int(self._world.now_ms * self._rate) + 1_000

    def wall_ms(self) -> int:
        """The clock that messages are stamped with."""
        if self._stopped_wall_ms is not None:
            return self._stopped_wall_ms
        return WALL_START_MS + self._wall_skew_ms + self._world.now_ms

    def disturb_wall_clock(self) -> None:
        """Let it jump, stand still, or go again."""
        random = self._world.random
        if self._stopped_wall_ms is not None:
            self.heal_wall_clock()
        elif random.random() < 0.4:
            self._stopped_wall_ms = self.wall_ms()
        else:
            self._wall_skew_ms += random.choice((-10_000_000, -900, 700, 86_400_000))

    def heal_wall_clock(self) -> None:
        """Let it go again, if it stands still."""
        self._stopped_wall_ms = None


class World:
    """See the module."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._now_ms = 0
        self.trace: list[str] = []
        self._events: list[tuple[int, int, Action, Machine | None, int]] = []
        self._event_count = 0

    @property
    def now_ms(self) -> int:
        """Virtual time since the run began."""
        return self._now_ms

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.now_ms:6d} {text}")

    def later(self, delay_ms: int, action: Action, *, machine: Machine | None = None) -> None:
        """Do this in `delay_ms`; see the module for `machine`."""
        life = 0 if machine is None else machine.life
        self._push(self.now_ms + delay_ms, action, machine, life)

    def chance(self, probability: float) -> bool:
        """True so often."""
        return self.random.random() < probability

    async def run_until(self, end_ms: int) -> None:
        """Let time pass."""
        while self._events and self._events[0][0] <= end_ms:
            self._now_ms, _, action, machine, life = heapq.heappop(self._events)
            if machine is not None:
                if machine.life != life:
                    continue
                if machine.is_frozen:
                    self._push(machine.frozen_until_ms, action, machine, life)
                    continue
            waiting = action()
            if waiting is not None:
                await waiting
        self._now_ms = end_ms

    def _push(self, time_ms: int, action: Action, machine: Machine | None, life: int) -> None:
        self._event_count += 1
        heapq.heappush(self._events, (time_ms, self._event_count, action, machine, life))


class LoopWorld(World):
    """A world whose time is that of a VirtualLoop (tests/virtual_loop.py): for parts that are tasks."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._tasks: set[asyncio.Future[None]] = set()
        self.failure: BaseException | None = None

    @property
    def now_ms(self) -> int:
        """Virtual time since the loop began."""
        return round(asyncio.get_running_loop().time() * 1_000)

    async def run_until(self, end_ms: int) -> None:
        """Let time pass; raises what an action has raised."""
        while self.now_ms < end_ms:
            await asyncio.sleep(min(end_ms - self.now_ms, 500) / 1_000)
            if self.failure is not None:
                raise self.failure

    def _push(self, time_ms: int, action: Action, machine: Machine | None, life: int) -> None:
        asyncio.get_running_loop().call_at(time_ms / 1_000, self._act, action, machine, life)

    def _act(self, action: Action, machine: Machine | None, life: int) -> None:
        if machine is not None:
            if machine.life != life:
                return
            if machine.is_frozen:
                self._push(machine.frozen_until_ms, action, machine, life)
                return
        try:
            waiting = action()
        except Exception as error:  # noqa: BLE001 - the run ends with it
            self.failure = self.failure or error
            return
        if waiting is not None:
            self.spawn(waiting)

    def spawn(self, work: Awaitable[None]) -> asyncio.Future[None]:
        """Have this done; what it raises ends the run."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.failure = self.failure or task.exception()
