"""Names of POP's retry topics."""

import pytest

from thermocline.remoting.handles.pop_topics import (
    RetryFlag,
    flagged_topic,
    normal_topic,
    pop_retry_topic_v1,
    pop_retry_topic_v2,
    retry_flag,
    revive_topic,
)


def test_retry_topics_are_named_as_rocketmq_names_them() -> None:
    assert pop_retry_topic_v1("ItPopPush_rec", "GitPopPush_rec") == "%RETRY%GitPopPush_rec_ItPopPush_rec"
    assert pop_retry_topic_v2("T", "G") == "%RETRY%G+T"
    assert revive_topic("DefaultCluster") == "rmq_sys_REVIVE_LOG_DefaultCluster"


@pytest.mark.parametrize(
    ("topic", "flag"),
    [("T", RetryFlag.NORMAL), ("%RETRY%G_T", RetryFlag.RETRY_V1), ("%RETRY%G+T", RetryFlag.RETRY_V2)],
)
def test_flag_and_topic_tell_each_other(topic: str, flag: RetryFlag) -> None:
    assert retry_flag(topic) is flag
    assert normal_topic(topic, "G") == "T"
    assert flagged_topic("T", "G", flag) == topic


def test_topics_of_other_groups_are_no_retry_topics_of_this_one() -> None:
    assert normal_topic("%RETRY%other_T", "G") == "%RETRY%other_T"
