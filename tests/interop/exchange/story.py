"""A store directory that changes brokers: the first broker writes to it and ends, the second continues with it.

All subjects go through one story. Each broker starts once for all of them, and their times (invisible times of popped
messages, times of delivery, ages at which producers are asked) pass side by side.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.interop.cluster import (
    OFFICIAL,
    OFFICIAL_PROPERTIES,
    Cluster,
    official_cluster,
    store_directory_of,
    thermocline_cluster,
    wait_until_registered,
)
from tests.interop.exchange import pops, timers, transactions
from tests.interop.exchange.messages import Messages
from tests.interop.exchange.pops import Pops
from tests.interop.exchange.timers import Timers
from tests.interop.exchange.too_slow import TooSlowError
from tests.interop.exchange.transactions import Transactions
from tests.interop.java_agent import JavaAgent
from tooling.official_rocketmq import OfficialSoftware, RunningDaemon, official_broker, official_namesrv

STOPPED, KILLED = "stopped", "killed"
SETTINGS: Mapping[str, str] = {**OFFICIAL_PROPERTIES, **pops.SETTINGS, **timers.SETTINGS, **transactions.SETTINGS}
OFFICIAL_END_S = 14
"""The official broker's clean end takes that long on an idle machine: it sleeps most of the time."""
MARGIN_S = 4
TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Which brokers, and how the first ends."""

    first: str
    second: str
    ending: str

    def __str__(self) -> str:
        return f"{self.first}-{self.ending}-{self.second}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """The second broker, which serves, and what the first one has left to it."""

    cluster: Cluster
    messages: Messages
    pops: Pops
    timers: Timers
    transactions: Transactions


@contextlib.contextmanager
def hand_over_of(story: Story, software: OfficialSoftware, agent: JavaAgent, folder: Path) -> Iterator[HandOver]:
    """Play a story up to the point where the second broker serves, before anything that waits is due."""
    for number in range(TRIES):
        with ExitStack() as stack:
            try:
                hand_over = _Stage(story, software, agent, folder / str(number)).play(stack, patience=1 << number)
            except TooSlowError:
                continue
            yield hand_over
            return
    raise AssertionError("no broker starts that late")


class _Stage:
    """One try to play a story."""

    def __init__(self, story: Story, software: OfficialSoftware, agent: JavaAgent, folder: Path) -> None:
        self._story = story
        self._software = software
        self._agent = agent
        self._folder = folder
        self._store = folder / "data" / "store"
        self._messages = Messages()
        self._pops = Pops()
        self._timers = Timers()
        self._transactions = Transactions(agent, store=self._store)

    def play(self, stack: ExitStack, *, patience: int) -> HandOver:
        """Return when the second broker serves, which it does until `stack` is closed.

        Popped and timed messages wait `patience` times as long as the second broker is expected to take.

        Raises:
            TooSlowError: Something was due before.
        """
        story = self._story
        stack.callback(self._transactions.close)
        started_s = time.monotonic()
        name_server = stack.enter_context(self._name_server()) if story.second == OFFICIAL else None
        name_server_s = time.monotonic() - started_s
        with self._first_broker() as cluster:
            outage_ms = patience * self._expected_outage_ms(name_server_s, time.monotonic() - started_s)
            self._write(cluster, outage_ms=outage_ms)
            store_directory, sizes = store_directory_of(cluster)
            assert store_directory == self._store
            if story.ending == KILLED:
                cluster.process.kill()
        cluster = stack.enter_context(self._second_broker(name_server, sizes))
        self._pops.pop_early(cluster)
        self._transactions.go_on(cluster)
        return HandOver(
            cluster=cluster,
            messages=self._messages,
            pops=self._pops,
            timers=self._timers,
            transactions=self._transactions,
        )

    def _expected_outage_ms(self, name_server_s: float, both_s: float) -> int:
        """How long the first broker may take to end and the second to start, by what starts took here just now."""
        outage_s = OFFICIAL_END_S if self._story.first == OFFICIAL and self._story.ending == STOPPED else 0
        if self._story.second == OFFICIAL:
            outage_s += 5 * name_server_s  # the broker takes twice as long, and registers then
        else:
            outage_s += both_s
        return int(1_000 * (MARGIN_S + outage_s))

    def _write(self, cluster: Cluster, *, outage_ms: int) -> None:
        # Transactions first: they take some seconds until they are asked about. Pops last: their time runs.
        self._transactions.write(cluster)
        self._messages.write(cluster)
        self._pops.prepare(cluster)
        self._transactions.wait_until_checked(cluster)
        self._timers.write(cluster, delay_ms=outage_ms)
        if self._story.ending == KILLED:
            self._timers.wait_until_saved(self._store)
        self._pops.write(cluster, invisible_ms=outage_ms)
        if self._story.ending == KILLED:
            self._pops.wait_until_saved(self._store)

    def _first_broker(self) -> AbstractContextManager[Cluster]:
        if self._story.first != OFFICIAL:
            return thermocline_cluster(self._agent, self._folder, settings=SETTINGS)
        return official_cluster(
            self._software,
            self._agent,
            self._folder / "first",
            store_directory=self._store,
            properties=SETTINGS,
            ends_cleanly=self._story.ending == STOPPED,
        )

    def _name_server(self) -> AbstractContextManager[RunningDaemon]:
        return official_namesrv(self._software, self._folder / "namesrv")

    @contextlib.contextmanager
    def _second_broker(self, name_server: RunningDaemon | None, sizes: Mapping[str, str]) -> Iterator[Cluster]:
        settings = {**SETTINGS, **sizes}
        if name_server is None:
            with thermocline_cluster(self._agent, self._folder, settings=settings) as ours:
                yield ours
            return
        with official_broker(
            self._software,
            self._folder / "second",
            namesrv_address=name_server.address,
            store_directory=self._store,
            properties={**settings, **transactions.OFFICIAL_SETTINGS},
        ) as broker:
            wait_until_registered(self._agent, name_server.address, broker.address)
            yield Cluster(
                kind=OFFICIAL,
                namesrv=name_server.address,
                broker_address=broker.address,
                agent=self._agent,
                process=broker.process,
            )
            self._agent.call("stop_producers", namesrv=name_server.address)
