"""RemotingCommand: one request or response, and its two header serialisations.

JSON header: a UTF-8 object with its keys in alphabetical order, null members left out.
    code int, extFields {text: text}, flag int, language name, opaque int, remark text,
    serializeTypeCurrentRPC name, version int

Binary header (ROCKETMQ):
    int16  code: POP request codes do not fit and are cut to 16 bits
    int8   language
    int16  version
    int32  opaque
    int32  flag: bit 0 = response, bit 1 = one-way
    int32  remark size, then the remark, UTF-8; 0 = null
    int32  size of all ext fields, then for each: int16 name size, name, int32 value size, value; 0 = none

Rules
  - A response has the opaque of its request and bit 0 set, and is written in the serialisation of its request.
  - A one-way request is never answered.
  - Unknown members of a JSON header are passed over; unknown languages count as OTHER.
Source: RemotingCommand.java, RocketMQSerializable.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Mapping
from enum import IntEnum

import msgspec

from thermocline.remoting.errors import HeaderDecodeError, InvalidRequestError
from thermocline.remoting.frames import FRAME_HEAD, HEADER_WORD
from thermocline.remoting.header_codec import H, Header, Int, decode_header, encode_header
from thermocline.remoting.json_conversion import folded_name
from thermocline.remoting.json_dialect import loads_as
from thermocline.remoting.language_code import LANGUAGE_BY_NAME, LANGUAGE_BY_NUMBER, LanguageCode

FLAG_RESPONSE = 0x1
FLAG_ONEWAY = 0x2

VERSION = 513
"""The release ordinal that we report: 5.5.0."""

HEADER_BYTES_MAX = 0xFF_FFFF
ODD_HEADER_BYTES_MAX = 256 * 1024
"""Of a JSON header that msgspec does not read; the longest property text with all its characters escaped fits."""
OPAQUE_MASK = 0x7FFF_FFFF


class SerializeType(IntEnum):
    """How a header is written; the high byte of the header word."""

    JSON = 0
    ROCKETMQ = 1


class RemotingCommand(msgspec.Struct):
    """One request or response. `ext_fields` are the header's fields as text: see `header()` for the typed form."""

    code: int
    opaque: int
    flag: int = 0
    language: LanguageCode = LanguageCode.PYTHON
    version: int = VERSION
    remark: str | None = None
    ext_fields: dict[str, str] | None = None
    body: bytes | memoryview = b""
    serialize_type: SerializeType = SerializeType.JSON
    user: str = ""
    """Of a request that was received: who its signature proves to have sent it; set by access control, never sent."""

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Whether the sender wants no answer."""
        return bool(self.flag & FLAG_ONEWAY)

    @classmethod
    def request(
        cls,
        code: int,
        header: Header | None = None,
        *,
        body: bytes | memoryview = b"",
        ext_fields: Mapping[str, str] | None = None,
        oneway: bool = False,
        serialize_type: SerializeType = SerializeType.JSON,
    ) -> RemotingCommand:
        """A new request with an opaque of its own; `ext_fields` go beside the header's."""
        return cls(
            code=int(code),
            opaque=next(_opaques) & OPAQUE_MASK,
            flag=FLAG_ONEWAY if oneway else 0,
            ext_fields=_join_fields(header, ext_fields),
            body=body,
            serialize_type=serialize_type,
        )

    @classmethod
    def response(
        cls,
        request: RemotingCommand,
        code: int = 0,
        *,
        header: Header | None = None,
        remark: str | None = None,
        body: bytes | memoryview = b"",
        ext_fields: Mapping[str, str] | None = None,
    ) -> RemotingCommand:
        """The answer to `request`."""
        return cls(
            code=int(code),
            opaque=request.opaque,
            flag=FLAG_RESPONSE,
            remark=remark,
            ext_fields=_join_fields(header, ext_fields),
            body=body,
            serialize_type=request.serialize_type,
        )

    def renumbered(self) -> RemotingCommand:
        """This request as another one: with an opaque of its own, to be sent on."""
        return msgspec.structs.replace(self, opaque=next(_opaques) & OPAQUE_MASK, user="")

    def header(self, header_type: type[H]) -> H:
        """The typed header; InvalidRequestError when it cannot be read."""
        return decode_header(header_type, self.ext_fields)

    def encode_head(self, *, body_bytes: int | None = None) -> bytes:
        """Length word and header of the frame; the body, of `body_bytes` if not `self.body`, is to follow."""
        if self.serialize_type is SerializeType.JSON:
            header = _encode_json_header(self)
        else:
            header = _encode_binary_header(self)
        assert len(header) <= HEADER_BYTES_MAX
        size_bytes = HEADER_WORD.size + len(header) + (len(self.body) if body_bytes is None else body_bytes)
        return FRAME_HEAD.pack(size_bytes, self.serialize_type << 24 | len(header)) + header

    def encode(self) -> bytes:
        """The whole frame, its length word included."""
        head = self.encode_head()
        return b"".join((head, self.body)) if self.body else head


_JSON = SerializeType.JSON.value
_ROCKETMQ = SerializeType.ROCKETMQ.value

_opaques = itertools.count()


def _join_fields(header: Header | None, ext_fields: Mapping[str, str] | None) -> dict[str, str] | None:
    if header is None:
        return None if ext_fields is None else dict(ext_fields)
    fields = encode_header(header)
    if ext_fields:
        fields.update(ext_fields)
    return fields


def decode_command(frame: bytes | bytearray | memoryview) -> RemotingCommand:
    """The command in a frame without its length word. The body is a copy: `frame` may be reused afterwards.

    Raises:
        HeaderDecodeError: The header is no header; the connection is to be closed.
    """
    if len(frame) < HEADER_WORD.size:
        raise HeaderDecodeError("the frame is too small for a header", size_bytes=len(frame))
    (word,) = HEADER_WORD.unpack_from(frame)
    body_start = HEADER_WORD.size + (word & HEADER_BYTES_MAX)
    if body_start > len(frame):
        raise HeaderDecodeError("the header ends beyond its frame", header_bytes=word & HEADER_BYTES_MAX)
    header = memoryview(frame)[HEADER_WORD.size : body_start]
    serialize_type = word >> 24
    if serialize_type == _JSON:
        command = _decode_json_header(header)
    elif serialize_type == _ROCKETMQ:
        command = decode_binary_header(bytes(header))
    else:
        raise HeaderDecodeError("unknown header serialisation", serialize_type=serialize_type)
    if body_start < len(frame):
        command.body = bytes(frame[body_start:])
    return command


# -- JSON ----------------------------------------------------------------------------------------------------------


class _JsonHeaderIn(msgspec.Struct):
    code: Int = 0
    ext_fields: dict[str, str] | None = msgspec.field(default=None, name="extFields")
    flag: Int = 0
    language: str = LanguageCode.JAVA.name
    opaque: Int = 0
    remark: str | None = None
    version: Int = 0


class _JsonHeaderOut(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Members in alphabetical order; those with a default are left out when null."""

    code: int
    ext_fields: dict[str, str] | None = msgspec.field(default=None, name="extFields")
    flag: int
    language: str
    opaque: int
    remark: str | None = None
    serialize_type: str = msgspec.field(name="serializeTypeCurrentRPC")
    version: int


_json_header_decoder = msgspec.json.Decoder(_JsonHeaderIn)
_json_encode = msgspec.json.Encoder().encode
_JSON_NAME = SerializeType.JSON.name
_LANGUAGE_NAMES = [language.name for language in LanguageCode]


def _encode_json_header(command: RemotingCommand) -> bytes:
    try:
        return _json_encode(
            _JsonHeaderOut(
                code=command.code,
                ext_fields=command.ext_fields,
                flag=command.flag,
                language=_LANGUAGE_NAMES[command.language],
                opaque=command.opaque,
                remark=command.remark,
                serialize_type=_JSON_NAME,
                version=command.version,
            )
        )
    except UnicodeEncodeError:  # half of a surrogate pair: RocketMQ sends a question mark too
        return _encode_json_header(_without_surrogates(command))


def _decode_json_header(header: memoryview) -> RemotingCommand:
    try:
        fields = _json_header_decoder.decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        fields = _decode_odd_json_header(header)
    language = LANGUAGE_BY_NAME.get(fields.language)
    return RemotingCommand(
        fields.code,
        fields.opaque,
        fields.flag,
        _odd_language(fields.language) if language is None else language,
        fields.version,
        fields.remark,
        fields.ext_fields,
    )


def _decode_odd_json_header(header: memoryview) -> _JsonHeaderIn:
    """A header as some clients write it: null members, numbers among the ext fields, languages by number.

    Member by member, so its size has a bound: peers send it before access control has checked them.
    """
    if len(header) > ODD_HEADER_BYTES_MAX:
        raise HeaderDecodeError("the JSON header is too large", size_bytes=len(header))
    try:
        return loads_as(header, _JsonHeaderIn)
    except InvalidRequestError as error:
        raise HeaderDecodeError("the JSON header cannot be read", cause=error) from error


def _odd_language(text: str) -> LanguageCode:
    """By its name in any case or by its number, whose fraction is cut off; OTHER if there is none such."""
    number = _LANGUAGE_NUMBER.fullmatch(text)
    if number is not None:
        return LANGUAGE_BY_NUMBER.get(int(number.group(1)), LanguageCode.OTHER)
    return _LANGUAGE_BY_FOLDED_NAME.get(folded_name(text), LanguageCode.OTHER)


_LANGUAGE_NUMBER = re.compile(r"([0-9]{1,9})(?:\.[0-9]*)?")
_LANGUAGE_BY_FOLDED_NAME = {folded_name(language.name): language for language in LanguageCode}


# -- binary --------------------------------------------------------------------------------------------------------

BINARY_HEAD = struct.Struct(
    ">h"  # code
    "b"  # language
    "h"  # version
    "i"  # opaque
    "i"  # flag
    "i"  # remark size
)
assert BINARY_HEAD.size == 17, "wire format shared with Apache RocketMQ"
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_SHORT_BYTES, _INT_BYTES = _SHORT.size, _INT.size
_unpack_short, _unpack_int = _SHORT.unpack_from, _INT.unpack_from
_NAME_BYTES_MAX = 32_767


def encode_binary_fields(ext_fields: Mapping[str, str]) -> bytes:
    """The ext fields of a binary header, without their size."""
    pieces: list[bytes] = []
    for name, value in ext_fields.items():
        name_text = name.encode("utf-8", "replace")
        value_text = value.encode("utf-8", "replace")
        assert len(name_text) <= _NAME_BYTES_MAX
        pieces += (_SHORT.pack(len(name_text)), name_text, _INT.pack(len(value_text)), value_text)
    return b"".join(pieces)


def _encode_binary_header(command: RemotingCommand) -> bytes:
    remark = b"" if command.remark is None else command.remark.encode("utf-8", "replace")
    fields = encode_binary_fields(command.ext_fields or {})
    head = BINARY_HEAD.pack(
        _to_int16(command.code),
        command.language,
        _to_int16(command.version),
        command.opaque,
        command.flag,
        len(remark),
    )
    return b"".join((head, remark, _INT.pack(len(fields)), fields))


def _to_int16(number: int) -> int:
    """Cut to 16 bits, as Java's cast to short does."""
    return (number + 0x8000 & 0xFFFF) - 0x8000


def decode_binary_header(header: bytes) -> RemotingCommand:
    """The command in a binary header, without a body.

    Raises:
        HeaderDecodeError: It is none.
    """
    try:
        code, language, version, opaque, flag, remark_bytes = BINARY_HEAD.unpack_from(header)
        position = BINARY_HEAD.size
        remark = None
        if remark_bytes:
            remark = _take_text(header, position, remark_bytes)
            position += remark_bytes
        (fields_bytes,) = _INT.unpack_from(header, position)
        position += _INT.size
        end = position + fields_bytes
        if fields_bytes < 0 or end > len(header):
            raise HeaderDecodeError("the ext fields end beyond the header", size_bytes=fields_bytes)
        ext_fields: dict[str, str] | None = {} if fields_bytes else None
        header_bytes = len(header)
        while position < end:
            assert ext_fields is not None
            # No call for each text: signed sends with a binary header are decoded here, field by field.
            name_start = position + _SHORT_BYTES
            name_end = name_start + _unpack_short(header, position)[0]
            value_start = name_end + _INT_BYTES
            if not name_start <= name_end < value_start <= header_bytes:
                raise HeaderDecodeError("a name ends beyond the header", position=position)
            position = value_start + _unpack_int(header, name_end)[0]
            if not value_start <= position <= header_bytes:
                raise HeaderDecodeError("a text ends beyond the header", position=value_start)
            ext_fields[header[name_start:name_end].decode()] = header[value_start:position].decode()
        if position != end:
            raise HeaderDecodeError("an ext field ends beyond the ext fields", position=position, end=end)
    except (struct.error, UnicodeDecodeError) as error:
        raise HeaderDecodeError("the binary header cannot be read", cause=error) from error
    return RemotingCommand(
        code,
        opaque,
        flag,
        LANGUAGE_BY_NUMBER.get(language, LanguageCode.OTHER),
        version,
        remark,
        ext_fields,
        b"",
        SerializeType.ROCKETMQ,
    )


def _take_text(header: bytes, position: int, size_bytes: int) -> str:
    if size_bytes < 0 or position + size_bytes > len(header):
        raise HeaderDecodeError("a text ends beyond the header", position=position, size_bytes=size_bytes)
    return header[position : position + size_bytes].decode()


def _without_surrogates(command: RemotingCommand) -> RemotingCommand:
    def clean(text: str) -> str:
        return text.encode("utf-8", "replace").decode()

    return msgspec.structs.replace(
        command,
        remark=None if command.remark is None else clean(command.remark),
        ext_fields={clean(name): clean(value) for name, value in (command.ext_fields or {}).items()},
    )
