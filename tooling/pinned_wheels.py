"""Wheels that tests run beside our own environment: each set in a directory of its own, for PYTHONPATH.

A set comes from a lock file with its hashes checked. The directory's name carries the interpreter and a digest of the
lock file, so a changed pin never meets an old directory; a directory under its final name is complete.

`python -m tooling.pinned_wheels NAME` prints the directory.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

from thermocline.localstack import ToolMissingError
from thermocline.localstack.locked_packages import install_locked_packages

TOOLING = Path(__file__).resolve().parent
CACHE = TOOLING.parent / ".cache"


@dataclass(frozen=True, slots=True)
class PinnedWheels:
    """The set that `tooling/<name>.lock` pins."""

    name: str

    @property
    def lock(self) -> Path:
        """The lock file."""
        return TOOLING / f"{self.name}.lock"

    @property
    def directory(self) -> Path:
        """Where it is, once installed."""
        digest = hashlib.sha256(self.lock.read_bytes()).hexdigest()[:12]
        return CACHE / f"{self.name}-python{sys.version_info.major}.{sys.version_info.minor}-{digest}"

    def find(self) -> Path:
        """The directory.

        Raises:
            ToolMissingError: It has not been installed.
        """
        directory = self.directory
        if not directory.is_dir():
            raise ToolMissingError(f"{self.name} is not installed: `make test` does it.")
        return directory

    def ensure(self) -> Path:
        """Install it unless it is there (at most a minute or two, once).

        Raises:
            LocalStackError: pip failed; the message ends with what it said.
        """
        # PySpark is published as a source archive alone.
        return install_locked_packages(self.lock, self.directory, name=self.name, options=("--no-build-isolation",))


PYSPARK_NEXT = PinnedWheels("pyspark-next")
"""The next PySpark, for the test that runs under it before the pinned one."""

ROCKETMQ_CPP = PinnedWheels("rocketmq-cpp")
"""RocketMQ's C++ client, librocketmq, with the Python binding that its wheel for Linux on x86-64 carries."""

ROCKETMQ_GRPC_PYTHON = PinnedWheels("rocketmq-grpc-python")
"""RocketMQ's official Python client, which speaks gRPC, and what it needs."""


if __name__ == "__main__":
    print(PinnedWheels(sys.argv[1]).directory)
