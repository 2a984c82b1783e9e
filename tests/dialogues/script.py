"""The form of a recorded dialogue in this repository: what was asked, in which order, and the form of each answer.

A file is one dialogue of an official client or tool with an official NameServer and broker, one JSON array a line:

    ["open", conn, "namesrv" or "broker"]
    ["ask", conn, number, code, fields or null, body, options]      options: binary, oneway
    ["answer", number, code, names of the fields or null, shape of the body, options]
    ["notice", conn, code, names of the fields]                     the broker's one-way request to a client
    ["asked", conn, number, code, names of the fields]              its other requests
    ["reply", number, code, fields or null, body]                   the client's answer to one of these
    ["close", conn]

An answer's option `next`: the `nextBeginOffset` that a pull reached, so that a replay can pull as far.

A body is a text; or {"size": n} for bytes that say nothing; {"batch": n} for a batch of n messages;
{"compressed": text} for the compressed form of a registration. Values that are different on each run stand in fields
and bodies as

    {{now}} {{now+ms}} {{now-ms}}             the time of the replay
    {{id n}} {{place n}}                      the offset message id, the physical offset, in answer n
    {{place of k}}                            the physical offset of the last record pulled with the unique key k
    {{field n name}}                          a field of answer n
    {{check id n name}}                       a field of the broker's check number n of the transaction with that id
    {{live id}} {{live place}}                of a message that was there before the dialogue began
    {{receipt topic group queue offset}}      the receipt of a message that was popped

Shapes: "number", "text", "flag", "null"; [shape] of a list's items, [] of an empty list; {member: shape}, where a key
that is an object is written by its members; {"records": [[names of properties]]} of message records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from thermocline.remoting.errors import CorruptDataError, InvalidRequestError
from thermocline.remoting.json_dialect import loads
from thermocline.remoting.records.message_record import MessageRecord, iterate_records

RECORDED = Path(__file__).with_name("recorded")

Step = list[Any]


def read_script(path: Path) -> list[Step]:
    """The steps of a dialogue."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_script(path: Path, steps: Iterable[Step]) -> None:
    """Write the steps of a dialogue."""
    lines = [json.dumps(step, ensure_ascii=False, separators=(",", ":")) for step in steps]
    path.write_text("\n".join(lines) + "\n")


def records_of(body: bytes | memoryview) -> list[MessageRecord] | None:
    """The message records in a body; None when it is something else."""
    try:
        return list(iterate_records(bytes(body))) or None
    except (CorruptDataError, InvalidRequestError):
        return None


def shape_of_body(body: bytes | memoryview) -> Any:
    """What form a body has; None when there is none."""
    if not body:
        return None
    records = records_of(body)
    if records is not None:
        return {"records": sorted(map(list, {tuple(sorted(record.properties)) for record in records}))}
    try:
        return shape(loads(body))
    except InvalidRequestError:
        return "words"


def shape(value: Any) -> Any:
    """What form a JSON value has."""
    if isinstance(value, dict):
        members: dict[str, Any] = {}
        for key, member in value.items():
            # A path is part of one name only: the runtime information's share of a disk.
            name = "{" + ",".join(sorted(key)) + "}" if isinstance(key, dict) else str(key).partition("/")[0]
            members[name] = merged(members[name], shape(member)) if name in members else shape(member)
        return dict(sorted(members.items()))
    if isinstance(value, list):
        if not value:
            return []
        first, *others = (shape(item) for item in value)
        for other in others:
            first = merged(first, other)
        return [first]
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, int | float):
        return "number"
    return "null" if value is None else "text"


def merged(one: Any, other: Any) -> Any:
    """The form that covers both."""
    if one == other:
        return one
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted(one.keys() | other.keys())
        return {
            name: merged(one[name], other[name]) if name in one and name in other else one.get(name, other.get(name))
            for name in names
        }
    if isinstance(one, list) and isinstance(other, list):
        return [merged(one[0], other[0])] if one and other else one or other
    return f"{one} or {other}"
