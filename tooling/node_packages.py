"""The Node clients that the tests drive: each a directory of pins in `tooling/`, installed into one of the cache.

npm checks the hashes of the lock file. The directory's name carries a digest of it, so a changed pin never meets an old
directory; a directory under its final name is complete.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from thermocline.localstack import LocalStackError, ToolMissingError
from thermocline.localstack.made_once import made_once
from tooling.system_packages import ensure_npm, find_node

__all__ = ["ROCKETMQ_GRPC_NODE", "ROCKETMQ_NODE", "NodePackages"]

TOOLING = Path(__file__).resolve().parent
CACHE = TOOLING.parent / ".cache"


@dataclass(frozen=True, slots=True)
class NodePackages:
    """The set that `tooling/<name>/package-lock.json` pins."""

    name: str

    @property
    def directory(self) -> Path:
        """Where they are, once installed."""
        digest = hashlib.sha256((TOOLING / self.name / "package-lock.json").read_bytes()).hexdigest()[:12]
        return CACHE / f"{self.name}-{digest}"

    def find(self) -> Path:
        """The directory that has `node_modules`.

        Raises:
            ToolMissingError: They have not been installed, or there is no Node to run them.
        """
        find_node()
        directory = self.directory
        if not directory.is_dir():
            raise ToolMissingError(f"{self.name} is not installed: `make test` does it.")
        return directory

    def ensure(self) -> Path:
        """Install them unless they are there (seconds, once).

        Raises:
            ToolMissingError: There is no npm.
            LocalStackError: npm failed; the message ends with what it said.
        """
        target = self.directory
        if target.is_dir():
            return target
        npm = ensure_npm()

        def install(partial: Path) -> None:
            shutil.copytree(TOOLING / self.name, partial)
            command = [str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
            answer = subprocess.run(command, cwd=partial, capture_output=True, text=True, check=False)
            if answer.returncode != 0:
                output = (answer.stdout + answer.stderr)[-2_000:]
                raise LocalStackError(f"{self.name} could not be installed:\n{output}")

        return made_once(target, install, doing=f"installing {self.name}")


ROCKETMQ_NODE = NodePackages("rocketmq-node")
"""The client ali-ons."""

ROCKETMQ_GRPC_NODE = NodePackages("rocketmq-grpc-node")
"""RocketMQ's official client for gRPC."""
