"""The next PySpark, for the test that runs under it: a directory that goes onto PYTHONPATH before the pinned one.

Comes from pyspark-next.lock with its hashes checked. The directory's name carries the interpreter and a digest of the
lock file, so a changed pin never meets an old directory; a directory under its final name is complete.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from thermocline.localstack import LocalStackError, ToolMissingError

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
    target = overlay_directory()
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{NAME}.lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        if target.is_dir():
            return target
        print(f"installing {NAME} (once)", file=sys.stderr, flush=True)
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-cache-dir"]
        options = ["--no-deps", "--no-compile", "--no-build-isolation", "--require-hashes", "--target", str(partial)]
        command = [*pip, *options, "--requirement", str(LOCK)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode != 0 or not partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
            raise LocalStackError(f"{NAME} could not be installed:\n{(answer.stdout + answer.stderr)[-2_000:]}")
        partial.rename(target)
    return target
