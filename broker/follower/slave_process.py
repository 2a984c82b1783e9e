"""Slave process: the follower process of a slave. It serves cold reads from the ledger of the slave's master, and says
how much of the slave's own log is committed there. It writes nothing.

    QUEUE_TABLE, ENROLLED  ->  which records of the local log the catalog lacks  ->  CATALOG_TABLE: ranges, gate

Only the ledger that the master's store has written last is followed. Nothing is reported before the hot process has
said whose that is, and nothing new when another store has taken over since: what is committed there need not be this
log's.

Belongs to the process's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from thermocline.broker.follower.follower_process import FollowerRole
from thermocline.broker.follower.follower_process import serve as serve_follower
from thermocline.broker.helpers import (
    Enrolled,
    HelperLink,
    HelperOptions,
    HelperRequestCode,
    QueueTable,
    TopicState,
    decode_body,
    main,
)
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.offsets import LOG_START, PhysicalOffset, QueueOffset
from thermocline.store.files import RealDisk
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.objects import ObjectStore
from thermocline.tiered.sealing import LocalLog, LocalQueues, SealBacklog, SealPolicy
from thermocline.tiered.segments import BrokerKeys

logger = logging.getLogger(__name__)

NOT_ENROLLED = "the master has not said yet whose ledger it writes"
FOREIGN = "the bucket has no ledger of this broker that the master's store has written last"


class SlaveRole(FollowerRole):
    """See the module's header."""

    kind = "a slave"

    def __init__(self) -> None:
        super().__init__()
        self._master_uuid = ""
        self._accepted: Catalog | None = None
        self._backlog: SealBacklog | None = None
        self._early_tables: list[QueueTable] = []
        """Those that came before `run`, which begins with the next turn of the loop."""
        self._committed_offset = LOG_START

    async def run(self, link: HelperLink) -> None:
        """Follow the ledger until cancelled."""
        disk, local = RealDisk(), link.settings.store
        log = LocalLog(disk, path=local.commit_log_path, file_bytes=local.log_file_bytes)
        self._backlog = SealBacklog(
            queues=LocalQueues(disk, path=local.consume_queue_path, file_bytes=local.queue_file_bytes),
            log=log,
            policy=SealPolicy(),
            log_min_offset=lambda: PhysicalOffset(link.page.read().min_offset),
        )
        for table in self._early_tables:
            self._add_table(self._backlog, table)
        self._early_tables.clear()
        counting = asyncio.create_task(self._count_steadily(link), name="count")
        try:
            await super().run(link)
        finally:
            counting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await counting
            log.close()

    async def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Tables of queues, the master's name; else as the follower process of a read-only broker."""
        if command.code == HelperRequestCode.QUEUE_TABLE:
            table = decode_body(command.body, QueueTable)
            if self._backlog is None:
                self._early_tables.append(table)
            else:
                self._add_table(self._backlog, table)
            return None
        if command.code == HelperRequestCode.ENROLLED:
            self._master_uuid = decode_body(command.body, Enrolled).store_uuid
            self._wake.set()
            return None
        return await super().handle(connection, command)

    def _accepts(self, catalog: Catalog) -> bool:
        is_ours = bool(self._master_uuid) and catalog.store_uuid == self._master_uuid
        self._refusal = "" if is_ours else FOREIGN if self._master_uuid else NOT_ENROLLED
        return is_ours

    async def _read_configs(self, link: HelperLink, store: ObjectStore, keys: BrokerKeys, catalog: Catalog) -> None:
        """Nothing: a slave has its master's topics from the master."""

    def _tell(self, link: HelperLink, catalog: Catalog) -> None:
        topics, ranges = self._changed_ranges(catalog)
        self._accepted = catalog
        backlog = self._backlog
        assert backlog is not None
        for topic in topics if self._told_version >= 0 else backlog.topics:
            progress = backlog.topics.get(topic)
            if progress is not None:
                backlog.set_cold_ends(topic, self._cold_ends(topic, progress.incarnation))
        self._committed_offset = self._count(backlog)
        self._tell_ranges(link, catalog, ranges, committed_offset=self._committed_offset)

    def _add_table(self, backlog: SealBacklog, table: QueueTable) -> None:
        for topic in table.topics:
            self._add_topic(backlog, topic)
        for queue in table.queues:
            if queue.topic in backlog.topics:
                backlog.set_queue(queue.topic, queue.queue_id, min_offset=queue.min_offset, end_offset=queue.end_offset)
        backlog.set_reported_offset(table.log_offset)

    def _add_topic(self, backlog: SealBacklog, topic: TopicState) -> None:
        if topic.deleted:
            backlog.delete_topic(topic.topic)
            return
        backlog.set_topic(
            topic.topic,
            incarnation=topic.incarnation,
            cut_ms=topic.cut_ms,
            tiered=topic.tiered,
            cold_ends=self._cold_ends(topic.topic, topic.incarnation),
        )

    def _cold_ends(self, topic: str, incarnation: int) -> dict[int, QueueOffset]:
        catalog = self._accepted
        entry = catalog.topics.get(topic) if catalog is not None else None
        if catalog is None or entry is None or entry.deleted or entry.incarnation != incarnation:
            return {}
        return catalog.queue_ends(topic)

    async def _count_steadily(self, link: HelperLink) -> None:
        """Report how far the log is committed, when that has changed."""
        while True:
            await asyncio.sleep(link.settings.tier.account_interval_ms / 1_000)
            backlog, catalog = self._backlog, self._accepted
            if backlog is None or catalog is None:
                continue
            try:
                committed_offset = self._count(backlog)
            except Exception:
                logger.exception("committed part of the log not counted, a bug of ours")
                continue
            if committed_offset > self._committed_offset:
                self._committed_offset = committed_offset
                self._tell_ranges(link, catalog, [], committed_offset=committed_offset)

    @staticmethod
    def _count(backlog: SealBacklog) -> PhysicalOffset:
        backlog.account()
        backlog.skip_expired()
        return backlog.committed_offset()


async def serve(options: HelperOptions, stop: asyncio.Event) -> None:
    """Run the role until `stop`, or until the hot process goes away. Raises as the follower process's."""
    await serve_follower(options, stop, role=SlaveRole())


if __name__ == "__main__":
    main("slave", serve)
