"""Names of topics and groups."""

import pytest

from thermocline.remoting import topic_validation as names
from thermocline.remoting.errors import InvalidParameterError


@pytest.mark.parametrize("topic", ["a", "T-1_x|%", "t" * 127, "%RETRY%" + "g" * 248, "%DLQ%" + "g" * 250, "TBW102"])
def test_good_topics(topic: str) -> None:
    names.check_topic(topic)


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        ("", "The specified topic is blank."),
        (" \t", "The specified topic is blank."),
        ("a b", "The specified topic: a b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("a\n", "The specified topic: a\n, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("grün", "The specified topic: grün, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("../x", "The specified topic: ../x, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("t" * 128, f"The specified topic: {'t' * 128}, is longer than topic max length: 127"),
        (
            "%DLQ%" + "g" * 251,
            f"The specified topic is DLQ or Retry topic: %DLQ%{'g' * 251}, and it's longer than topic max length: 255",
        ),
    ],
)
def test_bad_topics(topic: str, remark: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        names.check_topic(topic)
    assert str(caught.value) == remark


def test_groups() -> None:
    names.check_group("g" * 120)
    for group in ("", " ", "a b", "g" * 121):
        with pytest.raises(InvalidParameterError):
            names.check_group(group)


def test_system_names() -> None:
    assert names.is_system_topic("TBW102")
    assert names.is_system_topic("rmq_sys_anything")
    assert not names.is_system_topic("Orders")
    assert names.is_system_group("CID_RMQ_SYS_x")
    assert names.is_system_group("TOOLS_CONSUMER")
    assert not names.is_system_group("orders")
    assert all(names.is_system_topic(topic) for topic in names.SEND_FORBIDDEN_TOPICS)
    assert names.TIMER_TOPIC in names.SEND_FORBIDDEN_TOPICS


def test_topics_of_a_group() -> None:
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.dlq_topic("g") == "%DLQ%g"
    assert names.is_retry_topic("%RETRY%g")
    assert not names.is_retry_topic("%DLQ%g")
    assert names.is_dlq_topic("%DLQ%g")
