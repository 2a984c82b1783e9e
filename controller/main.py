"""Entry of the controller process: settings from file, changes made while running, environment and flags; then run.

It runs until SIGTERM or Ctrl-C.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from thermocline.controller.controller_config import CONTROLLER, ControllerConfig
from thermocline.controller.controller_server import ControllerServer
from thermocline.namesrv.main import DESCRIPTORS_FOR_FILES, DESCRIPTORS_MIN
from thermocline.remoting.connections import DescriptorWatch, raise_descriptor_limit, serve_until_stopped
from thermocline.store.files import keep_private

__all__ = ["load_config", "main", "run", "state_paths"]


def load_config(
    *,
    config_path: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, str],
) -> ControllerConfig:
    """Put the sources of settings together; `flags` are settings by property name.

    Raises:
        SettingError: A name is unknown, or a value cannot be one or promises what is not built; the error names the
            place.
        UnavailableError: The file of changed settings cannot be read.
    """
    return CONTROLLER.read(config_path=config_path, environment=environment, flags=flags)


def state_paths(directory: Path) -> dict[str, str]:
    """The settings by which a controller keeps its state in a folder, by property name."""
    return {
        "controllerStorePath": str(directory),
        "configStorePath": str(directory / "controller.properties"),
        "authFilePath": str(directory / "auth.json"),
    }


async def run(config: ControllerConfig, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then stop cleanly.

    `on_ready` receives `host:port` once requests are served; a leader may not be elected yet.

    Raises:
        InvalidRequestError: Too few open files are allowed.
        CorruptDataError: A file of the controller cannot be read as what it is.
        UnavailableError: Another process has the folder open.
        OSError: The port is taken.
    """
    connections_max = raise_descriptor_limit(files=DESCRIPTORS_FOR_FILES, least=DESCRIPTORS_MIN)
    await serve_until_stopped(
        lambda: ControllerServer(config, connections_max=connections_max, descriptors=DescriptorWatch()),
        name="controller",
        host=config.listen_host,
        on_ready=on_ready,
    )


def main(config: ControllerConfig, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Run the controller in this process."""
    keep_private()
    asyncio.run(run(config, on_ready=on_ready))
