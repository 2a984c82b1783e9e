"""Cold runs: records that the tier process has sent beyond the limit of one pull, kept for the pulls that follow.

    first pull, or a jump                sent to the tier process unchanged
    a pull where the last one ended      requests a run of `RUN_BYTES`; the client's part is cut off its front
    the pulls after that                 cut from the run at once, without a request

Clients pull 32 messages at a time, a few KiB when messages are small: one round trip to the tier process for each would
cost more than all other work.

Rules
  - A reader is a group on one queue of one incarnation of a topic, without any filter. The message at an offset
    never changes within an incarnation, so a run is never out of date. The caller cuts off records that expire
    while it is kept.
  - One run a reader, and one request at a time: the next pull of the same run waits for the answer to the one before. A
    pull at another offset (of another member of the group) is requested on its own meanwhile.
  - When the client that requested a run disconnects, the run is deleted (`forget`).
  - Bounded: `bytes_max` in all and `READERS_MAX` readers; those used longest ago are forgotten.
Belongs to the hot process's loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import msgspec

from thermocline.broker.cold.cold_reads import ColdPull, ColdPullResult
from thermocline.remoting.offsets import NO_QUEUE_OFFSET, QueueOffset
from thermocline.remoting.records.message_record import INT, LONG, POSITION_QUEUE_OFFSET, POSITION_SIZE

RUN_BYTES = 256 * 1024
"""The most bytes of one answer to a client by default; more would block the loop for longer."""
RUN_RECORDS_MAX = 8192
RUNS_BYTES_MAX = 16 * 1024 * 1024
READERS_MAX = 4096

ReaderKey = tuple[str, str, int, int]
"""Group, topic, incarnation, queue id."""


class _Reader:
    """Where a reader goes on, and the records from there on, as far as they are kept."""

    __slots__ = ("asked_offset", "client", "data", "lock", "next_offset", "position")

    def __init__(self) -> None:
        self.next_offset = NO_QUEUE_OFFSET
        self.client = ""
        self.data: bytes | memoryview = b""
        self.position = 0
        self.asked_offset: QueueOffset | None = None
        self.lock = asyncio.Lock()

    def keep(self, data: bytes | memoryview, *, next_offset: QueueOffset) -> None:
        """Go on at `next_offset` with these records, or with none."""
        self.data, self.position, self.next_offset = data, 0, next_offset

    def cut(self, count_max: int, bytes_max: int) -> tuple[memoryview, int]:
        """Cut records off the front, at least one; return them and their number."""
        data, start, data_end, unpack_from = self.data, self.position, len(self.data), INT.unpack_from
        end, stop, count = start, start + bytes_max, 0
        while count < count_max and end < data_end:
            following = end + unpack_from(data, end + POSITION_SIZE)[0]
            if count and following > stop:
                break
            end = following
            count += 1
        assert count
        assert end <= data_end
        self.next_offset += count
        self.position = end
        records = memoryview(data)[start:end]
        if end == data_end:
            self.data, self.position = b"", 0
        return records, count


class ColdRuns:
    """See the module's header."""

    def __init__(
        self,
        ask: Callable[[ColdPull, int], Awaitable[ColdPullResult]],
        *,
        run_bytes: int = RUN_BYTES,
        bytes_max: int = RUNS_BYTES_MAX,
    ) -> None:
        """`ask(pull, incarnation)` asks the tier process."""
        self._ask = ask
        self._run_bytes = run_bytes
        self._bytes_max = bytes_max
        self._readers: OrderedDict[ReaderKey, _Reader] = OrderedDict()
        self.size_bytes = 0

    def held(self, pull: ColdPull, incarnation: int) -> ColdPullResult | None:
        """The answer to a pull from the kept run; None when the tier process must be asked."""
        if pull.codes or pull.expression:
            return None
        reader = self._readers.get(_key(pull, incarnation))
        return None if reader is None else self._cut_run(reader, pull)

    async def pull(self, pull: ColdPull, incarnation: int) -> ColdPullResult:
        """The answer to any pull. Cancelling is safe. Raises what `ask` raises."""
        if pull.codes or pull.expression:
            return await self._ask(pull, incarnation)
        key = _key(pull, incarnation)
        reader = self._readers.get(key)
        if reader is None:
            reader = self._readers[key] = _Reader()
            self._forget_oldest()
        self._readers.move_to_end(key)
        asked_offset = reader.asked_offset
        if asked_offset is not None and not asked_offset < pull.offset <= asked_offset + RUN_RECORDS_MAX:
            return await self._ask(pull, incarnation)
        async with reader.lock:
            result = self._cut_run(reader, pull)
            if result is not None:
                return result
            reader.asked_offset = pull.offset
            try:
                return await self._read_on(key, reader, pull)
            finally:
                reader.asked_offset = None

    async def _read_on(self, key: ReaderKey, reader: _Reader, pull: ColdPull) -> ColdPullResult:
        """Ask for a run if the pull goes on where the last one ended, else for just what it wants."""
        _, _, incarnation, _ = key
        is_sequential = reader.next_offset == pull.offset
        reader.client = pull.reader
        self._keep(reader, b"", next_offset=pull.offset)
        if not is_sequential:
            return await self._ask_this(reader, pull, incarnation)
        wanted = msgspec.structs.replace(
            pull,
            count_max=max(pull.count_max, RUN_RECORDS_MAX),
            bytes_max=max(pull.bytes_max, self._run_bytes),
        )
        result = await self._ask(wanted, incarnation)
        if not result.message_count:
            reader.next_offset = result.next_offset
            return result
        data = result.records[0] if len(result.records) == 1 else b"".join(result.records)
        # What has expired in front of the first record is passed by.
        first_offset: QueueOffset = LONG.unpack_from(data, POSITION_QUEUE_OFFSET)[0]
        if first_offset + result.message_count != result.next_offset:
            # Expired ones are missing between the others: store times fall in a log that RocketMQ wrote while its
            # clock was set back. A run cannot say which, so the client gets what it wants of them, and no run.
            return await self._ask_this(reader, pull, incarnation)
        if self._readers.setdefault(key, reader) is not reader:
            reader = _Reader()  # forgotten while it asked, and there is another: what the client may have is enough
            reader.keep(data, next_offset=first_offset)
            return _cut(reader, pull)
        self._keep(reader, data, next_offset=first_offset)
        taken = _cut(reader, pull)
        self.size_bytes += len(reader.data) - len(data)
        self._forget_oldest()
        return taken

    async def _ask_this(self, reader: _Reader, pull: ColdPull, incarnation: int) -> ColdPullResult:
        """Ask for just what a pull wants."""
        result = await self._ask(pull, incarnation)
        reader.next_offset = result.next_offset
        return result

    def forget(self, client: str) -> None:
        """Drop what is kept for pulls of this client."""
        for reader in self._readers.values():
            if reader.client == client:
                self._keep(reader, b"", next_offset=NO_QUEUE_OFFSET)

    def _cut_run(self, reader: _Reader, pull: ColdPull) -> ColdPullResult | None:
        if reader.next_offset != pull.offset or not reader.data:
            return None
        size_bytes = len(reader.data)
        result = _cut(reader, pull)
        self.size_bytes += len(reader.data) - size_bytes
        return result

    def _keep(self, reader: _Reader, data: bytes | memoryview, *, next_offset: QueueOffset) -> None:
        self.size_bytes += len(data) - len(reader.data)
        reader.keep(data, next_offset=next_offset)

    def _forget_oldest(self) -> None:
        while self.size_bytes > self._bytes_max or len(self._readers) > READERS_MAX:
            _, reader = self._readers.popitem(last=False)
            self._keep(reader, b"", next_offset=NO_QUEUE_OFFSET)


def _cut(reader: _Reader, pull: ColdPull) -> ColdPullResult:
    """Cut the client's part off the front of the kept records."""
    records, count = reader.cut(pull.count_max, pull.bytes_max)
    return ColdPullResult(records=(records,), message_count=count, next_offset=reader.next_offset)


def _key(pull: ColdPull, incarnation: int) -> ReaderKey:
    return pull.group, pull.topic, incarnation, pull.queue_id
