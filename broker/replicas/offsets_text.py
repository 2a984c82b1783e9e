"""Offsets text: reads the answer to GET_ALL_CONSUMER_OFFSET entry by entry.

    {"dataVersion":{...},"handOffs":{group:[id]},"offsetTable":{"topic@group":{0:17,1:4}},...}

The answer of a broker with 100 000 offsets is 3 MB, which a JSON decoder takes at once, and with it the event loop. One
regular expression finds an entry here; the caller decodes those that are new to it. Integer keys are unquoted, as
RocketMQ writes them, or quoted.
Source: ConsumerOffsetSerializeWrapper.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.offsets import QueueOffset

TABLE = "offsetTable"
TOKENS_AT_ONCE = 500

_TEXT = rb'"(?:[^"\\]|\\.)*+"'
_TOKEN = re.compile(
    # A member that is an object of numbers.
    rb'"(?P<name>(?:[^"\\]|\\.)*+)"\s*:\s*\{(?P<inside>(?:\s*"?[0-9]++"?\s*:\s*-?[0-9]++\s*,?)*+\s*)\}'
    # A member that is another object begins.
    rb'|"(?P<outer>(?:[^"\\]|\\.)*+)"\s*:\s*\{'
    rb"|(?P<end>\})"
    # Any other text, with the list that it may be the name of.
    rb"|" + _TEXT + rb"(?:\s*:\s*\[(?:[^]\"]++|" + _TEXT + rb")*+\])?",
    re.DOTALL,
)
_BARE_KEY = re.compile(rb"([0-9]+)\s*:")
_decode_offsets = msgspec.json.Decoder(dict[int, QueueOffset]).decode


class Entry(msgspec.Struct, frozen=True):
    """One member of a table, or with an empty `table` a whole member of the answer, without tables."""

    table: str
    name: str
    text: bytes
    """`"name":{...}`, as it stands in the answer."""
    value: bytes
    """The object alone."""

    def offsets(self) -> dict[int, QueueOffset]:
        """The object as offsets by queue id.

        Raises:
            InvalidRequestError: It is none.
        """
        value = self.value if b'"' in self.value else _BARE_KEY.sub(rb'"\1":', self.value)
        try:
            return _decode_offsets(value)
        except msgspec.MsgspecError as error:
            raise InvalidRequestError("offsets cannot be read", entry=self.name, reason=str(error)) from error


def read_entries(body: bytes) -> Iterator[Entry | None]:
    """The entries of an answer, in its order; None now and then, where the caller may stop for a while.

    Raises:
        InvalidRequestError: It is no such answer.
    """
    start = body.find(b"{") + 1
    depth = 1 if start else 0
    outer: re.Match[bytes] | None = None
    is_table = False
    for number, match in enumerate(_TOKEN.finditer(body, start)):
        if number % TOKENS_AT_ONCE == 0:
            yield None
        name = match["name"]
        if name is not None:
            if depth <= 2:
                is_table = depth == 2
                table = _name(outer["outer"]) if is_table and outer is not None else ""
                yield Entry(table, _name(name), match.group(), b"{%s}" % match["inside"])
        elif match["outer"] is not None:
            depth += 1
            if depth == 2:
                outer, is_table = match, False
            elif outer is not None and outer["outer"] == TABLE.encode():
                raise InvalidRequestError("offsets cannot be read", entry=_name(match["outer"]))
        elif match["end"] is not None:
            depth -= 1
            if depth == 1 and not is_table and outer is not None:
                text = body[outer.start() : match.end()]
                yield Entry("", _name(outer["outer"]), text, body[outer.end() - 1 : match.end()])
    if not start or depth:
        raise InvalidRequestError("offsets cannot be read", reason="the text is no object, or ends too early")


def _name(text: bytes) -> str:
    try:
        return text.decode() if b"\\" not in text else msgspec.json.decode(b'"%s"' % text, type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidRequestError("offsets cannot be read", reason=str(error)) from error
