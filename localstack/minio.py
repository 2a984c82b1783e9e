"""MinIO: the fullest S3 server that runs from one binary (Go, AGPL-3.0, no longer maintained). Run as it is, as a peer.

The module has no version tags, so the pin is the pseudo-version of its last commit.

Quirks
  - It listens on the IPv6 loopback address as well.
  - DELETE ignores `If-Match`. Any region is accepted.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

from thermocline.localstack.go_toolchain import build_go_program
from thermocline.localstack.server_recipe import Launch

MODULE = "github.com/minio/minio"
VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
KMS_KEY_ID = "thermocline-key"
KMS_KEY = b"32 bytes that protect test data."
assert len(KMS_KEY) == 32


class MinioRecipe:
    """How MinIO is built and started."""

    kind = "minio"
    version = VERSION
    keeps_data = True
    checks_credentials = True
    takes_certificates = True
    ready_path = "/minio/health/ready"
    ready_timeout_s = 30.0

    def executable(self, cache_directory: Path) -> Path:
        """The binary of this version."""
        return cache_directory / "bin" / f"minio-{VERSION}"

    def is_installed(self, cache_directory: Path) -> bool:
        """Whether it has been built."""
        return self.executable(cache_directory).is_file()

    def install(self, cache_directory: Path) -> None:
        """Build it (about five minutes on two cores, once)."""
        build_go_program(MODULE, VERSION, self.executable(cache_directory), cache_directory=cache_directory)

    def command(self, launch: Launch) -> Sequence[str]:
        """Serve one directory."""
        address = f"127.0.0.1:{launch.port}"
        folder = launch.certificates_directory
        tls = [] if folder is None else ["--certs-dir", str(folder.resolve())]
        return [str(launch.executable), "server", "--quiet", "--address", address, *tls, str(launch.objects_directory)]

    def environment(self, launch: Launch) -> Mapping[str, str]:
        """Credentials, a key of its own to encrypt objects with, and no calls home."""
        return {
            "MINIO_ROOT_USER": launch.access_key,
            "MINIO_ROOT_PASSWORD": launch.secret_key,
            "MINIO_KMS_SECRET_KEY": f"{KMS_KEY_ID}:{base64.b64encode(KMS_KEY).decode()}",
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
        }
