"""What tests of access control in the proxy share: users of a broker, and metadata by which a gRPC client signs."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from tests.interop.secured import INNER, ROOT
from thermocline.client import AdminClient

INNER_TEXT = json.dumps(INNER)
BROKER_ACCESS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key}),
    "innerClientAuthenticationCredentials": INNER_TEXT,
}
"""A broker's settings; the NameServer takes all."""
PROXY_ACCESS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "innerClientAuthenticationCredentials": INNER_TEXT,
}

Right = tuple[str, Sequence[str]]
"""A resource and actions on it."""

_numbers = itertools.count(1)


def secret_of(username: str) -> str:
    return f"the secret of {username}"


def make_user(admin: AdminClient, *rights: Right) -> str:
    """A user that no proxy has heard of, with rights; its name."""
    username = f"user{next(_numbers)}"
    admin.create_user(username, secret_of(username))
    for resource, actions in rights:
        admin.set_acl(f"User:{username}", [resource], actions)
    return username


def python_form(username: str, signature: bytes) -> str:
    return f"MQv2-HMAC-SHA1 Credential={username}, SignedHeaders=x-mq-date-time, Signature={signature.hex()}"


def java_form(username: str, signature: bytes) -> str:
    return f"MQv2-HMAC-SHA1 Credential={username}, SignedHeaders=x-mq-date-time, Signature={signature.hex().upper()}"


def go_form(username: str, signature: bytes) -> str:
    return f"MQv2-HMAC-SHA1 Credential={username}//Rocketmq, SignedHeaders=x-mq-date-time, Signature={signature.hex()}"


FORMS: dict[str, Callable[[str, bytes], str]] = {"Python": python_form, "Java": java_form, "Go": go_form}


def signed(username: str, secret: str | None = None, *, form: str = "Python", **more: str) -> dict[str, Any]:
    """The metadata of a request that a user signs now."""
    date_time = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    key = secret_of(username) if secret is None else secret
    signature = hmac.new(key.encode(), date_time.encode(), hashlib.sha1).digest()
    return {"authorization": FORMS[form](username, signature), "x-mq-date-time": date_time, **more}
