"""What a slave of ours takes over from a master of ours, table by table, over real sockets.

Covers `broker/assembly/replica_tables.py`, `broker/replicas/followed_table.py`, `broker/replicas/master_metadata.py`,
`broker/replicas/table_followers.py`, `broker/replicas/topics_follower.py`, `store/late_placement.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.broker.control_broker import ControlBroker, control_broker
from tests.broker.replicas.following import Following, RefusingDisk, following
from tests.clock import Clock
from tests.frozen_peer import frozen_peer
from tests.replication.replica_pair import bytes_of
from tests.store.store_parts import records_of
from tests.waiting import until
from thermocline.broker.replicas.master_metadata import MasterMetadata
from thermocline.remoting.bodies import SetMessageRequestModeRequestBody, SubscriptionGroupConfig
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.json_dialect import loads_dialect
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.request_code import RequestCode
from thermocline.replication import LogCopy

FILES = {
    "topics.json": "topicConfigTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    "consumerOffset.json": "offsetTable",
    "delayOffset.json": "offsetTable",
}


@asynccontextmanager
async def pair(tmp_path: Path, *, disk: RefusingDisk | None = None) -> AsyncIterator[tuple[ControlBroker, Following]]:
    clock = Clock()
    async with (
        control_broker(tmp_path / "master", clock=clock) as master,
        following(tmp_path / "slave", master_address=master.address, clock=clock, disk=disk) as slave,
    ):
        yield master, slave


def file_of(root: Path, name: str) -> Any:
    return loads_dialect((root / "config" / name).read_bytes())


async def fill(master: ControlBroker) -> None:
    """Something in every table."""
    await master.create_topic("orders", queues=3, attributes="+message.type=FIFO,+thermocline.ttl.ms=90000")
    await master.create_topic("plain")
    group = SubscriptionGroupConfig(group_name="billing", retry_max_times=5, broker_id=0)
    assert (await master.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group.encode())).code == 0
    forbidden = {"group": "billing", "topic": "plain", "readable": "false"}
    assert (await master.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, forbidden)).code == 0
    mode = SetMessageRequestModeRequestBody(topic="orders", consumer_group="billing", mode="POP")
    assert (await master.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=mode.encode())).code == 0
    offsets = master.parts.tables.offsets
    for queue_id in range(3):
        offsets.commit("orders", "billing", queue_id, QueueOffset(10 + queue_id))
    offsets.hand_over("shipping", "receipt-1", [("plain", 0, QueueOffset(7))])
    await master.parts.due.delays.follow(b'{"dataVersion":{"counter":3,"timestamp":9},"offsetTable":{1:64,2:20}}')


async def test_a_slave_has_all_tables_of_its_master_and_their_versions(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave):
        await fill(master)
        await slave.follower.follow_all()
        ours, theirs = slave.slave.parts.tables, master.parts.tables
        assert ours.topics.configs() == theirs.topics.configs()
        assert ours.topics.time_to_live_ms("orders") == 90_000
        assert ours.topics.data_version == theirs.topics.data_version
        assert ours.groups.configs() == theirs.groups.configs()
        assert ours.groups.data_version == theirs.groups.data_version
        assert ours.groups.is_read_forbidden("billing", "plain")
        assert list(ours.offsets.items()) == list(theirs.offsets.items())
        assert ours.offsets.was_handed_over("shipping", "receipt-1")
        assert ours.offsets.data_version == theirs.offsets.data_version
        mode = ours.request_modes.get("orders", "billing")
        assert mode is not None
        assert mode.mode == "POP"
        assert slave.slave.parts.due.delays.encode() == master.parts.due.delays.encode()
        # Durable already, before any stop.
        await master.housekeeping.save()
        for name, member in FILES.items():
            assert file_of(tmp_path / "slave", name)[member] == file_of(tmp_path / "master", name)[member], name
        assert not slave.errors


async def test_nothing_is_done_twice(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave):
        await fill(master)
        await slave.follower.follow_all()
        before = slave.changes
        topics = (tmp_path / "slave" / "config" / "topics.json").stat().st_mtime_ns
        await slave.follower.follow_all()
        assert slave.changes == before
        assert (tmp_path / "slave" / "config" / "topics.json").stat().st_mtime_ns == topics
        # A commit alone does not raise the offsets' version, and is news all the same.
        version = master.parts.tables.offsets.data_version
        master.parts.tables.offsets.commit("orders", "billing", 0, QueueOffset(11))
        assert master.parts.tables.offsets.data_version == version
        await slave.follower.follow_all()
        assert slave.slave.parts.tables.offsets.query("orders", "billing", 0) == 11
        assert slave.changes == {**before, "consumer offsets": before["consumer offsets"] + 1}


async def test_what_the_master_deletes_ends_at_the_slave(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave):
        await fill(master)
        await slave.follower.follow_all()
        await master.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
        await master.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "billing", "cleanOffset": "true"})
        await slave.follower.follow_all()
        tables = slave.slave.parts.tables
        assert "orders" not in tables.topics
        assert "plain" in tables.topics
        assert "billing" not in tables.groups
        assert not tables.groups.is_read_forbidden("billing", "plain")
        assert tables.offsets.query("orders", "billing", 0) is None
        assert tables.offsets.groups_of("orders") == set()
        assert tables.offsets.query("plain", "shipping", 0) == 7


async def test_a_topic_begins_where_it_begins_in_the_masters_log(tmp_path: Path) -> None:
    """The slave learns of a topic when its log has messages of it already: they must not count as an earlier life's."""
    async with pair(tmp_path) as (master, slave):
        master_store, slave_store = master.parts.base.store, slave.slave.parts.base.store
        await master.create_topic("earlier")
        for broker in (master, slave.slave):
            broker.put("earlier")
        await master.create_topic("late")
        start = master_store.incarnations.find("late").start_offset
        for broker in (master, slave.slave):  # the slave's copy of the log, which it has before the topic
            for _ in range(3):
                broker.put("late")
        assert slave_store.commit_log.append_offset > start
        await slave.follower.follow_all()
        assert slave_store.incarnations.find("late") == master_store.incarnations.find("late")
        assert slave_store.incarnations.is_live("late", start)
        # As after a power cut, in which the log has lost more than the table: nothing is deleted for it.
        assert slave_store.incarnations.begin_at_latest(PhysicalOffset(0)) is (start > 0)
        queue = slave_store.queues.find("late", 0)
        assert queue is not None
        await master.create_topic("other")
        await slave.follower.follow_all()
        assert slave_store.incarnations.find("late").start_offset == start
        assert slave_store.queues.find("late", 0) is queue

        await master.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "late"})
        await master.create_topic("late", queues=2)
        again = master_store.incarnations.find("late")
        await slave.follower.follow_all()
        assert slave_store.incarnations.find("late") == again
        assert slave_store.queues.find("late", 0) is None
        assert not slave_store.incarnations.is_live("late", start)
        config = slave.slave.parts.tables.topics.get("late")
        assert config is not None
        assert config.read_queue_nums == 2


async def test_a_master_that_has_lost_its_disk_deletes_nothing(tmp_path: Path) -> None:
    clock = Clock()
    async with following(tmp_path / "slave", master_address=None, clock=clock) as slave:
        async with control_broker(tmp_path / "master", clock=clock) as master:
            await fill(master)
            slave.master_address = master.address
            await slave.follower.follow_all()
        async with control_broker(tmp_path / "empty", clock=clock) as empty:
            await empty.create_topic("new")
            slave.master_address = empty.address
            await slave.follower.follow_all()
        tables = slave.slave.parts.tables
        assert {"orders", "plain", "new"} <= set(tables.topics)
        assert "billing" in tables.groups
        assert tables.offsets.query("orders", "billing", 2) == 12


async def test_one_table_that_fails_stops_no_other_and_is_tried_again(tmp_path: Path) -> None:
    disk = RefusingDisk()
    async with pair(tmp_path, disk=disk) as (master, slave):
        await fill(master)
        disk.refused = {"subscriptionGroup.json"}
        with pytest.raises(UnavailableError, match="groups"):
            await slave.follower.follow_all()
        assert not slave.follower.has_followed_all
        tables = slave.slave.parts.tables
        assert set(slave.errors) == {"groups"}
        assert "billing" not in tables.groups  # as on the disk
        assert "orders" in tables.topics
        assert tables.offsets.query("orders", "billing", 0) == 10
        disk.refused = set()
        await slave.follower.follow_all()
        assert not slave.errors
        assert slave.follower.has_followed_all
        assert "billing" in tables.groups


async def test_a_topic_that_is_not_served_here_keeps_no_other_from_being_followed(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave):
        await fill(master)
        config = master.parts.tables.topics.get("plain")
        assert config is not None
        config.attributes = {"queue.type": "BatchCQ"}  # as a broker of RocketMQ may have it
        master.parts.tables.topics._publish(config)  # no request makes such a topic here
        with pytest.raises(UnavailableError, match="topics"):
            await slave.follower.follow_all()
        assert "plain" in slave.errors["topics"]
        assert "orders" in slave.slave.parts.tables.topics
        assert "plain" not in slave.slave.parts.tables.topics


async def test_tables_are_due_by_their_periods_and_at_once_at_another_master(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave):
        clock = slave.slave.clock
        await slave.follower.step()
        await master.create_topic("one")
        clock.now_ms += 9_999
        await slave.follower.step()
        assert "one" not in slave.slave.parts.tables.topics
        clock.now_ms += 1
        await slave.follower.step()
        assert "one" in slave.slave.parts.tables.topics
        async with control_broker(tmp_path / "other", clock=clock) as other:
            await other.create_topic("two")
            slave.master_address = None
            await slave.follower.step()
            slave.master_address = other.address
            assert not slave.follower.has_followed_all, "not those of this master"
            await slave.follower.step()
            assert slave.follower.has_followed_all
            assert "two" in slave.slave.parts.tables.topics


async def test_a_frozen_master_is_not_waited_for_when_there_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before this slave has the tables of the next master it is not in sync, and sends may wait for it."""
    monkeypatch.setattr(MasterMetadata.__init__, "__kwdefaults__", {"timeout_ms": 60_000})
    async with frozen_peer() as frozen, pair(tmp_path) as (_, slave):
        next_master, slave.master_address = slave.master_address, frozen
        slave.follower.start()
        await until(lambda: frozen in slave.follower._client.addresses, what="the frozen master is asked")
        slave.master_address = next_master
        slave.follower.master_changed()
        async with asyncio.timeout(30):
            await until(lambda: slave.follower.has_followed_all, what="the next master's tables are taken over")


async def test_a_silent_master_is_asked_for_one_table_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MasterMetadata.__init__, "__kwdefaults__", {"timeout_ms": 50})
    async with frozen_peer() as frozen, pair(tmp_path) as (_, slave):
        slave.master_address = frozen
        for count in (1, 2):
            await slave.follower.step()
            assert len(slave.errors) == count


async def test_topics_are_due_when_messages_of_a_new_one_come(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave):
        await slave.follower.step()
        await master.create_topic("one")
        slave.slave.clock.now_ms += 1
        await slave.follower.step()
        assert "one" not in slave.slave.parts.tables.topics
        slave.slave.parts.base.store.queues.find_or_create("one", 0)
        await slave.follower.step()
        assert "one" in slave.slave.parts.tables.topics
        await master.create_topic("two")
        await slave.follower.step()
        assert "two" not in slave.slave.parts.tables.topics, "not due again"
        slave.slave.parts.base.store.queues.unplaced_count += 1
        await slave.follower.step()
        assert "two" in slave.slave.parts.tables.topics


@pytest.mark.parametrize("knows_of_the_end", [False, True], ids=["at once", "in two steps"])
async def test_a_topic_made_again_has_the_messages_that_were_copied_before_the_slave_was_told(
    tmp_path: Path, knows_of_the_end: bool
) -> None:
    """The slave copies the new topic's first messages while the old topic, or none, is in its table."""
    async with pair(tmp_path) as (master, slave):
        master_store, slave_store = master.parts.base.store, slave.slave.parts.base.store
        copy = LogCopy(slave_store)

        def copy_log() -> None:
            start, end = copy.end_offset, master_store.commit_log.append_offset
            copy.receive(start, memoryview(bytes_of(master_store, start, end)))

        await master.create_topic("again")
        for _ in range(3):
            master.put("again", body=b"old")
        copy_log()
        await slave.follower.follow_all()
        await master.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "again"})
        if knows_of_the_end:
            await slave.follower.follow_all()
        await master.create_topic("again")
        for number in range(2):
            master.put("again", body=b"new %d" % number)
        copy_log()
        await slave.follower.step()  # the messages have the topics requested, before their period is over
        master.put("again", body=b"new 2")
        copy_log()
        queue = slave_store.queues.find("again", 0)
        assert queue is not None
        assert [record.body for record in records_of(slave_store, queue)] == [b"new 0", b"new 1", b"new 2"]


async def test_tables_are_followed_when_the_clock_was_set_back(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave):
        await slave.follower.step()
        slave.slave.clock.now_ms -= 3_600_000
        await master.create_topic("one")
        await slave.follower.step()
        assert "one" in slave.slave.parts.tables.topics


async def test_without_a_master_nothing_is_asked_and_a_switch_is_told(tmp_path: Path) -> None:
    async with following(tmp_path, master_address=None) as slave:
        await slave.follower.step()
        assert all(status.followed_ms is None and not status.error for status in slave.follower.status())
        with pytest.raises(UnavailableError, match="no master"):
            await slave.follower.follow_all()


async def test_offsets_of_a_slave_say_how_far_its_log_was(tmp_path: Path) -> None:
    """A new master reads check points of POP from there on; those below are in the offsets that it has."""
    async with pair(tmp_path) as (master, slave):
        await fill(master)
        before = slave.slave.parts.base.store.commit_log.append_offset
        await slave.follower.follow_all()
        slave.slave.put("orders")
        master.parts.tables.offsets.commit("orders", "billing", 0, QueueOffset(99))
        await slave.slave.parts.tables.persister.save("consumerOffset.json")
        assert file_of(tmp_path / "slave", "consumerOffset.json")["popLogOffset"] == before == PhysicalOffset(0)


async def test_the_topics_of_one_answer_come_in_pages(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave):
        names = [f"topic-{number:05}" for number in range(4_100)]
        for start in range(0, len(names), 500):
            body = {"topicConfigList": [{"topicName": name} for name in names[start : start + 500]]}
            answer = await master.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=json.dumps(body).encode())
            assert answer.code == 0, answer.remark
        await slave.follower.follow_all()
        assert set(slave.slave.parts.tables.topics) == set(master.parts.tables.topics)
