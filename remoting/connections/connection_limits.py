"""Limits of one connection, and the count of what passed."""

from __future__ import annotations

import msgspec

from thermocline.remoting.frames import FRAME_BYTES_MAX

__all__ = ["ConnectionLimits", "Traffic"]


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the memory that one connection may use."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    unsent_bytes_high: int = 1024 * 1024
    """With more than this unsent, no further request is read until the peer has taken all but a quarter of it."""
    unsent_bytes_max: int = 64 * 1024 * 1024
    """With more than this unsent, the connection is dropped."""
    drain_timeout_ms: int = 30_000
    """How long a peer may take no byte while reading is stopped because of it."""
    requests_running_max: int = 256
    """Requests whose handler has not returned yet; with more, no further request is read."""
    calls_pending_max: int = 65_536
    """Calls to the peer without an answer yet; a further one is refused."""


class Traffic(msgspec.Struct):
    """Bytes that passed a set of connections, frames whole."""

    received_bytes: int = 0
    sent_bytes: int = 0
