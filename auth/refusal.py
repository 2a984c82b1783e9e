"""Refusal: the denial of a request, with its answer and its line of the audit log ready for the next one like it.

A client that is not allowed to do something goes on trying, so a denial must cost no more than what it refuses: the
text is encoded once, and an answer is its parts around the request's opaque.
"""

from __future__ import annotations

from thermocline.auth.audit import AuditLog
from thermocline.remoting.answer_template import binary_head
from thermocline.remoting.command import FLAG_RESPONSE, RemotingCommand
from thermocline.remoting.errors import PermissionDeniedError
from thermocline.remoting.frames import FRAME_HEAD, HEADER_WORD
from thermocline.remoting.response_code import ResponseCode

_OPAQUE = b'"opaque":'


class Refusal:
    """See the module."""

    __slots__ = ("_audit", "_json_end", "_json_start", "_remark", "_rest", "_stage", "_text")

    def __init__(self, audit: AuditLog, stage: str, text: str, rest: bytes) -> None:
        """`stage` and `rest`: see auth/audit.py; `text`: for the client."""
        self._audit = audit
        self._stage = stage
        self._rest = rest
        self._text = text
        self._remark = text.encode("utf-8", "replace")
        answer = RemotingCommand(code=ResponseCode.NO_PERMISSION, opaque=0, flag=FLAG_RESPONSE, remark=text)
        # Members are in the order of their names: nothing in front of the opaque comes from a client.
        start, mark, end = answer.encode()[FRAME_HEAD.size :].partition(_OPAQUE + b"0")
        assert mark
        self._json_start, self._json_end = start + _OPAQUE, end

    def answer(self, opaque: int, *, is_binary: bool) -> bytes:
        """The frame of the answer to a request with this opaque."""
        if is_binary:
            return binary_head(b"", code=ResponseCode.NO_PERMISSION, opaque=opaque, remark=self._remark)
        header = b"%b%d%b" % (self._json_start, opaque, self._json_end)
        return FRAME_HEAD.pack(HEADER_WORD.size + len(header), len(header)) + header

    def note(self, now_ms: int | None = None) -> None:
        """Count a request that is refused so, and write it to the audit log."""
        self._audit.denied(self._stage, self._rest, now_ms)

    def error(self) -> PermissionDeniedError:
        """The answer as an error, for code that raises it."""
        return PermissionDeniedError(self._text)
