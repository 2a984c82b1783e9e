"""Bodies about connected clients: heartbeats, queue locks, who is connected.

Source: HeartbeatData.java, SubscriptionData.java and the body classes of the same names, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from msgspec import field, structs

from thermocline.remoting.bodies.body import Body, FrozenBody
from thermocline.remoting.bodies.topic import MessageQueue
from thermocline.remoting.header_codec import Int, Long
from thermocline.remoting.json_conversion import convert, enum_names, folded_name
from thermocline.remoting.json_dialect import read_exactly
from thermocline.remoting.language_code import LanguageCode

SUBSCRIBE_ALL = "*"
EXPRESSION_TAG = "TAG"
EXPRESSION_SQL92 = "SQL92"

CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
CONSUME_POP = "CONSUME_POP"
CLUSTERING = "CLUSTERING"
BROADCASTING = "BROADCASTING"

ConsumeFromWhereName = Annotated[
    str,
    enum_names(
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ),
]
ConsumeTypeName = Annotated[str, enum_names(CONSUME_ACTIVELY, CONSUME_PASSIVELY, CONSUME_POP)]
LanguageName = Annotated[str, enum_names(*(language.name for language in LanguageCode))]
MessageModelName = Annotated[str, enum_names(BROADCASTING, CLUSTERING, "LITE_SELECTIVE")]
MessageRequestModeName = Annotated[str, enum_names("PULL", "POP")]


class SubscriptionData(Body, kw_only=True):
    """One group's subscription to one topic. Equality is by every member; see `subscription.py` for making one."""

    class_filter_mode: bool = False
    code_set: set[Int] = field(default_factory=set)
    expression_type: str = EXPRESSION_TAG
    sub_string: str = SUBSCRIBE_ALL
    sub_version: Long = 0
    tags_set: set[str] = field(default_factory=set)
    topic: str = ""


class ProducerData(FrozenBody, frozen=True, kw_only=True):
    """One producer group of a client."""

    group_name: str = ""


class ConsumerData(Body, kw_only=True):
    """One consumer group of a client."""

    consume_from_where: ConsumeFromWhereName = "CONSUME_FROM_LAST_OFFSET"
    consume_type: ConsumeTypeName = CONSUME_PASSIVELY
    group_name: str = ""
    message_model: MessageModelName = CLUSTERING
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


class HeartbeatData(Body, kw_only=True):
    """The request body of HEART_BEAT; a fingerprint other than 0 makes it a heartbeat V2."""

    client_id: str = field(default="", name="clientID")
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: Int = 0
    producer_data_set: list[ProducerData] = field(default_factory=list)
    without_sub: bool = False

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        """As every body; without a client id, members are also found by names in another case or with separators.

        A client in C# writes `ClientID` and `GroupName`. The decoder of RocketMQ's releases before 5.5.0 reads that.
        """
        found = super().decode(data)
        if found.client_id:
            return found
        return convert(_with_official_names(read_exactly(data)), cls)


def _with_official_names(value: Any) -> Any:
    """A part of a heartbeat with the names of its members as RocketMQ writes them; a name written so counts most."""
    if isinstance(value, list):
        return [_with_official_names(item) for item in value]
    if not isinstance(value, dict):
        return value
    renamed: dict[Any, Any] = {}
    for name, member in value.items():
        official = _OFFICIAL_NAMES.get(folded_name(name), name) if isinstance(name, str) else name
        if official == name or official not in value:
            renamed[official] = _with_official_names(member)
    return renamed


_OFFICIAL_NAMES = {
    folded_name(each.encode_name): each.encode_name
    for part in (HeartbeatData, ConsumerData, ProducerData, SubscriptionData)
    for each in structs.fields(part)
}


class CheckClientRequestBody(Body, kw_only=True):
    """The request body of CHECK_CLIENT_CONFIG."""

    client_id: str = ""
    group: str = ""
    namespace: str | None = None
    subscription_data: SubscriptionData | None = None


class GetConsumerListByGroupResponseBody(Body, kw_only=True):
    """The answer to GET_CONSUMER_LIST_BY_GROUP."""

    consumer_id_list: list[str] = field(default_factory=list)


class LockBatchRequestBody(Body, kw_only=True):
    """The request body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    client_id: str = ""
    consumer_group: str = ""
    mq_set: list[MessageQueue] = field(default_factory=list)
    only_this_broker: bool = False


UnlockBatchRequestBody = LockBatchRequestBody


class LockBatchResponseBody(Body, kw_only=True):
    """The answer to LOCK_BATCH_MQ."""

    lock_ok_mq_set: list[MessageQueue] = field(default_factory=list, name="lockOKMQSet")


class ClientConnection(Body, kw_only=True):
    """One connected client, as tools show it."""

    client_addr: str = ""
    client_id: str = ""
    language: LanguageName = "OTHER"
    version: Int = 0


class ConsumerConnection(Body, kw_only=True):
    """The answer to GET_CONSUMER_CONNECTION_LIST."""

    connection_set: list[ClientConnection] = field(default_factory=list)
    consume_from_where: ConsumeFromWhereName | None = None
    consume_type: ConsumeTypeName | None = None
    message_model: MessageModelName | None = None
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)


class ProducerConnection(Body, kw_only=True):
    """The answer to GET_PRODUCER_CONNECTION_LIST."""

    connection_set: list[ClientConnection] = field(default_factory=list)


class ProducerInfo(Body, kw_only=True):
    """One connected producer."""

    client_id: str = ""
    language: LanguageName = "OTHER"
    last_update_timestamp: Long = 0
    remote_ip: str = field(default="", name="remoteIP")
    version: Int = 0


class ProducerTableInfo(Body, kw_only=True):
    """The answer to GET_ALL_PRODUCER_INFO."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


class QueryAssignmentRequestBody(Body, kw_only=True):
    """The request body of QUERY_ASSIGNMENT."""

    client_id: str = ""
    consumer_group: str = ""
    message_model: MessageModelName = CLUSTERING
    strategy_name: str | None = None
    topic: str = ""


class MessageQueueAssignment(Body, kw_only=True):
    """One queue that a client is to consume."""

    attachments: dict[str, str] | None = None
    message_queue: MessageQueue | None = None
    mode: MessageRequestModeName = "PULL"


class QueryAssignmentResponseBody(Body, kw_only=True):
    """The answer to QUERY_ASSIGNMENT."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None
