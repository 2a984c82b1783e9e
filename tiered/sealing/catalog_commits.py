"""Catalog commits: serializes changes of the catalog. Each change is computed from the newest catalog and committed
before the next one starts.

    changing   a lock, held from reading the catalog until the change is committed: by rounds, merges, purges, repairs
    settle     no commit starts while the outcome of an earlier one is unknown; if that one turns out to be committed,
               every topic continues from the catalog
    commit     retries until the outcome is known
    join       a change of index objects waits for the next ledger entry that is committed for another reason, and
               becomes part of it: one entry instead of two. After a timeout it is committed by itself
    publish    reports topics with new cold ranges, and a moved gate of local deletion, to the hot process

Every call may raise FencedError: another writer has taken over. Belongs to the tier service's loop.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

from thermocline.remoting.errors import ObjectStoreUnavailableError
from thermocline.remoting.offsets import LOG_START
from thermocline.tiered.catalog import Catalog, LedgerChanges
from thermocline.tiered.ledger import LedgerWriter
from thermocline.tiered.objects import EarlierCommitUnsettledError
from thermocline.tiered.sealing.due_changes import DueChanges, changed_topics
from thermocline.tiered.sealing.seal_backlog import SealBacklog
from thermocline.tiered.state import CarriedState

logger = logging.getLogger(__name__)

RETRY_DELAY_MS = 500
RETRY_DELAY_MS_MAX = 10_000

Change = Callable[[Catalog], LedgerChanges | None]


class _Joining(msgspec.Struct, frozen=True):
    """A change that waits for another change's entry; `is_in` receives the outcome."""

    change: Change
    is_in: asyncio.Future[bool]


class CatalogCommits:
    """See the module's header. `last_error`: the store's last failure; a round that succeeds empties it."""

    def __init__(
        self,
        writer: LedgerWriter,
        backlog: SealBacklog,
        due: DueChanges,
        *,
        on_committed: Callable[[Catalog, frozenset[str]], None],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        """`on_committed`: see TierService. `due`: has the topics as the hot process reports them."""
        self.writer = writer
        self.changing = asyncio.Lock()
        self.last_error = ""
        self._backlog = backlog
        self._due = due
        self._on_committed = on_committed
        self._sleep = sleep
        self._published_offset = -1
        self._waiting: _Joining | None = None

    @property
    def catalog(self) -> Catalog:
        """The newest committed catalog."""
        return self.writer.catalog

    async def amend(self, change: Change) -> bool:
        """Commit the changes that `change` returns for the newest catalog; False when there are none.

        Raises:
            ObjectStoreUnavailableError: An earlier commit could not be settled; this one never started.
        """
        async with self.changing:
            await self.settle()
            before = self.catalog
            changes = change(before)
            if changes is None or changes.is_empty:
                return False
            await self.commit_joined(changes)
            self.publish(changed_topics(changes, before))
            return True

    async def join(self, change: Change, *, wait_ms: int) -> bool | None:
        """Commit a change of index objects with the next entry that is committed for another reason. Returns whether
        there was anything to commit, None when no entry came in `wait_ms`. One at a time. If it is cancelled, the
        change may still have landed. Raises as `commit`."""
        assert self._waiting is None
        joining = _Joining(change, asyncio.get_running_loop().create_future())
        self._waiting = joining
        try:
            async with asyncio.timeout(wait_ms / 1_000):
                return await asyncio.shield(joining.is_in)
        except TimeoutError:
            return None if self._waiting is joining else await joining.is_in
        finally:
            if self._waiting is joining:
                self._waiting = None

    async def commit_joined(self, changes: LedgerChanges, carried: CarriedState | None = None) -> None:
        """Commit changes together with the one that waits in `join`, and with a state snapshot for the entry to carry.
        The caller holds `changing`. Raises as `commit`."""
        joining, joined = self._with_waiting(changes)
        if carried is not None:
            joined = msgspec.structs.replace(joined, state=carried.data)
        try:
            await self.commit(joined)
        except Exception as error:
            if joining is not None and not joining.is_in.done():
                joining.is_in.set_exception(error)
                joining.is_in.exception()  # if the task that waits for it has ended, asyncio is not to report it
            raise
        except BaseException:
            if joining is not None:
                joining.is_in.cancel()  # whether it is in is not known
            raise
        if joining is not None and not joining.is_in.done():
            joining.is_in.set_result(True)
        if carried is not None:
            carried.committed()

    def _with_waiting(self, changes: LedgerChanges) -> tuple[_Joining | None, LedgerChanges]:
        """The change that waits in `join`, and `changes` extended by it. Changes of index objects are not extended."""
        joining = self._waiting
        if joining is None or joining.is_in.done() or changes.indexes_in or changes.indexes_out or changes.indexed_to:
            return None, changes
        self._waiting = None
        own = joining.change(self.catalog)
        if own is None or own.is_empty:
            joining.is_in.set_result(False)
            return None, changes
        rest = msgspec.structs.replace(own, indexes_in=(), indexes_out=(), indexed_to=LOG_START)
        assert rest.is_empty, "index objects alone"
        return joining, msgspec.structs.replace(
            changes, indexes_in=own.indexes_in, indexes_out=own.indexes_out, indexed_to=own.indexed_to
        )

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[LedgerWriter]:
        """Yield the ledger's writer with exclusive use: no other commits or deletions. Raises as `amend`."""
        async with self.changing:
            await self.settle()
            yield self.writer

    async def settle(self) -> None:
        """Resolve an earlier commit whose outcome is unknown. Raises as `amend`."""
        before = self.catalog.version
        await self.writer.settle()
        if self.catalog.version != before:
            self._resume_after_settling()

    async def commit(self, changes: LedgerChanges) -> None:
        """Commit; if the outcome is unknown, resolve it before returning. The caller holds `changing`."""
        delay_ms = RETRY_DELAY_MS
        is_begun = False
        while True:
            try:
                if is_begun:
                    await self.writer.settle()
                else:
                    await self.writer.commit(changes)
                return
            except ObjectStoreUnavailableError as error:
                is_begun = is_begun or not isinstance(error, EarlierCommitUnsettledError)
                logger.debug("commit got no answer: %s", error)
                self.last_error = str(error)
                await self._sleep(delay_ms / 1_000)
                delay_ms = min(delay_ms * 2, RETRY_DELAY_MS_MAX)

    def publish(self, topics: frozenset[str]) -> None:
        """Report topics whose cold ranges changed, and a moved gate of local deletion."""
        self._backlog.account()  # records reported while a seal or a commit was under way
        committed_offset = self._backlog.committed_offset()
        if topics or committed_offset != self._published_offset:
            self._published_offset = committed_offset
            self._on_committed(self.catalog, topics)

    def _resume_after_settling(self) -> None:
        """A commit without an answer turned out to be committed: continue each topic from the catalog."""
        for report in self._due.reports.values():
            entry = self.catalog.topics.get(report.topic)
            progress = self._backlog.topics.get(report.topic)
            if entry is None or progress is None or entry.incarnation != progress.incarnation:
                continue
            self._backlog.set_cold_ends(report.topic, self.catalog.queue_ends(report.topic))
        self.publish(frozenset(self.catalog.topics))
