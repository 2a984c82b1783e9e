"""Answer template: the head of an answer that is given many times, as bytes with places for what differs.

It is made from the codec's own encoding of such an answer, in which each differing value is a sentinel, so that an
answer looks the same whichever way it is encoded.

    JSON     `%` takes the values in the order in which the codec writes them
    binary   ext fields alone: `%` takes each value behind its size (`sized_text`, `sized_number`); `binary_head` then
             puts the rest of the header in front
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from thermocline.remoting.command import (
    BINARY_HEAD,
    FLAG_RESPONSE,
    VERSION,
    RemotingCommand,
    SerializeType,
    encode_binary_fields,
)
from thermocline.remoting.frames import FRAME_HEAD, HEADER_WORD, LENGTH
from thermocline.remoting.language_code import LanguageCode

HEAD_BYTES = FRAME_HEAD.size

_SIZES = [LENGTH.pack(size) for size in range(256)]
_BINARY_WORD = SerializeType.ROCKETMQ << 24
_LANGUAGE = LanguageCode.PYTHON.value


def json_template(answer: RemotingCommand, places: Iterable[tuple[str, str]]) -> bytes:
    """The JSON header of `answer` without the words in front; `places`: a sentinel and its conversion each."""
    assert answer.serialize_type is SerializeType.JSON
    return _with_places(answer.encode()[HEAD_BYTES:], [(text.encode(), form.encode()) for text, form in places])


def binary_template(answer: RemotingCommand, sentinels: Sequence[str]) -> bytes:
    """The ext fields of `answer`; each sentinel's place takes a value with its size."""
    return b"%b".join(escaped(piece) for piece in binary_pieces(answer, sentinels))


def binary_pieces(answer: RemotingCommand, sentinels: Sequence[str]) -> list[bytes]:
    """The ext fields of `answer` in pieces: before, between and behind the sentinels, whose sizes are left out."""
    assert answer.ext_fields is not None
    rest = encode_binary_fields(answer.ext_fields)
    pieces = []
    for sentinel in sentinels:
        piece, found, rest = rest.partition(sized_text(sentinel.encode()))
        assert found, "the order of the arguments"
        pieces.append(piece)
    return [*pieces, rest]


def escaped(literal: bytes) -> bytes:
    """Bytes that a template for `%` gives back as they are."""
    return literal.replace(b"%", b"%%")


def _with_places(template: bytes, places: Iterable[tuple[bytes, bytes]]) -> bytes:
    template = escaped(template)
    previous = -1
    for sentinel, conversion in places:
        place = template.index(sentinel)
        assert place > previous, "the order of the arguments"
        assert template.count(sentinel) == 1, "a sentinel is unlike all else"
        previous = place
        template = template.replace(sentinel, conversion)
    return template


def sized_text(text: bytes) -> bytes:
    """A value of a binary header."""
    size = len(text)
    return (_SIZES[size] if size < len(_SIZES) else LENGTH.pack(size)) + text


def sized_number(number: int) -> bytes:
    """A number as a value of a binary header."""
    text = b"%d" % number
    return _SIZES[len(text)] + text


def binary_head(fields: bytes, *, code: int, opaque: int, remark: bytes = b"", body_bytes: int = 0) -> bytes:
    """Length word and header of an answer's frame with these ext fields."""
    header_bytes = BINARY_HEAD.size + len(remark) + LENGTH.size + len(fields)
    return b"".join(
        (
            FRAME_HEAD.pack(HEADER_WORD.size + header_bytes + body_bytes, _BINARY_WORD | header_bytes),
            BINARY_HEAD.pack(code, _LANGUAGE, VERSION, opaque, FLAG_RESPONSE, len(remark)),
            remark,
            LENGTH.pack(len(fields)),
            fields,
        )
    )
