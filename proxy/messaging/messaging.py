"""Messaging: what a proxy asks of the brokers behind it; the seam under every protocol.

A protocol (gRPC, remoting, ...) translates its requests into these calls and their results and errors into its answers;
it decides nothing about messages. One implementation stands behind it (proxy/cluster/): the remoting protocol, to every
broker by the network, or to the one in whose process group the proxy runs by a unix socket.

Every call may raise
    TopicNotFoundError, GroupNotFoundError   there is none of the name
    BrokerNotFoundError                      no route names this broker
    PermissionDeniedError                    topic, group or broker forbid it
    BrokerBusyError                          flow control: retry
    RequestTimeoutError                      no answer in time; whether it was carried out is unknown
    UnavailableError                         not now
    MQError                                  the broker refused otherwise
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import msgspec

from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage
from thermocline.client.send_result import SendStatus
from thermocline.proxy.messaging.handles import ProxyHandle, TransactionHandle
from thermocline.proxy.messaging.topics import TopicQueues, TopicType
from thermocline.remoting.bodies import SubscriptionData, SubscriptionGroupConfig
from thermocline.remoting.errors import InvalidParameterError, MQError
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_id import decode_message_id
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.remoting.response_code import ResponseCode

__all__ = [
    "BrokerNotFoundError",
    "CheckReceiver",
    "HeldMessage",
    "Messaging",
    "OutgoingMessage",
    "PopOutcome",
    "PopStatus",
    "PulledMessages",
    "SendOutcome",
    "TransactionCheck",
]


class BrokerNotFoundError(InvalidParameterError):
    """No route names this broker."""


class OutgoingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message to store."""

    topic: str
    body: bytes
    properties_text: str
    unique_key: str
    sys_flag: int
    born_timestamp_ms: int
    reconsume_times: int | None = None
    max_reconsume_times: int | None = None
    message_type: TopicType = TopicType.NORMAL
    message_group: str = ""
    """Its messages are in order; empty: none."""


class SendOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message, or the first one of a batch, was stored, and how safely."""

    status: SendStatus
    queue: MessageQueue
    queue_offset: QueueOffset
    transaction_id: str
    recall_handle: str
    offset_message_id: str = ""
    """The broker's own ids of the messages, with commas between."""
    region: str = ""
    """The broker's, by its setting."""
    is_traced: bool = True
    """Whether the broker wants traces of its messages."""

    @property
    def physical_offset(self) -> PhysicalOffset:
        """Where the first message is in the broker's log.

        Raises:
            InvalidParameterError: The broker gave it no id that says it.
        """
        return decode_message_id(self.offset_message_id.partition(",")[0]).physical_offset


class HeldMessage(ReceivedMessage):
    """A popped message and the handle that it is acknowledged by."""

    __slots__ = ("handle",)

    def __init__(self, message: ReceivedMessage, handle: ProxyHandle) -> None:
        super().__init__(message.record, queue=message.queue)
        self.topic = message.topic
        self.reconsume_times = message.reconsume_times
        self.handle = handle


class PopStatus(Enum):
    """How a POP ended."""

    FOUND = "found"
    NOTHING = "nothing"
    POLLING_FULL = "polling full"


@dataclass(frozen=True, slots=True, kw_only=True)
class PopOutcome:
    """What a POP brought."""

    status: PopStatus
    messages: Sequence[HeldMessage] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledMessages:
    """What a pull brought, and where to go on."""

    messages: Sequence[ReceivedMessage]
    next_offset: QueueOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionCheck:
    """A broker asks how a transaction ended."""

    producer_group: str
    record: MessageRecord
    handle: TransactionHandle


class CheckReceiver(Protocol):
    """Takes the brokers' questions about transactions."""

    def transaction_checked(self, check: TransactionCheck) -> None:
        """Pass a question to a producer of the group; without one it is dropped, and the broker asks again."""


DOUBT_CODES = frozenset(
    {
        ResponseCode.NO_PERMISSION,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.GO_AWAY,
    }
)
"""What a broker answers that was the master before, among others."""


class Messaging(Protocol):
    """See the module. Belongs to one event loop."""

    async def start(self) -> None:
        """Begin. Brokers may still be away."""

    async def close(self) -> None:
        """End; idempotent."""

    # -- what there is -----------------------------------------------------------------------------------------------

    async def topic_queues(self, topic: str, *, group: str | None = "") -> TopicQueues:
        """Return a topic's queues, as they were some seconds ago; of several clusters those that are for the caller and
        this consumer group. `group`: empty: of a producer; None: the client has not said it yet."""

    async def broker_address(self, broker_name: str) -> str:
        """Return where a broker's master serves requests of the remoting protocol."""

    def doubt(self, address: str) -> None:
        """Note that the broker at this address does not serve, by an error or one of DOUBT_CODES: another one may be
        the master since. For what is asked by other connections than those of this object."""

    async def topic_type(self, topic: str, *, group: str | None = "", broker_name: str = "") -> TopicType:
        """Return a topic's type; NORMAL where it has none. Of several clusters: in that of the broker, if one is named,
        else as `topic_queues`."""

    async def group_config(
        self, group: str, *, topic: str = "", broker_name: str = ""
    ) -> SubscriptionGroupConfig | None:
        """Return a group's configuration; None where there is no such group. Of several clusters: in that of the
        broker, if one is named, else where the group consumes the topic."""

    # -- producing ---------------------------------------------------------------------------------------------------

    async def send(
        self, queue: MessageQueue, messages: Sequence[OutgoingMessage], *, producer_group: str, timeout_ms: int
    ) -> SendOutcome:
        """Store one message, or several as a batch, in a queue."""

    async def end_transaction(
        self,
        handle: TransactionHandle,
        *,
        topic: str,
        producer_group: str,
        message_id: str,
        state: int,
        is_check: bool,
        timeout_ms: int,
    ) -> None:
        """Commit, roll back or leave open a transaction; `state` as in the system flag."""

    async def recall(self, topic: str, recall_handle: str, *, timeout_ms: int) -> str:
        """Take back a message that waits for its time; its id."""

    def watch_transactions(self, producer_group: str, topic: str) -> None:
        """Have the topic's brokers ask this proxy about transactions of the group, until `unwatch_transactions`."""

    def unwatch_transactions(self, producer_group: str) -> None:
        """End it."""

    # -- consuming ---------------------------------------------------------------------------------------------------

    async def pop(
        self,
        broker_name: str,
        subscription: SubscriptionData,
        *,
        group: str,
        count_max: int,
        invisible_ms: int,
        await_ms: int,
        init_mode: int,
        in_order: bool,
        attempt_id: str | None,
        timeout_ms: int,
    ) -> PopOutcome:
        """Take messages from any queue of a broker, which waits for some up to `await_ms`."""

    async def ack(self, handle: ProxyHandle, *, topic: str, group: str, timeout_ms: int) -> None:
        """Acknowledge a message. Cancelling is safe: it is sent all the same."""

    def start_ack(
        self, handle: ProxyHandle, *, topic: str, group: str, timeout_ms: int
    ) -> asyncio.Future[MQError | None]:
        """Acknowledge a message: None when the broker has, else why not. Others may wait for the same future: never
        cancel it. For what acknowledges many, which needs no task for each then.

        Raises:
            MQError: No broker can be asked.
        """

    async def ack_all(self, handles: Sequence[ProxyHandle], *, topic: str, group: str, timeout_ms: int) -> None:
        """Acknowledge messages of one broker."""

    async def change_invisible(
        self, handle: ProxyHandle, *, topic: str, group: str, invisible_ms: int, timeout_ms: int
    ) -> ProxyHandle:
        """Keep a message invisible for so long from now on; its handle from now on."""

    async def stored_record(self, broker_name: str, physical_offset: int, *, timeout_ms: int) -> MessageRecord | None:
        """Return the message at a place in a broker's log; None when the proxy may not see it.

        Raises:
            InvalidRequestError: There is none.
        """

    async def send_back_dead(
        self, handle: ProxyHandle, *, topic: str, group: str, message_id: str, timeout_ms: int
    ) -> None:
        """Store a copy of a message in the group's dead-letter topic."""

    async def pull(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        *,
        group: str,
        offset: QueueOffset,
        count_max: int,
        await_ms: int,
        timeout_ms: int,
    ) -> PulledMessages:
        """Read messages from an offset on; the broker waits for some up to `await_ms`."""

    async def commit_offset(self, queue: MessageQueue, *, group: str, offset: QueueOffset, timeout_ms: int) -> None:
        """Set a group's consumer offset."""

    async def committed_offset(self, queue: MessageQueue, *, group: str, timeout_ms: int) -> QueueOffset | None:
        """Return a group's consumer offset; None where it has none."""

    async def is_queue_locked(self, queue: MessageQueue, *, group: str, timeout_ms: int) -> bool:
        """Whether a client of the group, which consumes in order, has locked the queue."""

    async def queue_offset(
        self, queue: MessageQueue, *, timestamp_ms: int | None, is_end: bool, timeout_ms: int
    ) -> QueueOffset:
        """Return the offset of the queue's end, of its first message, or of the first one stored at or after a time."""
