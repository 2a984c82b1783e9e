"""What names in requests make access control remember: bounded by their length too, for strangers and for users.

Covers `remoting/request_signature.py`, `auth/access_control.py`, `auth/administration.py`,
`broker/access/request_guard.py`, `broker/pulls/long_polling.py`, `broker/pops/pop_polling.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.auth.broker_with_users import ALICE, ROOT, broker_with_users, entry
from tests.auth.test_effects import PULL, pop_fields
from tests.waiting import until
from thermocline.auth.actions import Action
from thermocline.remoting import request_signature
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

LONG = "x" * 50_000
LONG_TEXT = "x" * 20_000
"""A request may have it, and then does not wait."""


async def test_a_stranger_s_field_names_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of frames of 16 MiB each a thousand would be all memory of the machine."""
    monkeypatch.setattr(request_signature, "_orders", {})
    async with broker_with_users(tmp_path) as broker:
        for number in range(3):
            fields = {"AccessKey": "no-user", "Signature": "x", f"{LONG}{number}": "1"}
            refused = await broker.ask(RequestCode.GET_BROKER_CONFIG, fields=fields)
            assert refused.remark == "check signature failed."
        assert (await broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO, user=ROOT)).code == ResponseCode.SUCCESS
    assert request_signature._orders
    assert max(sum(map(len, names)) for names in request_signature._orders) <= 1_000


def test_the_orders_of_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_signature, "_orders", {})
    for number in range(5_000):
        assert request_signature.signed_content({f"b{number}": "2", "a": "1"}, b"3") == b"123"
    assert 0 < len(request_signature._orders) <= 1_024


async def test_a_user_s_names_of_topics_and_groups_are_not_kept(tmp_path: Path) -> None:
    async with broker_with_users(tmp_path) as broker:
        await broker.add_user(ALICE, entry("Topic:*", Action.SUB), entry("Group:*", Action.SUB))
        await broker.process._parts.tables.topics.ensure("TopicA", queue_count=1)
        for code, fields in (
            (RequestCode.PULL_MESSAGE, PULL),
            (RequestCode.POP_MESSAGE, pop_fields()),
            (RequestCode.NOTIFICATION, pop_fields()),
        ):
            for changes in ({"topic": LONG}, {"consumerGroup": LONG}):
                refused = await broker.ask(code, user=ALICE, fields={**fields, **changes})
                assert refused.code != ResponseCode.SUCCESS
        access = broker.process._parts.access
        assert access is not None
        kept: list[object] = [*access.control._pulls, *access.control._verdicts, *access.control._judgements]
        kept += [key for pulls in access.guard._pulls.values() for key in pulls]
        kept += [read for reads in access.guard._reads.values() for read in reads]
        assert max(len(repr(key)) for key in kept) < 2_000
        # A connection of which not all is kept ends with the next change about its user.
        connection = broker.connections[0]
        await broker.set_policy(ALICE, entry("Topic:*", Action.SUB))
        await connection.wait_closed()


async def test_a_question_about_a_policy_has_short_texts(tmp_path: Path) -> None:
    async with broker_with_users(tmp_path) as broker:
        fields = {"username": "root", "resource": "Topic:T", "actions": "Pub", "sourceIp": "10.0.0.1"}
        assert (await broker.ask(PrivateRequestCode.ACL_CHECK, user=ROOT, fields=fields)).code == ResponseCode.SUCCESS
        for changes in ({"sourceIp": LONG}, {"resource": f"Topic:{LONG}"}):
            refused = await broker.ask(PrivateRequestCode.ACL_CHECK, user=ROOT, fields={**fields, **changes})
            assert refused.code == ResponseCode.INVALID_PARAMETER


async def test_a_request_that_waits_keeps_no_long_text(tmp_path: Path) -> None:
    """Ten thousand of a connection may wait."""
    async with broker_with_users(tmp_path) as broker:
        await broker.process._parts.tables.topics.ensure("TopicA", queue_count=1)
        connection = await broker.connect()

        async def ask(code: RequestCode, fields: dict[str, str]) -> RemotingCommand:
            return await broker.ask(code, user=ROOT, fields=fields, connection=connection)

        pop = {**pop_fields(), "pollTime": "15000"}
        pulled = await ask(RequestCode.PULL_MESSAGE, {**PULL, "subscription": LONG_TEXT})
        assert pulled.code == ResponseCode.SYSTEM_BUSY
        assert (await ask(RequestCode.POP_MESSAGE, {**pop, "exp": LONG_TEXT})).code == ResponseCode.POLLING_FULL
        refused = await ask(RequestCode.POP_MESSAGE, {**pop, "attemptId": LONG_TEXT})
        assert refused.code == ResponseCode.INVALID_PARAMETER
        noticed = await ask(RequestCode.NOTIFICATION, {**pop, "attemptId": LONG_TEXT})
        assert (noticed.ext_fields or {})["pollingFull"] == "true"
        # Of those that do wait nothing is kept but what they need: other fields are not.
        for code in (RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION):
            command = RemotingCommand.request(code, ext_fields={**pop, "another": LONG_TEXT})
            ROOT.sign(command)
            connection.start_call(command, timeout_ms=60_000).add_done_callback(lambda done: done.exception())
        handler: Any = broker.process.dispatcher._handlers[RequestCode.NOTIFICATION]
        pops, notices = handler.__self__._polling, handler.__self__._notifications
        await until(lambda: pops._count == notices._count == 1, what="both wait")
        for polling in (pops, notices):
            (parked,) = (each for waiting in polling._places.values() for each in waiting)
            waiter: Any = parked.waiter
            assert (waiter._request.command if polling is pops else waiter._command).ext_fields is None
