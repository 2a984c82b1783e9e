"""Message processors: sends, pulls and lookups of messages, and the fast path."""

from thermocline.broker.processors.messages.cold_flow import ColdFlowProcessor
from thermocline.broker.processors.messages.hot_server import HotServer
from thermocline.broker.processors.messages.offset_lookup import OffsetLookupProcessor
from thermocline.broker.processors.messages.pull import PullProcessor
from thermocline.broker.processors.messages.query import QueryProcessor
from thermocline.broker.processors.messages.recall import RecallProcessor
from thermocline.broker.processors.messages.reply import ReplyProcessor
from thermocline.broker.processors.messages.send import SendProcessor
from thermocline.broker.processors.messages.send_back import SendBackProcessor
from thermocline.broker.processors.messages.topic_check import TopicCheck
from thermocline.broker.processors.messages.transaction import TransactionProcessor
from thermocline.broker.processors.messages.view import ViewProcessor

__all__ = [
    "ColdFlowProcessor",
    "HotServer",
    "OffsetLookupProcessor",
    "PullProcessor",
    "QueryProcessor",
    "RecallProcessor",
    "ReplyProcessor",
    "SendBackProcessor",
    "SendProcessor",
    "TopicCheck",
    "TransactionProcessor",
    "ViewProcessor",
]
