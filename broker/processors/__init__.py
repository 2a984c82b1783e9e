"""Processors: one for each family of requests; the dispatcher calls them."""

from thermocline.broker.processors.admin import AdminProcessor
from thermocline.broker.processors.assignment import AssignmentProcessor
from thermocline.broker.processors.client import ClientProcessor
from thermocline.broker.processors.consumer_call import ConsumerCallProcessor
from thermocline.broker.processors.consumer_offset import ConsumerOffsetProcessor
from thermocline.broker.processors.group import GroupProcessor
from thermocline.broker.processors.hand_off import HandOffProcessor
from thermocline.broker.processors.lock import LockProcessor
from thermocline.broker.processors.proxied_client import ProxiedClientProcessor
from thermocline.broker.processors.replica import WRITES, ReplicaProcessor, SlaveProcessor
from thermocline.broker.processors.runtime_info import RuntimeInfo
from thermocline.broker.processors.stats import StatsProcessor
from thermocline.broker.processors.topic import DEFAULT_REMARK, TopicProcessor

__all__ = [
    "DEFAULT_REMARK",
    "WRITES",
    "AdminProcessor",
    "AssignmentProcessor",
    "ClientProcessor",
    "ConsumerCallProcessor",
    "ConsumerOffsetProcessor",
    "GroupProcessor",
    "HandOffProcessor",
    "LockProcessor",
    "ProxiedClientProcessor",
    "ReplicaProcessor",
    "RuntimeInfo",
    "SlaveProcessor",
    "StatsProcessor",
    "TopicProcessor",
]
