"""Controller client: finding the one that leads, deadlines, heartbeats to all, and how often it complains.

Covers `broker/controlled/controller_client.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.clock import Clock
from tests.waiting import until
from thermocline.broker.controlled.controller_client import ASK_TIMEOUT_MS, COMPLAINT_MS, ControllerClient
from thermocline.localstack.loopback_port import free_port
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Dispatcher, Handler, RemotingServer
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.headers.controller import GetMetaDataResponseHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

QUESTION = RequestCode.CONTROLLER_GET_REPLICA_INFO


class Controller:
    """One whose answers a test chooses."""

    def __init__(self) -> None:
        self.address = ""
        self.leader = ""
        self.leads = True
        self.answers = True
        self.asked = 0
        self.beats = 0
        self.closed = 0
        self.seen: list[int] = []

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.CONTROLLER_GET_METADATA_INFO: self.metadata,
            RequestCode.BROKER_HEARTBEAT: self.beat,
            QUESTION: self.question,
        }

    def metadata(self, _: Connection, command: RemotingCommand) -> RemotingCommand | None:
        if not self.answers:
            return None
        header = GetMetaDataResponseHeader(
            controller_leader_address=self.leader or None, is_leader=self.leads and self.leader == self.address
        )
        return RemotingCommand.response(command, header=header)

    def beat(self, _: Connection, command: RemotingCommand) -> None:
        self.seen.append(command.code)
        self.beats += 1

    def question(self, _: Connection, command: RemotingCommand) -> RemotingCommand | None:
        self.seen.append(command.code)
        self.asked += 1
        if not self.answers:
            return None
        code = ResponseCode.SUCCESS if self.leads else ResponseCode.CONTROLLER_NOT_LEADER
        return RemotingCommand.response(command, code)

    def gone(self, _: Connection) -> None:
        self.closed += 1

    async def start(self, resources: contextlib.AsyncExitStack) -> None:
        server = RemotingServer(Dispatcher([self], on_closed=[self.gone]))
        self.address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
        resources.push_async_callback(server.close)


class Group:
    """Two controllers and an address where there is none."""

    def __init__(self) -> None:
        self.nowhere = f"127.0.0.1:{free_port()}"
        self.first, self.second = Controller(), Controller()
        self.clock = Clock()

    @property
    def addresses(self) -> tuple[str, ...]:
        return (self.nowhere, self.first.address, self.second.address)

    def led_by(self, leader: Controller) -> None:
        for each in (self.first, self.second):
            each.leader, each.leads = leader.address, each is leader


@contextlib.asynccontextmanager
async def groups() -> AsyncIterator[tuple[Group, ControllerClient]]:
    async with contextlib.AsyncExitStack() as resources:
        group = Group()
        await group.first.start(resources)
        await group.second.start(resources)
        group.led_by(group.first)
        client = ControllerClient(addresses=lambda: group.addresses, clock=group.clock)
        resources.push_async_callback(client.close)
        yield group, client


def question() -> RemotingCommand:
    return RemotingCommand.request(QUESTION)


def heartbeat() -> RemotingCommand:
    return RemotingCommand.request(RequestCode.BROKER_HEARTBEAT, oneway=True)


async def test_the_one_that_leads_is_asked_and_another_one_after_it() -> None:
    async with groups() as (group, client):
        await client.ask(question())
        assert (group.first.asked, group.second.asked) == (1, 0)
        group.led_by(group.second)
        with pytest.raises(UnavailableError, match="does not lead"):
            await client.ask(question())
        await client.ask(question())
        assert (group.first.asked, group.second.asked) == (2, 1)
        assert client.leader == group.second.address
        assert group.first.closed == 0, "a connection that carried heartbeats stays"


async def test_one_that_leads_by_its_own_word_counts_before_what_others_say() -> None:
    async with groups() as (group, client):
        group.second.leader = group.nowhere  # it has not heard yet
        for _ in range(5):
            client._leader = ""
            await client.ask(question())
        assert group.first.asked == 5


async def test_a_leader_that_does_not_answer_is_given_up_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ASK_TIMEOUT_MS == 3_000
    monkeypatch.setattr("thermocline.broker.controlled.controller_client.ASK_TIMEOUT_MS", 100)
    monkeypatch.setattr("thermocline.broker.controlled.controller_client.METADATA_TIMEOUT_MS", 100)
    async with groups() as (group, client):
        await client.ask(question())
        group.first.answers = False
        with pytest.raises(UnavailableError):
            await client.ask(question())
        group.second.leader, group.second.leads = group.second.address, True
        await client.ask(question())
        assert group.second.asked == 1
        assert group.first.closed == 0, "a late answer closes nothing"


async def test_heartbeats_reach_all_that_can_be_reached_and_come_before_an_election() -> None:
    async with groups() as (group, client):
        for count in range(1, 4):
            client.beat(heartbeat)
            await until(lambda count=count: group.first.beats == group.second.beats == count)  # type: ignore[misc]
            await until(lambda: not client._beats)
        await client.ask(question(), heartbeat=heartbeat())
        assert group.first.seen[-2:] == [RequestCode.BROKER_HEARTBEAT, QUESTION]


async def test_one_heartbeat_at_a_time_is_under_way_to_an_address() -> None:
    async with groups() as (_, client):
        made = []

        def make() -> RemotingCommand:
            made.append(1)
            return heartbeat()

        for _ in range(5):
            client.beat(make)
        assert len(made) == 3
        await until(lambda: not client._beats)


async def test_an_address_that_is_named_no_more_is_left() -> None:
    async with groups() as (group, client):
        client.beat(heartbeat)
        await until(lambda: group.first.beats == group.second.beats == 1)
        client._addresses = lambda: (group.first.address,)
        client.beat(heartbeat)
        await until(lambda: group.second.closed == 1)
        assert group.first.closed == 0
        client.disconnect()
        await until(lambda: group.first.closed == 1)


async def test_a_leader_that_names_itself_otherwise_keeps_its_connection() -> None:
    async with groups() as (group, client):
        client._addresses = lambda: (group.first.address.replace("127.0.0.1", "localhost"),)
        await client.ask(question())
        client.beat(heartbeat)
        await until(lambda: group.first.beats == 2, what="a heartbeat has come over each of the two connections")
        group.first.leads = False
        with pytest.raises(UnavailableError):
            await client.ask(question())
        client.beat(heartbeat)
        await until(lambda: group.first.beats == 3)
        assert group.first.closed == 0


async def test_it_complains_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async with contextlib.AsyncExitStack() as resources:
        clock, nowhere = Clock(), f"127.0.0.1:{free_port()}"
        client = ControllerClient(addresses=lambda: (nowhere,), clock=clock)
        resources.push_async_callback(client.close)
        for _ in range(10):
            with pytest.raises(UnavailableError):
                await client.ask(question())
            clock.now_ms += COMPLAINT_MS // 5
        warnings = [record for record in caplog.records if "no controller answers" in record.message]
        assert len(warnings) == 2


async def test_asking_may_be_cancelled() -> None:
    async with groups() as (group, client):
        await client.ask(question())
        group.first.answers = False
        task = asyncio.create_task(client.ask(question()))
        await until(lambda: group.first.asked == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        group.first.answers = True
        await client.ask(question())
