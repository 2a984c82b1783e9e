"""The seam between protocols and brokers: see messaging.py."""

from thermocline.proxy.messaging.handles import HandleExpiredError, ProxyHandle, TransactionHandle
from thermocline.proxy.messaging.messaging import (
    BrokerNotFoundError,
    CheckReceiver,
    HeldMessage,
    Messaging,
    OutgoingMessage,
    PopOutcome,
    PopStatus,
    PulledMessages,
    SendOutcome,
    TransactionCheck,
)
from thermocline.proxy.messaging.pop_requests import pop_outcome, pop_request
from thermocline.proxy.messaging.topics import BrokerQueues, TopicQueues, TopicType, choose_by_group, read_topic_queues

__all__ = [
    "BrokerNotFoundError",
    "BrokerQueues",
    "CheckReceiver",
    "HandleExpiredError",
    "HeldMessage",
    "Messaging",
    "OutgoingMessage",
    "PopOutcome",
    "PopStatus",
    "ProxyHandle",
    "PulledMessages",
    "SendOutcome",
    "TopicQueues",
    "TopicType",
    "TransactionCheck",
    "TransactionHandle",
    "choose_by_group",
    "pop_outcome",
    "pop_request",
    "read_topic_queues",
]
