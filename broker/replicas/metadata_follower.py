"""Metadata follower: brings the tables of a slave up to date with those of its master.

    every second      tables that are due are followed, one after another: timer checkpoint 3 s, others 10 s
    another master    all tables are due, at once (`master_changed`); what the one before was asked is not waited for
    no answer         the remaining tables are requested a second later: a frozen master answers none of them
    no master         nothing is asked

A table that fails is due again after its period; the others go on. When the clock was set back, all tables are due:
their periods would not end before it is back where it was. `follow_all` is for a planned switch: when it returns, the
slave has what the master had at the call.
Source: broker/BrokerController.java (handleSlaveSynchronize), Apache RocketMQ 5.5.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

import msgspec

from thermocline.broker.replicas.followed_table import FollowedTable
from thermocline.broker.replicas.master_metadata import MasterMetadata
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.errors import ConnectionLostError, MQError, RequestTimeoutError, UnavailableError

logger = logging.getLogger(__name__)

STEP_S = 1.0


class FollowedTableStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How one table stands."""

    name: str
    followed_ms: int | None
    """When the master answered last; None: it never has."""
    changed_count: int
    """How often it had something new."""
    error: str
    """Why the last attempt failed; empty: it did not."""


class MetadataFollower:
    """Follows one master at a time. `start` once, `close` as often as wanted. Owner: the hot process's loop.

    Tables that are bound to the log are followed last: they may wait for it (log_bound.py)."""

    def __init__(
        self,
        tables: Sequence[FollowedTable],
        *,
        client: RemotingClient,
        master_address: Callable[[], str | None],
        clock: Callable[[], int],
    ) -> None:
        """`client`: closed by `close`. `master_address`: host:port, None while there is no master. `clock`: ms."""
        self._client = client
        self._master_address = master_address
        self._clock = clock
        self._followed = [_Followed(table) for table in sorted(tables, key=lambda table: table.bound is not None)]
        self.on_progress: Callable[[], None] | None = None
        """Called when `has_followed_all` or `waits_for_log` may have become true."""
        for each in self._followed:
            if each.table.bound is not None:
                each.table.bound.on_behind = self._progressed
        self._master: MasterMetadata | None = None
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; returns at once."""
        assert self._task is None
        self._task = asyncio.get_running_loop().create_task(self._run(), name="metadata follower")

    async def close(self) -> None:
        """Stop. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._client.close()

    def master_changed(self) -> None:
        """`master_address` may name another one: the one before is not waited for."""
        if self._master is not None and self._master.address != self._master_address():
            self._client.disconnect(self._master.address)
        self._changed.set()

    async def step(self) -> None:
        """Follow the tables that are due; failures are logged."""
        async with self._lock:
            master = self._find_master()
            if master is not None:
                now_ms = self._clock()
                for each in self._followed:
                    if not each.is_due(now_ms):
                        continue
                    await each.follow(master, now_ms)
                    self._progressed()
                    if not each.is_answered or self._master_address() != master.address:
                        return

    async def follow_all(self) -> None:
        """Follow every table now.

        Raises:
            UnavailableError: There is no master, or some tables could not be followed.
        """
        async with self._lock:
            master = self._find_master()
            if master is None:
                raise UnavailableError("there is no master to follow")
            for each in self._followed:
                await each.follow(master, self._clock())
            failed = [each for each in self._followed if each.error]
            if failed:
                raise UnavailableError(
                    "tables not followed", master=master.address, tables=",".join(each.table.name for each in failed)
                )

    @property
    def has_followed_all(self) -> bool:
        """Whether the present master has answered for every table, and each was taken over."""
        if self._master is None or self._master.address != self._master_address():
            return False
        return all(each.is_followed for each in self._followed)

    @property
    def waits_for_log(self) -> bool:
        """Whether the present master has answered for every table that is not bound to the log, and one that is waits
        for a part of the log that is not here."""
        if self._master is None or self._master.address != self._master_address():
            return False
        bounds = [each.table.bound for each in self._followed if each.table.bound is not None]
        others = (each for each in self._followed if each.table.bound is None)
        return any(bound.is_behind for bound in bounds) and all(each.is_followed for each in others)

    def status(self) -> list[FollowedTableStatus]:
        """How each table stands."""
        return [each.status() for each in self._followed]

    def _progressed(self) -> None:
        if self.on_progress is not None:
            self.on_progress()

    def _find_master(self) -> MasterMetadata | None:
        address = self._master_address()
        if self._master is not None and self._master.address != address:
            self._client.disconnect(self._master.address)
        if address is None:
            self._master = None
        elif self._master is None or self._master.address != address:
            logger.info("master followed address=%s", address)
            self._master = MasterMetadata(self._client, address)
            for each in self._followed:
                each.asked_ms, each.is_followed = None, False
                if each.table.bound is not None:
                    each.table.bound.master_changed()
        return self._master

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self.step()
            except Exception:
                # A bug in one table must not keep the others from being followed for ever.
                logger.exception("metadata not followed, a bug of ours")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STEP_S):
                    await self._changed.wait()


class _Followed:
    """One table, and when it is due."""

    def __init__(self, table: FollowedTable) -> None:
        self.table = table
        self.asked_ms: int | None = None
        """When the present master was asked last; None: not yet."""
        self.error = ""
        self.is_followed = False
        """Whether what the present master has answered was taken over."""
        self.is_answered = True
        """Whether the last request had an answer."""
        self._followed_ms: int | None = None
        self._changed_count = 0

    def is_due(self, now_ms: int) -> bool:
        return self.asked_ms is None or not 0 <= now_ms - self.asked_ms < self.table.period_ms

    async def follow(self, master: MasterMetadata, now_ms: int) -> None:
        self.asked_ms = now_ms
        try:
            is_changed = await self.table.follow(master)
        except MQError as error:
            self.is_answered = not isinstance(error, (RequestTimeoutError, ConnectionLostError))
            if str(error) != self.error:  # one line when trouble begins or changes
                logger.error("not followed table=%s master=%s error=%s", self.table.name, master.address, error)
            self.error = str(error)
            return
        if self.error:
            logger.info("followed again table=%s master=%s", self.table.name, master.address)
        self.error, self.is_followed, self.is_answered = "", True, True
        self._followed_ms = now_ms
        self._changed_count += is_changed

    def status(self) -> FollowedTableStatus:
        return FollowedTableStatus(
            name=self.table.name,
            followed_ms=self._followed_ms,
            changed_count=self._changed_count,
            error=self.error,
        )
