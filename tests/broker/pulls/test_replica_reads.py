"""Reads that are spread over a master and its slaves: the rules, then the pull path of both.

Covers `broker/pulls/replica_reads.py`.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.broker.cold_tier import MemoryColdTier
from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.pulling import GROUP, TOPIC, Consumer, expire_local_files, outcome
from tests.broker.slave_config import slave_config
from thermocline.broker.cluster.registration import Master
from thermocline.broker.pulls.replica_reads import ReadState, slave_answer, suggested_broker_id
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.remoting.bodies import SubscriptionGroupConfig
from thermocline.remoting.command import RemotingCommand, SerializeType
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.response_code import ResponseCode

GROUP_OF_THREE = SubscriptionGroupConfig(group_name="g", broker_id=2, which_broker_when_consume_slowly=3)
FOUND, NOT_FOUND = ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND
RETRY, MOVED = ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED
NEAR_BYTES = 4_096


@pytest.mark.parametrize(
    ("slave_read", "is_slave", "has_master", "is_slow", "suggested"),
    [
        (False, False, False, False, 0),
        (False, False, False, True, 0),
        (False, True, True, True, 0),
        (True, False, False, False, 2),
        (True, False, False, True, 3),
        (True, True, True, False, 0),
        (True, True, True, True, 3),
        (True, True, False, False, 2),
        (True, True, False, True, 3),
    ],
)
def test_which_broker_is_suggested(
    slave_read: bool, is_slave: bool, has_master: bool, is_slow: bool, suggested: int
) -> None:
    state = ReadState(slave_read=slave_read, is_slave=is_slave, has_master=has_master)
    assert suggested_broker_id(state, GROUP_OF_THREE, is_slow=is_slow) == suggested


@pytest.mark.parametrize(
    ("has_master", "found", "answered"),
    [
        (True, (FOUND, 12), (FOUND, 12)),
        (True, (NOT_FOUND, 10), (RETRY, 10)),
        (True, (NOT_FOUND, 0), (RETRY, 10)),  # a queue that the slave does not have yet
        (True, (RETRY, 15), (RETRY, 15)),  # none of those looked at matched
        (True, (MOVED, 7), (RETRY, 10)),  # the slave ends at 7: it lags
        (True, (MOVED, 20), (RETRY, 10)),  # it begins at 20, the master may not
        (False, (FOUND, 12), (FOUND, 12)),
        (False, (NOT_FOUND, 10), (NOT_FOUND, 10)),
        (False, (RETRY, 15), (RETRY, 15)),
        (False, (MOVED, 7), (NOT_FOUND, 10)),  # no reader goes back
        (False, (MOVED, 20), (RETRY, 20)),
    ],
)
def test_what_a_slave_answers(has_master: bool, found: tuple[int, int], answered: tuple[int, int]) -> None:
    """An answer that has passed the rules passes them again as it is."""
    state = ReadState(slave_read=True, is_slave=True, has_master=has_master)
    code, next_offset = found
    for _ in range(2):
        code, next_offset = slave_answer(state, code, offset=QueueOffset(10), next_offset=QueueOffset(next_offset))
        assert (code, next_offset) == answered


def suggested_in(answer: RemotingCommand) -> str:
    assert answer.ext_fields is not None
    return answer.ext_fields["suggestWhichBrokerId"]


def make_slow(broker: DataBroker, consumer: Consumer, count: int = 40) -> None:
    """So much that the first messages are far behind the log's end."""
    consumer.send(count, body=b"x" * 500)
    assert broker.store.commit_log.append_offset > 2 * NEAR_BYTES


@pytest.mark.parametrize("serialize_type", list(SerializeType))
@pytest.mark.parametrize("through_chunks", [True, False])
async def test_a_master_sends_slow_readers_to_a_slave(
    tmp_path: Path, serialize_type: SerializeType, through_chunks: bool
) -> None:
    config = BrokerConfig(listen_host="127.0.0.1", slave_read=True)
    async with data_broker(tmp_path, topics=[TOPIC], start=False, config=config, near_bytes=NEAR_BYTES) as broker:
        consumer = Consumer(broker, through_chunks=through_chunks)
        make_slow(broker, consumer)
        end = broker.store.queues.find(TOPIC, 0)
        assert end is not None
        slow = consumer.pull(0, serialize_type=serialize_type)
        near = consumer.pull(end.next_offset - 1, serialize_type=serialize_type)
        assert (slow.code, suggested_in(slow)) == (FOUND, "1")
        assert (near.code, suggested_in(near)) == (FOUND, "0")
        await broker.parts.tables.groups.update(
            [SubscriptionGroupConfig(group_name=GROUP, which_broker_when_consume_slowly=4)]
        )
        assert suggested_in(consumer.pull(0, serialize_type=serialize_type)) == "4"
        broker.change_config(slave_read=False)
        assert suggested_in(consumer.pull(0, serialize_type=serialize_type)) == "0"


async def test_history_from_the_cold_tier_is_read_at_the_master(tmp_path: Path) -> None:
    config = BrokerConfig(listen_host="127.0.0.1", slave_read=True)
    cold = MemoryColdTier()
    async with data_broker(
        tmp_path,
        topics=[TOPIC],
        start=False,
        config=config,
        near_bytes=NEAR_BYTES,
        cold=cold,
        log_file_bytes=8 * 1024,
    ) as broker:
        consumer = Consumer(broker)
        consumer.send(200)
        cold.copy_from(broker.store, TOPIC, 0, end=190)
        minimum = expire_local_files(broker, 60)
        assert minimum > 0
        history = await consumer.pull_later(0)
        assert (history.code, suggested_in(history)) == (FOUND, "0")
        assert suggested_in(consumer.pull(minimum)) == "1"


def slave(tmp_path: Path, *, slave_read: bool) -> AbstractAsyncContextManager[DataBroker]:
    config = slave_config(slave_read=slave_read)
    return data_broker(tmp_path, topics=[TOPIC], start=False, config=config, near_bytes=NEAR_BYTES)


def has_master(broker: DataBroker, monkeypatch: pytest.MonkeyPatch, *, has: bool) -> None:
    """As the NameServer's last answer says."""
    master = Master(address="127.0.0.1:1", ha_address=None) if has else None
    registration = type(broker.parts.cluster.registration)
    monkeypatch.setattr(registration, "master", property(lambda _: master))


@pytest.mark.parametrize("through_chunks", [True, False])
async def test_a_slave_that_is_not_to_be_read_refuses(tmp_path: Path, through_chunks: bool) -> None:
    async with slave(tmp_path, slave_read=False) as broker:
        consumer = Consumer(broker, through_chunks=through_chunks)
        consumer.send(1)
        for code in (11, 361):
            answer = consumer.pull(0, code=code)
            assert (answer.code, answer.remark) == (
                ResponseCode.SYSTEM_BUSY,
                "[REJECTREQUEST]system busy, start flow control for a while",
            )


async def test_a_slave_serves_and_sends_its_readers_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with slave(tmp_path, slave_read=True) as broker:
        has_master(broker, monkeypatch, has=True)
        consumer = Consumer(broker)
        make_slow(broker, consumer)
        slow, end = consumer.pull(0), 40
        assert (slow.code, suggested_in(slow)) == (FOUND, "1")
        near = consumer.pull(end - 1)
        assert (near.code, suggested_in(near)) == (FOUND, "0")
        for offset in (end, end + 3):  # it does not wait, whatever the client allows
            answer = consumer.pull(offset, sysFlag=6)
            assert outcome(answer)[:3] == (RETRY, answer.remark, offset)
            assert suggested_in(answer) == "0"


async def test_readers_wait_at_a_slave_without_a_master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with slave(tmp_path, slave_read=True) as broker:
        has_master(broker, monkeypatch, has=False)
        consumer = Consumer(broker)
        consumer.send(5)
        opaque = consumer.ask(5, sysFlag=6)
        assert consumer.wire.take_commands() == []
        consumer.send(1)
        answer = await consumer.answer_to(opaque)
        assert (answer.code, suggested_in(answer)) == (FOUND, "0")
        # A reader that was ahead of this slave at the master keeps its offset.
        ahead = consumer.pull(9)
        assert outcome(ahead)[:3] == (NOT_FOUND, "OFFSET_OVERFLOW_BADLY", 9)
