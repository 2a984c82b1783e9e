"""moto's server: S3 in the memory of one Python process, from the development packages. Nothing to build.

Quirks
  - Objects are gone when the process ends. Any secret is accepted.
  - Completing a multipart upload ignores `If-Match`; wrong checksums are accepted; a ranged GET copies the object.
  - Its own command lets two of many racing writers create a key now and then: see `serial_moto.py`, which is run here.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from thermocline.localstack.errors import ToolMissingError
from thermocline.localstack.server_recipe import Launch


class MotoRecipe:
    """How moto's server is started."""

    kind = "moto"
    version = "as locked"
    keeps_data = False
    checks_credentials = False
    takes_certificates = False
    ready_path = "/moto-api/data.json"
    ready_timeout_s = 60.0

    def executable(self, cache_directory: Path) -> Path:
        """This interpreter: moto is a package of this environment."""
        return Path(sys.executable)

    def is_installed(self, cache_directory: Path) -> bool:
        """Whether the package is there."""
        return importlib.util.find_spec("moto") is not None

    def install(self, cache_directory: Path) -> None:
        """Only look: packages of this environment are pip's business."""
        if not self.is_installed(cache_directory):
            raise ToolMissingError("moto is not installed: `pip install '.[dev]'` in a checkout brings it.")

    def command(self, launch: Launch) -> Sequence[str]:
        """Serve on the port."""
        return [str(launch.executable), "-m", "thermocline.localstack.serial_moto", str(launch.port)]

    def environment(self, launch: Launch) -> Mapping[str, str]:
        """Return no variables: the server needs none."""
        return {}
