"""Entry of the NameServer process: run until SIGTERM or Ctrl-C."""

import asyncio
import logging
import signal
from collections.abc import Callable

from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.server import NameServer

logger = logging.getLogger(__name__)


async def run(config: NameServerConfig, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then stop cleanly.

    `on_ready` is told `host:port` once requests are served.
    """
    if not __debug__:
        raise SystemExit("assertions are part of this program: do not run it with -O")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = NameServer(config)
    try:
        port = await server.start()
        if on_ready is not None:
            on_ready(f"{config.listen_host}:{port}")
        await stop.wait()
        logger.info("name server stops")
    finally:
        await server.close()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def main(config: NameServerConfig, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Run the NameServer in this process."""
    asyncio.run(run(config, on_ready=on_ready))
