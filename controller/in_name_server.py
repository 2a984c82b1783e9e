"""A controller inside a NameServer (`enableControllerInNamesrv`): one process and one loop, two ports.

Both read the same configuration file and keep changed settings in the same one; each passes over the other's names.
Users are kept apart: the controller's in the NameServer's `authFilePath` with `.controller` behind it, and so its audit
log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from thermocline.controller.controller_config import CONTROLLER, ControllerConfig
from thermocline.controller.controller_server import ControllerServer
from thermocline.namesrv.main import DESCRIPTORS_FOR_FILES, DESCRIPTORS_MIN
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.name_server_settings import NAME_SERVER
from thermocline.namesrv.server import NameServer
from thermocline.remoting.connections import DescriptorWatch, raise_descriptor_limit, serve_until_stopped
from thermocline.store.files import keep_private

APART = ".controller"


class NameServerWithController:
    """Both, as one daemon: neither serves unless both started."""

    def __init__(
        self,
        name_server: NameServerConfig,
        controller: ControllerConfig,
        *,
        connections_max: int,
        descriptors: DescriptorWatch | None = None,
    ) -> None:
        """Each may have half of the connections.

        Raises:
            SettingError: A TLS file or the controller's folder cannot be used.
        """
        self.name_server = NameServer(name_server, connections_max=connections_max // 2, descriptors=descriptors)
        self.controller = ControllerServer(controller, connections_max=connections_max // 2)

    async def start(self) -> int:
        """Start both; returns the NameServer's port. Raises what the starts of both raise."""
        await self.controller.start()
        return await self.name_server.start()

    async def close(self) -> None:
        """Stop both. Idempotent."""
        await self.name_server.close()
        await self.controller.close()


def load_configs(
    *, config_path: Path | None, environment: Mapping[str, str], flags: Mapping[str, str]
) -> tuple[NameServerConfig, ControllerConfig | None]:
    """Read the settings of both; no controller unless `enableControllerInNamesrv` asks for one.

    Raises:
        SettingError: As NameServer and controller by themselves.
        UnavailableError: The file of changed settings cannot be read.
    """
    name_server = NAME_SERVER.read(
        config_path=config_path,
        environment=environment,
        flags=flags,
        names_of_others=CONTROLLER.property_names,
    )
    if not name_server.controller:
        return name_server, None
    controller = CONTROLLER.read(
        config_path=config_path,
        environment=environment,
        flags=flags,
        names_of_others=NAME_SERVER.property_names,
    )
    return name_server, replace(
        controller,
        auth_file_path=_apart(controller.auth_file_path),
        audit_path=_apart(controller.audit_path),
    )


def main(
    name_server: NameServerConfig, controller: ControllerConfig, *, on_ready: Callable[[str], None] | None = None
) -> None:
    """Run both in this process until SIGTERM or SIGINT; `on_ready` receives the NameServer's `host:port`."""
    keep_private()
    connections_max = raise_descriptor_limit(files=DESCRIPTORS_FOR_FILES, least=DESCRIPTORS_MIN)
    asyncio.run(
        serve_until_stopped(
            lambda: NameServerWithController(
                name_server, controller, connections_max=connections_max, descriptors=DescriptorWatch()
            ),
            name="name server with controller",
            host=name_server.listen_host,
            on_ready=on_ready,
        )
    )


def _apart(path: str) -> str:
    return path + APART if path else path
