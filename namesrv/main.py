"""Entry of the NameServer process: settings from file, changes made while running, environment and flags; then run.

It runs until SIGTERM or Ctrl-C.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.name_server_settings import NAME_SERVER
from thermocline.namesrv.server import NameServer
from thermocline.remoting.connections import DescriptorWatch, raise_descriptor_limit, serve_until_stopped

DESCRIPTORS_MIN = 128
DESCRIPTORS_FOR_FILES = 64
"""Kept free of connections."""


def load_config(
    *,
    config_path: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, str],
) -> NameServerConfig:
    """Put the sources of settings together; `flags` are settings by property name.

    Raises:
        SettingError: A name is unknown, or a value cannot be one or promises what is not built; the error names the
            place.
        UnavailableError: The file of changed settings cannot be read.
    """
    return NAME_SERVER.read(config_path=config_path, environment=environment, flags=flags)


def state_paths(directory: Path) -> dict[str, str]:
    """The settings by which a NameServer keeps its state in a folder, by property name."""
    return {
        "configStorePath": str(directory / "namesrv.properties"),
        "kvConfigPath": str(directory / "kvConfig.json"),
        "authFilePath": str(directory / "auth.json"),
    }


async def run(config: NameServerConfig, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then stop cleanly.

    `on_ready` receives `host:port` once requests are served.

    Raises:
        InvalidRequestError: Too few open files are allowed.
        OSError: The port is taken.
    """
    connections_max = raise_descriptor_limit(files=DESCRIPTORS_FOR_FILES, least=DESCRIPTORS_MIN)
    await serve_until_stopped(
        lambda: NameServer(config, connections_max=connections_max, descriptors=DescriptorWatch()),
        name="name server",
        host=config.listen_host,
        on_ready=on_ready,
    )


def main(config: NameServerConfig, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Run the NameServer in this process."""
    os.umask(0o077)  # what it makes is for its user alone
    asyncio.run(run(config, on_ready=on_ready))
