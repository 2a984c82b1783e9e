"""Requests for a master that reach its slave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.broker.acting.node import Node, node
from thermocline.broker.acting.handed_over_requests import CODES, HandedOverRequests
from thermocline.broker.cluster import StandIn
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import BrokerBusyError, UnavailableError
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

TIMEOUT_MS = 300
FIELDS = {"topic": "t", "AccessKey": "client", "Signature": "of the client"}


class Members:
    """Stands for the watch of the members."""

    state = StandIn.FOLLOWING
    master_address: str | None = None


@pytest.fixture
def members() -> Members:
    return Members()


@pytest.fixture
async def master(members: Members) -> AsyncIterator[Node]:
    def answer(command: RemotingCommand) -> RemotingCommand:
        return RemotingCommand.response(command, ResponseCode.QUERY_NOT_FOUND, remark="from the master", body=b"found")

    async with node(dict.fromkeys(CODES, answer)) as found:
        members.master_address = found.address
        yield found


@pytest.fixture
async def requests(members: Any, master: Node) -> AsyncIterator[HandedOverRequests]:
    client = RemotingClient()
    served_by = {
        code: lambda connection, command: RemotingCommand.response(command, remark="from the slave") for code in CODES
    }
    yield HandedOverRequests(members, client, served_by=served_by, timeout_ms=lambda: TIMEOUT_MS)
    await client.close()


async def serve(requests: HandedOverRequests, code: int) -> RemotingCommand:
    command = RemotingCommand.request(code, ext_fields=FIELDS, body=b"asked")
    answer = requests.routes()[code](None, command)  # type: ignore[arg-type]
    if isinstance(answer, RemotingCommand):
        return answer
    assert answer is not None
    found = await answer
    assert found is not None
    assert found.opaque == command.opaque
    return found


@pytest.mark.parametrize("state", [StandIn.FOLLOWING, StandIn.HANDING_OVER])
@pytest.mark.parametrize("code", CODES)
async def test_the_master_answers(
    requests: HandedOverRequests, members: Members, master: Node, state: StandIn, code: RequestCode
) -> None:
    members.state = state
    answer = await serve(requests, code)
    assert (answer.code, answer.remark, bytes(answer.body)) == (22, "from the master", b"found")
    (asked,) = master.asked
    assert (asked.code, asked.ext_fields, asked.body) == (code, {"topic": "t"}, b"asked")


@pytest.mark.parametrize("state", [StandIn.ACTING, StandIn.WAITING])
async def test_the_slave_answers_while_there_is_no_master(
    requests: HandedOverRequests, members: Members, master: Node, state: StandIn
) -> None:
    members.state = state
    assert (await serve(requests, RequestCode.LOCK_BATCH_MQ)).remark == "from the slave"
    assert master.asked == []


async def test_a_master_that_starts_is_asked_until_it_serves(requests: HandedOverRequests, master: Node) -> None:
    def answer(command: RemotingCommand) -> RemotingCommand:
        code = ResponseCode.SYSTEM_BUSY if len(master.asked) == 1 else ResponseCode.SUCCESS
        return RemotingCommand.response(command, code)

    master.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = answer
    assert (await serve(requests, RequestCode.UPDATE_CONSUMER_OFFSET)).code == ResponseCode.SUCCESS
    assert len(master.asked) == 2


async def test_a_master_that_stays_busy_says_so(requests: HandedOverRequests, master: Node) -> None:
    master.answers[RequestCode.QUERY_CONSUMER_OFFSET] = lambda command: RemotingCommand.response(
        command, ResponseCode.SYSTEM_BUSY
    )
    assert (await serve(requests, RequestCode.QUERY_CONSUMER_OFFSET)).code == ResponseCode.SYSTEM_BUSY


async def test_a_master_that_is_not_there_is_an_error(requests: HandedOverRequests, members: Members) -> None:
    members.master_address = "127.0.0.1:1"
    with pytest.raises(UnavailableError):
        await serve(requests, RequestCode.QUERY_CONSUMER_OFFSET)


async def test_only_so_many_requests_are_on_the_way(
    requests: HandedOverRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thermocline.broker.acting.handed_over_requests.CALLS_MAX", 1)
    code = RequestCode.QUERY_CONSUMER_OFFSET
    first = asyncio.ensure_future(serve(requests, code))
    await asyncio.sleep(0)
    with pytest.raises(BrokerBusyError):
        await serve(requests, code)
    await first
    await serve(requests, code)
