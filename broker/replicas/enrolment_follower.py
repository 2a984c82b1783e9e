"""Enrolment follower: asks the master whose ledger it writes, and what of the log a slave has to keep for it.

The answer is kept in a file (store/state/enrolment.py) once the master has accepted where this log ends. A master of
RocketMQ has no ledger: then there is no enrolment, and nothing is held.

What waits no longer at the master was put again behind it: a delayed message into its topic, a check point anew. So a
higher offset to keep the log from counts once the log here is as long as the master's was then (see log_bound.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from thermocline.broker.replicas.master_metadata import MasterMetadata
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.remoting.private_requests import ReplicaSourceAnswer
from thermocline.store.files import Disk
from thermocline.store.state import Enrolment, load_enrolment, save_enrolment

PERIOD_MS = 2_000


class EnrolmentFollower:
    """A FollowedTable of one value. On the loop."""

    name = "enrolment"
    bound = None
    period_ms = PERIOD_MS

    def __init__(self, disk: Disk, path: str, *, store_id: str, log_end: Callable[[], PhysicalOffset]) -> None:
        """`log_end`: of this broker's log.

        Raises:
            CorruptDataError: The file cannot be read.
        """
        self._disk = disk
        self._path = path
        self._store_id = store_id
        enrolment = load_enrolment(disk, path, store_id=store_id)
        self.master_store_id = "" if enrolment is None else enrolment.master_store_id
        """Whose log this one is the copy of; empty while that is not known."""
        self._has_ledger = enrolment is not None and enrolment.has_ledger
        self.is_current = False
        """Whether the store that the master named last, if it did, is the one whose ledger may be taken over."""
        self._log_end = log_end
        self._held_offset = LOG_START
        self._waiting: ReplicaSourceAnswer | None = None
        """What the master has said, and the log here is too short for."""
        self.is_following: Callable[[], bool] = lambda: False
        """Whether the master has accepted where this log ends."""
        self.on_enrolled: Callable[[str], None] = lambda _: None
        """Called with each other store that becomes the master."""

    @property
    def held_offset(self) -> PhysicalOffset:
        """From there on the log has messages that wait for something at the master, or did while it was longer than the
        one here."""
        if self._waiting is not None and self._log_end() >= self._waiting.log_end:
            self._held_offset, self._waiting = self._waiting.held_offset, None
        return self._held_offset

    async def follow(self, master: MasterMetadata) -> bool:
        """See FollowedTable."""
        source = await master.source()
        self.is_current = source is None or source.store_uuid in ("", self.master_store_id)
        if source is None:
            return False
        self._hear(source)
        is_same = source.store_uuid == self.master_store_id
        has_ledger = source.has_ledger or (is_same and self._has_ledger)
        if not source.store_uuid or (is_same and has_ledger == self._has_ledger) or not self.is_following():
            return False
        enrolment = Enrolment(store_id=self._store_id, master_store_id=source.store_uuid, has_ledger=has_ledger)
        try:
            await asyncio.get_running_loop().run_in_executor(None, save_enrolment, self._disk, self._path, enrolment)
        except OSError as error:
            raise UnavailableError("the enrolment cannot be written", reason=str(error)) from error
        self.master_store_id, self._has_ledger, self.is_current = source.store_uuid, has_ledger, True
        if not is_same:
            self.on_enrolled(source.store_uuid)
        return True

    def _hear(self, source: ReplicaSourceAnswer) -> None:
        if source.held_offset <= self.held_offset:
            self._held_offset, self._waiting = source.held_offset, None
        elif self._waiting is None or source.log_end < self._waiting.log_end:  # else its turn would never come
            self._waiting = source
