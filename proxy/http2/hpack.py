"""HPACK: header blocks of HTTP/2, decoded; and the few that a server of gRPC writes, encoded.

A block is a sequence of
    1xxxxxxx   a field of the tables, by index
    01xxxxxx   a field that enters the dynamic table; its name by index, or 0 and the name
    0000xxxx   a field that does not, 0001xxxx one that no intermediary may index
    001xxxxx   the new size of the dynamic table, at the block's beginning alone
Integers go on in further bytes, seven bits each, lowest first. A string is a length, whose highest bit says "Huffman".
The index counts the static table, 1 to 61, then the dynamic one, newest first. An entry weighs 32 bytes more than its
name and value; the oldest entries go when the table is full.

Names and values are texts of Latin-1, a character for each byte.
A decoder belongs to one connection: its table is the sum of all blocks so far, so an error ends the connection.
Source: RFC 7541.
"""

from __future__ import annotations

from collections import deque

from thermocline.proxy.http2.huffman import decode_huffman
from thermocline.remoting.errors import InvalidRequestError, ProtocolError

__all__ = ["TABLE_BYTES", "HeaderDecoder", "HeadersTooLargeError", "encode_field"]

TABLE_BYTES = 4096
"""SETTINGS_HEADER_TABLE_SIZE: the default, which is not changed here."""
ENTRY_OVERHEAD_BYTES = 32
INTEGER_MAX = 1 << 24

Field = tuple[str, str]
_Entry = tuple[Field, int]
"""A field and what it weighs."""

_STATIC_TEXT = """
:authority|
:method|GET
:method|POST
:path|/
:path|/index.html
:scheme|http
:scheme|https
:status|200
:status|204
:status|206
:status|304
:status|400
:status|404
:status|500
accept-charset|
accept-encoding|gzip, deflate
accept-language|
accept-ranges|
accept|
access-control-allow-origin|
age|
allow|
authorization|
cache-control|
content-disposition|
content-encoding|
content-language|
content-length|
content-location|
content-range|
content-type|
cookie|
date|
etag|
expect|
expires|
from|
host|
if-match|
if-modified-since|
if-none-match|
if-range|
if-unmodified-since|
last-modified|
link|
location|
max-forwards|
proxy-authenticate|
proxy-authorization|
range|
referer|
refresh|
retry-after|
server|
set-cookie|
strict-transport-security|
transfer-encoding|
user-agent|
vary|
via|
www-authenticate|
"""
STATIC_TABLE: tuple[Field, ...] = tuple(
    (name, value) for name, _, value in (line.partition("|") for line in _STATIC_TEXT.split("\n")[1:-1])
)
assert len(STATIC_TABLE) == 61, "RFC 7541, appendix A"
_STATIC_END = len(STATIC_TABLE) + 1


def _weighed(field: Field) -> _Entry:
    return field, len(field[0]) + len(field[1]) + ENTRY_OVERHEAD_BYTES


_STATIC_ENTRIES = tuple(map(_weighed, STATIC_TABLE))


class HeadersTooLargeError(InvalidRequestError):
    """The fields of one block together are larger than the limit."""


class HeaderDecoder:
    """The decoding half of a connection."""

    __slots__ = ("_bytes_max", "_entries", "_list_bytes_max", "_size_bytes")

    def __init__(self, *, list_bytes_max: int) -> None:
        """`list_bytes_max`: the most that the fields of one block may weigh, decoded."""
        self._entries: deque[_Entry] = deque()
        self._size_bytes = 0
        self._bytes_max = TABLE_BYTES
        self._list_bytes_max = list_bytes_max

    def decode(self, block: bytes) -> list[Field]:
        """Return the fields of a block, in order.

        Raises:
            ProtocolError: It cannot be read; the connection must end.
            HeadersTooLargeError: Its fields weigh too much. The tables are in step: the connection may go on.
        """
        fields: list[Field] = []
        position, end, weight = 0, len(block), 0
        entries, weight_max = self._entries, self._list_bytes_max
        try:
            while position < end:
                byte = block[position]
                position += 1
                if byte & 0x80:
                    index = byte & 0x7F
                    if index == 0x7F:
                        index, position = _integer(block, position, 0x7F)
                    if index >= _STATIC_END:
                        field, field_weight = entries[index - _STATIC_END]
                    elif index:
                        field, field_weight = _STATIC_ENTRIES[index - 1]
                    else:
                        raise ProtocolError("a header field has the index 0")
                elif byte & 0xE0 == 0x20:
                    if fields:
                        raise ProtocolError("the header table's size changes behind a field")
                    size, position = _prefixed(block, position, byte, 0x1F)
                    self._resize(size)
                    continue
                else:
                    (field, field_weight), position = self._literal(block, position, byte)
                weight += field_weight
                if weight <= weight_max:
                    fields.append(field)
        except IndexError:
            raise ProtocolError("a header block is cut short, or an index is beyond the tables") from None
        if weight > weight_max:
            raise HeadersTooLargeError(size_bytes_max=weight_max)
        return fields

    def _literal(self, block: bytes, position: int, byte: int) -> tuple[_Entry, int]:
        """The field that begins with this byte, and the position behind it."""
        enters = byte & 0x40
        index, position = _prefixed(block, position, byte, 0x3F if enters else 0x0F)
        if not index:
            name, position = _string(block, position)
        elif index < _STATIC_END:
            name = STATIC_TABLE[index - 1][0]
        else:
            name = self._entries[index - _STATIC_END][0][0]
        value, position = _string(block, position)
        entry = _weighed((name, value))
        if enters:
            self._enter(entry)
        return entry, position

    def _enter(self, entry: _Entry) -> None:
        weight = entry[1]
        self._evict(self._bytes_max - weight)
        if weight <= self._bytes_max:
            self._entries.appendleft(entry)
            self._size_bytes += weight

    def _resize(self, size_bytes: int) -> None:
        if size_bytes > TABLE_BYTES:
            raise ProtocolError("the header table would be larger than allowed", size_bytes=size_bytes)
        self._bytes_max = size_bytes
        self._evict(size_bytes)

    def _evict(self, size_bytes: int) -> None:
        entries = self._entries
        while entries and self._size_bytes > size_bytes:
            self._size_bytes -= entries.pop()[1]


def _prefixed(block: bytes, position: int, byte: int, mask: int) -> tuple[int, int]:
    value = byte & mask
    return (value, position) if value < mask else _integer(block, position, mask)


def _integer(block: bytes, position: int, value: int) -> tuple[int, int]:
    """The rest of an integer whose first byte was full; IndexError when it is cut short."""
    shift = 0
    while True:
        byte = block[position]
        position += 1
        value += (byte & 0x7F) << shift
        if value > INTEGER_MAX or shift > 28:
            raise ProtocolError("an integer of a header block is too large")
        if byte < 0x80:
            return value, position
        shift += 7


def _string(block: bytes, position: int) -> tuple[str, int]:
    byte = block[position]
    length, position = _prefixed(block, position + 1, byte, 0x7F)
    end = position + length
    if end > len(block):
        raise IndexError
    text = block[position:end]
    return (decode_huffman(text) if byte & 0x80 else text).decode("latin-1"), end


def encode_field(name: str, value: str) -> bytes:
    """Return one field as it is written here: never indexed, never Huffman; an entry of the static table by index."""
    if (name, value) in STATIC_TABLE:
        return bytes((0x80 | STATIC_TABLE.index((name, value)) + 1,))
    return b"\0" + _encode_string(name.encode("latin-1")) + _encode_string(value.encode("latin-1"))


def _encode_string(text: bytes) -> bytes:
    length = len(text)
    if length < 0x7F:
        return bytes((length,)) + text
    length -= 0x7F
    head = bytearray(b"\x7f")
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + text
