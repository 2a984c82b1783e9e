"""The body of an upload, and how long an upload may go on while the store takes nothing of it.

The client limits how long an answer may take, but only once the whole body has been sent. Before that it waits for
ever: for `100 Continue`, which precedes each large body, and for the store to take the next piece. A store that is
frozen, or gone without closing its connections, would hold an upload until the process ends. So each piece of the body
that the client reads starts the time anew, and without one the upload fails.

    begun | wait for a connection and for 100 Continue | piece | piece | ... | last piece | answer
          |<------------- stalled_s_max -------------->|<----->|<----->|     |<--- the client's limit
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class UploadBody(io.RawIOBase):
    """A view as a file, so that the HTTP client sends it in pieces without copying all of it."""

    def __init__(self, view: memoryview, on_read: Callable[[], None]) -> None:
        """`on_read`: called for each piece, in any thread."""
        self._view = view
        self._on_read = on_read
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self._view)}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        self._on_read()
        end = len(self._view) if size is None or size < 0 else self._position + size
        data = bytes(self._view[self._position : end])
        self._position += len(data)
        return data


@asynccontextmanager
async def unless_stalled(stalled_s_max: float) -> AsyncIterator[Callable[[], None]]:
    """Yield a function that says that the upload in the block goes on; it may be called in any thread.

    Raises:
        TimeoutError: It was not called for `stalled_s_max`.
    """
    loop = asyncio.get_running_loop()
    limit = asyncio.timeout(stalled_s_max)
    is_over = False

    def extend() -> None:
        if not is_over and not limit.expired():
            limit.reschedule(loop.time() + stalled_s_max)

    def goes_on() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: a thread has read what no upload sends
            loop.call_soon_threadsafe(extend)

    try:
        async with limit:
            try:
                yield goes_on
            finally:
                is_over = True
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TimeoutError(f"the store has taken nothing of an upload for {stalled_s_max:.0f} s") from error
