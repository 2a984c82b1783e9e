"""Mutated signatures, bodies of policies and files of access control, from a seed.

    requests(chance)     signed requests, most of them changed after that; `is_signed` says what an independent check of
                         the signature finds
    changes(chance)      signed requests about users and policies, most with a body or fields that were changed before
    texts(chance, text)  a file's bytes, cut, flipped, doubled

What a case would reach if it were obeyed is few users and topics, so that a million cases leave nothing behind.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.auth.broker_with_users import ALICE, BOB, ROOT
from tests.auth.test_effects import PULL, SEND
from thermocline.remoting.command import RemotingCommand, SerializeType
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import Credentials

USERS = (ALICE, BOB, ROOT)
STRANGER = Credentials(access_key="stranger", secret_key="a-key-of-no-user")
SUBJECTS = tuple(f"User:fuzz{number}" for number in range(8))
NUMBERS, FLAGS = "defghjl", "km"
FLAG_TEXTS = {"0": "false", "1": "true", "false": "false", "true": "true"}
OLD_VERSION, VERSION = 399, 513
TEXTS = (
    "",
    " ",
    "0",
    "-1",
    "alice",
    "root",
    "*",
    "Topic:*",
    "TopicA",
    "%RETRY%GroupA",
    "null",
    "true",
    "\x00",
    "\x01\x02",
    "größe",
    "\U0001f600",
    'quo"te',
    "back\\slash",
    "%d%s%b",
    "x" * 300,
    "x" * 5_000,
    "AAAA",
    "====",
    "9" * 40,
)
LOOKUP = {"topic": "TopicA", "queueId": "0"}
BASES: tuple[tuple[int, Mapping[str, str], bytes], ...] = (
    (RequestCode.SEND_MESSAGE_V2, SEND, b"body"),
    (RequestCode.SEND_MESSAGE_V2, {**SEND, "b": "TopicB"}, b"body"),
    (RequestCode.SEND_MESSAGE_V2, {**SEND, "i": "UNIQ_KEY\x01AC11\x02WAIT\x01true\x02"}, b"x" * 100),
    (RequestCode.GET_MAX_OFFSET, LOOKUP, b""),
    (RequestCode.PULL_MESSAGE, {**PULL, "sysFlag": "4", "suspendTimeoutMillis": "0"}, b""),
    (RequestCode.AUTH_LIST_USER, {"filter": ""}, b""),
    (RequestCode.AUTH_DELETE_USER, {"username": "fuzz0"}, b""),
    (RequestCode.UPDATE_BROKER_CONFIG, {}, b"quotas=\n"),
)
"""Code, fields and body of requests that are signed."""


@dataclass(frozen=True, slots=True)
class Case:
    """A request, and whether a user of the broker has signed it as it is; or the same values, with numbers and flags of
    a send in another form."""

    command: RemotingCommand
    is_signed: bool
    is_signed_otherwise: bool


def is_signed(fields: Mapping[str, str], body: bytes, version: int) -> bool:
    """Whether one of USERS has signed these fields; written anew from RocketMQ's AclUtils and AclSigner."""
    user = next((each for each in USERS if each.access_key == fields.get("AccessKey")), None)
    if user is None:
        return False
    forms = [dict(fields)]
    if "SecurityToken" in fields:
        forms.append({name: value for name, value in fields.items() if name != "SecurityToken"})
    for form in forms:
        if version <= OLD_VERSION:
            form.pop("_UNIQUE_KEY_QUERY", None)
        names = sorted((name for name in form if name != "Signature"), key=lambda name: name.encode("utf-16-be"))
        content = "".join(form[name] for name in names).encode() + body
        made = base64.b64encode(hmac.new(user.secret_key.encode(), content, hashlib.sha1).digest()).decode()
        if made == fields.get("Signature"):
            return True
    return False


def requests(chance: random.Random) -> Iterator[Case]:
    """For ever."""
    while True:
        code, fields, body = chance.choice(BASES)
        command = RemotingCommand.request(
            code,
            ext_fields=dict(fields),
            body=body,
            serialize_type=chance.choice((SerializeType.JSON, SerializeType.JSON, SerializeType.ROCKETMQ)),
        )
        command.version = chance.choice((VERSION, VERSION, OLD_VERSION))
        chance.choice((*USERS, ALICE, STRANGER)).sign(command)
        for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
            _change_request(chance, command)
        command.ext_fields = {name[:30_000]: value for name, value in (command.ext_fields or {}).items()}
        signed = is_signed(command.ext_fields, bytes(command.body), command.version)
        plain = {name: _plain(name, text) for name, text in command.ext_fields.items()}
        yield Case(command, signed, is_signed(plain, bytes(command.body), command.version))


def _plain(name: str, text: str) -> str:
    if name in NUMBERS and re.fullmatch(r"-?[0-9]{1,18}", text):
        return str(int(text))
    if name in FLAGS and text.lower() in FLAG_TEXTS:
        return FLAG_TEXTS[text.lower()]
    return text


def _change_request(chance: random.Random, command: RemotingCommand) -> None:
    fields = dict(command.ext_fields or {})
    kind = chance.randrange(10)
    name = chance.choice(("AccessKey", "Signature", "Signature", "SecurityToken", *fields))
    if kind == 0:
        fields.pop(name, None)
    elif kind == 1:
        fields[name] = chance.choice(TEXTS)
    elif kind == 2:
        fields[name] = flipped(chance, fields.get(name, ""))
    elif kind == 3:
        fields[name] = fields.get(name, "")[: chance.randrange(40)]
    elif kind == 4:
        fields[chance.choice((name.lower(), name.upper(), f" {name}", chance.choice(TEXTS) or "_"))] = "x"
    elif kind == 5:
        fields["Signature"] = base64.b64encode(chance.randbytes(chance.choice((0, 19, 20, 20, 21, 400)))).decode()
    elif kind == 6:
        command.body = chance.choice((b"", bytes(command.body) + b"x", chance.randbytes(30)))
    elif kind == 7:
        other = chance.choice([*fields, name])
        fields[name], fields[other] = fields.get(other, ""), fields.get(name, "")
    elif kind == 8:
        fields["_UNIQUE_KEY_QUERY"] = "true"
    else:
        items = list(fields.items())
        chance.shuffle(items)
        fields = dict(items)
    command.ext_fields = fields


def flipped(chance: random.Random, text: str) -> str:
    """The text with one character changed, more or less."""
    place = chance.randrange(len(text) + 1)
    return (
        text[:place]
        + chance.choice(("", "A", "=", "\x7f", "é", text[place : place + 1].swapcase()))
        + text[place + 1 :]
    )


POLICY = {
    "subject": "User:fuzz0",
    "policies": [
        {
            "policyType": "Custom",
            "entries": [
                {
                    "resource": "Topic:fuzz*",
                    "actions": ["Pub", "Sub"],
                    "sourceIps": ["10.0.0.0/8", "127.0.0.1"],
                    "decision": "Allow",
                }
            ],
        }
    ],
}
NEW_USER = {"username": "fuzz0", "password": "a-long-key", "userType": "Normal", "userStatus": "enable"}
WORDS: tuple[Any, ...] = (
    *TEXTS,
    *SUBJECTS,
    "fuzz1",
    "Group:fuzz",
    "Cluster:c*",
    "Custom",
    "Default",
    "Allow",
    "Deny",
    "All",
    "Pub",
    "Super",
    "disable",
    "::/0",
    "10.0.0.1/33",
    None,
    True,
    0,
    -1,
    2**63,
    1.5,
    [],
    {},
    [None],
    [[]],
    {"a": {"$ref": "$"}},
)
CHANGE_CODES = tuple(code for code in RequestCode if code.name.startswith("AUTH_"))
CHANGE_FIELDS: Mapping[str, tuple[str, ...]] = {
    "username": tuple(f"fuzz{number}" for number in range(8)),
    "subject": SUBJECTS,
    "policyType": ("Custom", "Default"),
    "resource": ("Topic:fuzz*", "*"),
    "filter": ("", "fuzz"),
    "subjectFilter": ("", "fuzz"),
    "resourceFilter": ("", "Topic"),
}
FOREIGN = ("alice", "bob", "root", "User:alice", "User:bob", "User:root")
"""Users that the test itself needs as they are."""


def changes(chance: random.Random) -> Iterator[RemotingCommand]:
    """Requests of the super user about users and policies, for ever."""
    while True:
        code = chance.choice((*CHANGE_CODES, RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_CREATE_ACL))
        value: Any = json.loads(json.dumps(chance.choice((POLICY, NEW_USER))))
        value[chance.choice(("subject", "username"))] = chance.choice(SUBJECTS)
        for _ in range(chance.choice((0, 0, 1, 2, 4))):
            value = _change_value(chance, value)
        body = json.dumps(value, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")
        if chance.random() < 0.4:
            body = next(texts(chance, body))
        fields = {name: chance.choice(values) for name, values in CHANGE_FIELDS.items()}
        if chance.random() < 0.4:
            name = chance.choice(list(fields))
            fields[name] = chance.choice([text for text in TEXTS if text not in FOREIGN])
        command = RemotingCommand.request(code, ext_fields=fields, body=body)
        if any(name in body for name in (b"alice", b"bob", b"root")):
            continue
        ROOT.sign(command)
        yield command


def _change_value(chance: random.Random, value: Any) -> Any:
    """A value with one place of it changed, at any depth."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        name = chance.choice(list(value))
        if chance.random() < 0.15:
            return {other: each for other, each in value.items() if other != name}
        return {**value, name: _change_value(chance, value[name])}
    if isinstance(value, list) and value and chance.random() < 0.8:
        place = chance.randrange(len(value))
        changed = _change_value(chance, value[place])
        return [*value[:place], changed, *value[place:]] if chance.random() < 0.2 else [*value[:place], changed]
    return chance.choice(WORDS)


def texts(chance: random.Random, text: bytes) -> Iterator[bytes]:
    """Changed forms of a file, for ever."""
    while True:
        found = bytearray(text)
        for _ in range(chance.choice((1, 1, 2, 5))):
            kind, place = chance.randrange(6), chance.randrange(len(found) + 1)
            end = min(len(found), place + chance.choice((1, 2, 8, 40)))
            if kind == 0:
                del found[place:]
            elif kind == 1 and place < len(found):
                found[place] ^= 1 << chance.randrange(8)
            elif kind == 2:
                del found[place:end]
            elif kind == 3:
                found[place:place] = found[place:end]
            elif kind == 4:
                found[place:end] = chance.choice(TEXTS).encode()
            else:
                found[place:place] = chance.choice(
                    (b"null", b"{", b"[", b'"', b"\n", b"  - ", b": ", b"=", b"\xff", b"\x00")
                )
        yield bytes(found)
