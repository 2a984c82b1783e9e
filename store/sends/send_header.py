"""Send header: which frames are sends, and their header decoded in one step, for the fast path.

    start of the header, as its frame has it          form
    {"code":310,   {"code":320,   {"code":10,"        JSON, decoded by one typed decoder
    int16 310, 320, 10                                binary, known by its stretches (remoting/known_headers.py)

A JSON header that does not start with its code, as every official client's does, is no form of these: ordinary code
decodes it. Codes 310 and 320 have one letter a field, 10 has long names; both decode to attributes of the same names.
Whether it is a batch, the header says (`batch`), not the code: the C++ client's batches have code 10.

With access control the values of all fields are signed. So a JSON header must be one of code 310 or 320 with the fields
of a `SignedSend` alone, and a binary one is decoded field by field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

import msgspec

from thermocline.remoting.command import SerializeType, decode_binary_header
from thermocline.remoting.errors import HeaderDecodeError, InvalidRequestError
from thermocline.remoting.header_codec import Int, Long, decode_header
from thermocline.remoting.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from thermocline.remoting.known_headers import KnownHeaders
from thermocline.remoting.request_code import RequestCode

PREFIX_BYTES = 12
"""How much of a header tells its form."""

CODE_BYTES = 2  # of a binary header

BINARY_BIT = SerializeType.ROCKETMQ << 24
HEADER_BYTES_MASK = 0xFF_FFFF


class SendRequest(Protocol):
    """A send's header."""

    @property
    def ext_fields(self) -> SendMessageRequestHeaderV2 | SendMessageRequestHeader:
        """The fields."""

    @property
    def opaque(self) -> int:
        """Of the request, and of its answer."""

    @property
    def flag(self) -> int:
        """See remoting/command.py."""

    @property
    def is_binary(self) -> bool:
        """How it is serialised."""

    @property
    def code(self) -> int:
        """Where there is access control, as are the next ones."""

    @property
    def fields(self) -> dict[str, str] | None:
        """All fields of a binary header."""

    @property
    def version(self) -> int:
        """Beside them."""


class _BinaryRequest(msgspec.Struct, gc=False):
    ext_fields: SendMessageRequestHeaderV2 | SendMessageRequestHeader
    opaque: int
    flag: int
    is_binary: bool = True
    code: int = 0
    fields: dict[str, str] | None = None
    version: int = 0


class _JsonRequest(msgspec.Struct, gc=False):
    """What a decoder gives as it is: an object for each send, and no other."""

    is_binary: ClassVar[bool] = False
    code: ClassVar[int] = 0
    fields: ClassVar[dict[str, str] | None] = None
    version: ClassVar[int] = 0


class SignedSend(SendMessageRequestHeaderV2, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The header of a signed send.

    Fields for which a send without access control may have a default must be there: a field that was taken away after
    the request was signed is none that was signed. A number or flag may have been written anew in another way, with
    the value that was signed.
    """

    default_topic: str = msgspec.field(name="c")
    default_topic_queue_nums: Int = msgspec.field(name="d")
    sys_flag: Int = msgspec.field(name="f")
    born_timestamp: Long = msgspec.field(name="g")
    flag: Int = msgspec.field(name="h")
    access_key: str = msgspec.field(name="AccessKey")
    signature: str = msgspec.field(name="Signature")
    security_token: str = msgspec.field(default="", name="SecurityToken")

    def signed_content(self, body: bytes) -> bytes:
        """What is signed: the values of all fields but the signature, in the order of their names, as official clients
        write them, and the body.

        A number or flag that was written in another way gives another text: then ordinary code checks the signature.
        """
        retries, limit = self.reconsume_times, self.max_reconsume_times
        return (
            f"{self.access_key}{self.security_token}{self.producer_group}{self.topic}{self.default_topic}"
            f"{self.default_topic_queue_nums}{self.queue_id}{self.sys_flag}{self.born_timestamp}{self.flag}"
            f"{self.properties or ''}{'' if retries is None else retries}{_FLAGS[self.unit_mode]}"
            f"{'' if limit is None else limit}{_FLAGS[self.batch]}{self.broker_name or ''}"
        ).encode() + body


_FLAGS = {True: "true", False: "false", None: ""}


class _LettersRequest(_JsonRequest, gc=False):
    ext_fields: SendMessageRequestHeaderV2 = msgspec.field(name="extFields")
    opaque: Int
    flag: Int = 0


class _NamesRequest(_JsonRequest, gc=False):
    ext_fields: SendMessageRequestHeader = msgspec.field(name="extFields")
    opaque: Int
    flag: Int = 0


class _SignedRequest(_JsonRequest, gc=False):
    code = RequestCode.SEND_MESSAGE_V2.value

    ext_fields: SignedSend = msgspec.field(name="extFields")
    opaque: Int
    flag: Int = 0


class _SignedBatchRequest(_SignedRequest, gc=False):
    code = RequestCode.SEND_BATCH_MESSAGE.value


Decode = Callable[[bytes], SendRequest | None]
"""None, or a msgspec.DecodeError, for a header that cannot be read."""


def _json_decoder(request_type: type[_LettersRequest | _NamesRequest | _SignedRequest]) -> Decode:
    return msgspec.json.Decoder(request_type, strict=False).decode


def _binary_decoder(header_type: type[SendMessageRequestHeaderV2] | type[SendMessageRequestHeader]) -> Decode:
    decode_known = KnownHeaders(header_type, ints=["queue_id"], longs=["born_timestamp"], text="properties").decode

    def decode(header: bytes) -> SendRequest | None:
        decoded = decode_known(header)
        return None if decoded is None else _BinaryRequest(*decoded)

    return decode


JSON_FORMS: dict[bytes, Decode] = {
    b'{"code":310,': _json_decoder(_LettersRequest),
    b'{"code":320,': _json_decoder(_LettersRequest),
    b'{"code":10,"': _json_decoder(_NamesRequest),
}
"""First PREFIX_BYTES of a JSON header -> how to decode it."""

SIGNED_JSON_FORMS: dict[bytes, Decode] = {
    b'{"code":310,': _json_decoder(_SignedRequest),
    b'{"code":320,': _json_decoder(_SignedBatchRequest),
}
"""The same where there is access control."""

BINARY_CODES = {
    code.to_bytes(CODE_BYTES, "big"): code
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE)
}
"""First CODE_BYTES of a binary header -> its code."""


def binary_forms() -> dict[bytes, Decode]:
    """First CODE_BYTES of a binary header -> how to decode it. Each caller's remember headers of their own."""
    return {
        start: _binary_decoder(
            SendMessageRequestHeader if code == RequestCode.SEND_MESSAGE else SendMessageRequestHeaderV2
        )
        for start, code in BINARY_CODES.items()
    }


def signed_binary_forms() -> dict[bytes, Decode]:
    """The same where there is access control."""
    return {
        start: _signed_binary_decoder(
            SendMessageRequestHeader if code == RequestCode.SEND_MESSAGE else SendMessageRequestHeaderV2
        )
        for start, code in BINARY_CODES.items()
    }


def _signed_binary_decoder(header_type: type[SendMessageRequestHeaderV2] | type[SendMessageRequestHeader]) -> Decode:
    def decode(header: bytes) -> SendRequest | None:
        try:
            command = decode_binary_header(header)
            typed = decode_header(header_type, command.ext_fields)
        except (HeaderDecodeError, InvalidRequestError):
            return None
        fields = command.ext_fields or {}
        return _BinaryRequest(typed, command.opaque, command.flag, True, command.code, fields, command.version)

    return decode


assert all(len(prefix) == PREFIX_BYTES for prefix in JSON_FORMS)
