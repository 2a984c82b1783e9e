"""Traffic: messages and bytes that passed the proxy, by topic, group, message type and protocol.

    in     by topic, message type and protocol           what brokers stored for clients of this proxy
    out    by topic, group and protocol, retries apart   what clients of this proxy were given

Labels are RocketMQ's. Bytes are those of bodies. A message that is given again counts again.
Bound: `topics_max` topics, and `pairs_max` pairs of topic and group, have labels of their own, those that come first;
the others are counted together under OTHER, and so are names that no topic can have, which a send without an answer may
say. So a counter never falls while the proxy runs.
Cost: one look-up and two additions for each request. Belongs to one event loop.
Source: BrokerMetricsManager.java, SendMessageProcessor.java, PopMessageProcessor.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from thermocline.remoting.topic_validation import RETRY_TOPIC_CHARACTERS_MAX, is_system_group, is_system_topic

__all__ = ["OTHER", "Protocol", "Traffic", "TrafficCount"]

OTHER = "*"
"""No topic and no group has this name."""


class Protocol(StrEnum):
    """By which clients use the proxy; RocketMQ's label `protocol_type`."""

    GRPC = "grpc"
    REMOTING = "remoting"


class TrafficCount(msgspec.Struct):
    """What passed since the start."""

    messages: int = 0
    size_bytes: int = 0


class Traffic:
    """See the module."""

    def __init__(self, *, topics_max: int, pairs_max: int) -> None:
        self._topics_max = topics_max
        self._pairs_max = pairs_max
        self._topics: set[str] = set()
        self._pairs: set[tuple[str, str]] = set()
        self._in: dict[tuple[Protocol, str, str], TrafficCount] = {}
        self._out: dict[tuple[Protocol, str, str, bool], TrafficCount] = {}

    def sent(self, protocol: Protocol, topic: str, message_type: str, *, count: int, size_bytes: int) -> None:
        """Count messages that a broker has stored."""
        found = self._in.get((protocol, topic, message_type))
        if found is None:
            if topic not in self._topics:
                if len(self._topics) < self._topics_max and len(topic) <= RETRY_TOPIC_CHARACTERS_MAX:
                    self._topics.add(topic)
                else:
                    topic = OTHER
            found = self._in.setdefault((protocol, topic, message_type), TrafficCount())
        found.messages += count
        found.size_bytes += size_bytes

    def received(
        self, protocol: Protocol, topic: str, group: str, *, is_retry: bool, count: int, size_bytes: int
    ) -> None:
        """Count messages that a client was given."""
        found = self._out.get((protocol, topic, group, is_retry))
        if found is None:
            if (topic, group) not in self._pairs:
                if len(self._pairs) < self._pairs_max:
                    self._pairs.add((topic, group))
                else:
                    topic = group = OTHER
            found = self._out.setdefault((protocol, topic, group, is_retry), TrafficCount())
        found.messages += count
        found.size_bytes += size_bytes

    def series_in(self) -> Iterator[tuple[dict[str, str], TrafficCount]]:
        """What was sent, by labels."""
        for (protocol, topic, message_type), found in self._in.items():
            labels = {
                "topic": topic,
                "message_type": message_type,
                "is_system": _text(is_system_topic(topic)),
                "protocol_type": protocol,
            }
            yield labels, found

    def series_out(self) -> Iterator[tuple[dict[str, str], TrafficCount]]:
        """What was received, by labels."""
        for (protocol, topic, group, is_retry), found in self._out.items():
            labels = {
                "topic": topic,
                "consumer_group": group,
                "is_retry": _text(is_retry),
                "is_system": _text(is_system_topic(topic) or is_system_group(group)),
                "protocol_type": protocol,
            }
            yield labels, found


def _text(is_so: bool) -> str:
    return str(is_so).lower()
