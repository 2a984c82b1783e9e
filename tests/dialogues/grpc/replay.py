"""Replays the exchanges of a dialogue to a proxy, and says where its answers have another form than the recorded ones.

Rules
  - Exchanges follow one another. A client of the dialogue is a connection with a client id of its own.
  - Which message comes in which receive is chance: a receive is repeated until it has a message, unless each handle
    that the rest needs is there; a handle that is needed and not there is received before. A message must have the
    form of some received message of the dialogue, or of `others`: their topics are the same.
  - A command of the proxy is waited for on the client's Telemetry stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from google.protobuf import json_format

from tests.dialogues.grpc.facts import (
    PLACEHOLDER,
    answer_class,
    fill_placeholders,
    form_of,
    json_of,
    note_values,
    request_class,
)
from tests.proxy.http2_peer import GrpcPeer, RpcAnswer
from thermocline.proxy.grpc.messages import SERVICE

__all__ = ["Replay"]

PATIENCE_S = 60.0
GIVEN_BACK_S = 10.0
"""A shorter invisible time is a failure of the consumer."""
DEADLINE_MS = 9_000
"""Of a receive that says nothing of its poll: the official proxy wants five seconds."""

Exchange = Mapping[str, Any]


class Replay:
    """One dialogue; `async with`."""

    def __init__(
        self,
        address: str,
        name: str,
        exchanges: Sequence[Exchange],
        *,
        others: Sequence[Exchange] = (),
        omitted: Collection[str] = (),
    ) -> None:
        """`name`: part of the client ids; `exchanges`: all of the dialogue; `left`: recorded fields that we lack."""
        self._omitted, self._others = omitted, others
        host, _, port = address.rpartition(":")
        self._address, self._name, self._exchanges = address, name, exchanges
        self._values = {"host": host, "port": port}
        self._peers: dict[int, GrpcPeer] = {}
        self._streams: dict[int, tuple[RpcAnswer, int]] = {}
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Replay:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def differences(self) -> list[str]:
        """Replay everything; each answer of another form, as "RPC: here ..., recorded ..."."""
        found = []
        for place, exchange in enumerate(self._exchanges):
            if exchange["rpc"] == "ReceiveMessage" and self._has_handles(self._exchanges[place:]):
                continue
            async with asyncio.timeout(PATIENCE_S):
                forms = await self._answer_forms(exchange)
            recorded = _without(exchange["answers"], self._omitted)
            if exchange["rpc"] == "ReceiveMessage" or exchange["request"] is None:
                recorded = [form for each in self._like(exchange) for form in _without(each["answers"], self._omitted)]
                forms = [form for form in forms if form not in recorded]
                recorded = [] if not forms else recorded
            if forms != recorded:
                here, there = json.dumps(forms, sort_keys=True), json.dumps(recorded, sort_keys=True)
                found.append(f"{exchange['rpc']}: here {here}, recorded {there}")
        return found

    def _has_handles(self, exchanges: Sequence[Exchange]) -> bool:
        needed = PLACEHOLDER.findall(json.dumps([each["request"] for each in exchanges]))
        return all(f"handle {message_id}" in self._values for kind, message_id in needed if kind == "handle")

    def _like(self, exchange: Exchange) -> Iterable[Exchange]:
        is_command = exchange["request"] is None
        return [
            each
            for each in (*self._exchanges, *self._others)
            if each["rpc"] == exchange["rpc"] and (each["request"] is None) == is_command
        ]

    async def _answer_forms(self, exchange: Exchange) -> list[Any]:
        if exchange["request"] is None:
            return form_of([json_of(await self._command(exchange["client"]))])  # type: ignore[no-any-return]
        if exchange["rpc"] == "Telemetry":
            return form_of([json_of(await self._settings(exchange))])  # type: ignore[no-any-return]
        answers = await self._ask(exchange)
        while exchange["rpc"] == "ReceiveMessage" and not _has_message(answers):
            answers = await self._ask(exchange)
        return form_of([json_of(answer) for answer in answers])  # type: ignore[no-any-return]

    async def _ask(self, exchange: Exchange) -> list[Any]:
        rpc, peer = exchange["rpc"], await self._peer(exchange["client"])
        request = await self._request(exchange)
        fields = json_of(request)
        polls = rpc == "ReceiveMessage"
        timeout_ms = 60_000 if not polls or "longPollingTimeout" in fields else DEADLINE_MS
        path = f"/{SERVICE}/{rpc}"
        _, answer = peer.open(path, request.SerializeToString(), metadata=exchange["metadata"], timeout_ms=timeout_ms)
        await peer.done(answer)
        assert answer.status == 0, (rpc, answer.status, answer.message)
        answers = [answer_class(rpc).FromString(payload) for payload in answer.payloads()]
        for each in answers:
            note_values(each, self._values, fields)
        if rpc == "ChangeInvisibleDuration" and float(fields["invisibleDuration"].rstrip("s")) < GIVEN_BACK_S:
            del self._values[f"handle {fields['messageId']}"]  # it comes again, with another handle
        return answers

    async def _request(self, exchange: Exchange) -> Any:
        while True:
            try:
                fields = fill_placeholders(exchange["request"], self._values)
                break
            except KeyError:  # the handle of a message that did not come yet
                for receive in self._exchanges:
                    if receive["rpc"] == "ReceiveMessage" and receive["client"] == exchange["client"]:
                        await self._ask(receive)
        if "attemptId" in fields:
            fields["attemptId"] = str(uuid.uuid4())
        return json_format.ParseDict(fields, request_class(exchange["rpc"])())

    async def _settings(self, exchange: Exchange) -> Any:
        peer = await self._peer(exchange["client"])
        request = await self._request(exchange)
        path = f"/{SERVICE}/Telemetry"
        payload = request.SerializeToString()
        _, answer = peer.open(path, payload, metadata=exchange["metadata"], timeout_ms=None, ends=False)
        (first, *_) = await peer.answers(answer, 1)
        self._streams[exchange["client"]] = answer, 1
        return answer_class("Telemetry").FromString(first)

    async def _command(self, client: int) -> Any:
        peer = await self._peer(client)
        while True:
            answer, count = self._streams[client]
            payloads = await peer.answers(answer, count + 1)
            self._streams[client] = answer, count + 1
            command = answer_class("Telemetry").FromString(payloads[count])
            if not command.HasField("settings"):
                note_values(command, self._values)
                return command

    async def _peer(self, client: int) -> GrpcPeer:
        if client not in self._peers:
            peer = GrpcPeer(self._address, client_id=f"replay-{self._name}-{client}")
            self._peers[client] = await self._stack.enter_async_context(peer)
        return self._peers[client]


def _without(value: Any, names: Collection[str]) -> Any:
    if isinstance(value, dict):
        return {name: _without(item, names) for name, item in value.items() if name not in names}
    return [_without(item, names) for item in value] if isinstance(value, list) else value


def _has_message(answers: Iterable[Any]) -> bool:
    return any(answer.WhichOneof("content") == "message" for answer in answers)
