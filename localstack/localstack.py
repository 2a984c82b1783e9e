"""LocalStack, S3 only: in a virtual environment of its own, because its pins contradict those of other packages.

Quirks
  - Objects are gone when the process ends. Any secret is accepted. DELETE ignores `If-Match`.
  - It must start in an empty directory: the working directory comes first on its import path.
  - It was seen to listen on all addresses whatever its settings: not for shared networks.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

from thermocline.localstack.errors import LocalStackError
from thermocline.localstack.server_recipe import Launch

VERSION = "4.3.0"
# The whole set, with hashes; made by `make lock` from the five pins in localstack-requirements.in.
LOCK = Path(__file__).resolve().parent / "localstack-requirements.lock"


class LocalStackRecipe:
    """How LocalStack is installed and started."""

    kind = "localstack"
    version = VERSION
    keeps_data = False
    checks_credentials = False
    takes_certificates = False
    ready_path = "/_localstack/health"
    ready_timeout_s = 120.0

    def executable(self, cache_directory: Path) -> Path:
        """The interpreter of the environment that was made from this very lock file."""
        digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return cache_directory / f"localstack-{VERSION}-python{version}-{digest}" / "bin" / "python"

    def is_installed(self, cache_directory: Path) -> bool:
        """Whether the environment is complete."""
        return self._stamp(cache_directory).is_file()

    def install(self, cache_directory: Path) -> None:
        """Make the environment (some 200 MB, a minute, once)."""
        if self.is_installed(cache_directory):
            return
        python = self.executable(cache_directory)
        environment = python.parent.parent
        print(f"installing LocalStack {VERSION} (once; a minute)", file=sys.stderr, flush=True)
        shutil.rmtree(environment, ignore_errors=True)
        venv.create(environment, with_pip=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--require-hashes"]
        answer = subprocess.run(
            [*pip, "--no-deps", "--requirement", str(LOCK)], capture_output=True, text=True, check=False
        )
        if answer.returncode != 0:
            raise LocalStackError(f"LocalStack could not be installed:\n{answer.stderr[-2_000:]}")
        self._stamp(cache_directory).touch()

    def command(self, launch: Launch) -> Sequence[str]:
        """Run the runtime in the foreground."""
        return [str(launch.executable), "-m", "localstack.runtime.main"]

    def environment(self, launch: Launch) -> Mapping[str, str]:
        """S3 alone, loaded at once, on the port; nothing fetched, nothing sent, nothing left in the home directory.

        Nor are packages of others: where a path leads to a directory `localstack`, that would be taken for its own.
        """
        home = launch.scratch_directory / "home"
        home.mkdir(exist_ok=True)
        return {
            "SERVICES": "s3",
            "EAGER_SERVICE_LOADING": "1",
            "SKIP_SSL_CERT_DOWNLOAD": "1",
            "DISABLE_EVENTS": "1",
            "DNS_ADDRESS": "0",
            "GATEWAY_LISTEN": f"127.0.0.1:{launch.port}",
            "HOME": str(home),
            "TMPDIR": os.environ.get("TMPDIR") or str(home),
            "PYTHONPATH": "",
            "PYTHONWARNINGS": "ignore",
        }

    def _stamp(self, cache_directory: Path) -> Path:
        return self.executable(cache_directory).parent.parent / "complete"
