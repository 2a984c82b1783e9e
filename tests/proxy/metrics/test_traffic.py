"""Counts of messages by topic, group and protocol: their sums, and the bound on their labels."""

from __future__ import annotations

from thermocline.proxy.metrics import Protocol, Traffic
from thermocline.proxy.metrics.traffic import OTHER


def test_counts_add_up_by_topic_type_and_protocol() -> None:
    traffic = Traffic(topics_max=10, pairs_max=10)
    for protocol, topic, kind in (
        (Protocol.GRPC, "Orders", "normal"),
        (Protocol.GRPC, "Orders", "normal"),
        (Protocol.GRPC, "Orders", "fifo"),
        (Protocol.REMOTING, "Orders", "normal"),
        (Protocol.REMOTING, "RMQ_SYS_TRACE_TOPIC", "normal"),
    ):
        traffic.sent(protocol, topic, kind, count=2, size_bytes=5)
    found = {tuple(labels.values()): (count.messages, count.size_bytes) for labels, count in traffic.series_in()}
    assert found == {
        ("Orders", "normal", "false", "grpc"): (4, 10),
        ("Orders", "fifo", "false", "grpc"): (2, 5),
        ("Orders", "normal", "false", "remoting"): (2, 5),
        ("RMQ_SYS_TRACE_TOPIC", "normal", "true", "remoting"): (2, 5),
    }


def test_retries_are_counted_apart() -> None:
    traffic = Traffic(topics_max=10, pairs_max=10)
    for is_retry in (False, True, False):
        traffic.received(Protocol.GRPC, "Orders", "billing", is_retry=is_retry, count=1, size_bytes=7)
    found = {tuple(labels.values()): (count.messages, count.size_bytes) for labels, count in traffic.series_out()}
    assert found == {
        ("Orders", "billing", "false", "false", "grpc"): (2, 14),
        ("Orders", "billing", "true", "false", "grpc"): (1, 7),
    }


def test_names_beyond_the_bound_are_counted_together() -> None:
    """A million topics make as many series as three."""
    traffic = Traffic(topics_max=2, pairs_max=2)
    for number in range(100):
        traffic.sent(Protocol.GRPC, f"topic-{number}", "normal", count=1, size_bytes=1)
        traffic.received(Protocol.GRPC, "topic-0", f"group-{number}", is_retry=False, count=1, size_bytes=1)
    traffic.sent(Protocol.REMOTING, "topic-1", "normal", count=1, size_bytes=1)
    sent = [(labels["topic"], labels["protocol_type"], count.messages) for labels, count in traffic.series_in()]
    assert sorted(sent) == [
        (OTHER, "grpc", 98),
        ("topic-0", "grpc", 1),
        ("topic-1", "grpc", 1),
        ("topic-1", "remoting", 1),
    ]
    given = [(labels["topic"], labels["consumer_group"], count.messages) for labels, count in traffic.series_out()]
    assert sorted(given) == [(OTHER, OTHER, 98), ("topic-0", "group-0", 1), ("topic-0", "group-1", 1)]


def test_a_name_that_no_topic_can_have_gets_no_label() -> None:
    """A send that is not answered may name it, and it may be as long as a frame."""
    traffic = Traffic(topics_max=2, pairs_max=2)
    traffic.sent(Protocol.REMOTING, "x" * 256, "normal", count=1, size_bytes=1)
    assert [labels["topic"] for labels, _ in traffic.series_in()] == [OTHER]


def test_no_label_at_all() -> None:
    traffic = Traffic(topics_max=0, pairs_max=0)
    traffic.sent(Protocol.GRPC, "Orders", "normal", count=1, size_bytes=1)
    traffic.received(Protocol.GRPC, "Orders", "billing", is_retry=False, count=1, size_bytes=1)
    assert [labels["topic"] for labels, _ in (*traffic.series_in(), *traffic.series_out())] == [OTHER, OTHER]
