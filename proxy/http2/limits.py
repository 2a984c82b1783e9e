"""Limits of an HTTP/2 server: the most that one connection, and all together, may make it hold."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Http2Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Http2Limits:
    """See the module. Sizes in bytes."""

    connections_max: int = 20_000
    address_connections_max: int = 20_000
    streams_max: int = 4_096
    """Streams of one connection that are open at a time."""
    header_list_bytes_max: int = 16_384
    """Fields of one request, decoded, with 32 bytes a field on top."""
    header_block_bytes_max: int = 32_768
    """A request's header block as it is sent, over all its frames."""
    window_bytes: int = 1 << 20
    """What a client may send on one stream ahead of this side's reading."""
    unsent_bytes_max: int = 8 << 20
    """Answers of one connection that its client does not read; beyond, it is closed."""
    all_unsent_bytes_max: int = 1 << 30
    """Answers of all connections that their clients do not read, or have no window for; beyond, the connections that
    hold most of them are closed."""
    resets_max: int = 1_000
    """Streams that a client may cancel in RESETS_PERIOD_S, soon after it opened them; beyond, it is closed."""
    idle_ms: int = 120_000
    """A connection without a stream is closed after this time. One with streams over which nothing has come for so long
    must give a sign of life."""
    sign_timeout_ms: int = 20_000
    """A connection is aborted when nothing comes for so long after that; also when it is closed, and its client does
    not take what is unsent."""
    request_timeout_ms: int = 60_000
    """A request whose body is not complete by then is reset; streams in both directions are not."""
    answer_timeout_ms: int = 60_000
    """An answer of which the client takes nothing for so long is reset; what is pending of it is memory."""
    settings_timeout_ms: int = 10_000
    """A connection that has not sent its preface and settings by then is closed."""
