"""A running broker changes its role, and nothing that was acknowledged is lost (broker/role_switch.py, role_parts.py).

Covers `broker/assembly/connected_clients.py`, `broker/assembly/replicas.py`, `broker/recovery/log_cut.py`,
`broker/role_parts.py`, `replication/replica_role.py`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import urllib.request
import weakref
from pathlib import Path

import pytest

from tests.broker.role_brokers import role_set
from tests.broker.role_clients import TOPIC, Load, consumer_of, log_of, make_topic, producer_of, send_until_taken
from tests.waiting import until
from thermocline.broker import hot_process, role_switch
from thermocline.broker.assembly import Assignment
from thermocline.client import Message, MQError, SendStatus, UnavailableError
from thermocline.localstack.loopback_port import free_port
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import DiskFullError
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.records.message_record import iterate_records
from thermocline.remoting.response_code import ResponseCode
from thermocline.replication import Alignment, EpochEntry, EpochFile, StaleEpochError
from thermocline.store.config import FlushDiskType
from thermocline.store.files.disk import RealDisk


class FailingDisk(RealDisk):
    """The file system of this machine, on which names that end with `failing` cannot be given while that is set."""

    failing = ""

    def rename(self, source: str, target: str) -> None:
        if self.failing and target.endswith(self.failing):
            raise DiskFullError("no room", path=target)
        super().rename(source, target)


async def test_masters_change_under_load_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    async with role_set(tmp_path) as found:
        await found.switch(1)
        await make_topic(found)
        await found.wait_followed(2)
        load, seen = Load(found), list[tuple[int, int, bytes]]()
        async with consumer_of(found.namesrv) as consumer:
            await consumer.subscribe(TOPIC)

            async def read() -> None:
                async for message in consumer:
                    seen.append((message.queue.queue_id, message.queue_offset, message.body))

            reading = asyncio.create_task(read())
            async with load.running():
                await load.wait_for(20)
                for number in (2, 1, 2, 1):
                    await found.wait_followed(number)
                    await found.switch(number)
                    await load.wait_for(20)
            acknowledged = load.acknowledged
            await until(
                lambda: reading.done() or set(acknowledged) <= {body for _, _, body in seen}, what="all was read"
            )
            assert not reading.done()
            reading.cancel()
        assert len(acknowledged) == len(set(acknowledged)) >= 100
        await found.wait_copied(2)
        assert log_of(found, 1) == log_of(found, 2)
        stored = [bytes(record.body) for record in iterate_records(log_of(found, 1)) if record.topic == TOPIC]
        assert set(acknowledged) <= set(stored)
        assert len(stored) == len(set(stored)), "no message was stored twice"
        places = [(queue_id, offset) for queue_id, offset, _ in seen]
        assert len(places) == len(set(places)), "no message was read twice"
        epochs = [list(EpochFile(RealDisk(), str(tmp_path / f"store-{number}")).epochs) for number in (1, 2)]
        assert epochs[0] == epochs[1]
        assert [entry.epoch for entry in epochs[0]] == [1, 2, 3, 4, 5]


async def test_a_planned_switch_loses_no_offset_of_a_group(tmp_path: Path) -> None:
    """What was committed a moment before: the tables were followed seconds ago."""
    async with role_set(tmp_path) as found:
        await found.switch(1)
        await make_topic(found, queues=1)
        await found.wait_followed(2)
        for number, offset in ((2, 5), (1, 7), (2, 9)):
            await found.wait_followed(number)
            assert found.master is not None
            tables = found.brokers[found.master].parts.parts.tables
            tables.offsets.commit(TOPIC, "readers", 0, QueueOffset(offset))
            await found.switch(number)
            assert found.brokers[number].parts.parts.tables.offsets.query(TOPIC, "readers", 0) == offset


async def test_a_master_that_stops_waits_until_the_next_one_has_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hot_process, "SUCCESSOR_S", 60.0)
    caplog.set_level(logging.INFO)
    async with role_set(tmp_path) as found:
        await found.elect(1, members=[1, 2])
        await found.tell_others()
        await make_topic(found, queues=1)
        await found.wait_followed(2)
        first, second = found.brokers[1], found.brokers[2]
        first.parts.parts.tables.offsets.commit(TOPIC, "readers", 0, QueueOffset(5))
        stop = asyncio.create_task(first.process.close())
        await until(lambda: stop.done() or "follow the next one" in caplog.text, what="it has left the NameServers")
        await found.elect(2)
        assert second.parts.parts.tables.offsets.query(TOPIC, "readers", 0) == 5
        await stop


async def test_a_broker_registers_with_its_epoch_as_the_state_version(tmp_path: Path) -> None:
    """Of two masters NameServers keep the one with the greater."""
    async with role_set(tmp_path) as found:
        for epoch, number in ((1, 1), (2, 2)):
            await found.elect(number)
            body = bytes(found.brokers[number].parts.parts.cluster.registration.command(None).body)
            assert body.count(b'"stateVersion":%d,' % epoch) == 2, "of the topics, and of the mappings"


async def test_a_master_that_is_gone_does_not_keep_its_successor(tmp_path: Path) -> None:
    async with role_set(tmp_path) as found:
        await found.switch(1)
        await found.wait_followed(2)
        await found.brokers[1].process.close()
        await found.elect(2)
        assert found.brokers[2].is_master


async def test_a_new_master_serves_a_topic_of_which_it_has_only_messages(tmp_path: Path) -> None:
    async with role_set(tmp_path) as found:
        await found.switch(1)
        await found.wait_followed(2)
        tables = found.brokers[2].parts.replicas._tables
        assert tables is not None
        await tables.close()
        await make_topic(found)
        async with producer_of(found.namesrv) as producer:
            for number in range(8):
                assert (await producer.send(Message(TOPIC, b"%d" % number))).status is SendStatus.SEND_OK
        await found.wait_copied(2)
        await found.brokers[1].process.close()
        assert TOPIC not in found.brokers[2].parts.parts.tables.topics
        await found.elect(2)
        config = found.brokers[2].parts.parts.tables.topics.get(TOPIC)
        assert config is not None
        assert (config.read_queue_nums, config.write_queue_nums) == (4, 4)
        async with consumer_of(found.namesrv) as consumer, producer_of(found.namesrv) as producer:
            await send_until_taken(producer, b"8")
            await consumer.subscribe(TOPIC)
            bodies = set[bytes]()
            async with asyncio.timeout(60):
                while len(bodies) < 9:
                    bodies |= {message.body for message in await consumer.poll()}
        ends = [queue.next_offset for queue in found.brokers[2].store.queues.of_topic(TOPIC).values()]
        assert sorted(ends) == [2, 2, 2, 3]


async def test_a_new_master_makes_no_topic_that_was_deleted(tmp_path: Path) -> None:
    async with role_set(tmp_path) as found:
        await found.switch(1)
        await make_topic(found)
        async with producer_of(found.namesrv) as producer:
            await producer.send(Message(TOPIC, b"old"))
        await found.wait_followed(2)
        await found.brokers[1].parts.parts.tables.topics.delete(TOPIC)
        await found.switch(2)
        assert TOPIC not in found.brokers[2].parts.parts.tables.topics


async def test_sends_that_the_next_master_may_not_have_are_not_acknowledged(tmp_path: Path) -> None:
    async with role_set(tmp_path, in_sync_replicas=2, slave_timeout_ms=600_000) as found:
        await found.elect(1, members=[1, 2])
        await make_topic(found, queues=1)
        store = found.brokers[1].store
        async with producer_of(found.namesrv, timeout_ms=600_000) as producer:
            sending = asyncio.create_task(producer.send(Message(TOPIC, b"waits for broker 2")))
            await until(lambda: store.queues.find(TOPIC, 0) is not None, what="the message is in the log")
            queue = store.queues.find(TOPIC, 0)
            assert queue is not None
            assert queue.next_offset == 1
            assert store.max_offset(queue) == 0, "it is not to be read"
            await found.brokers[1].process.role_changer.become_slave(found.role_of(1, master=None))
            result = await sending
        assert result.status is SendStatus.FLUSH_SLAVE_TIMEOUT


async def test_a_master_ends_in_the_order_in_which_nothing_is_promised_that_it_cannot_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with role_set(tmp_path, count=1) as found:
        await found.elect(1)
        broker = found.brokers[1]
        parts, order = broker.parts, list[str]()

        def note(owner: object, name: str) -> None:
            called = getattr(owner, name)

            def noting(*args: object, **named: object) -> object:
                order.append(name)
                return called(*args, **named)

            monkeypatch.setattr(owner, name, noting)

        note(parts._hot, "end_round")
        note(broker.store.commit_log, "refuse_all")
        note(parts._lasting.listener, "pause")
        note(parts.replicas, "end_puts")
        note(parts, "_answer_waiting_pulls")
        note(parts.local, "flush_to_end")
        note(parts, "close")
        note(parts._lasting.listener, "serve")
        await broker.process.role_changer.become_slave(found.role_of(1, master=None))
        assert order == [
            "end_round",  # what has come is in the log
            "refuse_all",
            "pause",
            "end_puts",  # never SEND_OK from here on, if others were to have it
            "_answer_waiting_pulls",
            "flush_to_end",
            "close",
            "serve",
        ]


async def test_clients_stay_connected_and_members_of_their_groups(tmp_path: Path) -> None:
    async with role_set(tmp_path) as found:
        await found.switch(1)
        await make_topic(found)
        broker = found.brokers[1]
        async with consumer_of(found.namesrv) as consumer, producer_of(found.namesrv) as producer:
            await consumer.subscribe(TOPIC)
            clients = broker.parts.parts.tables.clients
            await until(lambda: clients.consumer_group("readers") is not None, what="the consumer is a member")
            group = clients.consumer_group("readers")
            assert group is not None
            members = dict(group.members)
            for master in (None, 1):
                if master is None:
                    await broker.process.role_changer.become_slave(found.role_of(1, master=None))
                else:
                    await found.elect(1)
                assert broker.parts.parts.tables.clients is clients
                assert clients.consumer_group("readers") is group
                assert group.members == members
                assert not any(connection.is_closed for connection in members)
            await producer.send(Message(TOPIC, b"after"))
            received = await consumer.poll(60_000)
        assert [message.body for message in received] == [b"after"]


async def test_a_change_that_fails_refuses_writes_and_is_tried_again(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with role_set(tmp_path, disks={1: disk}) as found:
        await found.switch(1)
        await make_topic(found)
        broker = found.brokers[1]
        async with producer_of(found.namesrv) as producer:
            await producer.send(Message(TOPIC, b"before"))
            disk.failing = "epochFileCheckpoint"
            with pytest.raises(UnavailableError, match="no room"):
                await found.elect(1)
            assert "no room" in broker.error
            assert not broker.is_master, "it is no half master"
            assert broker.store.commit_log.lasting_refusal is not None
            with pytest.raises(MQError):
                await producer.send(Message(TOPIC, b"refused"))
            async with consumer_of(found.namesrv) as consumer:
                await consumer.subscribe(TOPIC)
                received = await consumer.poll(60_000)
            assert [message.body for message in received] == [b"before"], "reads are served"
            disk.failing = ""
            await until(lambda: broker.is_master and not broker.error, what="it was tried again")
            await until(lambda: broker.parts.parts.cluster.registration.status()[0].is_registered, what="registered")
            await send_until_taken(producer, b"after")
        assert broker.error == ""


async def test_a_master_whose_log_has_failed_is_a_slave_with_the_log_opened_again(tmp_path: Path) -> None:
    async with role_set(tmp_path) as found:
        await found.switch(1)
        await found.tell_others()
        await make_topic(found)
        async with producer_of(found.namesrv) as producer:
            await producer.send(Message(TOPIC, b"before"))
            await found.wait_followed(2)
            found.brokers[1].store.commit_log.fail("flush failed")
            with pytest.raises(MQError):
                await producer.send(Message(TOPIC, b"refused"))
            await found.elect(2)
            await found.tell_others()
            await send_until_taken(producer, b"after")
            await found.wait_copied(1)
        assert not found.brokers[1].error
        assert not found.brokers[1].store.commit_log.is_failed


@pytest.mark.parametrize("flush", [FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH])
async def test_a_slave_whose_log_has_failed_opens_it_again_and_follows_on(
    tmp_path: Path, flush: FlushDiskType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role_switch, "REOPEN_S", 0.05)
    async with role_set(tmp_path, store={"flush_disk_type": flush}) as found:
        await found.switch(1)
        await found.tell_others()
        await make_topic(found)
        slave = found.brokers[2]
        async with producer_of(found.namesrv) as producer:
            await producer.send(Message(TOPIC, b"before"))
            await found.wait_followed(2)
            parts = slave.parts
            slave.store.commit_log.fail("flush failed")
            await producer.send(Message(TOPIC, b"after"))
            await until(lambda: slave.parts is not parts, what="its parts are others")
            await found.wait_followed(2)
        assert not slave.error
        assert log_of(found, 1) == log_of(found, 2)


async def test_another_role_ends_the_attempts_at_one_that_fails(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with role_set(tmp_path, disks={1: disk}) as found:
        broker = found.brokers[1]
        disk.failing = "epochFileCheckpoint"
        with pytest.raises(UnavailableError):
            await found.elect(1)
        await found.elect(2)
        await make_topic(found)
        await broker.process.role_changer.become_slave(found.role_of(1, master=2))
        assert broker.error == ""
        assert not broker.process._switch._tasks, "nothing tries to make it the master"
        await found.wait_followed(1)


async def test_an_epoch_that_the_log_has_is_refused_and_not_tried_again(tmp_path: Path) -> None:
    async with role_set(tmp_path) as found:
        await found.elect(1)
        await found.brokers[1].process.role_changer.become_slave(found.role_of(1, master=None))
        found.epoch -= 1
        with pytest.raises(StaleEpochError):
            await found.elect(1)
        broker = found.brokers[1]
        assert not broker.is_master
        assert "epoch" in broker.error
        assert not broker.process._switch._tasks
        found.epoch += 1
        await found.elect(1)
        assert broker.is_master
        assert broker.error == ""


async def test_a_role_that_the_broker_has_changes_nothing(tmp_path: Path) -> None:
    async with role_set(tmp_path) as found:
        await found.elect(1)
        await found.tell_others()
        parts = {number: broker.parts for number, broker in found.brokers.items()}
        found.epoch -= 1
        await found.elect(1)
        await found.tell_others()
        await found.brokers[2].process.role_changer.become_slave(found.role_of(2, master=None))
        assert {number: broker.parts for number, broker in found.brokers.items()} == parts
        assert found.brokers[2].parts.replicas._link.master_address == ""  # type: ignore[union-attr]


async def test_a_log_is_cut_where_it_parts_from_its_masters(tmp_path: Path) -> None:
    """Broker 1 takes messages that broker 2 never gets, and broker 2 is elected."""
    async with role_set(tmp_path) as found:
        await found.switch(1)
        await make_topic(found, queues=1)
        await found.wait_followed(2)
        async with producer_of(found.namesrv) as producer:
            await producer.send(Message(TOPIC, b"common"))
            await found.wait_copied(2)
            common = found.brokers[2].store.commit_log.append_offset
            await found.brokers[2].process.role_changer.become_slave(found.role_of(2, master=None))
            for _ in range(3):
                await producer.send(Message(TOPIC, b"lost"))
            ahead = found.brokers[1]
            await ahead.process.role_changer.become_slave(found.role_of(1, master=None))
            await found.elect(2)
            await send_until_taken(producer, b"of the next master")
        assert ahead.store.commit_log.append_offset > common
        orders = Path(ahead.store.config.config_path) / "consumerOrderInfo.json"
        orders.write_text("{}")
        parts = ahead.parts
        parts.replicas.on_parted(Alignment(common, 1))
        await until(lambda: ahead.parts is not parts and ahead.process._switch._present is not None, what="cut")
        assert ahead.store.commit_log.append_offset == common
        assert not orders.exists()
        assert list(EpochFile(RealDisk(), str(tmp_path / "store-1")).epochs) == [EpochEntry(1, PhysicalOffset(0))]
        await found.tell_others()
        await found.wait_followed(1)
        assert log_of(found, 1) == log_of(found, 2)
        queue = ahead.store.queues.find(TOPIC, 0)
        assert queue is not None
        assert queue.next_offset == 2


async def test_a_cut_that_comes_twice_takes_nothing_back_that_came_since(tmp_path: Path) -> None:
    """The link connects again, and finds that the logs part again, while the parts end slowly."""
    async with role_set(tmp_path) as found:
        await found.elect(2)
        await found.tell_others()
        await make_topic(found, queues=1)
        broker = found.brokers[1]
        switch, ends = broker.process._switch, list[int]()
        cut_log = switch._cut_log

        def noting(alignment: Alignment) -> None:
            ends.append(broker.store.commit_log.append_offset)
            cut_log(alignment)

        switch._cut_log = noting
        async with producer_of(found.namesrv) as producer:
            await producer.send(Message(TOPIC, b"to be cut"))
            await found.wait_followed(1)
            parts = broker.parts
            for _ in range(2):
                parts.replicas.on_parted(Alignment(PhysicalOffset(0), 0))
            await until(lambda: not switch._tasks, what="the cuts are over")
            await found.wait_followed(1)
        assert len(ends) == 1
        assert log_of(found, 1) == log_of(found, 2)


async def test_a_cut_that_fails_is_made_when_the_logs_part_again(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with role_set(tmp_path, disks={1: disk}) as found:
        await found.elect(2)
        await found.tell_others()
        await make_topic(found, queues=1)
        async with producer_of(found.namesrv) as producer:
            await producer.send(Message(TOPIC, b"to be cut"))
        await found.wait_followed(1)
        broker = found.brokers[1]
        follows = broker.process._switch._present
        disk.failing = "queueEnds"
        broker.parts.replicas.on_parted(Alignment(PhysicalOffset(0), 0))
        await until(lambda: broker.error, what="the cut has failed")
        assert "no room" in broker.error
        disk.failing = ""
        await until(lambda: not broker.error, what="the master is followed again")
        assert broker.process._switch._present is follows
        await found.wait_followed(1)
        assert log_of(found, 1) == log_of(found, 2)


async def test_after_a_cut_that_fails_the_next_attempt_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that has failed is not asked again at once."""
    disk, steps = FailingDisk(), list[str]()
    async with role_set(tmp_path, disks={1: disk}) as found:
        await found.elect(2)
        await found.tell_others()
        await found.wait_followed(1)
        broker = found.brokers[1]
        switch = broker.process._switch
        attempt = switch._try

        async def wait(_is_superseded: asyncio.Event, _seconds: float) -> None:
            steps.append("wait")
            disk.failing = ""

        async def count(wanted: Assignment) -> MQError | None:
            steps.append("attempt")
            return await attempt(wanted)

        monkeypatch.setattr(role_switch, "_wait", wait)
        monkeypatch.setattr(switch, "_try", count)
        disk.failing = "queueEnds"
        broker.parts.replicas.on_parted(Alignment(PhysicalOffset(0), 0))
        await until(lambda: "attempt" in steps and not broker.error, what="the master is followed again")
        assert steps == ["wait", "attempt"]


async def test_monitoring_sees_the_role_and_that_it_failed(tmp_path: Path) -> None:
    port, disk = free_port(), FailingDisk()

    async def figures() -> dict[str, str]:
        def read() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                return str(answer.read().decode())

        lines = (await asyncio.to_thread(read)).splitlines()
        return dict(line.split(" ") for line in lines if line.startswith("thermocline_replica_"))

    async with role_set(tmp_path, count=1, disks={1: disk}, health_port=port) as found:
        assert await figures() == {}, "no controller has given a role"
        await found.elect(1)
        await make_topic(found)
        async with producer_of(found.namesrv) as producer:
            await send_until_taken(producer, b"x")
        shown = await figures()
        assert shown["thermocline_replica_master_epoch"] == "1"
        assert shown["thermocline_replica_in_sync"] == "1"
        assert shown["thermocline_replica_role_failed"] == "0"
        end_offset = found.brokers[1].store.commit_log.append_offset
        assert int(shown["thermocline_replica_confirm_offset_bytes"]) == end_offset > 0
        disk.failing = "epochFileCheckpoint"
        with pytest.raises(UnavailableError):
            await found.elect(1)
        assert (await figures())["thermocline_replica_role_failed"] == "1"
        disk.failing = ""
        await until(lambda: not found.brokers[1].error, what="the role is taken")


async def test_nothing_of_a_role_that_has_ended_is_kept(tmp_path: Path) -> None:
    async with role_set(tmp_path, count=1) as found:
        broker = found.brokers[1]
        kept = broker.process._settings.listener_count
        ended: list[weakref.ref[object]] = []
        for _ in range(2):
            ended += [weakref.ref(each) for each in (broker.parts, broker.store, broker.parts.parts.tables.topics)]
            await found.elect(1)
            ended += [weakref.ref(each) for each in (broker.parts, broker.store, broker.parts.parts.tables.topics)]
            await broker.process.role_changer.become_slave(found.role_of(1, master=None))
        gc.unfreeze()
        gc.collect()
        assert [each() for each in ended if each() is not None] == []
        assert broker.process._settings.listener_count == kept


async def test_a_slave_refuses_another_time_to_live(tmp_path: Path) -> None:
    """Its master's next table would undo it: what had expired for good would be there again."""
    async with role_set(tmp_path) as found:
        await found.switch(1)
        await make_topic(found)
        async with producer_of(found.namesrv) as producer:
            await send_until_taken(producer, b"makes the slave request the topic at once")
        await until(lambda: TOPIC in found.brokers[2].parts.parts.tables.topics, what="the slave has the topic")
        codes = {}
        for number in (2, 1):
            connection = await ClientConnection.open(found.brokers[number].address)
            command = RemotingCommand.request(
                PrivateRequestCode.TTL_SET, ext_fields={"topic": TOPIC, "ttlMs": "3600000"}
            )
            codes[number] = (await connection.call(command, timeout_ms=5_000)).code
            connection.close()
            topics = found.brokers[number].parts.parts.tables.topics
            assert topics.time_to_live_ms(TOPIC) == (3_600_000 if number == found.master else None)
        assert codes == {2: ResponseCode.SERVICE_NOT_AVAILABLE, 1: ResponseCode.SUCCESS}
