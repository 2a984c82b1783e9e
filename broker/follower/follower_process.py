"""Follower process: serves cold reads from another broker's cold tier, and follows its ledger. It writes nothing.

It replaces the tier process of a broker that writes, and answers the same requests. It polls the ledger every
`coldFollowIntervalMs`, without news up to FOLLOW_PAUSES_MAX times as long: that is the longest delay from a commit to
its visibility here. Queue counts of topics come from the state snapshot, which is read when the ledger has moved, but
not more often than the source saves it. Without one that can be read, those read last count, or what the ledger tells.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import msgspec

from thermocline.broker.helpers import (
    TIER_ROLE,
    CatalogTable,
    ColdRange,
    FollowedTopic,
    FollowedTopics,
    HelperLink,
    HelperOptions,
    HelperRequestCode,
    ReaderLeft,
    TierReportReply,
    TierSettings,
    connect,
    main,
)
from thermocline.broker.tier_process import TierReads
from thermocline.broker.tier_process.tier_process import tell_outage
from thermocline.remoting.clocks import monotonic_ms, wall_clock_ms
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.errors import (
    CorruptDataError,
    InvalidRequestError,
    ObjectStoreUnavailableError,
    UnavailableError,
)
from thermocline.remoting.offsets import LOG_START, PhysicalOffset, QueueOffset
from thermocline.remoting.topic_validation import is_internal_topic
from thermocline.tiered.budgets import TierBudgets, TierConfig
from thermocline.tiered.catalog import Catalog, TopicEntry, topic_visible_from_ms
from thermocline.tiered.indexes import BloomCache, FreshIndex
from thermocline.tiered.ledger import LedgerReader
from thermocline.tiered.objects import ObjectStore
from thermocline.tiered.packs import PackedTopic
from thermocline.tiered.reading import ColdReader, FrameCache
from thermocline.tiered.segments import BrokerKeys
from thermocline.tiered.state import TOPICS, find_newest, with_carried
from thermocline.tiered.stores import ObjectStoreOptions, open_object_store
from thermocline.tiered.wrappers import (
    BoundingObjectStore,
    OutageWatch,
    OutageWatchingObjectStore,
    StoreCounters,
    StoreRates,
)

logger = logging.getLogger(__name__)

FOLLOW_PAUSES_MAX = 5
RETRY_PAUSE_S = 1.0


class FollowerRole:
    """Answers the hot process. Belongs to the process's loop."""

    kind = "a read-only broker"

    def __init__(self) -> None:
        self._reader: LedgerReader | None = None
        self._reads: TierReads | None = None
        self._counters = StoreCounters()
        self._rates = StoreRates()
        self._budgets = TierBudgets()
        self._last_error = "the cold tier is being opened"
        self._refusal = ""
        """Why the ledger that is there is not served."""
        self._sent = 0
        self._told_version = -1
        self._wake = asyncio.Event()
        self._reported: dict[str, _Reported] = {}
        self._configs: dict[str, Any] = {}
        self._configs_ms: float | None = None
        """When they were read last, or could not be, by a clock that is never set."""
        self._state_error = ""
        self._skipped: tuple[str, ...] = ()
        """Damaged state snapshots that were logged."""

    async def run(self, link: HelperLink) -> None:
        """Follow the ledger until cancelled."""
        settings = link.settings
        config = settings.tier
        keys = BrokerKeys.of(cluster=settings.cluster_name, broker_name=settings.broker_name)
        self._follow(config)
        options = ObjectStoreOptions(counters=self._counters, rates=self._rates)
        opened = await open_object_store(config.cold_url, options)
        store = OutageWatchingObjectStore(
            BoundingObjectStore(opened, self._budgets.reads),
            OutageWatch(wall_clock_ms, on_change=lambda watch: tell_outage(link, watch)),
            check_key=keys.head_hint,
        )
        cache = FrameCache(bytes_max=config.cache_bytes)
        cold = ColdReader(
            store,
            catalog=self._catalog,
            cache=cache,
            read_ahead_frames_max=config.read_ahead_frames_max,
            blooms=BloomCache(bytes_max=config.index_bytes),
            fresh=FreshIndex(),
        )
        pause_s = interval_s = config.follow_interval_ms / 1_000
        try:
            while True:
                try:
                    has_moved = await self._catch_up(link, store, keys, cold)
                    if has_moved:
                        cold.load_lookups_soon()
                    pause_s = interval_s if has_moved else min(pause_s * 2, interval_s * FOLLOW_PAUSES_MAX)
                    self._last_error = self._refusal
                except (ObjectStoreUnavailableError, CorruptDataError) as error:
                    if isinstance(error, CorruptDataError) and str(error) != self._last_error:
                        logger.warning("the ledger cannot be followed: %s", error)
                    self._last_error, pause_s = str(error), max(interval_s, RETRY_PAUSE_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._wake.wait()
                self._wake.clear()
        finally:
            self._reads = None
            await cold.close()
            await cache.close()
            await store.close()

    def _follow(self, config: TierConfig) -> None:
        self._rates.set(config.limits)
        self._budgets.resize(config)

    def _catalog(self) -> Catalog:
        assert self._reader is not None
        return self._reader.catalog

    def _cut_ms(self, topic: str) -> int:
        return topic_visible_from_ms(self._catalog(), topic, now_ms=wall_clock_ms())

    async def _catch_up(self, link: HelperLink, store: ObjectStore, keys: BrokerKeys, cold: ColdReader) -> bool:
        """Catch up with the ledger and report the changes; True if there were any."""
        if self._reader is None:
            self._reader = await LedgerReader.open(store, keys)
        else:
            await self._reader.refresh()
        catalog = self._reader.catalog
        if catalog.version == self._told_version or not self._accepts(catalog):
            return False
        await self._read_configs(link, store, keys, catalog)
        if self._reads is None:
            self._reads = TierReads(cold, catalog=self._catalog, cut_ms=self._cut_ms)
            logger.info("ledger followed root=%s version=%d", keys.root, catalog.version)
        self._tell(link, catalog)
        self._told_version = catalog.version
        return True

    def _accepts(self, catalog: Catalog) -> bool:
        """Whether this version of the ledger is served."""
        return True

    async def _read_configs(self, link: HelperLink, store: ObjectStore, keys: BrokerKeys, catalog: Catalog) -> None:
        """Read the topics' configurations, if those read last are old. History is served without them, too."""
        now_ms = monotonic_ms()
        if self._configs_ms is not None and now_ms - self._configs_ms < link.settings.tier.state_interval_ms:
            return
        try:
            found = await with_carried(await find_newest(store, keys), store, keys, catalog)
        except CorruptDataError as error:  # also one of a later version
            if str(error) != self._state_error:
                logger.warning("how topics are set up is not known anew, the saved state cannot be read: %s", error)
            self._state_error, self._configs_ms = str(error), now_ms
            return
        if found.skipped and found.skipped != self._skipped:
            logger.warning("state snapshot damaged, the one before it is taken keys=%s", ", ".join(found.skipped))
        self._skipped, state, self._state_error = found.skipped, found.snapshot, ""
        self._configs = state.documents.get(TOPICS, {}).get("topicConfigTable", {}) if state is not None else {}
        self._configs_ms = now_ms

    def _tell(self, link: HelperLink, catalog: Catalog) -> None:
        """Report to the hot process what is new in this version."""
        topics, ranges = self._changed_ranges(catalog)
        followed = [
            self._followed(catalog, catalog.topics[name], queue_count=max(self._reported[name].bounds, default=-1) + 1)
            for name in topics
        ]
        link.tell(HelperRequestCode.FOLLOWED_TOPICS, FollowedTopics(topics=followed))
        self._tell_ranges(link, catalog, ranges, committed_offset=LOG_START)

    def _tell_ranges(
        self, link: HelperLink, catalog: Catalog, ranges: list[ColdRange], *, committed_offset: PhysicalOffset
    ) -> None:
        self._sent += 1
        link.tell(
            HelperRequestCode.CATALOG_TABLE,
            CatalogTable(
                sequence=self._sent, version=catalog.version, committed_offset=committed_offset, ranges=ranges
            ),
        )

    def _changed_ranges(self, catalog: Catalog) -> tuple[list[str], list[ColdRange]]:
        """The topics that differ from the last report, and the ranges of their queues."""
        topics: list[str] = []
        ranges: list[ColdRange] = []
        for name, entry in catalog.topics.items():
            reported, packed = self._reported.get(name), catalog.packed.get(name)
            if is_internal_topic(name) or (
                reported is not None and reported.entry is entry and reported.packed is packed
            ):
                continue
            bounds, gaps = catalog.queue_bounds(name), catalog.queue_gaps(name)
            if reported is not None and reported.entry.incarnation == entry.incarnation:
                # A queue that has lost its last segment is reported as empty, at its end.
                bounds = {queue_id: (end, end) for queue_id, (_, end) in reported.bounds.items()} | bounds
            self._reported[name] = _Reported(entry, packed, bounds)
            topics.append(name)
            ranges += [
                ColdRange(
                    topic=name,
                    incarnation=entry.incarnation,
                    queue_id=queue_id,
                    min_offset=start,
                    end_offset=end,
                    gaps=gaps[queue_id].spans if queue_id in gaps else (),
                )
                for queue_id, (start, end) in sorted(bounds.items())
            ]
        return topics, ranges

    def _followed(self, catalog: Catalog, entry: TopicEntry, *, queue_count: int) -> FollowedTopic:
        return FollowedTopic(
            topic=entry.topic,
            incarnation=entry.incarnation,
            deleted=entry.deleted,
            ttl_ms=catalog.ttl_ms(entry.topic),
            expired_before_ms=entry.expired_before_ms,
            queue_count=queue_count,
            config=self._configs.get(entry.topic),
        )

    # -- RequestHandler ------------------------------------------------------------------------------------------------

    async def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Answer cold reads and reports; requests that need a writer are refused."""
        if command.code == HelperRequestCode.QUEUE_TABLE:
            return None
        if command.code == HelperRequestCode.READER_LEFT:
            if self._reads is not None:
                self._reads.reader_left(msgspec.msgpack.decode(command.body, type=ReaderLeft).reader)
            return None
        if command.code == HelperRequestCode.TIER_SETTINGS:
            self._follow(msgspec.msgpack.decode(command.body, type=TierSettings).tier)
            return None
        if command.code == HelperRequestCode.TIER_REPORT:
            return self._report(command)
        if command.code in (HelperRequestCode.SEAL, HelperRequestCode.PURGE, HelperRequestCode.SCRUB):
            raise InvalidRequestError(f"{self.kind} changes nothing in the bucket; ask the broker that writes")
        if command.code == HelperRequestCode.TIER_COST:
            raise InvalidRequestError(f"{self.kind} keeps no account; ask the broker that writes")
        if self._reads is None:
            raise UnavailableError("the cold tier is not open yet", reason=self._last_error)
        return await self._reads.handle(command)

    def connection_opened(self, connection: Connection) -> None:
        """The hot process's one."""

    def connection_closed(self, connection: Connection) -> None:
        """`connect` was given what happens then."""

    def _report(self, command: RemotingCommand) -> RemotingCommand:
        counters = self._counters
        reply = TierReportReply(
            version=self._reader.catalog.version if self._reader is not None else -1,
            last_error=self._last_error,
            requests={verb.value: count for verb, count in counters.requests.items()},
            sent_bytes=counters.sent_bytes,
            received_bytes=counters.received_bytes,
            topics=[],
        )
        return RemotingCommand.response(command, body=msgspec.msgpack.encode(reply))


class _Reported(msgspec.Struct, frozen=True):
    """The last report of a topic: the catalog entries it was made from, and the range of each queue."""

    entry: TopicEntry
    packed: PackedTopic | None
    bounds: dict[int, tuple[QueueOffset, QueueOffset]]


async def serve(options: HelperOptions, stop: asyncio.Event, *, role: FollowerRole | None = None) -> None:
    """Run the role until `stop`, or until the hot process goes away.

    Raises:
        FencedError: The hot process is of another build.
        MQError: The cold tier cannot be used.
    """
    role = role or FollowerRole()
    link = await connect(options, role=TIER_ROLE, handler=role, on_closed=stop.set)
    work = asyncio.create_task(role.run(link), name="follower")
    stopping = asyncio.create_task(stop.wait(), name="follower-stop")
    try:
        await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        for task in (work, stopping):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait((work, stopping))
        link.connection.close()
        link.page.close()


if __name__ == "__main__":
    main("follower", serve)
