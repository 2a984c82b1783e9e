"""The Node client that the tests drive: `tooling/rocketmq-node/`, installed into a directory of the cache.

npm checks the hashes of the lock file. The directory's name carries a digest of it, so a changed pin never meets an old
directory; a directory under its final name is complete.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from thermocline.localstack import LocalStackError, ToolMissingError
from thermocline.localstack.made_once import made_once
from tooling.system_packages import ensure_npm, find_node

TOOLING = Path(__file__).resolve().parent
CACHE = TOOLING.parent / ".cache"
NAME = "rocketmq-node"
PINS = TOOLING / NAME


def node_packages_directory() -> Path:
    """Where they are, once installed."""
    digest = hashlib.sha256((PINS / "package-lock.json").read_bytes()).hexdigest()[:12]
    return CACHE / f"{NAME}-{digest}"


def find_node_packages() -> Path:
    """The directory that has `node_modules`.

    Raises:
        ToolMissingError: They have not been installed, or there is no Node to run them.
    """
    find_node()
    directory = node_packages_directory()
    if not directory.is_dir():
        raise ToolMissingError(f"{NAME} is not installed: `make test` does it.")
    return directory


def ensure_node_packages() -> Path:
    """Install them unless they are there (seconds, once).

    Raises:
        ToolMissingError: There is no npm.
        LocalStackError: npm failed; the message ends with what it said.
    """
    target = node_packages_directory()
    if target.is_dir():
        return target
    npm = ensure_npm()

    def install(partial: Path) -> None:
        shutil.copytree(PINS, partial)
        command = [str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        answer = subprocess.run(command, cwd=partial, capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            raise LocalStackError(f"{NAME} could not be installed:\n{(answer.stdout + answer.stderr)[-2_000:]}")

    return made_once(target, install, doing=f"installing {NAME}")
