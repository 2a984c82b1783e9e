"""Forged headers of gRPC clients, from a seed: only what a user signed is that user's.

An independent check of the header says what is right: written anew from RocketMQ's
DefaultAuthenticationContextBuilder.
"""

from __future__ import annotations

import hashlib
import hmac
import random
import re
import string

from tests.interop.grpc_access import FORMS
from tests.proxy.access.fake_users import ADDRESS, PUB_ORDERS, Checked
from thermocline.auth.actions import Action
from thermocline.auth.resources import topic_resource
from thermocline.auth.rights import Right
from thermocline.proxy.access import RequestName
from thermocline.proxy.grpc.service.grpc_proof import read_proof
from thermocline.remoting.errors import PermissionDeniedError

SEED, CASES = 50, 4_000
SECRETS = {"carol": "secret", "dave": "another secret", "erin": ""}
SEND = RequestName("apache.rocketmq.v2.SendMessageRequest", "SendMessage")
ORDERS = Right(topic_resource("orders"), (Action.PUB,))
PIECES = (",", "=", " ", "/", "Credential=", "Signature=", "carol", "dave", "\x00", "\xff", "é", "ff", "")


def signer_of(authorization: str, date_time: str) -> str | None:
    """The user that signed, as RocketMQ reads the header; None where there is none."""
    words = authorization.split(" ", 1)
    if len(words) != 2 or not date_time:
        return None
    name = signature = ""
    for part in words[1].split(","):
        pair = part.strip().split("=", 1)
        if len(pair) != 2:
            return None
        if pair[0] == "Credential":
            name = pair[1].split("/")[0]
        elif pair[0] == "Signature":
            signature = pair[1]
            if not re.fullmatch("([0-9a-fA-F]{2})*", signature):
                return None
    content = date_time.encode("utf-8", "replace")
    expected = hmac.new(SECRETS.get(name, "none").encode(), content, hashlib.sha1).hexdigest()
    return name if name in SECRETS and signature.lower() == expected else None


def mutated(chance: random.Random, text: str) -> str:
    """The text with a few pieces cut out, put in, or in another case."""
    for _ in range(chance.choice((0, 1, 1, 2, 4))):
        start = chance.randrange(len(text) + 1)
        end = min(len(text), start + chance.choice((0, 1, 1, 8)))
        piece = chance.choice((*PIECES, text[start:end].swapcase(), chance.choice(string.hexdigits)))
        text = text[:start] + piece + text[end:]
    return text


async def test_only_what_a_user_signed_is_that_users() -> None:
    chance = random.Random(SEED)
    checked = Checked()
    for name, secret in SECRETS.items():
        checked.users.put(name, PUB_ORDERS, password=secret)
    allowed = 0
    for number in range(CASES):
        name = chance.choice((*SECRETS, "stranger"))
        date_time = f"2024010{chance.randrange(1, 9)}T000000Z"
        signature = hmac.new(SECRETS.get(name, "x").encode(), date_time.encode(), hashlib.sha1).digest()
        authorization = mutated(chance, FORMS[chance.choice(list(FORMS))](name, signature))
        date_time = mutated(chance, date_time) if chance.random() < 0.2 else date_time
        wanted = signer_of(authorization, date_time)
        proof = read_proof({"authorization": authorization, "x-mq-date-time": date_time})
        checked.users.now_ms += 20  # look-ups of names that are not there have a limit a second
        try:
            permit = await checked.check.check(SEND, proof, [ORDERS], ADDRESS)
        except PermissionDeniedError:
            assert wanted is None, (number, authorization, date_time)
        else:
            assert permit.username == wanted, (number, authorization, date_time)
            allowed += 1
    assert CASES * 0.2 < allowed < CASES * 0.8
