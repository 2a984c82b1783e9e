"""s3s-fs: a small S3 server over plain files (Rust, Apache-2.0): a store that no broker may be run on.

It honours `If-None-Match` one at a time, and lets racing writers win together: it looks first and writes afterwards.
Here for the store doctor, which finds that only by racing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from thermocline.localstack.rust_toolchain import build_rust_program
from thermocline.localstack.server_recipe import Launch

CRATE = "s3s-fs"
VERSION = "0.14.1"


class S3sFsRecipe:
    """How s3s-fs is built and started."""

    kind = "s3s-fs"
    version = VERSION
    keeps_data = True
    checks_credentials = True
    takes_certificates = False
    ready_path = None
    ready_timeout_s = 20.0

    def executable(self, cache_directory: Path) -> Path:
        """The binary of this version."""
        return cache_directory / "bin" / f"s3s-fs-{VERSION}"

    def is_installed(self, cache_directory: Path) -> bool:
        """Whether it has been built."""
        return self.executable(cache_directory).is_file()

    def install(self, cache_directory: Path) -> None:
        """Build it (about two minutes on two cores, once)."""
        build_rust_program(CRATE, VERSION, self.executable(cache_directory), features="binary")

    def command(self, launch: Launch) -> Sequence[str]:
        """Serve the objects directory; every directory in it is a bucket."""
        return [
            str(launch.executable),
            *("--access-key", launch.access_key, "--secret-key", launch.secret_key),
            *("--host", "127.0.0.1", "--port", str(launch.port), str(launch.objects_directory)),
        ]

    def environment(self, launch: Launch) -> Mapping[str, str]:
        """Nothing."""
        return {}
