"""Query: QUERY_MESSAGE 12, records of a topic by key, unique id or tag; hot and cold together, newest first.

    index process -> places in the log -> local records, each looked at -+
    tier process  -> records of the cold segments -----------------------+-> once each, newest first, at most maxNum

Index type (clients since 5.5): K a key, the default, U a unique id, T a tag. `_UNIQUE_KEY_QUERY` means U, whatever the
index type says. RocketMQ indexes unique ids among the keys, so K finds both.

Rules
  - A place that the index names may hold a message with another key of the same hash, or one that is not to be seen any
    more: it is left out.
  - A record in both tiers is one record: its place in the log says so.
  - The cold tier is asked unless the local answer is full, or a unique id was found; while it cannot be asked, the
    answer is a retryable error, as half an answer would look like a whole one.
  - At most `maxMsgsNumBatch` records and 8 MiB; for a unique id `defaultQueryMaxNum`, whatever the client says.
Source: QueryMessageProcessor.java, DefaultMessageStore.java (queryMessage), IndexService.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping

from thermocline.broker.cold import ColdKeyQuery, ColdReads, KeyIndex, KeyMatches, KeyQuery
from thermocline.broker.queues import LocalRecords, VisibleQueues
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.stats import BrokerStats
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.headers.read import QueryMessageRequestHeader, QueryMessageResponseHeader
from thermocline.remoting.offsets import LOG_START
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.remoting.records.properties import KEY_SEPARATOR
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

BODY_BYTES_MAX = 8 * 1024 * 1024

INDEX_KEY = "K"
INDEX_UNIQUE = "U"
INDEX_TAG = "T"


class QueryProcessor:
    """Serves messages by key."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        stats: BrokerStats,
        cold: ColdReads,
        visible: VisibleQueues,
        local: LocalRecords,
        index: KeyIndex,
    ) -> None:
        self._settings = settings
        self._stats = stats
        self._cold = cold
        self._visible = visible
        self._local = local
        self._index = index

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {RequestCode.QUERY_MESSAGE: self.query}

    async def query(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """12: records by key."""
        header = command.header(QueryMessageRequestHeader)
        is_unique = (header.unique_key_query or "").lower() == "true"
        index_type = INDEX_UNIQUE if is_unique else header.index_type or INDEX_KEY
        if index_type not in (INDEX_KEY, INDEX_UNIQUE, INDEX_TAG):
            raise InvalidRequestError("unknown index type", index_type=index_type)
        count_max = self._settings.broker.default_query_count if is_unique else header.max_num
        count_max = max(0, min(count_max, self._settings.broker.query_count_max))
        matches = await self._index.find(
            KeyQuery(
                topic=header.topic,
                key=header.key,
                index_type=index_type,
                begin_ms=header.begin_timestamp,
                end_ms=header.end_timestamp,
                count_max=count_max,
            )
        )
        found = self._local_records(header, index_type, matches)
        if len(found) < count_max and not (found and index_type == INDEX_UNIQUE):
            for physical_offset, record in (await self._cold_records(header, index_type, count_max)).items():
                found.setdefault(physical_offset, record)
        body = _newest_first(found, count_max)
        if not body:
            return RemotingCommand.response(
                command,
                ResponseCode.QUERY_NOT_FOUND,
                header=QueryMessageResponseHeader(index_last_update_timestamp=0, index_last_update_phyoffset=LOG_START),
                remark="can not find message, maybe time range not correct",
            )
        self._stats.looked_up_bytes += len(body)
        return RemotingCommand.response(
            command,
            header=QueryMessageResponseHeader(
                index_last_update_timestamp=matches.last_store_timestamp_ms,
                index_last_update_phyoffset=matches.last_physical_offset,
            ),
            body=body,
        )

    def _local_records(
        self, header: QueryMessageRequestHeader, index_type: str, matches: KeyMatches
    ) -> dict[int, bytes | memoryview]:
        found: dict[int, bytes | memoryview] = {}
        for physical_offset in matches.physical_offsets:
            record = self._local.find(physical_offset)
            if (
                record is not None
                and record.topic == header.topic
                and header.begin_timestamp <= record.store_timestamp_ms <= header.end_timestamp
                and _has_key(record, header.key, index_type)
            ):
                found[physical_offset] = self._local.bytes_of(record)
        return found

    async def _cold_records(
        self, header: QueryMessageRequestHeader, index_type: str, count_max: int
    ) -> dict[int, bytes | memoryview]:
        visible = self._visible
        records = await self._cold.query_keys(
            ColdKeyQuery(
                topic=header.topic,
                key=header.key,
                index_type=index_type,
                begin_ms=header.begin_timestamp,
                end_ms=header.end_timestamp,
                count_max=count_max,
                expired_before_ms=visible.expired_before_ms(header.topic),
            )
        )
        # Looked at after the answer has come: some may have expired on their way.
        cut_ms = visible.expired_before_ms(header.topic)
        return {found.physical_offset: found.record for found in records if found.store_timestamp_ms >= cut_ms}


def _has_key(record: MessageRecord, key: str, index_type: str) -> bool:
    if index_type == INDEX_TAG:
        return record.tags == key
    return record.unique_key == key or key in (record.keys or "").split(KEY_SEPARATOR)


def _newest_first(found: Mapping[int, bytes | memoryview], count_max: int) -> bytes:
    """The records one after the other, the one with the highest place in the log first."""
    records: list[bytes | memoryview] = []
    size_bytes = 0
    for physical_offset in sorted(found, reverse=True)[:count_max]:
        record = found[physical_offset]
        size_bytes += len(record)
        if records and size_bytes > BODY_BYTES_MAX:
            break
        records.append(record)
    return b"".join(records)
