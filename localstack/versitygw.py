"""versitygw: an S3 server whose objects are plain files (Go, Apache-2.0). The first choice for tests.

Quirks
  - A key is a file and its folders are directories: a key `x` shuts out `x/y`.
  - The client's region must be the server's.
  - It keeps object attributes in user xattrs; where the file system has none, in a sidecar directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from thermocline.localstack.go_toolchain import build_go_program
from thermocline.localstack.server_recipe import Launch

MODULE = "github.com/versity/versitygw/cmd/versitygw"
VERSION = "v1.8.0"


class VersitygwRecipe:
    """How versitygw is built and started."""

    kind = "versitygw"
    version = VERSION
    keeps_data = True
    checks_credentials = True
    takes_certificates = False
    ready_path = "/health"
    ready_timeout_s = 20.0

    def executable(self, cache_directory: Path) -> Path:
        """The binary of this version."""
        return cache_directory / "bin" / f"versitygw-{VERSION}"

    def is_installed(self, cache_directory: Path) -> bool:
        """Whether it has been built."""
        return self.executable(cache_directory).is_file()

    def install(self, cache_directory: Path) -> None:
        """Build it (about two minutes on two cores, once)."""
        build_go_program(MODULE, VERSION, self.executable(cache_directory), cache_directory=cache_directory)

    def command(self, launch: Launch) -> Sequence[str]:
        """Serve the objects directory; every directory in it is a bucket."""
        command = [
            str(launch.executable),
            "--access",
            launch.access_key,
            "--secret",
            launch.secret_key,
            "--region",
            launch.region,
            "--port",
            f"127.0.0.1:{launch.port}",
            "--health",
            self.ready_path,
            "--quiet",
            "posix",
        ]
        if not _has_user_xattrs(launch.objects_directory):
            sidecar = launch.scratch_directory / "attributes"
            sidecar.mkdir(exist_ok=True)
            command += ["--sidecar", str(sidecar)]
        return [*command, str(launch.objects_directory)]

    def environment(self, launch: Launch) -> Mapping[str, str]:
        """Nothing."""
        return {}


def _has_user_xattrs(directory: Path) -> bool:
    try:
        os.setxattr(directory, "user.thermocline.probe", b"1")
        os.removexattr(directory, "user.thermocline.probe")
    except OSError:
        return False
    return True
