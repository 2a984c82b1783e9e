"""UnsentBytes: the bound on the answers that the clients of all connections of a server do not take.

One connection's are bounded only behind HTTP/2's windows, and a client may keep those closed: each of its streams then
holds an answer until that counts as stalled.

Over the bound, the connections that hold most are closed until the sum is below it again. Connections from which
nothing waited are not in the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from thermocline.remoting.connections import LimitCounts

if TYPE_CHECKING:
    from thermocline.proxy.http2.connection import Http2Connection

__all__ = ["NOTED_BYTES", "UnsentBytes"]

NOTED_BYTES = 64 * 1024
"""Behind the windows, in the socket's buffer: less is an answer on its way."""
_SETTING = "grpcUnsentBytesMax"


class UnsentBytes:
    """See the module. Belongs to the server's loop."""

    def __init__(self, *, bytes_max: int, counts: LimitCounts) -> None:
        self._bytes_max = bytes_max
        self._counts = counts
        self._bytes: dict[Http2Connection, int] = {}
        self.total_bytes = 0
        """At most: clients take answers without notice."""

    def __len__(self) -> int:
        return len(self._bytes)

    def note(self, connection: Http2Connection, size_bytes: int) -> None:
        """So much is unsent on a connection. It may be closed here, and so may others."""
        if connection.is_closed:
            return
        self.total_bytes += size_bytes - self._bytes.get(connection, 0)
        self._bytes[connection] = size_bytes
        if self.total_bytes > self._bytes_max:
            self._make_room()

    def end(self, connection: Http2Connection) -> None:
        """The connection is closed. Idempotent."""
        self.total_bytes -= self._bytes.pop(connection, 0)

    def _make_room(self) -> None:
        sizes = {each: size for each in self._bytes if (size := each.unsent_bytes)}
        self._bytes, self.total_bytes = sizes, sum(sizes.values())
        if self.total_bytes <= self._bytes_max:
            return
        for victim in sorted(sizes, key=sizes.__getitem__, reverse=True):
            detail = f"connection closed, its client does not take answers, bytes={sizes[victim]}"
            self._counts.refused(_SETTING, address=victim.remote_address, detail=detail)
            self.end(victim)
            victim.abort()
            if self.total_bytes <= self._bytes_max:
                return
