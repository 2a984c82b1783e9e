"""Replay of a dialogue: sends its requests in their order, and compares the form of each answer with the recorded one.

Rules
  - A request goes out when every answer has come that had come before it in the recording. So a replay waits for what
    the recorded client waited for, and for nothing else.
  - Time passes differently. An answer to a reading request that is not the recorded one is requested again until a
    deadline, and a pull goes on until it has reached the offset that the recorded one reached. A send to a busy
    broker is repeated, as clients do.
  - One-way notices are compared at the end: each connection has received the notices of the recorded one. One notice
    more depends on timing: whether a client that joins and leaves at once still hears of itself.
  - A command that goes over all that a broker holds meets other topics and groups here. With `outcomes` each answer
    may also be another one that was recorded for a request of the same code, anywhere.
  - Which messages come in one pull is chance. Each record must have the properties of some record of the dialogue.
  - Who pops what is chance among consumers. Answers to pops are compared with the recorded answers of the same code,
    and a receipt that is needed is waited for, with further pops when none is under way.
"""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any

from tests.dialogues.script import Step, records_of, shape_of_body
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand, SerializeType
from thermocline.remoting.connections.connection import Connection
from thermocline.remoting.language_code import LanguageCode
from thermocline.remoting.records.batch import BatchMessage, encode_batch
from thermocline.remoting.records.message_id import decode_message_id
from thermocline.remoting.request_code import RequestCode, request_name
from thermocline.remoting.response_code import ResponseCode

ANSWER_TIMEOUT_MS = 30_000
PATIENCE_S = 5.0
ASK_AGAIN_S = 0.05
PLACEHOLDER = re.compile(r"\{\{([^}]+)\}\}")
PULLS = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
READS = PULLS | {
    RequestCode.QUERY_MESSAGE,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_PRODUCER_CONNECTION_LIST,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.VIEW_BROKER_STATS_DATA,
    RequestCode.QUERY_ASSIGNMENT,
}
Outcome = tuple[int, list[str] | None, Any]
"""Code, names of the fields, shape of the body."""
Notice = tuple[int, tuple[str, ...]]
"""Code, names of the fields."""


class Peer:
    """One connection of a replay, with what the broker asks and tells over it."""

    connection: ClientConnection

    def __init__(self) -> None:
        self.notices_received: set[Notice] = set()
        self.checks: dict[str, list[dict[str, str]]] = defaultdict(list)
        self._questions: dict[int, list[tuple[RemotingCommand, asyncio.Future[RemotingCommand]]]] = defaultdict(list)
        self._came = asyncio.Event()

    @classmethod
    async def open(cls, address: str) -> Peer:
        """Connect."""
        peer = cls()
        peer.connection = await ClientConnection.open(address, handler=peer)
        return peer

    def handle(self, connection: Connection, command: RemotingCommand) -> Awaitable[RemotingCommand | None] | None:
        """Keep a request of the broker's until the dialogue answers it."""
        if command.is_oneway:
            fields = command.ext_fields or {}
            self.notices_received.add((command.code, tuple(sorted(fields))))
            if command.code == RequestCode.CHECK_TRANSACTION_STATE:
                self.checks[fields["transactionId"]].append(fields)
            return None
        answer: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self._questions[command.code].append((command, answer))
        self._came.set()
        return answer

    def connection_opened(self, connection: Connection) -> None:
        """Nothing to note."""

    def connection_closed(self, connection: Connection) -> None:
        """Nothing to note."""

    async def asked(self, code: int) -> tuple[RemotingCommand, asyncio.Future[RemotingCommand]]:
        """The next request of that code that the script has not used."""
        while not self._questions[code]:
            self._came.clear()
            await self._came.wait()
        return self._questions[code].pop(0)


class Replay:
    """One dialogue against one NameServer and broker. `run` once; then `differences` is what was not as recorded."""

    def __init__(
        self,
        steps: list[Step],
        *,
        addresses: Mapping[str, str],
        broker_name: str,
        live: Mapping[int, Peer] | None = None,
        live_message_id: str = "",
        outcomes: Mapping[int, Sequence[Outcome]] | None = None,
    ) -> None:
        """`addresses`: by "namesrv" and "broker". `live`: peers that were connected before the dialogue began.

        `live_message_id`: the offset message id of a message that was there. `outcomes`: by request code.
        """
        self.differences: list[str] = []
        self._steps = steps
        self._addresses = addresses
        self._broker_name = broker_name
        self._live = frozenset(live or ())
        self._live_message_id = live_message_id
        self._peers: dict[int, Peer] = dict(live or {})
        self._requests: dict[int, tuple[ClientConnection, RemotingCommand]] = {}
        self._calls: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._answers: dict[int, RemotingCommand] = {}
        self._questions: dict[int, tuple[RemotingCommand, asyncio.Future[RemotingCommand]]] = {}
        self._notices: dict[int, set[Notice]] = defaultdict(set)
        # What was learned from records: places by unique key, receipts by topic, group, queue and offset.
        self._places: dict[str, int] = {}
        self._receipts: dict[str, str] = {}
        self._outcomes = outcomes or {}
        self._records = [step[4] for step in steps if step[0] == "answer" and is_of_records(step[4])]
        pops = {step[2] for step in steps if step[0] == "ask" and step[3] == RequestCode.POP_MESSAGE}
        self._pop_outcomes = [tuple(step[2:5]) for step in steps if step[0] == "answer" and step[1] in pops]
        self._last_pop: tuple[ClientConnection, RemotingCommand] | None = None
        self._pops_under_way = 0

    async def run(self) -> list[str]:
        """Replay all steps; returns the differences."""
        do = {
            "open": self._open,
            "close": self._close,
            "ask": self._ask,
            "answer": self._answer,
            "notice": self._note_notice,
            "asked": self._await_question,
            "reply": self._reply,
        }
        try:
            for kind, *arguments in self._steps:
                await do[kind](*arguments)
            await self._compare_notices()
        finally:
            for number, peer in self._peers.items():
                if number not in self._live:
                    peer.connection.close()
        return self.differences

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def _open(self, conn: int, link: str) -> None:
        self._peers[conn] = await Peer.open(self._addresses[link])

    async def _close(self, conn: int) -> None:
        # What the broker says to one that is leaving is not lost: the answers before this step have all come.
        self._peers[conn].connection.close()

    async def _ask(
        self, conn: int, number: int, code: int, fields: dict[str, str] | None, body: Any, options: dict[str, bool]
    ) -> None:
        if fields is not None:
            fields = {name: await self._filled(value) for name, value in fields.items()}
            if self.differences and "suspendTimeoutMillis" in fields:
                fields["suspendTimeoutMillis"] = "200"  # what has gone wrong is not waited for
        command = RemotingCommand.request(
            code, ext_fields=fields, body=await self._body(body), oneway=options.get("oneway", False)
        )
        command.language = LanguageCode.JAVA
        if options.get("binary"):
            command.serialize_type = SerializeType.ROCKETMQ
        connection = self._peers[conn].connection
        if command.is_oneway:
            connection.send_oneway(command)
        elif code == RequestCode.POP_MESSAGE:
            self._pop(connection, command)
        else:
            self._requests[number] = (connection, command)
            self._calls[number] = connection.start_call(command, timeout_ms=ANSWER_TIMEOUT_MS)

    async def _answer(
        self, number: int, code: int, names: list[str] | None, body: Any, options: dict[str, Any]
    ) -> None:
        if number not in self._requests:
            return  # a pop
        connection, command = self._requests[number]
        expected = (code, names, body)
        answer = await self._calls[number]
        if any(_is_outcome(answer, outcome) for outcome in self._outcomes.get(command.code, ())):
            self._answers[number] = answer
            return
        deadline = time.monotonic() + (PATIENCE_S if not self.differences else ASK_AGAIN_S)
        while time.monotonic() < deadline:
            self._learn_places(answer)
            again = _asked_again(command, answer, expected, next_offset=options.get("next"))
            if again is None:
                break
            command = again
            await asyncio.sleep(ASK_AGAIN_S)
            answer = await connection.call(command, timeout_ms=ANSWER_TIMEOUT_MS)
        self._answers[number] = answer
        self._compare(f"answer {number} to {request_name(command.code)}", answer, expected)

    async def _note_notice(self, conn: int, code: int, names: list[str] | None) -> None:
        self._notices[conn].add((code, tuple(names or ())))

    async def _await_question(self, conn: int, number: int, code: int, names: list[str] | None) -> None:
        async with asyncio.timeout(ANSWER_TIMEOUT_MS / 1000):
            command, answer = await self._peers[conn].asked(code)
        self._questions[number] = (command, answer)
        if (got := sorted(command.ext_fields or {})) != (names or []):
            self.differences.append(f"the broker's {request_name(code)}: fields {got}, recorded {names}")

    async def _reply(self, number: int, code: int, fields: dict[str, str] | None, body: Any) -> None:
        command, answer = self._questions[number]
        answer.set_result(RemotingCommand.response(command, code, ext_fields=fields, body=await self._body(body)))

    # -- comparing -----------------------------------------------------------------------------------------------------

    def _compare(self, what: str, answer: RemotingCommand, expected: Outcome) -> None:
        code, names, body = expected
        if answer.code != code:
            self.differences.append(f"{what}: code {answer.code} ({answer.remark}), recorded {code}")
            return
        if not _has_names(answer, names):
            self.differences.append(f"{what}: fields {_names(answer)}, recorded {names}")
        got_body = shape_of_body(answer.body)
        if is_of_records(got_body) and is_of_records(body):
            all_records = {tuple(record) for form in self._records for record in form["records"]}
            body = {"records": sorted(all_records)}
            got_body = {"records": sorted({tuple(record) for record in got_body["records"]} | all_records)}
        if not is_form(got_body, body):
            self.differences.append(f"{what}: body {got_body}, recorded {body}")

    async def _compare_notices(self) -> None:
        deadline = time.monotonic() + (PATIENCE_S if not self.differences else ASK_AGAIN_S)
        received = {conn: peer.notices_received for conn, peer in self._peers.items() if conn not in self._live}
        while any(not self._notices[conn] <= notices for conn, notices in received.items()):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(ASK_AGAIN_S)
        for conn, notices in received.items():
            if not self._notices[conn] <= notices:
                self.differences.append(f"connection {conn} received {notices}, recorded {self._notices[conn]}")

    # -- pops ----------------------------------------------------------------------------------------------------------

    def _pop(self, connection: ClientConnection, command: RemotingCommand) -> None:
        self._last_pop = (connection, command)
        self._pops_under_way += 1
        call = connection.start_call(command, timeout_ms=ANSWER_TIMEOUT_MS)
        call.add_done_callback(lambda done: self._popped(command, done))

    def _popped(self, command: RemotingCommand, call: asyncio.Future[RemotingCommand]) -> None:
        self._pops_under_way -= 1
        if call.cancelled() or call.exception() is not None:
            return
        answer = call.result()
        if not any(_is_outcome(answer, outcome) for outcome in self._pop_outcomes):
            got = (answer.code, answer.remark, _names(answer), shape_of_body(answer.body))
            self.differences.append(f"answer to a pop: {got}, recorded {self._pop_outcomes}")
        elif answer.code == 0:
            self._learn_receipts(command, answer)

    def _learn_receipts(self, command: RemotingCommand, answer: RemotingCommand) -> None:
        asked, fields = command.ext_fields or {}, answer.ext_fields or {}
        starts = {tuple(text.split(" ")[:2]): text.split(" ")[2] for text in fields["startOffsetInfo"].split(";")}
        for text in fields["msgOffsetInfo"].split(";"):
            retry, queue_id, offsets = text.split(" ")
            topic = f"%RETRY%{asked['consumerGroup']}_{asked['topic']}" if retry == "1" else asked["topic"]
            for offset in offsets.split(","):
                place = f"{topic} {asked['consumerGroup']} {queue_id} {offset}"
                self._receipts[place] = " ".join(
                    (
                        *(starts[retry, queue_id], fields["popTime"], fields["invisibleTime"], fields["reviveQid"]),
                        *(retry, self._broker_name, queue_id, offset),
                    )
                )

    async def _receipt(self, place: str) -> str:
        async with asyncio.timeout(ANSWER_TIMEOUT_MS / 1000 if not self.differences else ASK_AGAIN_S):
            while place not in self._receipts:
                if self._pops_under_way == 0 and self._last_pop is not None:
                    connection, command = self._last_pop
                    self._pop(connection, RemotingCommand.request(command.code, ext_fields=command.ext_fields))
                await asyncio.sleep(ASK_AGAIN_S)
        return self._receipts[place]

    async def _checked(self, transaction_id: str, number: str, field: str) -> str:
        """What the broker said when it asked about a transaction for the n-th time."""
        async with asyncio.timeout(ANSWER_TIMEOUT_MS / 1000 if not self.differences else ASK_AGAIN_S):
            while True:
                for peer in self._peers.values():
                    if len(peer.checks[transaction_id]) > int(number):
                        return peer.checks[transaction_id][int(number)][field]
                await asyncio.sleep(ASK_AGAIN_S)

    # -- values --------------------------------------------------------------------------------------------------------

    async def _filled(self, text: str) -> str:
        """The text with what it has to say in this run."""
        pieces = PLACEHOLDER.split(text)
        for index in range(1, len(pieces), 2):
            pieces[index] = await self._value(pieces[index])
        return "".join(pieces)

    async def _value(self, name: str) -> str:
        kind, _, rest = name.partition(" ")
        if kind.startswith("now"):
            return str(time.time_ns() // 1_000_000 + int(kind.removeprefix("now") or 0))
        if kind == "live":
            return self._live_message_id if rest == "id" else _place(self._live_message_id)
        if kind == "receipt":
            return await self._receipt(rest)
        if kind == "place" and rest.startswith("of "):
            return str(self._places[rest.removeprefix("of ")])
        if kind == "check":
            return await self._checked(*rest.split(" "))
        number, _, field = rest.partition(" ")
        fields = self._answers[int(number)].ext_fields or {}
        if kind == "field":
            return fields[field]
        message_id = fields["msgId"].partition(",")[0]
        return message_id if kind == "id" else _place(message_id)

    async def _body(self, body: Any) -> bytes:
        if body is None:
            return b""
        if isinstance(body, str):
            return (await self._filled(body)).encode()
        if "batch" in body:
            return encode_batch(BatchMessage(body=b"message %d" % number) for number in range(body["batch"]))
        if "compressed" in body:
            return zlib.compress(body["compressed"].encode("latin-1"))
        return bytes(body["size"])

    def _learn_places(self, answer: RemotingCommand) -> None:
        for record in records_of(answer.body) or ():
            if record.unique_key is not None:
                self._places[record.unique_key] = record.physical_offset


def outcomes_by_code(scripts: Iterable[list[Step]]) -> dict[int, list[Outcome]]:
    """What was answered to requests, by their code."""
    outcomes: dict[int, list[Outcome]] = defaultdict(list)
    for steps in scripts:
        codes = {step[2]: step[3] for step in steps if step[0] == "ask"}
        for step in steps:
            if step[0] == "answer":
                outcomes[codes[step[1]]].append(tuple(step[2:5]))
    return outcomes


def is_of_records(form: Any) -> bool:
    """Whether a body's form is that of message records."""
    return isinstance(form, dict) and form.keys() == {"records"}


def is_form(got: Any, recorded: Any) -> bool:
    """Whether a body's form is the recorded one."""
    if recorded == "unrecorded":
        return got is not None
    return bool(got == recorded)


def _place(message_id: str) -> str:
    return str(decode_message_id(message_id).physical_offset)


def _is_outcome(answer: RemotingCommand, outcome: Outcome) -> bool:
    code, names, body = outcome
    return answer.code == code and _has_names(answer, names) and is_form(shape_of_body(answer.body), body)


def _has_names(answer: RemotingCommand, names: list[str] | None) -> bool:
    got = _names(answer)
    # The binary header cannot tell no fields from none.
    return got == names or not (got or names or answer.serialize_type is SerializeType.JSON)


def _names(answer: RemotingCommand) -> list[str] | None:
    return None if answer.ext_fields is None else sorted(answer.ext_fields)


def _asked_again(
    command: RemotingCommand, answer: RemotingCommand, expected: Outcome, *, next_offset: int | None
) -> RemotingCommand | None:
    """The request to go on with; None when the answer is what was recorded, or nothing that time will change."""
    fields = dict(command.ext_fields or {})
    is_busy = command.code == RequestCode.SEND_MESSAGE_V2 and answer.code == ResponseCode.SYSTEM_BUSY
    if command.code not in READS and not is_busy:
        return None
    if answer.code == expected[0]:
        reached = (answer.ext_fields or {}).get("nextBeginOffset")
        is_short = next_offset is not None and reached is not None and int(reached) < next_offset
        if not is_short and is_form(shape_of_body(answer.body), expected[2]):
            return None
        if is_short:
            assert reached is not None
            fields["queueOffset"] = reached
    again = RemotingCommand.request(command.code, ext_fields=fields, body=bytes(command.body))
    again.language, again.serialize_type = command.language, command.serialize_type
    return again
