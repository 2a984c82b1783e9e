"""Huffman code of HPACK: how header names and values are packed into bits.

The code is canonical: codes of one length follow each other in the order of their symbols, shorter codes first. So the
lengths alone give it. A text is padded to a whole byte with the first bits of the code of EOS, all ones; more than
seven bits of padding, other padding, and EOS itself are errors.

Decoding takes a whole byte at a time: `(state, byte) -> (next state, symbols)`, where a state is an inner node of the
code's tree. A row of 256 entries is made when its state is first met.
Source: RFC 7541, section 5.2 and appendix B.
"""

from __future__ import annotations

from thermocline.remoting.errors import ProtocolError

__all__ = ["decode_huffman"]

EOS = 256
_LENGTHS_TEXT = """
13 23 28 28 28 28 28 28 28 24 30 28 28 30 28 28 28 28 28 28 28 28 30 28 28 28 28 28 28 28 28 28
6 10 10 12 13 6 8 11 10 10 8 11 8 6 6 6 5 5 5 6 6 6 6 6 6 6 7 8 15 6 12 10
13 6 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 8 7 8 13 19 13 14 6
15 5 6 5 6 5 6 6 6 5 7 7 6 6 6 5 6 7 6 5 5 6 7 7 7 7 7 15 11 14 13 28
20 22 20 20 22 22 22 23 22 23 23 23 23 23 24 23 24 24 22 23 24 23 23 23 23 21 22 23 22 23 23 24
22 21 20 22 22 23 23 21 23 22 22 24 21 22 23 23 21 21 22 21 23 22 23 23 20 22 22 22 23 22 22 23
26 26 20 19 22 23 22 25 26 26 26 27 27 26 24 25 19 21 26 27 27 26 27 24 21 21 26 26 28 27 27 27
20 24 20 21 22 21 21 23 22 22 25 25 24 24 26 23 26 27 26 26 27 27 27 27 27 28 27 27 27 27 27 26
30
"""
LENGTHS = tuple(int(text) for text in _LENGTHS_TEXT.split())
assert len(LENGTHS) == EOS + 1
assert sum(2.0**-length for length in LENGTHS) == 1.0, "a full tree"

_Row = tuple[tuple[int, bytes], ...]


def _codes() -> dict[int, tuple[int, int]]:
    """Symbol -> (code, its length in bits)."""
    codes: dict[int, tuple[int, int]] = {}
    code = length = 0
    for symbol in sorted(range(EOS + 1), key=lambda each: (LENGTHS[each], each)):
        code <<= LENGTHS[symbol] - length
        length = LENGTHS[symbol]
        codes[symbol] = code, length
        code += 1
    return codes


def _tree() -> tuple[list[list[int]], set[int]]:
    """Inner nodes as [child for 0, child for 1]; a leaf is `~symbol`. And the nodes at which a text may end."""
    nodes: list[list[int]] = [[0, 0]]
    for symbol, (code, length) in _codes().items():
        node = 0
        for place in range(length - 1, 0, -1):
            bit = code >> place & 1
            if not nodes[node][bit]:
                nodes.append([0, 0])
                nodes[node][bit] = len(nodes) - 1
            node = nodes[node][bit]
        nodes[node][code & 1] = ~symbol
    ends, node = {0}, 0
    for _ in range(7):
        node = nodes[node][1]
        ends.add(node)
    return nodes, ends


_NODES, _ENDS = _tree()
_ROWS: dict[int, _Row] = {}
_FAILED = -1


def _row(state: int) -> _Row:
    entries = []
    for byte in range(256):
        node, symbols = state, bytearray()
        for place in range(7, -1, -1):
            child = _NODES[node][byte >> place & 1]
            if child >= 0:
                node = child
                continue
            if ~child == EOS:
                node = _FAILED
                break
            symbols.append(~child)
            node = 0
        entries.append((node, bytes(symbols)))
    row = _ROWS[state] = tuple(entries)
    return row


def decode_huffman(data: bytes) -> bytes:
    """Return the text.

    Raises:
        ProtocolError: EOS is in it, or it does not end as it must.
    """
    state, pieces = 0, []
    rows = _ROWS
    for byte in data:
        row = rows.get(state) or _row(state)
        state, symbols = row[byte]
        if state < 0:
            raise ProtocolError("a header holds the end symbol of the Huffman code")
        pieces.append(symbols)
    if state not in _ENDS:
        raise ProtocolError("a header's Huffman code ends in the middle of a symbol")
    return b"".join(pieces)
