"""Message guard: access control of the message path, on each common send and pull.

What is not allowed beyond doubt is left to ordinary code, which checks it anew and says what is wrong, if anything is.
The header of a send is read once: the values that are checked are those that are used. A pull's is read twice, by
decoders for which the last of two equal members counts.
Owner: the hot process's event loop.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

import msgspec

from thermocline.auth.access_control import AccessControl
from thermocline.auth.users import User
from thermocline.remoting.command import decode_binary_header
from thermocline.remoting.connections import Connection
from thermocline.remoting.errors import HeaderDecodeError
from thermocline.remoting.header_codec import Int
from thermocline.store.sends import SendRequest, SignedSend

ADDRESS_BYTES = 4


class _Header(msgspec.Struct):
    ext_fields: dict[str, str] = msgspec.field(name="extFields")
    version: Int = 0


_decode_json = msgspec.json.Decoder(_Header).decode


class MessageGuard:
    """See the module. `keep_pull` is called with each pull that is allowed."""

    def __init__(self, access: AccessControl, *, keep_pull: Callable[[Connection, User, str, str], None]) -> None:
        self._access = access
        self._keep_pull = keep_pull

    def allows_send(self, request: SendRequest, body: bytes, born_host: bytes) -> bool:
        """Whether a send is allowed beyond doubt; `born_host`: four bytes of address, then the port."""
        header = request.ext_fields
        if isinstance(header, SignedSend):
            return self._access.allows_signed_send(
                header.access_key,
                header.signature,
                header.signed_text().encode("utf-8", "replace") + body,
                header.topic,
                born_host[:ADDRESS_BYTES],
            )
        if request.fields is None:
            return False
        address = socket.inet_ntoa(born_host[:ADDRESS_BYTES])
        return self._access.allows_send(request.fields, body, request.version, header.topic, address)

    def allows_pull(self, connection: Connection, header: bytes, *, is_json: bool) -> bool:
        """Whether a pull is allowed beyond doubt."""
        try:
            if is_json:
                decoded = _decode_json(header)
                fields, version = decoded.ext_fields, decoded.version
            else:
                command = decode_binary_header(header)
                fields, version = command.ext_fields or {}, command.version
        except (msgspec.MsgspecError, UnicodeDecodeError, HeaderDecodeError):
            return False
        topic, group = fields.get("topic"), fields.get("consumerGroup")
        if topic is None or group is None:
            return False
        user = self._access.allows_pull(fields, version, topic, group, connection.remote_host[0])
        if user is None:
            return False
        self._keep_pull(connection, user, topic, group)
        return True
