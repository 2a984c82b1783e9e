"""Tier link: keeps the cold tier's ranges for the hot process, and sends its requests to the tier process.

The tier process reports which offsets of each queue it serves (CATALOG_TABLE, numbered deltas after a full table); the
hot process reports which queues and topics changed (QUEUE_TABLE, after the tick that wrote their files). The last
report stays in use while the tier process is away: a pull below the local minimum then gets a retryable error instead
of an offset that would make a client skip history.

    committed offset   every tiered message below it is committed: the gate of local deletion
    version            ledger version that the ranges are from; sent along, so that a tier process that serves an older
                       one refuses instead of answering from the past
"""

import logging
from collections.abc import Callable, Collection

import msgspec

from thermocline.broker.cold import (
    ColdBounds,
    ColdHealth,
    ColdKeyQuery,
    ColdPull,
    ColdPullResult,
    ColdRecord,
    ColdRuns,
    ColdState,
    ColdTimeSearch,
    DroppedRange,
)
from thermocline.broker.helpers import (
    TIER_ROLE,
    CatalogTable,
    ColdMinimumReply,
    ColdMinimumRequest,
    ColdOffsetReply,
    ColdPullReply,
    ColdPullRequest,
    ColdQueryRequest,
    ColdRange,
    ColdRecordReply,
    ColdSearchRequest,
    ColdViewRequest,
    Dropped,
    Fenced,
    HelperHub,
    HelperRequestCode,
    ReaderLeft,
    StoreAway,
    TierSettings,
    decode_body,
)
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.header_codec import decode_header
from thermocline.remoting.offsets import LOG_START, QUEUE_START, PhysicalOffset, QueueOffset
from thermocline.tiered.budgets import TierConfig
from thermocline.tiered.catalog import QueueGaps

logger = logging.getLogger(__name__)

NOTHING = ColdBounds(min_offset=QUEUE_START, end_offset=QUEUE_START)


class TierLink:
    """ColdReads by way of the tier process. Belongs to the hot process's loop."""

    def __init__(
        self,
        hub: HelperHub,
        *,
        incarnation_of: Callable[[str], int],
        timeout_ms: int,
        on_connected: Callable[[], None],
        on_fenced: Callable[[Fenced], None],
        on_state: Callable[[int, bytes | memoryview], None] = lambda _code, _body: None,
        on_table: Callable[[CatalogTable], None] | None = None,
    ) -> None:
        """`on_state(code, body)`: called with the tier process's messages on state snapshots, or the follower process's
        on topics. `on_table`: called with each catalog table, which it passes to `apply_table` later; None: at
        once."""
        self._hub = hub
        self._incarnation_of = incarnation_of
        self._timeout_ms = timeout_ms
        self._on_connected = on_connected
        self._on_fenced = on_fenced
        self._on_state = on_state
        self._on_table = on_table
        self._ranges: dict[tuple[str, int], ColdRange] = {}
        self._version = -1
        self._sequence = 0
        self._committed_offset = LOG_START
        self._absence: StoreAway | None = None
        self._is_open = False
        self._runs = ColdRuns(self._ask_records)
        hub.add_role(TIER_ROLE, self)

    @property
    def committed_offset(self) -> PhysicalOffset:
        """Log offset below which every tiered message is committed; 0 until the tier has said so in this boot."""
        return self._committed_offset

    @property
    def kept_bytes(self) -> int:
        """Records kept for pulls to come."""
        return self._runs.size_bytes

    @property
    def version(self) -> int:
        """Ledger version of the known ranges; -1 before the first catalog table."""
        return self._version

    def health(self) -> ColdHealth:
        """How the cold tier is."""
        if not self._hub.is_connected(TIER_ROLE):
            return ColdHealth(state=ColdState.AWAY, reason="the tier process is away")
        if self._absence is not None:
            return ColdHealth(state=ColdState.DEGRADED, reason=self._absence.reason, since_ms=self._absence.since_ms)
        return ColdHealth(state=ColdState.SERVING if self._is_open else ColdState.OPENING)

    # -- HelperRole ----------------------------------------------------------------------------------------------------

    def helper_connected(self) -> None:
        """A tier process is there: it needs the whole queue table."""
        self._sequence = 0
        self._absence, self._is_open = None, False
        self._on_connected()

    def helper_told(self, code: int, body: bytes | memoryview) -> None:
        """Handle a catalog table, or the report that another writer has taken over."""
        if code == HelperRequestCode.FENCED:
            self._on_fenced(decode_body(body, Fenced))
            return
        if code == HelperRequestCode.STORE_ABSENCE:
            absence = decode_body(body, StoreAway)
            self._absence = absence if absence.since_ms else None
            return
        if code != HelperRequestCode.CATALOG_TABLE:
            self._on_state(code, body)
            return
        table = decode_body(body, CatalogTable)
        assert table.sequence == self._sequence + 1
        self._sequence = table.sequence
        self._is_open = True
        if self._on_table is not None:
            self._on_table(table)
        else:
            self.apply_table(table)

    def apply_table(self, table: CatalogTable) -> None:
        """Serve by a table from now on. Tables are applied in the order of their arrival."""
        if table.sequence == 1:
            self._ranges.clear()  # a full table, from a tier process that has just opened the ledger
        for cold_range in table.ranges:
            if cold_range.min_offset < cold_range.end_offset:
                self._ranges[cold_range.topic, cold_range.queue_id] = cold_range
            else:
                self._ranges.pop((cold_range.topic, cold_range.queue_id), None)
        assert table.version >= self._version
        self._version = table.version
        self._committed_offset = max(self._committed_offset, table.committed_offset)

    def follow(self, tier: TierConfig) -> None:
        """Send these settings to the tier process, now and at each later connect."""
        self._hub.follow(tier)
        self._hub.tell(TIER_ROLE, HelperRequestCode.TIER_SETTINGS, TierSettings(tier=tier))

    def dropped(self, ranges: list[DroppedRange]) -> None:
        """Send ranges dropped because of a full disk to the tier process."""
        self._hub.tell(TIER_ROLE, HelperRequestCode.DROPPED, Dropped(ranges=ranges))

    def ranges_of(self, topics: Collection[str]) -> list[ColdRange]:
        """The ranges of these topics' queues, as the tier process has reported them."""
        return [each for (topic, _), each in self._ranges.items() if topic in topics]

    # -- ColdReads -----------------------------------------------------------------------------------------------------

    def bounds(self, topic: str, queue_id: int) -> ColdBounds | None:
        """The tier's range of a queue; None before its first report in this boot."""
        if self._version < 0:
            return None
        cold_range = self._ranges.get((topic, queue_id))
        if cold_range is None or cold_range.incarnation != self._incarnation_of(topic):
            return NOTHING
        return ColdBounds(
            min_offset=cold_range.min_offset, end_offset=cold_range.end_offset, gaps=QueueGaps(cold_range.gaps)
        )

    def held(self, pull: ColdPull) -> ColdPullResult | None:
        """Messages that the tier process has sent already; see ColdReads."""
        return self._runs.held(pull, self._incarnation_of(pull.topic))

    async def pull(self, pull: ColdPull) -> ColdPullResult:
        """Messages of a queue; see ColdReads."""
        return await self._runs.pull(pull, self._incarnation_of(pull.topic))

    def reader_left(self, reader: str) -> None:
        """Forget the runs of a reader that has left, and tell the tier process; see ColdReads."""
        self._runs.forget(reader)
        self._hub.tell(TIER_ROLE, HelperRequestCode.READER_LEFT, ReaderLeft(reader=reader))

    async def _ask_records(self, pull: ColdPull, incarnation: int) -> ColdPullResult:
        request = ColdPullRequest(version=self._version, incarnation=incarnation, pull=pull)
        response = await self._ask(HelperRequestCode.COLD_PULL, request)
        reply = decode_header(ColdPullReply, response.ext_fields)
        records = (response.body,) if len(response.body) else ()
        return ColdPullResult(records=records, message_count=reply.message_count, next_offset=reply.next_offset)

    async def min_offset(self, topic: str, queue_id: int, *, expired_before_ms: int) -> QueueOffset | None:
        """First visible cold offset; see ColdReads."""
        return (await self._minimum(topic, queue_id, expired_before_ms)).queue_offset

    async def earliest_time_ms(self, topic: str, queue_id: int, *, expired_before_ms: int) -> int | None:
        """Store time of the first visible cold record; see ColdReads."""
        return (await self._minimum(topic, queue_id, expired_before_ms)).store_timestamp_ms

    async def offset_by_time(self, search: ColdTimeSearch) -> QueueOffset | None:
        """Offset by time; see ColdReads."""
        if self.bounds(search.topic, search.queue_id) == NOTHING:
            return None
        incarnation = self._incarnation_of(search.topic)
        request = ColdSearchRequest(version=self._version, incarnation=incarnation, search=search)
        response = await self._ask(HelperRequestCode.COLD_OFFSET, request)
        return decode_body(response.body, ColdOffsetReply).queue_offset

    async def query_keys(self, query: ColdKeyQuery) -> list[ColdRecord]:
        """Records by key; see ColdReads."""
        incarnation = self._incarnation_of(query.topic)
        request = ColdQueryRequest(version=self._version, incarnation=incarnation, query=query)
        response = await self._ask(HelperRequestCode.COLD_QUERY, request)
        return _records(response.body)

    async def view(self, physical_offset: PhysicalOffset) -> ColdRecord | None:
        """Record by physical offset; see ColdReads."""
        request = ColdViewRequest(version=self._version, physical_offset=physical_offset)
        response = await self._ask(HelperRequestCode.COLD_VIEW, request)
        return next(iter(_records(response.body)), None)

    async def _minimum(self, topic: str, queue_id: int, expired_before_ms: int) -> ColdMinimumReply:
        if self.bounds(topic, queue_id) == NOTHING:
            return ColdMinimumReply(queue_offset=None, store_timestamp_ms=None)
        request = ColdMinimumRequest(
            version=self._version,
            incarnation=self._incarnation_of(topic),
            topic=topic,
            queue_id=queue_id,
            expired_before_ms=expired_before_ms,
        )
        response = await self._ask(HelperRequestCode.COLD_MINIMUM, request)
        return decode_body(response.body, ColdMinimumReply)

    async def _ask(self, code: HelperRequestCode, request: msgspec.Struct) -> RemotingCommand:
        if self._version < 0:
            raise UnavailableError("the cold tier has not reported yet")
        return await self._hub.ask(TIER_ROLE, code, request, timeout_ms=self._timeout_ms)


def _records(body: bytes | memoryview) -> list[ColdRecord]:
    return [
        ColdRecord(
            physical_offset=reply.physical_offset,
            topic=reply.topic,
            store_timestamp_ms=reply.store_timestamp_ms,
            record=reply.record,
        )
        for reply in msgspec.msgpack.decode(body, type=list[ColdRecordReply])
    ]
