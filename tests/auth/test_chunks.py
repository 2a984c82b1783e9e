"""Access control on the message path: whole chunks of requests, allowed and not, in any mixture.

Covers `broker/access/message_guard.py`, `broker/processors/messages/hot_server.py`.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.auth.broker_with_users import ALICE, BOB, ROOT, BrokerWithUsers, auth_config, broker_with_users, entry
from tests.auth.test_effects import SEND
from thermocline.auth.actions import Action
from thermocline.remoting.command import RemotingCommand, SerializeType, decode_command
from thermocline.remoting.frames import FRAME_HEAD, LENGTH
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.config.store_config import FlushDiskType, StoreConfig
from thermocline.store.log import PutStatus

SEED = 19
DENIED, DONE = ResponseCode.NO_PERMISSION, ResponseCode.SUCCESS
WRONG = Credentials(access_key="alice", secret_key="not-the-key")


def send_frame(
    user: Credentials | None,
    topic: str,
    *,
    properties: str = "",
    serialize_type: SerializeType = SerializeType.JSON,
) -> tuple[int, bytes]:
    """A send's opaque and frame."""
    fields = {**SEND, "b": topic, "i": properties}
    command = RemotingCommand.request(
        RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=b"body", serialize_type=serialize_type
    )
    if user is not None:
        user.sign(command)
    return command.opaque, command.encode()


def lookup_frame(user: Credentials | None) -> tuple[int, bytes]:
    """What the message path leaves to ordinary code."""
    command = RemotingCommand.request(RequestCode.GET_MAX_OFFSET, ext_fields={"topic": "TopicA", "queueId": "0"})
    if user is not None:
        user.sign(command)
    return command.opaque, command.encode()


KINDS: tuple[tuple[str, ResponseCode, Callable[[], tuple[int, bytes]]], ...] = (
    ("allowed", DONE, lambda: send_frame(ALICE, "TopicA")),
    ("allowed", DONE, lambda: send_frame(ALICE, "TopicA", properties="UNIQ_KEY\x01AC\x02WAIT\x01true\x02")),
    ("allowed, binary", DONE, lambda: send_frame(ALICE, "TopicA", serialize_type=SerializeType.ROCKETMQ)),
    ("allowed, delayed", DONE, lambda: send_frame(ALICE, "TopicA", properties="DELAY\x013\x02")),
    ("no right", DENIED, lambda: send_frame(ALICE, "TopicB")),
    ("no right, binary", DENIED, lambda: send_frame(ALICE, "TopicB", serialize_type=SerializeType.ROCKETMQ)),
    ("wrong signature", DENIED, lambda: send_frame(WRONG, "TopicA")),
    ("no user", DENIED, lambda: send_frame(None, "TopicA")),
    ("lookup", DONE, lambda: lookup_frame(ROOT)),
    ("lookup without a right", DENIED, lambda: lookup_frame(ALICE)),
)


class RawClient:
    """Sends bytes, and takes answers apart."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, data: bytes, count: int) -> list[RemotingCommand]:
        """The answers, as they come, to so many requests."""
        self._writer.write(data)
        return [await self._answer() for _ in range(count)]

    async def _answer(self) -> RemotingCommand:
        return decode_command(await self._frame())

    async def ask_bytes(self, data: bytes, count: int) -> list[bytes]:
        """The same; the answers' frames."""
        self._writer.write(data)
        return [await self._frame() for _ in range(count)]

    async def _frame(self) -> bytes:
        (size_bytes,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
        return await self._reader.readexactly(size_bytes)

    def close(self) -> None:
        self._writer.close()


async def prepared(broker: BrokerWithUsers) -> RawClient:
    for topic in ("TopicA", "TopicB"):
        await broker.process._parts.tables.topics.ensure(topic, queue_count=1)
    await broker.add_user(ALICE, entry("Topic:TopicA", Action.PUB))
    host, _, port = broker.address.rpartition(":")
    return RawClient(*await asyncio.open_connection(host, int(port)))


def stored(broker: BrokerWithUsers, topic: str) -> int:
    queue = broker.process._parts.base.store.queues.find(topic, 0)
    return queue.next_offset if queue is not None else 0


async def test_what_is_allowed_is_stored_in_order_and_nothing_else(
    tmp_path: Path, case_count: Callable[..., int]
) -> None:
    chance = random.Random(SEED)
    async with broker_with_users(tmp_path) as broker:
        client = await prepared(broker)
        count = case_count(quick=40, soak=1_000)
        allowed = checks = frames_sent = 0
        control = broker.process._parts.access.control  # type: ignore[union-attr]
        find = control._find_signer

        def counted(fields: Mapping[str, str], body: Any, version: int) -> Any:
            nonlocal checks
            checks += 1
            return find(fields, body, version)

        control._find_signer = counted  # type: ignore[method-assign]
        for _ in range(count):
            weights = [chance.choice((0, 1, 1, 5)) for _ in KINDS]
            kinds = chance.choices(KINDS, weights=weights if any(weights) else None, k=chance.randint(1, 60))
            frames = [(name, code, *make()) for name, code, make in kinds]
            answers = await client.ask(b"".join(frame for *_, frame in frames), len(frames))
            by_opaque = {answer.opaque: answer for answer in answers}
            offsets = []
            for name, code, opaque, _ in frames:
                answer = by_opaque[opaque]
                assert answer.code == code, (name, answer.remark)
                if name.startswith("allowed") and "delayed" not in name:
                    offsets.append(int((answer.ext_fields or {})["queueOffset"]))
            assert offsets == list(range(allowed, allowed + len(offsets)))
            allowed += len(offsets)
            frames_sent += len(frames)
        assert stored(broker, "TopicA") == allowed > count
        assert stored(broker, "TopicB") == 0
        assert checks <= 3 * frames_sent, "frames of one chunk are checked over and over"
        client.close()


async def test_a_chunk_that_ordinary_code_serves_is_checked_once_and_once_more(tmp_path: Path) -> None:
    async with broker_with_users(tmp_path) as broker:
        client = await prepared(broker)
        control = broker.process._parts.access.control  # type: ignore[union-attr]
        find, checks = control._find_signer, 0

        def counted(fields: Mapping[str, str], body: Any, version: int) -> Any:
            nonlocal checks
            checks += 1
            return find(fields, body, version)

        control._find_signer = counted  # type: ignore[method-assign]
        frames = [send_frame(ALICE, "TopicA", properties="DELAY\x013\x02")[1] for _ in range(300)]
        answers = await client.ask(b"".join(frames), len(frames))
        assert {answer.code for answer in answers} == {DONE}
        assert checks <= 2 * len(frames) + 4
        client.close()


ODD = Credentials(access_key='no "such" user\n', secret_key="key")
DENIALS = (
    (ALICE, "TopicB", {}),
    (ALICE, "2000000004", {}),
    (ALICE, 'Topic "%d" \\ B', {}),
    (ALICE, "x" * 3_000, {}),
    (ALICE, "%RETRY%TopicB", {}),
    (ALICE, " ", {}),
    (WRONG, "TopicA", {}),
    (ODD, "TopicA", {}),
    (BOB, "TopicA", {}),
    (None, "TopicA", {}),
    (ALICE, "TopicA", {"Signature": ""}),
    (ALICE, "TopicA", {"Signature": "\u00fc"}),
    (ALICE, "TopicA", {"AccessKey": ""}),
    (ALICE, "TopicA", {"d": "04"}),
)
"""Who sends to which topic, and fields that are changed after it has signed."""


def denied_frames(serialize_type: SerializeType, code: int) -> list[bytes]:
    frames = []
    for opaque, (user, topic, changes) in enumerate(DENIALS):
        command = RemotingCommand.request(
            code, ext_fields={**SEND, "b": topic}, body=b"body", serialize_type=serialize_type
        )
        command.opaque = opaque
        if user is not None:
            user.sign(command)
        command.ext_fields = {**(command.ext_fields or {}), **changes}
        frames.append(command.encode())
    return frames


async def test_the_message_path_refuses_as_ordinary_code_does(tmp_path: Path) -> None:
    """The same answers, byte by byte, and the same lines in the audit log; a one-way send has no answer."""
    answers: list[list[bytes]] = []
    lines: list[list[dict[str, object]]] = []
    for is_ordinary in (False, True):  # allowed accesses are written down by ordinary code alone
        folder = tmp_path / str(is_ordinary)
        async with broker_with_users(folder, auth=auth_config(audit_accesses=is_ordinary)) as broker:
            client = await prepared(broker)
            await broker.add_user(BOB, entry("Topic:TopicA", Action.PUB))
            await broker.disable(BOB)
            control = broker.process._parts.access.control  # type: ignore[union-attr]
            check, checked = control.check, 0

            def counted(command: RemotingCommand, address: str, check: Any = check) -> Any:
                nonlocal checked
                checked += 1
                return check(command, address)

            control.check = counted  # type: ignore[method-assign]
            found = []
            for serialize_type in SerializeType:
                for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
                    frames = denied_frames(serialize_type, code)
                    found += sorted(await client.ask_bytes(b"".join(frames), len(frames)))  # many at once
                    for frame in frames:  # and one at a time
                        found += await client.ask_bytes(frame, 1)
            oneway = RemotingCommand.request(
                RequestCode.SEND_MESSAGE_V2, ext_fields={**SEND, "b": "TopicB"}, body=b"x", oneway=True
            )
            ALICE.sign(oneway)
            opaque, last = send_frame(ALICE, "TopicA")
            (answer,) = await client.ask(oneway.encode() + last, 1)
            assert (answer.opaque, answer.code) == (opaque, DONE)
            answers.append(found)
            sent = len(found) + 2
            if is_ordinary:
                assert checked == sent
            else:
                assert checked < sent / 4, "most are refused on the message path"
            for memory in (control._sends, control._judgements, control._verdicts, control._refusals):
                assert not [key for key in memory if "x" * 1_001 in str(key)], "long names are not remembered"
            client.close()
        text = broker.audit_text()
        events = [{**line, "time": ""} for line in map(json.loads, text.splitlines()) if line["event"] == "denied"]
        assert len(events) == sent - 1
        lines.append(events)
    assert answers[0] == answers[1]
    assert sorted(map(str, lines[0])) == sorted(map(str, lines[1]))


async def test_a_refusal_does_not_wait_for_the_flush(tmp_path: Path) -> None:
    """What is refused is not stored: its answer has nothing of the flush, and of a flush that fails."""
    store = StoreConfig(
        root_path=str(tmp_path / "store"),
        log_file_bytes=1 << 20,
        queue_file_bytes=20_000,
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
    )
    async with broker_with_users(tmp_path, store=store) as broker:
        client = await prepared(broker)
        assert (await client.ask(send_frame(ALICE, "TopicA")[1], 1))[0].code == DONE  # the queue's files are made
        gate = broker.process._parts.base.store.flush
        waits: list[Callable[[PutStatus], None]] = []
        gate.wait = lambda _offset, callback, deadline_ms=None: waits.append(callback)  # type: ignore[method-assign]
        frames = [send_frame(ALICE, "TopicA"), send_frame(ALICE, "TopicB"), send_frame(ALICE, "TopicA")]
        (answer,) = await client.ask(b"".join(frame for _, frame in frames), 1)
        assert (answer.opaque, answer.code) == (frames[1][0], DENIED)
        for flushed in waits.copy():  # each waits once more, to show what was flushed late
            flushed(PutStatus.FLUSH_DISK_TIMEOUT)
        late = [await client._answer() for _ in range(2)]
        assert {answer.opaque: answer.code for answer in late} == {
            frames[0][0]: ResponseCode.FLUSH_DISK_TIMEOUT,
            frames[2][0]: ResponseCode.FLUSH_DISK_TIMEOUT,
        }
        client.close()


def json_frame(header: str, body: bytes) -> bytes:
    data = header.encode()
    return FRAME_HEAD.pack(4 + len(data) + len(body), len(data)) + data + body


async def test_a_header_with_a_member_twice_is_read_as_it_is_checked(tmp_path: Path) -> None:
    """The signature and the right are of the last one, and so is the topic that is stored to."""
    async with broker_with_users(tmp_path) as broker:
        client = await prepared(broker)

        def signed(topic: str) -> str:
            command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, ext_fields={**SEND, "b": topic}, body=b"x")
            ALICE.sign(command)
            return ",".join(f'"{name}":"{value}"' for name, value in (command.ext_fields or {}).items())

        rest = '"flag":0,"language":"JAVA","opaque":{0},"version":513'
        good, bad = signed("TopicA"), signed("TopicB")
        headers = (
            '{"code":310,"extFields":{' + good + '},"extFields":{' + bad + "}," + rest.format(1) + "}",
            '{"code":310,"extFields":{' + good + ',"b":"TopicB"},' + rest.format(2) + "}",
            '{"code":310,"extFields":{"b":"TopicB",' + good + "}," + rest.format(3) + "}",
            '{"code":310,"extFields":{' + bad + '},"extFields":{' + good + "}," + rest.format(4) + "}",
            '{"code":310,"extFields":{' + bad + ',"b":"TopicA"},' + rest.format(5) + "}",
        )
        answers = await client.ask(b"".join(json_frame(header, b"x") for header in headers), len(headers))
        codes = {answer.opaque: answer.code for answer in answers}
        assert codes == {1: DENIED, 2: DENIED, 3: DONE, 4: DONE, 5: DENIED}
        assert (stored(broker, "TopicA"), stored(broker, "TopicB")) == (2, 0)
        client.close()
