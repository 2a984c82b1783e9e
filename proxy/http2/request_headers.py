"""Request headers: the fields of a request, by name, from a decoded header block.

Source: RFC 9113, 8.2 and 8.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from thermocline.proxy.http2.balancers import FORWARDED_FOR

__all__ = ["headers_of"]


def headers_of(fields: Sequence[tuple[str, str]]) -> dict[str, str] | None:
    """The first value of each name, all of `x-forwarded-for`; None for a malformed request: a name with a capital
    letter, a pseudo-header field twice or behind another field."""
    headers = dict(fields)
    names = "".join(headers)
    if names != names.lower():
        return None
    if len(headers) < len(fields):
        return _headers_with_repetitions(fields)
    pseudo_count = 0
    for name in headers:
        if name[:1] != ":":
            break
        pseudo_count += 1
    return headers if names.count(":") == pseudo_count else _headers_with_repetitions(fields)


def _headers_with_repetitions(fields: Sequence[tuple[str, str]]) -> dict[str, str] | None:
    headers: dict[str, str] = {}
    is_behind = False
    for name, value in fields:
        if name[:1] != ":":
            is_behind = True
        elif is_behind or name in headers:
            return None
        if name == FORWARDED_FOR and name in headers:
            headers[name] += "," + value
        headers.setdefault(name, value)
    return headers
