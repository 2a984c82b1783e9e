"""Thermocline: an Apache RocketMQ compatible message broker whose history lives in object storage.

This package is also its SDK; the names below are those of `thermocline.client`, imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thermocline.client import (
        EARLIEST,
        LATEST,
        AdminClient,
        AllocateAveragely,
        AllocateAveragelyByCircle,
        AllocateByConfig,
        AllocateByConsistentHash,
        AllocateByMachineRoom,
        AllocateMachineRoomNearby,
        AllocationStrategy,
        AsyncAdminClient,
        AsyncPopConsumer,
        AsyncProducer,
        AsyncPullConsumer,
        AsyncPushConsumer,
        AsyncTransactionListener,
        AsyncTransactionProducer,
        ClosedError,
        CompressionType,
        ConsumeContext,
        ConsumeFromWhere,
        ConsumeResult,
        CorruptDataError,
        InvalidRequestError,
        LocalTransactionState,
        Message,
        MessageModel,
        MessageQueue,
        MQError,
        ObjectNotFoundError,
        OrderlyContext,
        OrderlyResult,
        PopConsumer,
        PoppedMessage,
        Producer,
        PullConsumer,
        PullResult,
        PullStatus,
        PushConsumer,
        QueueProgress,
        QueueSelector,
        QueueStats,
        ReceivedMessage,
        ReplyTimeoutError,
        ResponseError,
        SelectRandomly,
        SendManyError,
        SendResult,
        SendStatus,
        TopicNotFoundError,
        TransactionListener,
        TransactionProducer,
        TransactionSendResult,
        UnavailableError,
        select_by_hash,
        select_by_queue_id,
    )

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
    "CompressionType",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeResult",
    "CorruptDataError",
    "InvalidRequestError",
    "LocalTransactionState",
    "MQError",
    "Message",
    "MessageModel",
    "MessageQueue",
    "ObjectNotFoundError",
    "OrderlyContext",
    "OrderlyResult",
    "PopConsumer",
    "PoppedMessage",
    "Producer",
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
    "TopicNotFoundError",
    "TransactionListener",
    "TransactionProducer",
    "TransactionSendResult",
    "UnavailableError",
    "select_by_hash",
    "select_by_queue_id",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from thermocline import client

    return getattr(client, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
