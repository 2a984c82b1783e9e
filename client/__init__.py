"""The SDK: producers, consumers and the admin client, each in a blocking and an asyncio half with the same names.

`thermocline` re-exports every name below. Nothing is imported before it is used, so that importing the package costs
nothing; `thermocline.client.testing.FakeBroker` is for users' own tests.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thermocline.client.admin.admin_client import AdminClient
    from thermocline.client.admin.async_admin_client import AsyncAdminClient
    from thermocline.client.admin.cold_read_limits import ColdReads
    from thermocline.client.admin.group_administration import EARLIEST, LATEST, QueueProgress
    from thermocline.client.admin.message_trace import TraceStep
    from thermocline.client.admin.topic_administration import QueueStats
    from thermocline.client.admin.traffic_statistics import Traffic
    from thermocline.client.consumer.allocation import (
        AllocateAveragely,
        AllocateAveragelyByCircle,
        AllocateByConfig,
        AllocateByConsistentHash,
        AllocateByMachineRoom,
        AllocateMachineRoomNearby,
        AllocationStrategy,
    )
    from thermocline.client.consumer.async_pop_consumer import AsyncPopConsumer
    from thermocline.client.consumer.async_pull_consumer import AsyncPullConsumer
    from thermocline.client.consumer.async_push_consumer import AsyncPushConsumer
    from thermocline.client.consumer.consumer_calls import PullResult, PullStatus
    from thermocline.client.consumer.listener import ConsumeContext, ConsumeResult, OrderlyContext, OrderlyResult
    from thermocline.client.consumer.options import ConsumeFromWhere, MessageModel
    from thermocline.client.consumer.pop_consumer import PopConsumer
    from thermocline.client.consumer.popped_message import PoppedMessage
    from thermocline.client.consumer.pull_consumer import PullConsumer
    from thermocline.client.consumer.push_consumer import PushConsumer
    from thermocline.client.credentials import Credentials, credentials_from_environment, credentials_from_file
    from thermocline.client.fan_out import PartialResultError, PeerFailure
    from thermocline.client.message import Message
    from thermocline.client.message_queue import MessageQueue
    from thermocline.client.producer.async_producer import AsyncProducer
    from thermocline.client.producer.async_transaction_producer import AsyncTransactionProducer
    from thermocline.client.producer.producer import Producer
    from thermocline.client.producer.queue_selector import (
        QueueSelector,
        SelectRandomly,
        select_by_hash,
        select_by_queue_id,
    )
    from thermocline.client.producer.send_many import SendManyError
    from thermocline.client.producer.transaction_producer import TransactionProducer
    from thermocline.client.producer.transactions import (
        AsyncTransactionListener,
        LocalTransactionState,
        TransactionListener,
        TransactionSendResult,
    )
    from thermocline.client.received_message import ReceivedMessage
    from thermocline.client.send_result import SendResult, SendStatus
    from thermocline.client.trace.trace_records import PublishTrace, SubscribeAfterTrace, SubscribeBeforeTrace
    from thermocline.remoting.errors import (
        ClosedError,
        CorruptDataError,
        InvalidRequestError,
        MQError,
        ObjectNotFoundError,
        ReplyTimeoutError,
        ResponseError,
        TopicNotFoundError,
        UnavailableError,
    )
    from thermocline.remoting.records.sys_flag import CompressionType
    from thermocline.remoting.tls import TlsOptions

__all__ = [
    "EARLIEST",
    "LATEST",
    "AdminClient",
    "AllocateAveragely",
    "AllocateAveragelyByCircle",
    "AllocateByConfig",
    "AllocateByConsistentHash",
    "AllocateByMachineRoom",
    "AllocateMachineRoomNearby",
    "AllocationStrategy",
    "AsyncAdminClient",
    "AsyncPopConsumer",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncPushConsumer",
    "AsyncTransactionListener",
    "AsyncTransactionProducer",
    "ClosedError",
    "ColdReads",
    "CompressionType",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeResult",
    "CorruptDataError",
    "Credentials",
    "InvalidRequestError",
    "LocalTransactionState",
    "MQError",
    "Message",
    "MessageModel",
    "MessageQueue",
    "ObjectNotFoundError",
    "OrderlyContext",
    "OrderlyResult",
    "PartialResultError",
    "PeerFailure",
    "PopConsumer",
    "PoppedMessage",
    "Producer",
    "PublishTrace",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "QueueProgress",
    "QueueSelector",
    "QueueStats",
    "ReceivedMessage",
    "ReplyTimeoutError",
    "ResponseError",
    "SelectRandomly",
    "SendManyError",
    "SendResult",
    "SendStatus",
    "SubscribeAfterTrace",
    "SubscribeBeforeTrace",
    "TlsOptions",
    "TopicNotFoundError",
    "TraceStep",
    "Traffic",
    "TransactionListener",
    "TransactionProducer",
    "TransactionSendResult",
    "UnavailableError",
    "credentials_from_environment",
    "credentials_from_file",
    "select_by_hash",
    "select_by_queue_id",
]

_HOMES = {
    "thermocline.client.admin.admin_client": ("AdminClient",),
    "thermocline.client.admin.async_admin_client": ("AsyncAdminClient",),
    "thermocline.client.admin.cold_read_limits": ("ColdReads",),
    "thermocline.client.admin.group_administration": ("EARLIEST", "LATEST", "QueueProgress"),
    "thermocline.client.admin.message_trace": ("TraceStep",),
    "thermocline.client.admin.topic_administration": ("QueueStats",),
    "thermocline.client.admin.traffic_statistics": ("Traffic",),
    "thermocline.client.consumer.allocation": (
        "AllocateAveragely",
        "AllocateAveragelyByCircle",
        "AllocateByConfig",
        "AllocateByConsistentHash",
        "AllocateByMachineRoom",
        "AllocateMachineRoomNearby",
        "AllocationStrategy",
    ),
    "thermocline.client.consumer.async_pop_consumer": ("AsyncPopConsumer",),
    "thermocline.client.consumer.async_pull_consumer": ("AsyncPullConsumer",),
    "thermocline.client.consumer.async_push_consumer": ("AsyncPushConsumer",),
    "thermocline.client.consumer.consumer_calls": ("PullResult", "PullStatus"),
    "thermocline.client.consumer.listener": ("ConsumeContext", "ConsumeResult", "OrderlyContext", "OrderlyResult"),
    "thermocline.client.consumer.options": ("ConsumeFromWhere", "MessageModel"),
    "thermocline.client.consumer.pop_consumer": ("PopConsumer",),
    "thermocline.client.consumer.popped_message": ("PoppedMessage",),
    "thermocline.client.consumer.pull_consumer": ("PullConsumer",),
    "thermocline.client.consumer.push_consumer": ("PushConsumer",),
    "thermocline.client.credentials": ("Credentials", "credentials_from_environment", "credentials_from_file"),
    "thermocline.client.fan_out": ("PartialResultError", "PeerFailure"),
    "thermocline.client.message": ("Message",),
    "thermocline.client.message_queue": ("MessageQueue",),
    "thermocline.client.producer.async_producer": ("AsyncProducer",),
    "thermocline.client.producer.async_transaction_producer": ("AsyncTransactionProducer",),
    "thermocline.client.producer.producer": ("Producer",),
    "thermocline.client.producer.queue_selector": (
        "QueueSelector",
        "SelectRandomly",
        "select_by_hash",
        "select_by_queue_id",
    ),
    "thermocline.client.producer.send_many": ("SendManyError",),
    "thermocline.client.producer.transaction_producer": ("TransactionProducer",),
    "thermocline.client.producer.transactions": (
        "AsyncTransactionListener",
        "LocalTransactionState",
        "TransactionListener",
        "TransactionSendResult",
    ),
    "thermocline.client.received_message": ("ReceivedMessage",),
    "thermocline.client.send_result": ("SendResult", "SendStatus"),
    "thermocline.client.trace.trace_records": ("PublishTrace", "SubscribeAfterTrace", "SubscribeBeforeTrace"),
    "thermocline.remoting.errors": (
        "ClosedError",
        "CorruptDataError",
        "InvalidRequestError",
        "MQError",
        "ObjectNotFoundError",
        "ReplyTimeoutError",
        "ResponseError",
        "TopicNotFoundError",
        "UnavailableError",
    ),
    "thermocline.remoting.records.sys_flag": ("CompressionType",),
    "thermocline.remoting.tls": ("TlsOptions",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
