"""The seam between protocols and brokers: see messaging.py."""

from thermocline.proxy.messaging.caller import CALLER, Caller
from thermocline.proxy.messaging.cluster_parts import info_of_cluster, route_in_cluster
from thermocline.proxy.messaging.handles import HandleExpiredError, ProxyHandle, TransactionHandle
from thermocline.proxy.messaging.messaging import (
    DOUBT_CODES,
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
    "CALLER",
    "DOUBT_CODES",
    "BrokerNotFoundError",
    "BrokerQueues",
    "Caller",
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
    "info_of_cluster",
    "pop_outcome",
    "pop_request",
    "read_topic_queues",
    "route_in_cluster",
]
