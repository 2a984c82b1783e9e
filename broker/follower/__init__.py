"""Follower: a broker on another's cold tier: read-only (`thermocline broker --read-only-from`), or a slave."""

from thermocline.broker.follower.followed_topics import TopicFollower
from thermocline.broker.follower.read_only_processor import ReadOnlyProcessor
from thermocline.broker.follower.slave_ledger import SlaveLedger
from thermocline.broker.follower.source import Source, find_source, make_read_only

__all__ = ["ReadOnlyProcessor", "SlaveLedger", "Source", "TopicFollower", "find_source", "make_read_only"]
