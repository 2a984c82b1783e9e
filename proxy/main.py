"""Entry of the proxy process: settings from file, environment and flags; then run until SIGTERM or Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable

from thermocline.proxy.configuration import load_config
from thermocline.proxy.proxy_server import ProxyServer
from thermocline.proxy.settings import ProxyConfig
from thermocline.remoting.connections import raise_descriptor_limit, serve_until_stopped

__all__ = ["DESCRIPTORS_FOR_FILES", "DESCRIPTORS_MIN", "load_config", "run"]

DESCRIPTORS_MIN = 128
DESCRIPTORS_FOR_FILES = 64


async def run(config: ProxyConfig, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then stop cleanly.

    `on_ready` receives `host:port` once requests are served.

    Raises:
        InvalidRequestError: Too few open files are allowed.
        OSError: The port is taken.
    """
    raise_descriptor_limit(files=DESCRIPTORS_FOR_FILES, least=DESCRIPTORS_MIN)
    await serve_until_stopped(lambda: ProxyServer(config), name="proxy", host=config.bind_address, on_ready=on_ready)
