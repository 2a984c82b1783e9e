"""Audit log: who was refused what, who changed what, and on request who did what.

One JSON object a line, members in this order, null ones left out:
    time      ISO 8601, UTC, milliseconds
    event     denied, changed, accessed; `dropped` says that the writer had no room for `count` lines
    user      that proved to be it; for `denied` without proof the name it gave, with `unproved` true
    address   of the client
    request   name of the request code
    action    names, one of which the request needs
    resource  as in policies; of a change the user or subject changed
    reason    of a refusal; never a secret
    entry     of a policy that decided

Denials and changes are always written, accesses when `auditLogAccesses` says so. A text of more than
TEXT_CHARACTERS_MAX characters, which only a client that means harm sends, is cut there.

A line is made in two parts, so that the second one can be kept for a denial that is given again and again:
    {"time":"2026-11-26T03:41:00.007Z"          written by the thread of the file
    ,"event":"denied", ...}                     `line_rest`
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol

import msgspec

AUTHENTICATION, AUTHORIZATION = "authentication", "authorization"
"""Stages of access control."""


class AuditLine(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line, see the module."""

    time: str
    event: str
    user: str | None = None
    unproved: bool = False
    address: str | None = None
    request: str | None = None
    action: str | None = None
    resource: str | None = None
    reason: str | None = None
    entry: str | None = None
    count: int | None = None


class LineWriter(Protocol):
    """Where lines go."""

    def write(self, time_ms: int, rest: bytes) -> None:
        """Take what happened at a time, as `line_rest` gives it; returns at once."""


TEXT_CHARACTERS_MAX = 1_000
CUT = "..."
"""Stands behind a text that was cut."""

_encode = msgspec.json.Encoder().encode
_HEAD = b'{"time":""'


class AuditLog:
    """Makes lines of events, and counts denials."""

    def __init__(
        self, writer: LineWriter | None, *, clock: Callable[[], int], is_access_wanted: Callable[[], bool]
    ) -> None:
        """Without a writer events are counted alone. `clock`: milliseconds of the wall clock."""
        self._writer = writer
        self._clock = clock
        self._is_access_wanted = is_access_wanted
        self.denials = {AUTHENTICATION: 0, AUTHORIZATION: 0}

    @property
    def wants_accesses(self) -> bool:
        """Whether allowed requests are written."""
        return self._writer is not None and self._is_access_wanted()

    def denied(self, stage: str, rest: bytes, now_ms: int | None = None) -> None:
        """A request was refused; `stage` is one of `denials`, `rest` from `denial_rest`."""
        self.denials[stage] += 1
        self._write(rest, now_ms)

    def accessed(
        self,
        *,
        user: str | None,
        address: str,
        request: str,
        action: str | None,
        resource: str | None,
        entry: str | None,
    ) -> None:
        """A request was allowed."""
        self._write(
            line_rest(
                "accessed", user=user, address=address, request=request, action=action, resource=resource, entry=entry
            )
        )

    def changed(self, *, user: str | None, address: str, request: str, resource: str | None, entry: str | None) -> None:
        """Users, policies or settings were changed."""
        self._write(line_rest("changed", user=user, address=address, request=request, resource=resource, entry=entry))

    def _write(self, rest: bytes, now_ms: int | None = None) -> None:
        if self._writer is not None:
            self._writer.write(self._clock() if now_ms is None else now_ms, rest)


def denial_rest(
    stage: str,
    *,
    user: str | None,
    address: str,
    request: str,
    reason: str,
    action: str | None = None,
    resource: str | None = None,
    entry: str | None = None,
) -> bytes:
    """The line of a refused request, without its time."""
    return line_rest(
        "denied",
        user=user,
        unproved=stage == AUTHENTICATION,
        address=address,
        request=request,
        action=action,
        resource=resource,
        reason=reason,
        entry=entry,
    )


def line_rest(
    event: str,
    *,
    user: str | None,
    address: str,
    request: str,
    unproved: bool = False,
    action: str | None = None,
    resource: str | None = None,
    reason: str | None = None,
    entry: str | None = None,
) -> bytes:
    """A line without its time."""
    line = AuditLine(
        time="",
        event=event,
        user=_cut(user),
        unproved=unproved,
        address=address,
        request=request,
        action=action,
        resource=_cut(resource),
        reason=_cut(reason),
        entry=_cut(entry),
    )
    return _encode(line)[len(_HEAD) :] + b"\n"


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= TEXT_CHARACTERS_MAX else text[:TEXT_CHARACTERS_MAX] + CUT


def whole_line(time_ms: int, rest: bytes) -> bytes:
    """A line with its time."""
    return b'{"time":"%b"%b' % (utc_text(time_ms).encode(), rest)


def dropped_line(count: int, now_ms: int) -> bytes:
    """The line in place of `count` lines for which there was no room."""
    return _encode(AuditLine(time=utc_text(now_ms), event="dropped", count=count)) + b"\n"


@lru_cache(maxsize=16)
def utc_text(now_ms: int) -> str:
    """A time as lines have it."""
    seconds, milliseconds = divmod(now_ms, 1000)
    return f"{_second_text(seconds)}.{milliseconds:03}Z"


@lru_cache(maxsize=4)
def _second_text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
