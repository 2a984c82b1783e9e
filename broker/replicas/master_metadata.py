"""Master metadata: the requests by which a slave fetches the tables of its master, one of RocketMQ or one of ours.

    21  GET_ALL_TOPIC_CONFIG              topics and mappings, in pages        60  GET_TIMER_CHECK_POINT
    201 GET_ALL_SUBSCRIPTIONGROUP_CONFIG  groups, in pages                     61  GET_TIMER_METRICS
    43  GET_ALL_CONSUMER_OFFSET                                                402 GET_ALL_MESSAGE_REQUEST_MODE
    45  GET_ALL_DELAY_OFFSET                                                   3005, 3010 users and policies
    TOPIC_INCARNATIONS                    where each topic begins in the log; brokers of RocketMQ do not have it
    REPLICA_SOURCE                        whose ledger the master writes; nor this
    28  GET_BROKER_RUNTIME_INFO           where its log ends

Rules
  - A page says which version its table has. Where that changes between two pages, the table is read again from its
    first page, READS_MAX times at most. A master before RocketMQ 5.4 sends all at once.
  - The first request for topics or groups is for one of them: its answer tells the version. The pages are requested
    only if that is another one.
Source: broker/out/BrokerOuterAPI.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

import msgspec

from thermocline.remoting.bodies import (
    DataVersion,
    KVTable,
    MessageRequestModes,
    SubscriptionGroupConfig,
    SubscriptionGroupTableBody,
    TopicConfig,
    TopicConfigTableBody,
    TopicQueueMappingDetail,
)
from thermocline.remoting.bodies.auth import AclInfo, AuthState, UserInfo
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import InvalidRequestError, ResponseError, UnavailableError
from thermocline.remoting.header_codec import Header
from thermocline.remoting.headers.broker import GetAllTopicConfigRequestHeader, GetAllTopicConfigResponseHeader
from thermocline.remoting.headers.group import (
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
)
from thermocline.remoting.json_dialect import loads_as
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.remoting.private_requests import PrivateRequestCode, ReplicaSourceAnswer
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.state import Incarnation, IncarnationTable

PAGE_SIZE = 2_000
READS_MAX = 5
TIMEOUT_MS = 3_000


Table = TypeVar("Table", TopicConfigTableBody, SubscriptionGroupTableBody)


class _Page(msgspec.Struct, Generic[Table], frozen=True):
    """A part of a table. `total`: how many members the table has; None: this is all of it."""

    table: Table
    count: int
    total: int | None


_Ask = Callable[[int, int, DataVersion | None], Awaitable[_Page[Table]]]
"""Asks for the members [start, start + count) of the table with that version."""


class MasterTopics(msgspec.Struct, frozen=True, kw_only=True):
    """All topics of a master."""

    version: DataVersion
    mapping_version: DataVersion
    topics: Mapping[str, TopicConfig]
    mappings: Mapping[str, TopicQueueMappingDetail]


class MasterGroups(msgspec.Struct, frozen=True, kw_only=True):
    """All groups of a master, and what they may not do."""

    version: DataVersion
    groups: Mapping[str, SubscriptionGroupConfig]
    forbidden: Mapping[str, dict[str, int]]


class MasterMetadata:
    """The tables of the master at one address. Every method may be cancelled.

    All of them raise
        UnavailableError: No answer, or the table changes too fast: try later.
        ResponseError: The master refuses.
        InvalidRequestError: The answer cannot be read.
    """

    def __init__(self, client: RemotingClient, address: str, *, timeout_ms: int = TIMEOUT_MS) -> None:
        """`client`: signs, and speaks TLS, as this broker does to other brokers."""
        self._client = client
        self._timeout_ms = timeout_ms
        self.address = address

    async def topics(self, *, version: DataVersion, mapping_version: DataVersion) -> MasterTopics | None:
        """Topics and mappings; None if they have the versions that are named."""
        probe = (await self._topic_page(0, 1, None)).table
        if (probe.data_version, _mapping_version(probe)) == (version, mapping_version):
            return None
        pages = await self._read_pages(self._topic_page)
        topics: dict[str, TopicConfig] = {}
        mappings: dict[str, TopicQueueMappingDetail] = {}
        for page in pages:
            topics |= page.topic_config_table
            mappings |= page.topic_queue_mapping_detail_map or {}
        for name, config in topics.items():
            config.topic_name = name
        for name, detail in mappings.items():
            detail.topic = name
        return MasterTopics(
            version=pages[-1].data_version,
            mapping_version=_mapping_version(pages[-1]),
            topics=topics,
            mappings=mappings,
        )

    async def incarnations(self) -> Mapping[str, Incarnation] | None:
        """The incarnations of all topics that requests have made or deleted; None from a broker of RocketMQ."""
        try:
            answer = await self._ask(PrivateRequestCode.TOPIC_INCARNATIONS)
        except ResponseError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise
        try:
            return IncarnationTable.decode(answer.body).incarnation_table
        except ValueError as error:
            raise InvalidRequestError("the master's incarnations cannot be read", reason=str(error)) from error

    async def source(self) -> ReplicaSourceAnswer | None:
        """Whose ledger the master writes; None from a broker of RocketMQ."""
        try:
            answer = await self._ask(PrivateRequestCode.REPLICA_SOURCE)
        except ResponseError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise
        try:
            return msgspec.json.decode(answer.body, type=ReplicaSourceAnswer)
        except msgspec.DecodeError as error:
            raise InvalidRequestError("the master's store cannot be read", reason=str(error)) from error

    async def groups(self, *, version: DataVersion) -> MasterGroups | None:
        """Groups; None if they have the version that is named."""
        if (await self._group_page(0, 1, None)).table.data_version == version:
            return None
        pages = await self._read_pages(self._group_page)
        groups: dict[str, SubscriptionGroupConfig] = {}
        forbidden: dict[str, dict[str, int]] = {}
        for page in pages:
            groups |= page.subscription_group_table
            forbidden |= page.forbidden_table
        for name, config in groups.items():
            config.group_name = name
        return MasterGroups(version=pages[-1].data_version, groups=groups, forbidden=forbidden)

    async def consumer_offsets(self) -> bytes:
        """The text that offsets_text.py reads."""
        return bytes((await self._ask(RequestCode.GET_ALL_CONSUMER_OFFSET)).body)

    async def delay_offsets(self) -> bytes:
        """Progress of the delay levels, as `delayOffset.json` has it."""
        return bytes((await self._ask(RequestCode.GET_ALL_DELAY_OFFSET)).body)

    async def request_modes(self) -> MessageRequestModes:
        """Which groups pop which topics."""
        return MessageRequestModes.decode((await self._ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)).body)

    async def timer_checkpoint(self) -> bytes:
        """RocketMQ's part of the file `timercheck`."""
        return bytes((await self._ask(RequestCode.GET_TIMER_CHECK_POINT)).body)

    async def timer_metrics(self) -> bytes:
        """The file `timermetrics`."""
        return bytes((await self._ask(RequestCode.GET_TIMER_METRICS)).body)

    async def log_end(self) -> PhysicalOffset:
        """Where the master's log ends, with what is not flushed or confirmed yet."""
        answer = await self._ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        text = KVTable.decode(answer.body).table.get("commitLogMaxOffset", "")
        if not text.isdecimal():
            raise InvalidRequestError("the master does not tell where its log ends", found=text)
        return PhysicalOffset(int(text))

    async def users_and_policies(self) -> AuthState:
        """All users, with their passwords if the client's credentials are those of a super user, and all policies."""
        users = await self._ask(RequestCode.AUTH_LIST_USER)
        policies = await self._ask(RequestCode.AUTH_LIST_ACL)
        return AuthState(
            users=loads_as(users.body, list[UserInfo]) if users.body else [],
            acls=loads_as(policies.body, list[AclInfo]) if policies.body else [],
        )

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _ask(self, code: int, header: Header | None = None) -> RemotingCommand:
        command = RemotingCommand.request(code, header)
        return await self._client.request(self.address, command, timeout_ms=self._timeout_ms)

    async def _read_pages(self, ask: _Ask[Table]) -> list[Table]:
        for _ in range(READS_MAX):
            page = await ask(0, PAGE_SIZE, None)
            tables, count = [page.table], page.count
            while page.total is not None and count < page.total:
                page = await ask(count, PAGE_SIZE, page.table.data_version)
                if not page.count or page.table.data_version != tables[0].data_version:
                    break
                tables.append(page.table)
                count += page.count
            else:
                return tables
        raise UnavailableError("a table of the master changes while it is read", master=self.address)

    async def _topic_page(self, start: int, count: int, version: DataVersion | None) -> _Page[TopicConfigTableBody]:
        header = GetAllTopicConfigRequestHeader(topic_seq=start, max_topic_num=count, data_version=_text(version))
        answer = await self._ask(RequestCode.GET_ALL_TOPIC_CONFIG, header)
        total = answer.header(GetAllTopicConfigResponseHeader).total_topic_num
        table = TopicConfigTableBody.decode(answer.body)
        return _Page(table, len(table.topic_config_table), total)

    async def _group_page(
        self, start: int, count: int, version: DataVersion | None
    ) -> _Page[SubscriptionGroupTableBody]:
        header = GetAllSubscriptionGroupRequestHeader(group_seq=start, max_group_num=count, data_version=_text(version))
        answer = await self._ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header)
        total = answer.header(GetAllSubscriptionGroupResponseHeader).total_group_num
        table = SubscriptionGroupTableBody.decode(answer.body)
        return _Page(table, len(table.subscription_group_table), total)


def _text(version: DataVersion | None) -> str:
    return "" if version is None else version.encode().decode()


def _mapping_version(table: TopicConfigTableBody) -> DataVersion:
    return table.mapping_data_version or DataVersion()
