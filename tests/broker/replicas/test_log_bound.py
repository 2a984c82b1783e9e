"""A slave takes over how far its master has come when its own log has what the master has made of that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.broker.control_broker import ControlBroker, control_broker
from tests.broker.replicas.following import Following
from tests.broker.replicas.test_metadata_follower import pair
from tests.replication.replica_pair import bytes_of
from thermocline.broker.due.delay_service import schedule
from thermocline.broker.replicas.log_bound import LogBound
from thermocline.broker.replicas.master_metadata import MasterMetadata
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.errors import InvalidRequestError, UnavailableError
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.replication import LogCopy
from thermocline.store.log import MessageDraft

TEN_SECONDS_MS = 10_000


@pytest.fixture(autouse=True)
def waits_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LogBound.__init__.__kwdefaults__, "wait_ms", 20)


def copy_log(master: ControlBroker, slave: ControlBroker) -> None:
    copy = LogCopy(slave.parts.base.store)
    store = master.parts.base.store
    copy.receive(copy.end_offset, memoryview(bytes_of(store, copy.end_offset, store.commit_log.append_offset)))


def delivered(broker: ControlBroker) -> int:
    """How far the first delay level is."""
    offset, _ = broker.parts.due.delays.progress().get(1, (QueueOffset(0), None))
    return offset


def put_delayed(broker: ControlBroker) -> None:
    """Store a message of the first delay level."""
    delays, store = broker.parts.due.delays, broker.parts.base.store
    draft = MessageDraft(
        topic="orders", queue_id=0, body=b"later", properties_text="", born_timestamp_ms=0, born_host=("10.0.0.7", 4711)
    )
    store.put(schedule(draft, {}, 1, level_count=delays.level_count))


@asynccontextmanager
async def with_a_message_due(tmp_path: Path) -> AsyncIterator[tuple[ControlBroker, Following]]:
    """A master whose log its slave has, with a message of the first delay level whose time has come."""
    async with pair(tmp_path) as (master, slave):
        await master.create_topic("orders")
        put_delayed(master)
        copy_log(master, slave.slave)
        await slave.follower.follow_all()
        slave.slave.clock.now_ms += TEN_SECONDS_MS
        yield master, slave


async def test_a_delivery_counts_when_the_delivered_message_is_here(tmp_path: Path) -> None:
    async with with_a_message_due(tmp_path) as (master, slave):
        master.parts.due.delays.deliver_slice()
        assert delivered(master) == 1
        await slave.follower.step()
        assert "the log is behind its master's" in slave.errors["delay offsets"]
        assert delivered(slave.slave) == 0, "as the next master it delivers the message"
        copy_log(master, slave.slave)
        slave.slave.clock.now_ms += TEN_SECONDS_MS
        await slave.follower.step()
        assert delivered(slave.slave) == 1
        assert not slave.errors


async def test_a_log_that_catches_up_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with with_a_message_due(tmp_path) as (master, slave):
        for _ in range(3):
            master.put("orders")
            master.parts.due.delays.deliver_slice()
            slave.slave.clock.now_ms += TEN_SECONDS_MS
            await slave.follower.step()
        assert sum("table=delay offsets" in record.message for record in caplog.records) == 1


async def test_offsets_of_a_group_count_when_the_log_is_here(tmp_path: Path) -> None:
    """The broker's own groups, too: what a round of redelivery has put back is behind the offset that it commits."""
    async with with_a_message_due(tmp_path) as (master, slave):
        master.put("orders")
        master.parts.tables.offsets.commit("orders", "billing", 0, QueueOffset(1))
        with pytest.raises(UnavailableError, match="consumer offsets"):
            await slave.follower.follow_all()
        offsets = slave.slave.parts.tables.offsets
        assert offsets.query("orders", "billing", 0) is None
        copy_log(master, slave.slave)
        await slave.follower.follow_all()
        assert offsets.query("orders", "billing", 0) == 1


async def test_a_log_that_stays_behind_has_what_was_answered_before(tmp_path: Path) -> None:
    async with with_a_message_due(tmp_path) as (master, _):
        own = [PhysicalOffset(0)]
        bound = LogBound(lambda: own[0], period_ms=TEN_SECONDS_MS)
        async with RemotingClient() as client:
            metadata = MasterMetadata(client, master.address)

            async def answer() -> bytes:
                return await bound.newest(metadata, metadata.delay_offsets)

            with pytest.raises(UnavailableError, match="the log is behind"):
                await answer()
            before, own[0] = await metadata.delay_offsets(), await metadata.log_end()
            master.parts.due.delays.deliver_slice()
            after = await metadata.delay_offsets()
            assert await answer() == before != after
            assert bound.asked_offset == 0, "what has come here since may be newer than the answer"
            own[0] = await metadata.log_end()
            assert await answer() == after
            assert bound.asked_offset == own[0]
            own[0] = PhysicalOffset(0)  # cut since: it has the delivered message no more
            with pytest.raises(UnavailableError, match="the log is behind"):
                await answer()


async def test_offsets_that_waited_for_the_log_have_no_pops_that_came_since(tmp_path: Path) -> None:
    """A check point of POP behind `popLogOffset` is newer than the offsets: a new master moves the group on by it."""
    async with with_a_message_due(tmp_path) as (master, slave):
        offsets, log = slave.slave.parts.tables.offsets, slave.slave.parts.base.store.commit_log
        master.put("orders")
        master.parts.tables.offsets.commit("orders", "billing", 0, QueueOffset(1))
        asked_at = log.append_offset
        await slave.follower.step()
        copy_log(master, slave.slave)
        master.put("orders")
        slave.slave.clock.now_ms += TEN_SECONDS_MS
        await slave.follower.step()
        assert offsets.query("orders", "billing", 0) == 1
        assert offsets.followed_log_offset == asked_at < log.append_offset


async def test_what_waits_for_the_log_of_a_former_master_lets_no_report_pass(tmp_path: Path) -> None:
    """A report is allowed below the end that a table waits for; the next master's log may be shorter."""
    async with with_a_message_due(tmp_path) as (master, slave):
        master.parts.due.delays.deliver_slice()
        await slave.follower.step()
        assert slave.follower.waits_for_log
        async with control_broker(tmp_path / "next", clock=slave.slave.clock) as next_master:
            slave.master_address = next_master.address
            slave.follower._find_master()  # its tables are requested one after the other, those bound to the log last
            bounds = [each.table.bound for each in slave.follower._followed if each.table.bound is not None]
            assert not any(bound.is_behind for bound in bounds)
            await slave.follower.step()
            assert slave.follower.has_followed_all


async def test_a_master_that_tells_no_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with with_a_message_due(tmp_path) as (master, slave):
        master.parts.due.delays.deliver_slice()
        monkeypatch.setattr(MasterMetadata, "log_end", _refuse)
        await slave.follower.step()
        assert "tells no end" in slave.errors["delay offsets"]
        assert delivered(slave.slave) == 0


async def _refuse(self: MasterMetadata) -> PhysicalOffset:
    raise InvalidRequestError("tells no end")
