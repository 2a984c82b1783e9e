"""Entry of the proxy process: settings from file, environment and flags; then run until SIGTERM or Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable

from thermocline.proxy.configuration import load_config
from thermocline.proxy.proxy_server import ProxyServer
from thermocline.proxy.settings import ProxyConfig
from thermocline.remoting.connections import raise_descriptor_limit, serve_until_stopped
from thermocline.remoting.socket_address import format_address

__all__ = ["DESCRIPTORS_FOR_FILES", "DESCRIPTORS_MIN", "load_config", "run"]

DESCRIPTORS_MIN = 128
DESCRIPTORS_FOR_FILES = 64


async def run(config: ProxyConfig, *, on_ready: Callable[[str, str], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then stop cleanly.

    `on_ready` receives `host:port` for gRPC and for remoting clients once requests are served; the second is empty
    where there is no such port.

    Raises:
        InvalidRequestError: Too few open files are allowed.
        OSError: The port is taken.
    """
    raise_descriptor_limit(files=DESCRIPTORS_FOR_FILES, least=DESCRIPTORS_MIN)
    host = config.bind_address
    servers: list[ProxyServer] = []

    def make() -> ProxyServer:
        servers.append(ProxyServer(config))
        return servers[0]

    def tell(address: str) -> None:
        if on_ready is not None:
            port = servers[0].remoting_port
            on_ready(address, format_address(host, port) if port >= 0 else "")

    await serve_until_stopped(make, name="proxy", host=host, on_ready=tell)
