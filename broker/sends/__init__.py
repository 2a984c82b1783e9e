"""Sends: the queues that messages are sent to, the broker's own messages, and answers after a flush."""

from thermocline.broker.sends.acknowledgements import Acknowledgements
from thermocline.broker.sends.flushed_answer import FlushedAnswers
from thermocline.broker.sends.message_appender import MessageAppender
from thermocline.broker.sends.send_targets import SendTargets

__all__ = ["Acknowledgements", "FlushedAnswers", "MessageAppender", "SendTargets"]
