"""Tier reads: answers the hot process's cold requests from the cold reader.

A request names the ledger version and the topic's incarnation that it relies on. When this process serves an older
version, or a later incarnation, it has no answer now (UnavailableError): the caller tries again rather than getting an
outdated answer. For an incarnation that is not in the ledger yet, or has ended there, the answer is empty: messages
stored there under the same name belong to a topic that was deleted.

Lookups by key are carried out a few at a time, and refused where many wait: each may hold some MiB of records.

A pull with an SQL92 expression is searched here. The first one in this process's life takes a quarter of a second more,
until what compiles expressions is loaded.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import msgspec

from thermocline.broker.cold import cold_reads
from thermocline.broker.helpers import (
    ColdMinimumReply,
    ColdMinimumRequest,
    ColdOffsetReply,
    ColdPullReply,
    ColdPullRequest,
    ColdQueryRequest,
    ColdRecordReply,
    ColdSearchRequest,
    ColdViewRequest,
    HelperRequestCode,
)
from thermocline.filters import CompiledFilterCache
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import QueryNotFoundError, UnavailableError, UnsupportedRequestError
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.message_record import decode_record
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.reading import Boundary, ColdPull, ColdPullResult, ColdPullStatus, ColdReader

TAG_INDEX_TYPE = "T"
UNIQUE_INDEX_TYPE = "U"
QUERY_BYTES_MAX = 8 * 1024 * 1024
"""Of an answer by key, as of the answer to the client."""
QUERIES_AT_ONCE = 4
QUERIES_MAX = 64
"""Lookups by key under way, those that wait for their turn included."""
QUERY_WAIT_S = 15.0
"""Who waits longer for a turn has no use for it: the hot process waits for 20 s in all."""
BOUNDARIES = {cold_reads.Boundary.LOWER: Boundary.LOWER, cold_reads.Boundary.UPPER: Boundary.UPPER}


class TierReads:
    """Cold requests of one broker. Belongs to the tier process's loop."""

    def __init__(self, reader: ColdReader, *, catalog: Callable[[], Catalog], cut_ms: Callable[[str], int]) -> None:
        """`catalog`: what is served now; `cut_ms`: a topic's TTL cut, for lookups that name no topic."""
        self._reader = reader
        self._catalog = catalog
        self._cut_ms = cut_ms
        self._filters = CompiledFilterCache()
        self._pulls: dict[str, set[asyncio.Task[object]]] = {}
        self._query_count = 0
        self._query_turn = asyncio.Semaphore(QUERIES_AT_ONCE)

    def reader_left(self, reader: str) -> None:
        """Cancel this reader's pulls, and the fetches made for it alone."""
        for task in self._pulls.pop(reader, ()):
            task.cancel()
        self._reader.reader_left(reader)

    async def handle(self, command: RemotingCommand) -> RemotingCommand:
        """One cold request.

        Raises:
            UnavailableError: No answer now.
            CorruptDataError: The stored data differs from the data written.
            SubscriptionParseError: A pull's expression is none.
            UnsupportedRequestError: It is none.
        """
        body = command.body
        match command.code:
            case HelperRequestCode.COLD_PULL:
                return await self._pull(command, msgspec.msgpack.decode(body, type=ColdPullRequest))
            case HelperRequestCode.COLD_OFFSET:
                search = msgspec.msgpack.decode(body, type=ColdSearchRequest)
                return _answer(command, ColdOffsetReply(queue_offset=await self._offset(search)))
            case HelperRequestCode.COLD_MINIMUM:
                return await self._minimum(command, msgspec.msgpack.decode(body, type=ColdMinimumRequest))
            case HelperRequestCode.COLD_QUERY:
                return _records(command, await self._query(msgspec.msgpack.decode(body, type=ColdQueryRequest)))
            case HelperRequestCode.COLD_VIEW:
                return _records(command, await self._view(msgspec.msgpack.decode(body, type=ColdViewRequest)))
        raise UnsupportedRequestError("not for the tier process", code=command.code)

    async def _pull(self, command: RemotingCommand, request: ColdPullRequest) -> RemotingCommand:
        pull = request.pull
        if not self._holds(request.version, pull.topic, request.incarnation):
            return RemotingCommand.response(command, header=ColdPullReply(message_count=0, next_offset=pull.offset))
        with self._reading(pull.reader):
            result = await self._find(pull)
        # Above what is held, or of a queue that holds nothing visible: the search ends where it began, or behind it.
        held = result.status in (ColdPullStatus.FOUND, ColdPullStatus.NO_MATCH, ColdPullStatus.BELOW_MINIMUM)
        reply = ColdPullReply(
            message_count=result.message_count,
            next_offset=result.next_offset if held else max(pull.offset, result.end_offset),
        )
        buffers = result.buffers
        records = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        return RemotingCommand.response(command, header=reply, body=records)

    @contextmanager
    def _reading(self, reader: str) -> Iterator[None]:
        """The calling task is cancelled when the reader leaves in this block."""
        task = asyncio.current_task()
        assert task is not None
        tasks = self._pulls.setdefault(reader, set())
        tasks.add(task)
        try:
            yield
        finally:
            tasks.discard(task)
            if not tasks and self._pulls.get(reader) is tasks:
                del self._pulls[reader]

    async def _find(self, pull: cold_reads.ColdPull) -> ColdPullResult:
        matches = self._filters.compile(pull.expression).matches_text if pull.expression else None
        return await self._reader.pull(
            ColdPull(
                topic=pull.topic,
                queue_id=pull.queue_id,
                offset=pull.offset,
                count_max=pull.count_max,
                bytes_max=pull.bytes_max,
                cut_ms=pull.expired_before_ms,
                tags_codes=pull.codes,
                matches=matches,
                group=pull.group,
                reader=pull.reader,
            )
        )

    async def _offset(self, request: ColdSearchRequest) -> QueueOffset | None:
        search = request.search
        if not self._holds(request.version, search.topic, request.incarnation):
            return None
        return await self._reader.offset_by_time(
            search.topic,
            search.queue_id,
            search.timestamp_ms,
            boundary=BOUNDARIES[search.boundary],
            cut_ms=search.expired_before_ms,
        )

    async def _minimum(self, command: RemotingCommand, request: ColdMinimumRequest) -> RemotingCommand:
        if not self._holds(request.version, request.topic, request.incarnation):
            return _answer(command, ColdMinimumReply(queue_offset=None, store_timestamp_ms=None))
        topic, queue_id, cut_ms = request.topic, request.queue_id, request.expired_before_ms
        reply = ColdMinimumReply(
            queue_offset=await self._reader.min_offset(topic, queue_id, cut_ms=cut_ms),
            store_timestamp_ms=await self._reader.earliest_time(topic, queue_id, cut_ms=cut_ms),
        )
        return _answer(command, reply)

    async def _query(self, request: ColdQueryRequest) -> list[memoryview]:
        query = request.query
        if query.index_type == TAG_INDEX_TYPE:
            return []  # the cold index files unique ids and keys; tags are found by pulling with a filter
        async with self._turn(query.topic):
            if not self._holds(request.version, query.topic, request.incarnation):
                return []
            return await self._reader.query_key(
                query.topic,
                query.key,
                begin_ms=query.begin_ms,
                end_ms=query.end_ms,
                count_max=query.count_max,
                cut_ms=query.expired_before_ms,
                bytes_max=QUERY_BYTES_MAX,
                is_unique=query.index_type == UNIQUE_INDEX_TYPE,
            )

    @asynccontextmanager
    async def _turn(self, topic: str) -> AsyncIterator[None]:
        """The block is one of the lookups by key under way. UnavailableError if its turn does not come in time."""
        if self._query_count >= QUERIES_MAX:
            raise UnavailableError("too many lookups by key are under way", topic=topic)
        self._query_count += 1
        try:
            try:
                async with asyncio.timeout(QUERY_WAIT_S):
                    await self._query_turn.acquire()
            except TimeoutError as error:
                raise UnavailableError("lookups by key take long, others come first", topic=topic) from error
            try:
                yield
            finally:
                self._query_turn.release()
        finally:
            self._query_count -= 1

    async def _view(self, request: ColdViewRequest) -> list[memoryview]:
        self._check_version(request.version)
        try:
            return [await self._reader.view(request.physical_offset, cut_ms=self._cut_ms)]
        except QueryNotFoundError:
            return []

    def _holds(self, version: int, topic: str, incarnation: int) -> bool:
        """Whether any segment of this incarnation is held. UnavailableError when the caller's incarnation is older."""
        self._check_version(version)
        entry = self._catalog().topics.get(topic)
        if entry is None or entry.incarnation < incarnation:
            return False
        if entry.incarnation > incarnation:
            raise UnavailableError("the topic is changing", topic=topic, incarnation=incarnation)
        return not entry.deleted

    def _check_version(self, version: int) -> None:
        served = self._catalog().version
        if served < version:
            raise UnavailableError("an older version is served", version=served, wanted=version)


def _answer(command: RemotingCommand, reply: msgspec.Struct) -> RemotingCommand:
    return RemotingCommand.response(command, body=msgspec.msgpack.encode(reply))


def _records(command: RemotingCommand, records: list[memoryview]) -> RemotingCommand:
    replies: list[ColdRecordReply] = []
    for record in records:
        head = decode_record(record, check_crc=False)
        replies.append(
            ColdRecordReply(
                physical_offset=head.physical_offset,
                topic=head.topic,
                store_timestamp_ms=head.store_timestamp_ms,
                record=bytes(record),
            )
        )
    return RemotingCommand.response(command, body=msgspec.msgpack.encode(replies))
