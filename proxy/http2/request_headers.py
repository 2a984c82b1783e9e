"""Request headers: the fields of a request, by name, from a decoded header block.

Source: RFC 9113, 8.2 and 8.3.
"""

from __future__ import annotations

from collections.abc import Iterable

from thermocline.proxy.http2.balancers import FORWARDED_FOR

__all__ = ["headers_of"]


def headers_of(fields: Iterable[tuple[bytes, bytes]]) -> dict[str, str] | None:
    """The first value of each name, all of `x-forwarded-for`; None for a malformed request: a name with a capital
    letter, a pseudo-header field twice or behind another field."""
    headers: dict[str, str] = {}
    is_behind = False
    for name, value in fields:
        text = name.decode("latin-1")
        if name[:1] != b":":
            is_behind = True
        elif is_behind or text in headers:
            return None
        if name != name.lower():
            return None
        if text == FORWARDED_FOR and text in headers:
            headers[text] += "," + value.decode("latin-1")
        headers.setdefault(text, value.decode("latin-1"))
    return headers
