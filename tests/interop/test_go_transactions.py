"""The official Go client's transactions: commit, rollback, unknown and asked about."""

from __future__ import annotations

import pytest

from tests.interop.go_driver import TAGS, GoDriver, indexes
from tests.interop.java_agent import message_body
from tests.waiting import wait_until

pytestmark = [pytest.mark.go, pytest.mark.xdist_group("interop-go")]


def test_committed_messages_arrive_and_others_do_not(go: GoDriver) -> None:
    topic = go.make_topic(queue_nums=2)
    consumer = go.push()
    answers = go.transact(count=30, local=["commit", "rollback", "commit"], check=["commit"], tags=TAGS)
    assert {answer["status"] for answer in answers} == {"SEND_OK"}
    assert [answer["state"] for answer in answers[:3]] == ["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "COMMIT_MESSAGE"]
    received = go.received(consumer, count=20)
    assert sorted(indexes(received)) == [index for index in range(30) if index % 3 != 1]
    for message in received:
        (index,) = indexes([message])
        assert message.body == message_body(topic, index)
        assert (message.topic, message.tags, message.keys) == (topic, TAGS[index % 3], f"{topic}-key-{index}")
        assert message.message_id == answers[index]["message_id"]
        assert message.sys_flag & 0xC == 8
        assert message.properties["TRAN_MSG"] == "true"
        assert message.properties["PGROUP"] == f"{topic}-producers"
        assert not {"REAL_TOPIC", "REAL_QID"} & message.properties.keys()
    # Nothing was left to ask about, and what was rolled back stays away.
    assert go.checks() == {}
    assert go.received(consumer, count=0) == []


def test_an_undecided_transaction_is_checked_until_it_is_decided(go: GoDriver) -> None:
    go.make_topic(queue_nums=2)
    consumer = go.push()
    go.transact(count=8, local=["unknown"], check=["commit", "rollback", "unknown,commit", "unknown,rollback"])
    received = go.received(consumer, count=4)
    wait_until(
        lambda: go.checks() == {index: 1 + index % 4 // 2 for index in range(8)},
        what="the last are asked about a second time",
    )
    # What comes behind them shows that they came once, and the others never.
    go.transact(count=1, start=8, local=["commit"], check=["rollback"])
    received += go.received(consumer, count=1)
    assert sorted(indexes(received)) == [0, 2, 4, 6, 8]


def test_another_producer_of_the_group_is_asked(go: GoDriver) -> None:
    go.make_topic(queue_nums=2)
    consumer = go.push()
    go.transact("one", count=4, local=["unknown"], check=["commit"])
    go.stop_transactor("one")
    # A Go producer is known to a broker only after it has sent something.
    go.transact("two", count=1, start=4, local=["commit"], check=["rollback"])
    assert sorted(indexes(go.received(consumer, count=5))) == [0, 1, 2, 3, 4]
    assert go.checks("two").keys() <= {0, 1, 2, 3}
    assert go.checks("two")


def test_an_immunity_time_of_its_own_is_waited_for(go: GoDriver) -> None:
    go.make_topic(queue_nums=1)
    consumer = go.push()
    go.transact(count=1, local=["unknown"], check=["commit"], properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "4"})
    (message,) = go.received(consumer, count=1)
    assert message.store_timestamp_ms - message.born_timestamp_ms >= 4_000
    assert go.checks() == {0: 1}
