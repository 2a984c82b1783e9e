"""A broker whose users are not loaded yet answers every request alike, and does nothing for it.

Covers `broker/port/late_handler.py`. And what a start says of ports that users do not guard.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from tests.auth.broker_with_users import ALICE, ROOT, broker_with_users
from tests.auth.test_effects import SEND
from tests.waiting import until
from thermocline.broker.assembly.access import AccessParts
from thermocline.broker.hot_process import HotProcess
from thermocline.broker.settings.replica_settings import BrokerRole
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand, SerializeType
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

CODES = sorted({*map(int, RequestCode), *map(int, PrivateRequestCode), 0, 77_777})
BODY = b'{"groupName":"GroupX","topicName":"TopicX"}'
FIELDS = {**SEND, "b": "TopicX", "topic": "TopicX", "group": "GroupX", "username": "alice"}


async def test_while_a_broker_starts_nothing_is_told_and_nothing_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starting: list[HotProcess] = []
    may_go_on = asyncio.Event()
    boot, start = AccessParts.boot, HotProcess.start

    async def boot_later(self: AccessParts) -> None:
        await may_go_on.wait()
        await boot(self)

    async def start_noted(self: HotProcess) -> str:
        starting.append(self)
        return await start(self)

    monkeypatch.setattr(AccessParts, "boot", boot_later)
    monkeypatch.setattr(HotProcess, "start", start_noted)

    async def ask_all() -> None:
        await until(lambda: bool(starting) and hasattr(starting[0], "_listener") and starting[0]._listener.port > 0)
        process = starting[0]
        connection = await ClientConnection.open(f"127.0.0.1:{process._listener.port}")
        store = process._role.local.store
        before = store.commit_log.append_offset
        answers = set()
        for serialize_type in SerializeType:
            for user in (None, ALICE, ROOT):
                for code in CODES:
                    command = RemotingCommand.request(
                        code, ext_fields=dict(FIELDS), body=BODY, serialize_type=serialize_type
                    )
                    if user is not None:
                        user.sign(command)
                    answer = await connection.call(command, timeout_ms=60_000)
                    answers.add((answer.code, answer.remark, bytes(answer.body), str(answer.ext_fields)))
        refusals = ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE  # the latter of sends
        assert answers == {(code, "system busy", b"", "None") for code in refusals}
        assert store.commit_log.append_offset == before
        assert not list(store.queues.of_topic("TopicX"))
        connection.close()
        may_go_on.set()

    asking = asyncio.ensure_future(ask_all())
    asking.add_done_callback(lambda _: may_go_on.set())
    async with broker_with_users(tmp_path) as broker:
        await asking
        tables = broker.process._parts.tables
        assert "TopicX" not in tables.topics
        assert broker.store.now.users.keys() == {"root"}
        refused = await broker.ask(RequestCode.SEND_MESSAGE_V2, fields=dict(FIELDS), body=b"x")
        assert refused.code == ResponseCode.NO_PERMISSION


async def test_a_start_warns_of_the_port_for_slaves_that_has_no_users(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with broker_with_users(
            tmp_path, listen_host="0.0.0.0", advertised_host="127.0.0.1", broker_role=BrokerRole.ASYNC_MASTER
        ) as broker:
            port = broker.process._settings.broker.ha_port
            assert port
    (line,) = [record.getMessage() for record in caplog.records if "no users and no TLS" in record.getMessage()]
    assert f"0.0.0.0:{port}" in line
