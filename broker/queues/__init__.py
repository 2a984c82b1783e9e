"""Queues: the visible part of each queue, hot and cold, and look-ups in it."""

from thermocline.broker.queues.first_message import FirstMessages
from thermocline.broker.queues.local_records import LocalRecords
from thermocline.broker.queues.message_reader import MessageReader
from thermocline.broker.queues.queue_lookup import LOOKUP_GROUP, QueueLookup
from thermocline.broker.queues.remaining_messages import QueueContent, RemainingMessages
from thermocline.broker.queues.visible_queues import VisibleQueues

__all__ = [
    "LOOKUP_GROUP",
    "FirstMessages",
    "LocalRecords",
    "MessageReader",
    "QueueContent",
    "QueueLookup",
    "RemainingMessages",
    "VisibleQueues",
]
