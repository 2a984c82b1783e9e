"""What was committed at a slave goes unasked to a master that is there again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.broker.acting.members import Members
from tests.broker.acting.node import Node, node
from tests.waiting import until
from thermocline.broker.acting.offset_return import OffsetReturn
from thermocline.broker.cluster import StandIn
from thermocline.broker.tables.consumer_offsets import ConsumerOffsets
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.headers.read import UpdateConsumerOffsetRequestHeader
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

COMMIT, GET_ALL = RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.GET_ALL_CONSUMER_OFFSET


class Pair:
    """A slave's offsets, and a master with its own."""

    def __init__(self, master: Node, client: RemotingClient) -> None:
        self.members: Any = Members()
        self.members.master_address = master.address
        self.master = master
        self.lacking_offset = -1
        self.slave_offsets = ConsumerOffsets(clock=lambda: 1)
        self.master_offsets = ConsumerOffsets(clock=lambda: 1)
        master.answers[GET_ALL] = lambda command: RemotingCommand.response(command, body=self.master_offsets.encode())
        master.answers[COMMIT] = lambda command: RemotingCommand.response(command)
        self.returns = OffsetReturn(
            self.members,
            self.slave_offsets,
            client,
            had=lambda topic, queue_id, offset: offset != self.lacking_offset,
            timeout_ms=lambda: 1_000,
            clock=lambda: 1,
        )

    def commit(self, table: ConsumerOffsets, **offsets: int) -> None:
        for group, offset in offsets.items():
            table.commit("t", group, 0, QueueOffset(offset))

    async def come_back(self) -> dict[str, int]:
        """What the master gets."""
        self.members.become(StandIn.FOLLOWING)
        await until(lambda: not self.returns.is_pending, what="the offsets are given back")
        headers = [
            command.header(UpdateConsumerOffsetRequestHeader) for command in self.master.asked if command.code == COMMIT
        ]
        assert all((header.topic, header.queue_id) == ("t", 0) for header in headers)
        return {header.consumer_group: header.commit_offset for header in headers}


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    client = RemotingClient()
    async with node({}) as master:
        found = Pair(master, client)
        yield found
        await found.returns.close()
        await client.close()


async def test_what_is_further_and_was_committed_meanwhile_is_sent(pair: Pair) -> None:
    """A group that the master has moved back before the slave learned of its end is left alone."""
    pair.commit(pair.slave_offsets, ahead=5, moved_back=9, new=0)
    pair.commit(pair.master_offsets, ahead=5, moved_back=2, behind=9)
    pair.members.become(StandIn.ACTING)
    pair.commit(pair.slave_offsets, ahead=8, behind=7, new=3)
    assert pair.returns.is_pending
    assert await pair.come_back() == {"ahead": 8, "new": 3}


async def test_progress_in_the_revive_topic_is_not_sent(pair: Pair) -> None:
    """That master has its popped messages in flight itself."""
    pair.members.become(StandIn.ACTING)
    pair.commit(pair.slave_offsets, CID_RMQ_SYS_REVIVE_GROUP=5, shop=5)
    assert await pair.come_back() == {"shop": 5}


async def test_a_group_that_went_on_behind_missing_messages_gets_them_at_the_master(pair: Pair) -> None:
    pair.commit(pair.master_offsets, lacking=2, whole=5)
    pair.lacking_offset = 2
    pair.members.become(StandIn.ACTING)
    pair.commit(pair.slave_offsets, lacking=9, whole=9)
    assert await pair.come_back() == {"whole": 9}


async def test_nothing_is_asked_where_nothing_was_committed(pair: Pair) -> None:
    pair.commit(pair.slave_offsets, same=5)
    pair.members.become(StandIn.ACTING)
    assert await pair.come_back() == {}
    assert pair.master.asked == []
    pair.commit(pair.slave_offsets, same=8)  # as it follows the master now
    pair.members.become(StandIn.WAITING)
    assert await pair.come_back() == {}


async def test_a_master_that_does_not_answer_is_asked_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thermocline.broker.acting.offset_return.AGAIN_S", 0.01)
    answer = pair.master.answers[GET_ALL]
    pair.master.answers[GET_ALL] = lambda command: (
        RemotingCommand.response(command, ResponseCode.SYSTEM_BUSY) if len(pair.master.asked) < 3 else answer(command)
    )
    pair.members.become(StandIn.ACTING)
    pair.commit(pair.slave_offsets, group=5)
    assert await pair.come_back() == {"group": 5}


async def test_a_master_that_is_gone_again_while_it_gets_them_gets_what_was_committed_since(pair: Pair) -> None:
    answer = pair.master.answers[GET_ALL]

    def gone_again(command: RemotingCommand) -> RemotingCommand:
        pair.members.become(StandIn.ACTING)
        return answer(command)

    pair.master.answers[GET_ALL] = gone_again
    pair.members.become(StandIn.ACTING)
    pair.commit(pair.slave_offsets, group=5)
    pair.members.become(StandIn.FOLLOWING)
    await until(lambda: pair.returns._task is None, what="the first try is over")
    pair.master.answers[GET_ALL] = answer
    pair.commit(pair.slave_offsets, group=9)
    assert await pair.come_back() == {"group": 9}


async def test_a_master_that_is_gone_and_back_while_it_gets_them_gets_what_was_committed_between(pair: Pair) -> None:
    answer = pair.master.answers[GET_ALL]

    def gone_and_back(command: RemotingCommand) -> RemotingCommand:
        pair.master.answers[GET_ALL] = answer
        pair.members.become(StandIn.ACTING)
        pair.commit(pair.slave_offsets, group=9)
        pair.members.become(StandIn.FOLLOWING)
        return answer(command)

    pair.master.answers[GET_ALL] = gone_and_back
    pair.members.become(StandIn.ACTING)
    pair.commit(pair.slave_offsets, group=5)
    assert await pair.come_back() == {"group": 9}


async def test_a_group_that_the_master_refuses_keeps_no_other_back(pair: Pair) -> None:
    def answer(command: RemotingCommand) -> RemotingCommand:
        group = command.header(UpdateConsumerOffsetRequestHeader).consumer_group
        return RemotingCommand.response(
            command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST if group == "first" else ResponseCode.SUCCESS
        )

    pair.master.answers[COMMIT] = answer
    pair.members.become(StandIn.ACTING)
    pair.commit(pair.slave_offsets, first=5, second=5)
    assert await pair.come_back() == {"first": 5, "second": 5}
