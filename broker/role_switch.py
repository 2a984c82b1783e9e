"""Role switch: a running broker gets another role.

    become_master, become_slave -> the parts of the role before end -> those of the new role start
    a slave gets another master -> its link and its tables follow that one; nothing ends
    a slave's log and its master's part (`cut`)
                                -> its parts end, the log is cut there, and they start again
    a slave's log has failed (`reopen`)
                                -> its parts end after REOPEN_S, and start again: the log that is opened takes writes
    a start that fails          -> the broker waits as a slave without a master: reads are served, writes refused
                                -> tried again after RETRY_S, then twice as long, until it succeeds, or another role
                                   comes

One change at a time, in a task of its own: a caller that is cancelled leaves no broker between two roles. A role that
the broker has already changes nothing. `error` says why the broker does not have the role that it should have.
Owner: the hot process's event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from thermocline.broker.assembly import Assignment
from thermocline.broker.role_parts import RoleParts
from thermocline.remoting.errors import MQError, UnavailableError
from thermocline.replication import Alignment, ReplicaRole, StaleEpochError

logger = logging.getLogger(__name__)

RETRY_S = 1.0
RETRY_S_MAX = 30.0
REOPEN_S = 10.0
"""After the log of a slave has failed: reads are served so long at least, also on a disk that fails again and again."""


class RoleSwitch:
    """A RoleChanger. `start` once, `close` as often as wanted."""

    def __init__(
        self,
        make_parts: Callable[[Assignment | None], RoleParts],
        *,
        apply: Callable[[Assignment], None],
        cut_log: Callable[[Alignment], None],
        first: Assignment | None = None,
        retry_s: float = RETRY_S,
    ) -> None:
        """`make_parts`: for a role, not started. `apply`: has the settings show a role.
        `cut_log`: cuts the log while no parts have the store open. `first`: the role before any other; None: the
        settings have it."""
        self._make_parts = make_parts
        self._apply = apply
        self._cut_log = cut_log
        self._retry_s = retry_s
        self._lock = asyncio.Lock()
        self._wanted: Assignment | None = None
        self._present: Assignment | None = None
        """The role that the parts were started for; with `error` a slave's without a master."""
        self._is_superseded = asyncio.Event()
        """Set when another role than `_wanted` comes."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.error = ""
        """Empty: the broker has the role that it should have."""
        self._first = first
        self.parts = make_parts(first)
        """Of the present role."""

    async def start(self) -> None:
        """Start in the first role. Raises as RoleParts.start."""
        if self._first is not None:
            self._apply(self._first)
        await self.parts.start()
        self._present = self._wanted = self._first

    async def close(self) -> None:
        """Close the present parts, once a change under way has ended; no role comes any more. Idempotent. Raises as
        the store's close."""
        self._want(None)
        async with self._lock:
            await self.parts.close()
        await asyncio.gather(*self._tasks)

    async def become_master(self, role: ReplicaRole, sync_state_set: frozenset[int]) -> None:
        """See RoleChanger."""
        await self._become(Assignment(role=role, sync_state_set=sync_state_set))

    async def become_slave(self, role: ReplicaRole) -> None:
        """See RoleChanger."""
        await self._become(Assignment(role=role, sync_state_set=None))

    def cut(self, alignment: Alignment) -> None:
        """A slave's log parts from its master's at an alignment: cut it there, and follow on. Returns at once. After a
        failure the broker follows its master again a little later, which finds that the logs part."""
        self._start_task(self._begin_again(self.parts, lambda: self._cut_log(alignment)))

    def reopen(self) -> None:
        """A slave's log takes no writes until its store is opened again: have that done. Returns at once."""
        self._start_task(self._reopen(self.parts))

    async def _reopen(self, parts: RoleParts) -> None:
        await _wait(self._is_superseded, REOPEN_S)
        await self._begin_again(parts, lambda: logger.warning("the slave's store is opened again, its log had failed"))

    async def _begin_again(self, parts: RoleParts, work: Callable[[], None]) -> None:
        """End a slave's parts, do this work, and start them again; only once for the same parts."""
        async with self._lock:
            present = self._present
            if present is None or present.is_master or self._wanted is not present or self.parts is not parts:
                return  # the role has changed since, or these parts ended: a log that was cut may have grown again
            await self.parts.end()
            try:
                work()
                await self._start_parts(present)
                return
            except Exception as error:  # noqa: BLE001 - see _try
                await self._failed(present, error)
        self._start_task(self._pursue(present, self._is_superseded, pauses_first=True))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="role")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _want(self, wanted: Assignment | None) -> asyncio.Event:
        """From now on another role is wanted; what is set when that changes."""
        self._is_superseded.set()
        self._wanted, self._is_superseded = wanted, asyncio.Event()
        return self._is_superseded

    async def _become(self, wanted: Assignment) -> None:
        first_outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        first_outcome.add_done_callback(lambda outcome: outcome.cancelled() or outcome.exception())
        self._start_task(self._pursue(wanted, self._want(wanted), first_outcome))
        await asyncio.shield(first_outcome)

    async def _pursue(
        self,
        wanted: Assignment,
        is_superseded: asyncio.Event,
        first_outcome: asyncio.Future[None] | None = None,
        *,
        pauses_first: bool = False,
    ) -> None:
        """Change the role until that succeeds, or another one is wanted; `first_outcome` is of the first attempt."""
        pause_s = self._retry_s
        if pauses_first:
            await _wait(is_superseded, pause_s)
        while True:
            async with self._lock:
                try:
                    failure = await self._try(wanted)
                except Exception:
                    logger.exception("a bug of ours in a change of the role")
                    failure = UnavailableError("the broker's role could not be changed, a bug of ours")
            if first_outcome is not None and not first_outcome.done():
                if failure is None:
                    first_outcome.set_result(None)
                else:
                    first_outcome.set_exception(failure)
            if failure is None or isinstance(failure, StaleEpochError) or is_superseded.is_set():
                return
            await _wait(is_superseded, pause_s)
            pause_s = min(2 * pause_s, RETRY_S_MAX)

    async def _try(self, wanted: Assignment) -> MQError | None:
        """Change the role, unless another one is wanted; how that failed."""
        if self._wanted is not wanted:
            return UnavailableError("another role was decided meanwhile")
        present = self._present
        if not self.error and present is not None and _is_same(present, wanted) and not self._has_failed_slave():
            if not wanted.is_master:
                self.parts.replicas.follow(wanted)
                self._present = wanted
            return None
        name = "master" if wanted.is_master else "slave"
        logger.warning(
            "the broker's role changes to=%s master_epoch=%d master=%s",
            name,
            wanted.role.master_epoch,
            wanted.role.master_address,
        )
        if wanted.is_master and self.parts.has_served:
            await self.parts.replicas.follow_last()
        await self.parts.end()
        try:
            await self._start_parts(wanted)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not leave half a master
            return await self._failed(wanted, error)
        self.error = ""
        logger.warning("the broker's role has changed to=%s", name)
        return None

    def _has_failed_slave(self) -> bool:
        """Whether the parts are a slave's whose log takes no writes until it is opened again."""
        return self._present is not None and not self._present.is_master and self.parts.replicas.has_failed_log

    async def _failed(self, wanted: Assignment, error: Exception) -> MQError:
        if not isinstance(error, (MQError, OSError)):
            logger.error("a bug of ours in a change of the role", exc_info=error)
        self.error = f"the broker is not what its controller has made it: {error}"
        logger.error("the broker's role has not changed master_epoch=%d error=%s", wanted.role.master_epoch, error)
        role = wanted.role
        own_id = role.master_broker_id if wanted.is_master else role.broker_id
        assert own_id, "the id that the controller has given"
        waiting = replace(role, broker_id=own_id, master_broker_id=None, master_address="", master_ha_address="")
        try:
            await self._start_parts(Assignment(role=waiting, sync_state_set=None))
        except Exception:
            logger.exception("nothing is served until a change of the role succeeds")
        if isinstance(error, StaleEpochError):
            return error
        return UnavailableError("the broker's role could not be changed", reason=str(error))

    async def _start_parts(self, assignment: Assignment) -> None:
        self._apply(assignment)
        self._present = None
        parts = self.parts = self._make_parts(assignment)
        try:
            await parts.start()
        except BaseException:
            await parts.end()
            raise
        self._present = assignment


def _is_same(present: Assignment, wanted: Assignment) -> bool:
    """Whether the parts of one role are those of the other."""
    if present.is_master != wanted.is_master:
        return False
    if wanted.is_master:
        return present.role.master_epoch == wanted.role.master_epoch
    return present.role.broker_id == wanted.role.broker_id


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, or so long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
