"""The next PySpark, for the test that runs under it: a directory that goes onto PYTHONPATH before the pinned one.

Comes from pyspark-next.lock with its hashes checked. The directory's name carries the interpreter and a digest of the
lock file, so a changed pin never meets an old directory; a directory under its final name is complete.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from thermocline.localstack import ToolMissingError
from thermocline.localstack.locked_packages import install_locked_packages

TOOLING = Path(__file__).resolve().parent
CACHE = TOOLING.parent / ".cache"
LOCK = TOOLING / "pyspark-next.lock"
NAME = "pyspark-next"


def overlay_directory() -> Path:
    """Where it is, once installed."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    return CACHE / f"{NAME}-python{sys.version_info.major}.{sys.version_info.minor}-{digest}"


def find_overlay() -> Path:
    """The directory.

    Raises:
        ToolMissingError: It has not been installed.
    """
    directory = overlay_directory()
    if not directory.is_dir():
        raise ToolMissingError(f"{NAME} is not installed: `make test` does it.")
    return directory


def ensure_overlay() -> Path:
    """Install it unless it is there (a minute or two, once).

    Raises:
        LocalStackError: pip failed; the message ends with what it said.
    """
    # PySpark is published as a source archive alone.
    return install_locked_packages(LOCK, overlay_directory(), name=NAME, options=("--no-build-isolation",))
