"""Follower: a read-only broker on another's cold tier (`thermocline broker --read-only-from`)."""

from thermocline.broker.follower.followed_topics import TopicFollower
from thermocline.broker.follower.read_only_processor import ReadOnlyProcessor
from thermocline.broker.follower.source import Source, find_source, make_read_only

__all__ = ["ReadOnlyProcessor", "Source", "TopicFollower", "find_source", "make_read_only"]
