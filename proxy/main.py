"""Entry of the proxy process: settings from file, environment and flags; then run until SIGTERM or Ctrl-C."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from thermocline.proxy.proxy_server import ProxyServer
from thermocline.proxy.settings import (
    ProxyConfig,
    environment_properties,
    file_properties,
    load_proxy_config,
    secret_names,
)
from thermocline.remoting.connections import FLAGS, raise_descriptor_limit, serve_until_stopped, warn_of_place
from thermocline.remoting.errors import SettingError
from thermocline.remoting.settings import PropertySource
from thermocline.remoting.socket_address import format_address
from thermocline.remoting.tls import read_tls_file

__all__ = ["load_config", "run"]

logger = logging.getLogger(__name__)

NAMESRV_VARIABLE = "NAMESRV_ADDR"
DESCRIPTORS_MIN = 128
DESCRIPTORS_FOR_FILES = 64


def load_config(*, config_path: Path | None, environment: Mapping[str, str], flags: Mapping[str, str]) -> ProxyConfig:
    """Put the sources of settings together; `flags` are settings by property name.

    Raises:
        SettingError: A name is unknown, or a value cannot be one or promises what is not built; the error names the
            place.
    """
    sources = []
    if environment.get(NAMESRV_VARIABLE):
        values = {"namesrvAddr": environment[NAMESRV_VARIABLE]}
        sources.append(PropertySource(place=NAMESRV_VARIABLE, values=values))
    if config_path is not None:
        try:
            sources.append(file_properties(str(config_path), config_path.read_bytes()))
        except OSError as error:
            text = f"the configuration file cannot be read: {error.strerror}"
            raise SettingError(text, path=str(config_path)) from error
    sources += [environment_properties(environment), PropertySource(place=FLAGS, values=flags)]
    loaded = load_proxy_config(sources)
    tls_path = loaded.config.tls.config_file
    tls_values = read_tls_file(tls_path)
    if tls_values:
        sources.insert(len(sources) - 2, PropertySource(place=tls_path, values=tls_values))
        loaded = load_proxy_config(sources)
    for source in sources:
        warn_of_place(source.place, secret_names(source))
    if loaded.ignored:
        logger.warning("settings without effect here: %s", " ".join(loaded.ignored))
    return loaded.config


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
