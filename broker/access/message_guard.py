"""Message guard: access control of the message path, on each common send and pull.

A send whose signature is right is allowed or refused here. What is not certain is left to ordinary code, which checks
it anew and says what is wrong, if anything is.
The header of a send is read once: the values that are checked are those that are used. A pull's is read twice, by
decoders for which the last of two equal members counts.
Owner: the hot process's event loop.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

import msgspec

from thermocline.auth.access_control import AccessControl
from thermocline.auth.refusal import Refusal
from thermocline.auth.users import User
from thermocline.remoting.command import decode_binary_header
from thermocline.remoting.connections import Connection
from thermocline.remoting.errors import HeaderDecodeError
from thermocline.remoting.header_codec import Int
from thermocline.remoting.request_signature import ACCESS_KEY, SIGNATURE, signed_content
from thermocline.store.sends import RefusedHeader, SendRequest, SignedSend

ADDRESS_BYTES = 4
SUSPECTS_MAX = 1_000


class _Header(msgspec.Struct):
    ext_fields: dict[str, str] = msgspec.field(name="extFields")
    code: Int = 0
    flag: Int = 0
    opaque: Int = 0
    version: Int = 0


_decode_json = msgspec.json.Decoder(_Header).decode


class MessageGuard:
    """See the module. `keep_pull` is called with each pull that is allowed."""

    def __init__(self, access: AccessControl, *, keep_pull: Callable[[Connection, User, str, str], None]) -> None:
        self._access = access
        self._decided = access.decided_sends
        self._keep_pull = keep_pull
        self.suspects: set[bytes] = set()
        """Peers whose last send had no valid signature."""

    def may_judge(self) -> bool:
        """Whether sends may be judged here; to be asked once a round."""
        return self._access.may_judge_sends

    def judge_send(self, request: SendRequest, body: bytes, born_host: bytes) -> str | Refusal | None:
        """The name of the user that may send this; or the refusal; or None if neither is certain. `born_host`: four
        bytes of address, then the port."""
        header = request.ext_fields
        if isinstance(header, SignedSend):
            name, signature = header.access_key, header.signature
            content = header.signed_content(body)
        else:
            fields = request.fields
            if fields is None:
                return None
            name, signature = fields.get(ACCESS_KEY, ""), fields.get(SIGNATURE, "")
            content = signed_content(fields, body, version=request.version)
        code, topic, address = request.code, header.topic, born_host[:ADDRESS_BYTES]
        decision = self._decided.get((name, topic, address, code))
        if decision is None:
            return self._access.judge_send(code, name, signature, content, topic, address)
        if decision.key.has_signed(content, signature):
            return decision.verdict
        self._access.remember_unsigned(decision.key, content, signature)
        return None

    def refuse_unsigned(self, header: bytes, body: bytes, born_host: bytes, *, is_json: bool) -> RefusedHeader | None:
        """The refusal of a send without a valid signature; None if it has one, or that is not certain."""
        try:
            decoded = _decode_json(header) if is_json else decode_binary_header(header)
        except (msgspec.MsgspecError, UnicodeDecodeError, HeaderDecodeError):
            return None
        address = socket.inet_ntoa(born_host[:ADDRESS_BYTES])
        refusal = self._access.refuse_signature(decoded.code, decoded.ext_fields or {}, body, decoded.version, address)
        if refusal is None:
            self.suspects.discard(born_host)
            return None
        if len(self.suspects) >= SUSPECTS_MAX:
            self.suspects.clear()
        self.suspects.add(born_host)
        return RefusedHeader(refusal, decoded.opaque, decoded.flag)

    def allow_pull(self, connection: Connection, header: bytes, *, is_json: bool) -> str | None:
        """The name of the user of a pull that is allowed beyond doubt; else None."""
        try:
            if is_json:
                decoded = _decode_json(header)
                fields, version = decoded.ext_fields, decoded.version
            else:
                command = decode_binary_header(header)
                fields, version = command.ext_fields or {}, command.version
        except (msgspec.MsgspecError, UnicodeDecodeError, HeaderDecodeError):
            return None
        topic, group = fields.get("topic"), fields.get("consumerGroup")
        if topic is None or group is None:
            return None
        user = self._access.allows_pull(fields, version, topic, group, connection.remote_host[0])
        if user is None:
            return None
        self._keep_pull(connection, user, topic, group)
        return user.username
