"""Proxy link: the hot process's half of a proxy in the broker's process group.

    HELLO         -> ProxySettings: the proxy's configuration, and the socket on which this broker serves it
    PROXY_STATE   <- ProxyState: it serves, or why it cannot

The proxy's requests come by that socket, as any client's; here is only its life. A proxy that took free ports (0)
takes the same ones when it is started again, so that clients find it.
Belongs to the hot process's loop.
"""

import asyncio
import logging
from typing import NamedTuple

import msgspec

from thermocline.broker.helpers.helper_hub import HelperHub, decode_body
from thermocline.broker.helpers.helper_protocol import PROXY_ROLE, HelperRequestCode
from thermocline.remoting.errors import InvalidRequestError, UnavailableError
from thermocline.remoting.socket_address import format_address

logger = logging.getLogger(__name__)


class ProxySettings(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What a proxy gets in the answer to HELLO."""

    config: bytes
    """A ProxyConfig as msgpack; the hot process does not read it."""
    port: int
    remoting_port: int
    """Ports that an earlier proxy of this broker took; 0: as the configuration says."""
    broker_name: str
    socket_path: str
    credentials: tuple[str, str, str] | None
    """Access key, secret key and security token that sign its requests; None: they are not signed."""


class ProxyState(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """PROXY_STATE. `refusal`: why it cannot serve; empty: it serves at `host` and `port`, and remoting clients at
    `remoting_port`, -1 for none."""

    host: str = ""
    port: int = 0
    remoting_port: int = -1
    refusal: str = ""


class ProxyAddresses(NamedTuple):
    """Where a proxy serves, as `host:port`: gRPC clients, and remoting clients; empty where it does not."""

    grpc: str
    remoting: str


class ProxyLink:
    """See the module."""

    def __init__(self, hub: HelperHub, settings: ProxySettings) -> None:
        self._settings = settings
        self._first: asyncio.Future[ProxyAddresses] = asyncio.get_running_loop().create_future()
        hub.add_role(PROXY_ROLE, self, settings=lambda: self._settings)

    async def wait_ready(self, *, timeout_ms: int) -> ProxyAddresses:
        """Wait until the first proxy serves; where.

        Raises:
            InvalidRequestError: It says that it cannot serve so.
            UnavailableError: It did not report in time.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await asyncio.shield(self._first)
        except TimeoutError as error:
            raise UnavailableError("the proxy does not start", timeout_ms=timeout_ms) from error

    def helper_connected(self) -> None:
        """It starts to serve now."""

    def helper_told(self, code: int, body: bytes | memoryview) -> None:
        """It serves, or says why it cannot."""
        assert code == HelperRequestCode.PROXY_STATE
        state = decode_body(body, ProxyState)
        if not state.refusal:
            has_remoting = state.remoting_port >= 0
            self._settings = msgspec.structs.replace(
                self._settings, port=state.port, remoting_port=state.remoting_port if has_remoting else 0
            )
            logger.info("proxy serves host=%s port=%d remoting_port=%d", state.host, state.port, state.remoting_port)
            if not self._first.done():
                remoting = format_address(state.host, state.remoting_port) if has_remoting else ""
                self._first.set_result(ProxyAddresses(format_address(state.host, state.port), remoting))
        elif self._first.done():
            logger.error("the proxy cannot serve, and is started again: %s", state.refusal)
        else:
            self._first.set_exception(InvalidRequestError(state.refusal))
            self._first.exception()  # a caller that waits gets it; without one, asyncio must not report it
