"""A terminator in a thread of the server's own process, for a server without a latency contract: the NameServer."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading

from thermocline.remoting.settings import TlsConfig
from thermocline.remoting.tls.terminator import run_terminator
from thermocline.remoting.tls.tls_front import TlsFront

__all__ = ["ThreadedTls"]

logger = logging.getLogger(__name__)


class ThreadedTls:
    """A front and its thread; a thread that fails is started again for the next connection. On the server's loop."""

    def __init__(self, config: TlsConfig) -> None:
        self.front = TlsFront(config, launch=self._launch)
        self._thread: threading.Thread | None = None

    async def close(self) -> None:
        """End the thread, after what was written is sent. Idempotent."""
        await self.front.close()
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.to_thread(thread.join)

    def _launch(self) -> None:
        self._thread = threading.Thread(target=_run, args=(self.front.new_link(),), name="tls-terminator", daemon=True)
        self._thread.start()


def _run(link: socket.socket) -> None:
    try:
        run_terminator(link)
    except Exception:
        logger.exception("TLS terminator ended, a bug of ours")
