"""Configuration text: the Java properties text that config requests carry and `broker.conf` is written in.

    # comment, as a line that starts with ! is one too
    brokerName = broker-a
    messageDelayLevel=1s 5s 10s \\
        30s 1m

Reading: a key ends at the first `=`, `:` or blank that is not escaped; blanks around the separator are dropped; a
line that ends in an odd number of backslashes goes on in the next one; `\\t \\n \\r \\f \\uXXXX` are escapes, a
backslash before any other character stands for that character. The last of several equal keys counts.
Writing: `key=value`, one a line, sorted by key, unescaped: this is how brokers and NameServers show their settings,
and what `mqadmin` splits again at the first `=`.
A text has at most CHARACTERS_MAX characters: peers send it, and it is read character by character.
Source: java.util.Properties; remoting/Configuration.java, common/MixAll.java, Apache RocketMQ 5.3.
"""

import re
from collections.abc import Mapping

from thermocline.remoting.errors import InvalidParameterError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"
CHARACTERS_MAX = 1 << 20
_LINE_END = re.compile(r"\r\n|\r|\n")


def parse_config_text(text: str) -> dict[str, str]:
    """Read properties text.

    Raises:
        InvalidParameterError: An escape of the form \\uXXXX is broken, or the text is too long.
    """
    if len(text) > CHARACTERS_MAX:
        raise InvalidParameterError("the configuration text is too long", characters=len(text), most=CHARACTERS_MAX)
    values: dict[str, str] = {}
    for line in _logical_lines(text):
        key_end = _key_end(line)
        rest = line[key_end:].lstrip(_BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANKS)
        values[_unescape(line[:key_end])] = _unescape(rest)
    return values


def format_config_text(values: Mapping[str, str]) -> str:
    """Write `key=value` lines, sorted by key."""
    return "".join(f"{key}={values[key]}\n" for key in sorted(values))


def _logical_lines(text: str) -> list[str]:
    """Lines with continuations joined, without comments and blank lines, without leading blanks."""
    lines: list[str] = []
    pieces: list[str] | None = None  # of a line that goes on
    for natural in _LINE_END.split(text):
        stripped = natural.lstrip(_BLANKS)
        if pieces is None:
            if not stripped or stripped[0] in "#!":
                continue
            pieces = []
        goes_on = (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 1
        pieces.append(stripped[:-1] if goes_on else stripped)
        if not goes_on:
            lines.append("".join(pieces))
            pieces = None
    if pieces is not None and (last := "".join(pieces)):
        lines.append(last)
    return lines


def _key_end(line: str) -> int:
    position = 0
    while position < len(line):
        character = line[position]
        if character == "\\":
            position += 2
            continue
        if character in "=:" or character in _BLANKS:
            return position
        position += 1
    return len(line)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    pieces: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character != "\\" or position + 1 == len(text):
            pieces.append(character)
            position += 1
            continue
        escaped = text[position + 1]
        if escaped == "u":
            digits = text[position + 2 : position + 6]
            if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                raise InvalidParameterError("broken \\uXXXX escape in configuration text", text=text)
            pieces.append(chr(int(digits, 16)))
            position += 6
        else:
            pieces.append(_ESCAPES.get(escaped, escaped))
            position += 2
    return "".join(pieces)
