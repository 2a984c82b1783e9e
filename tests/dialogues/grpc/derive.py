"""Makes the facts of a dialogue from what `tap.py` has written; `facts.py` tells their form.

Rules
  - An exchange stands where its request came; a receive and a command of the proxy where they were answered, for a
    replay asks one after another.
  - Left out: receives without a message, every heartbeat of a client but the first, one that came before its settings
    were there, settings that a client repeats, and RPCs that were cut off.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.dialogues.grpc.facts import answer_class, form_of, json_of, note_values, request_class
from thermocline.proxy.grpc.messages import Code

__all__ = ["derive"]

Note = dict[str, Any]
OF_A_MACHINE = {"hostname": "host", "bornHost": "host", "platform": "Linux"}
"""What is kept in their place."""


def derive(path: Path) -> list[dict[str, Any]]:
    """The exchanges of the dialogue in a file of the tap."""
    calls: dict[int, list[Note]] = defaultdict(list)
    for line in path.read_text().splitlines():
        note = json.loads(line)
        calls[note["call"]].append(note)
    placed = [each for notes in calls.values() for each in _exchanges(notes)]
    placed.sort(key=lambda each: each[0])
    placeholders: dict[str, str] = {}
    names: dict[str, int] = {}
    kept, seen = [], set()
    for time_ms, rpc, metadata, request, answers in placed:
        client = names.setdefault(metadata["x-mq-client-id"], len(names))
        if (rpc, client) in seen and rpc in ("Heartbeat", "Telemetry") and request is not None:
            continue
        if rpc == "Heartbeat" and answers[0].status.code != Code.OK:
            continue
        seen.add((rpc, client))
        exchange = {
            "rpc": rpc,
            "client": client,
            "metadata": {name: value for name, value in metadata.items() if name != "x-mq-client-id"},
            "request": None if request is None else _with_placeholders(json_of(request), placeholders, time_ms),
            "answers": form_of([json_of(answer) for answer in answers]),
        }
        for answer in answers:
            _learn(answer, placeholders, None if request is None else json_of(request))
        kept.append(exchange)
    return kept


def _exchanges(notes: list[Note]) -> list[tuple[int, str, dict[str, str], Any, list[Any]]]:
    """(time, rpc, metadata, request, answers) of one call."""
    rpc = notes[0]["rpc"]
    requests = [note for note in notes if note["what"] == "request"]
    answers = [(note, _decoded(answer_class(rpc), note)) for note in notes if note["what"] == "answer"]
    if not requests or not answers:
        return []
    metadata = requests[0]["metadata"]
    if rpc != "Telemetry":
        if not any(note["what"] == "end" and note["status"] == "OK" for note in notes):
            return []
        if rpc == "ReceiveMessage" and not any(each.WhichOneof("content") == "message" for _, each in answers):
            return []
        time_ms = answers[-1][0]["ms"] if rpc == "ReceiveMessage" else requests[0]["ms"]
        request = _decoded(request_class(rpc), requests[0])
        return [(time_ms, rpc, metadata, request, [each for _, each in answers])]
    found = []
    settings = [(note, _decoded(request_class(rpc), note)) for note in requests]
    settings = [(note, each) for note, each in settings if each.HasField("settings")]
    answered = [each for _, each in answers if each.HasField("settings")]
    for (note, request), answer in zip(settings, answered, strict=False):
        found.append((note["ms"], rpc, metadata, request, [answer]))
    commands = [(note, each) for note, each in answers if not each.HasField("settings")]
    return found + [(note["ms"], rpc, metadata, None, [each]) for note, each in commands]


def _decoded(message_class: Any, note: Note) -> Any:
    return message_class.FromString(base64.b64decode(note["data"]))


def _learn(answer: Any, placeholders: dict[str, str], request: dict[str, Any] | None) -> None:
    """Note which placeholder a recorded handle or transaction id stands for."""
    places: dict[str, str] = {}
    note_values(answer, places, request)
    placeholders.update({value: f"{{{{{place}}}}}" for place, value in places.items()})


def _with_placeholders(value: Any, placeholders: dict[str, str], time_ms: int, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _with_placeholders(item, placeholders, time_ms, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_placeholders(item, placeholders, time_ms, name) for item in value]
    if name in ("host", "port"):
        return f"{{{{{name}}}}}"
    if name in OF_A_MACHINE:
        return OF_A_MACHINE[name]
    if name == "deliveryTimestamp":
        due_ms = datetime.datetime.fromisoformat(value).timestamp() * 1_000
        return f"{{{{in {round(due_ms - time_ms)}}}}}"
    return placeholders.get(value, value) if name in ("receiptHandle", "transactionId") else value
