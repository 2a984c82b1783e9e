"""A million mutated signatures, policies and files of access control: typed answers, no traceback, flat memory.

Covers `auth/auth_store.py`, `auth/plain_acl.py`, `remoting/request_signature.py`. Together 10^6 cases under `--soak`;
the TLS handshake has its own (tests/remoting/tls/test_tls_layer.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.auth.access_cases import CHANGE_CODES, POLICY, SUBJECTS, changes, requests, texts
from tests.auth.broker_with_users import ALICE, BOB, ROOT, BrokerWithUsers, broker_with_users, entry
from tests.auth.test_effects import SEND
from thermocline.auth.access_control import AccessControl
from thermocline.auth.actions import Action
from thermocline.auth.administration import Administration
from thermocline.auth.audit import AuditLog
from thermocline.auth.auth_config import AuthConfig
from thermocline.auth.auth_store import AuthStore
from thermocline.auth.info import policies_from_info
from thermocline.auth.plain_acl import read_accounts
from thermocline.auth.users import UserType
from thermocline.remoting.bodies.auth import AclInfo
from thermocline.remoting.command import RemotingCommand, decode_command
from thermocline.remoting.errors import CorruptDataError, MQError, SettingError
from thermocline.remoting.frames import LENGTH
from thermocline.remoting.json_dialect import loads_as
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

logger = logging.getLogger(__name__)

SEED = 1_901
CHUNK = 100
"""Requests that are sent at once."""
WARM = 0.2
"""Of the cases: behind them tables that are bounded are full."""
GROWTH_BYTES_MAX = 24 << 20
DENIED, DONE = ResponseCode.NO_PERMISSION, ResponseCode.SUCCESS
ANSWERS = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.NO_PERMISSION,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.ILLEGAL_OPERATION,
    }
)
"""What a request about users and policies is answered."""


def resident_bytes() -> int:
    """Memory of this process, in which the broker runs, too."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class Memory:
    """Compares the process with what it was when a fifth of the cases had passed."""

    def __init__(self, count: int) -> None:
        self._warm = int(count * WARM)
        self._before = 0
        self._cases = 0

    def passed(self, cases: int) -> None:
        self._cases += cases
        if not self._before and self._cases >= self._warm:
            self._before = resident_bytes()

    def check(self) -> None:
        grown = resident_bytes() - self._before
        logger.info("cases=%d resident_bytes=%d grown_bytes=%d", self._cases, self._before, grown)
        assert grown < GROWTH_BYTES_MAX


class Wire:
    """One connection with many requests under way."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def open(self) -> None:
        host, _, port = self._address.rpartition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port), limit=1 << 22)

    async def ask(self, commands: list[RemotingCommand]) -> dict[int, RemotingCommand]:
        self._writer.write(b"".join(command.encode() for command in commands))
        answers = {}
        async with asyncio.timeout(120):
            for _ in commands:
                (size_bytes,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
                answer = decode_command(await self._reader.readexactly(size_bytes))
                answers[answer.opaque] = answer
        return answers

    def close(self) -> None:
        self._writer.close()


async def assert_serves(broker: BrokerWithUsers) -> None:
    """A client that does nothing wrong is served, and one that may not is refused."""
    connection = await broker.connect()
    for user, code in ((ALICE, DONE), (BOB, DENIED)):
        answer = await broker.ask(
            RequestCode.SEND_MESSAGE_V2, user=user, fields=dict(SEND), body=b"body", connection=connection
        )
        assert answer.code == code, answer.remark


async def prepare(broker: BrokerWithUsers) -> None:
    for topic in ("TopicA", "TopicB"):
        await broker.process._parts.tables.topics.ensure(topic, queue_count=1)
    await broker.add_user(ALICE, entry("Topic:TopicA", Action.PUB))
    await broker.add_user(BOB)
    await assert_serves(broker)


@pytest.mark.parametrize("seed", range(SEED, SEED + 5))
async def test_mutated_signatures(
    seed: int, tmp_path: Path, case_count: Callable[..., int], caplog: pytest.LogCaptureFixture
) -> None:
    """What no user has signed is refused, whatever it is; a signed request may do what its user's rights give."""
    caplog.set_level(logging.WARNING, logger="thermocline")
    chance, count = random.Random(seed), case_count(quick=600, soak=100_000)
    cases, memory, kinds = requests(chance), Memory(count), Counter[str]()
    async with broker_with_users(tmp_path) as broker:
        await prepare(broker)
        wire = Wire(broker.address)
        await wire.open()
        for _ in range(count // CHUNK):
            chunk = list(itertools.islice(cases, CHUNK))
            answers = await wire.ask([case.command for case in chunk])
            for case in chunk:
                command, code = case.command, answers[case.command.opaque].code
                if case.is_signed_otherwise and not case.is_signed:
                    kinds["otherwise"] += 1
                elif not case.is_signed:
                    assert code == DENIED, (
                        f"{command.ext_fields} {bytes(command.body)!r} {command.version} {command.serialize_type}"
                    )
                    kinds["unsigned"] += 1
                elif command.code == RequestCode.SEND_MESSAGE_V2:
                    fields = command.ext_fields or {}
                    if fields["AccessKey"] == "bob" or (fields["AccessKey"] == "alice" and fields.get("b") == "TopicB"):
                        assert code == DENIED
                        kinds["no right"] += 1
                    elif fields.get("b") == "TopicA":
                        assert code != DENIED, (command, answers[command.opaque].remark)
                        kinds["right"] += 1
            memory.passed(len(chunk))
            await asyncio.sleep(0)
        wire.close()
        await assert_serves(broker)
        assert min(kinds["unsigned"], kinds["no right"], kinds["right"]) > count / 200, kinds
        assert "alice" in broker.store.now.users
    memory.check()
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


async def test_mutated_policies_at_a_broker(
    tmp_path: Path, case_count: Callable[..., int], caplog: pytest.LogCaptureFixture
) -> None:
    """On a port, with what is accepted written to the disk; the broker can be started with it again."""
    caplog.set_level(logging.WARNING, logger="thermocline")
    count = case_count(quick=600, soak=20_000)
    cases, memory, codes = changes(random.Random(SEED)), Memory(count), Counter[tuple[int, int]]()
    async with broker_with_users(tmp_path) as broker:
        await prepare(broker)
        for subject in SUBJECTS:
            await broker.store.create_user(subject.removeprefix("User:"), "key", None, None)
        wire = Wire(broker.address)
        await wire.open()
        for _ in range(count // CHUNK):
            chunk = list(itertools.islice(cases, CHUNK))
            answers = await wire.ask(chunk)
            for command in chunk:
                codes[command.code, answers[command.opaque].code] += 1
            memory.passed(len(chunk))
        wire.close()
        await assert_serves(broker)
        stored_before = broker.store.encode()
    async with broker_with_users(tmp_path) as broker:
        assert broker.store.encode() == stored_before
        await assert_serves(broker)
    memory.check()
    assert {answer for _, answer in codes} <= ANSWERS, codes
    assert all(codes[code, DONE] for code in CHANGE_CODES), codes
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


async def test_mutated_policies(case_count: Callable[..., int]) -> None:
    """The same requests where they are served, without a disk: many more of them."""

    async def saved() -> None:
        """Nothing to wait for."""

    count = case_count(quick=4_000, soak=280_000)
    store = AuthStore(saved)
    audit = AuditLog(None, clock=lambda: 0, is_access_wanted=lambda: False)
    config = AuthConfig(authentication_enabled=True, authorization_enabled=True)
    access = AccessControl(store, config, audit=audit, cluster_name="c")
    await store.create_user(ROOT.access_key, ROOT.secret_key, UserType.SUPER, None)
    routes, memory, outcomes = Administration(store, access).routes(), Memory(count), Counter[str]()
    for command in itertools.islice(changes(random.Random(SEED + 1)), count):
        try:
            access.check(command, "127.0.0.1")
            served = routes[command.code](None, command)
            answer = served if isinstance(served, RemotingCommand) else await served
            assert answer.code in ANSWERS
            outcomes["answered"] += 1
        except MQError as error:
            outcomes[type(error).__name__] += 1
        memory.passed(1)
    memory.check()
    assert outcomes["answered"] > count / 10, outcomes
    assert len(outcomes) > 2, outcomes
    assert len(store.now.users) < 400


def store_with(data: bytes) -> AuthStore:
    async def saved() -> None:
        """Nothing to wait for."""

    store = AuthStore(saved)
    store.load(data)
    return store


async def stored_file() -> bytes:
    """A file of users and policies."""
    store = store_with(b'{"users":[],"acls":[]}')
    for user in (ALICE, BOB, ROOT):
        await store.create_user(user.access_key, user.secret_key, None, None)
    info = loads_as(str(POLICY).replace("'", '"').encode(), AclInfo)
    await store.update_acl("User:alice", policies_from_info(info))
    return store.encode()


async def test_mutated_files_of_users(case_count: Callable[..., int]) -> None:
    """A file is read whole or not at all; what was read is written and read again as the same."""
    count = case_count(quick=2_000, soak=100_000)
    data = await stored_file()
    memory, read = Memory(count), 0
    for mutated in itertools.islice(texts(random.Random(SEED), data), count):
        with contextlib.suppress(CorruptDataError):
            store = store_with(mutated)
            written = store.encode()
            assert store_with(written).encode() == written
            read += 1
        memory.passed(1)
    memory.check()
    assert 0 < read < count


PLAIN_ACL = b"""globalWhiteRemoteAddresses:
  - 10.10.103.*
accounts:
  - accessKey: RocketMQ
    secretKey: "12345678"
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB  # both
    groupPerms:
      - groupA=SUB
  - accessKey: other
    secretKey: '87654321'
    admin: true
"""


def test_mutated_older_files(case_count: Callable[..., int]) -> None:
    """Read, or refused with the place; nothing of the file is in the error."""
    count = case_count(quick=2_000, soak=100_000)
    memory, read, shown_count = Memory(count), 0, 0
    for mutated in itertools.islice(texts(random.Random(SEED), PLAIN_ACL), count):
        try:
            for account in read_accounts(mutated.decode("utf-8", "replace"), "plain_acl.yml"):
                account.policies()
            read += 1
        except SettingError as error:
            shown_count += "12345678" in str(error)
        memory.passed(1)
    memory.check()
    assert not shown_count
    assert 0 < read < count
