"""TlsGate: decides by a connection's first byte whether it is served, refused, or gets a TlsLayer.

    first byte 0x16   mode disabled: closed, with a line in the log; else a handshake begins
    anything else     mode enforcing: closed, with a line; else served as it is

Bounds: `tlsHandshakesMax` handshakes at a time, each for `tlsHandshakeTimeoutMills` at most; they compute in one
thread, so a flood of them takes one core and leaves the loop its own. Changed files are read in that thread as well.
Belongs to the server's event loop. Open it before the server, close it after.
Source: NettyRemotingServer.TlsModeHandler, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from thermocline.remoting.connections import RECEIVE_BYTES, GatedConnection, LimitCounts
from thermocline.remoting.settings import TlsConfig, TlsMode
from thermocline.remoting.tls.file_changes import CHECK_INTERVAL_S
from thermocline.remoting.tls.server_context import ReloadedContext
from thermocline.remoting.tls.tls_layer import TlsLayer

__all__ = ["HANDSHAKE_BYTE", "TlsGate"]

logger = logging.getLogger(__name__)

HANDSHAKE_BYTE = 0x16
TLS_HANDSHAKES_MAX = "tlsHandshakesMax"


class TlsGate:
    """See the module. A `Gate` of the ports of one daemon."""

    def __init__(self, config: TlsConfig, counts: LimitCounts, *, alpn: Sequence[str] = ()) -> None:
        """Read the files. `counts`: where refused handshakes are counted. `alpn`: protocols that are agreed on.

        Raises:
            SettingError: One cannot be read or used.
        """
        self._config = config
        self._context = ReloadedContext(config, alpn=alpn)
        self._thread: ThreadPoolExecutor | None = None
        self._received: memoryview | None = None
        self._shaking: set[TlsLayer] = set()
        self._check_timer: asyncio.TimerHandle | None = None
        self._counts = counts

    @property
    def handshakes(self) -> int:
        """Handshakes under way."""
        return len(self._shaking)

    def open(self) -> None:
        """Follow changes of the files from now on."""
        config = self._config
        certificate = config.server_certificate_path or ("self-signed" if config.takes_tls else "none")
        logger.info(
            "TLS mode=%s certificate=%s client_certificates=%s",
            config.server_mode,
            certificate,
            config.client_certificate,
        )
        if self._context.has_files:
            self._check_soon()

    def close(self) -> None:
        """End the thread and follow no more files; after the server's connections are closed. Idempotent."""
        if self._check_timer is not None:
            self._check_timer.cancel()
            self._check_timer = None
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=False, cancel_futures=True)

    def admit(self, connection: GatedConnection, transport: asyncio.Transport, chunk: memoryview) -> bool:
        """Whether a new connection is served as it is; otherwise it was dealt with."""
        config, remote = self._config, connection.remote_address
        if chunk[0] != HANDSHAKE_BYTE:
            if config.server_mode != TlsMode.ENFORCING:
                return True
            logger.warning("connection refused, it is not TLS and tls.server.mode is enforcing remote=%s", remote)
            connection.abort()
        elif not config.takes_tls:
            logger.warning("connection refused, it is TLS and tls.server.mode is disabled remote=%s", remote)
            connection.abort()
        elif len(self._shaking) >= config.handshakes_max:
            detail = f"connection refused, {len(self._shaking)} handshakes are under way"
            self._counts.refused(TLS_HANDSHAKES_MAX, address=remote, detail=detail)
            connection.abort()
        else:
            self._shake(connection, transport, chunk)
        return False

    def _shake(self, connection: GatedConnection, transport: asyncio.Transport, hello: memoryview) -> None:
        if self._received is None:
            self._received = memoryview(bytearray(RECEIVE_BYTES))
        layer = TlsLayer(
            connection,
            transport,
            thread=self._thread_now(),
            received=self._received,
            on_shaken=self._shaking.discard,
        )
        self._shaking.add(layer)
        layer.start(self._context.current, hello, timeout_ms=self._config.handshake_timeout_ms)

    def _thread_now(self) -> ThreadPoolExecutor:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tls-handshake")
        return self._thread

    def _check_soon(self) -> None:
        self._check_timer = asyncio.get_running_loop().call_later(CHECK_INTERVAL_S, self._check_files)

    def _check_files(self) -> None:
        if self._context.is_outdated():
            self._thread_now().submit(self._context.read_again)
        self._check_soon()
