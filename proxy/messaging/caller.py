"""Caller: who makes the request that is being served, as routing rules ask for it.

Each protocol sets it before it serves a request. Tasks that a request starts take it over; what runs by itself has no
caller, and goes by handles and broker names.
"""

from __future__ import annotations

from contextvars import ContextVar

import msgspec

__all__ = ["CALLER", "Caller"]


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """See the module."""

    user: str = ""
    """The access key that signed; "" without one."""
    address: str = ""
    """The client's IP address; "" without a caller."""


NO_CALLER = Caller()
CALLER: ContextVar[Caller] = ContextVar("CALLER", default=NO_CALLER)
"""The caller of the request that this task serves."""
